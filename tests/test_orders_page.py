"""What docs/orders.md shows is done as it stands there, to the run that it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

import tuner as tune
from tests.listings import ROOT, environment
from tuner.cli import main
from tuner.orders.order import WORDS, parse

pytestmark = pytest.mark.docs
PAGE = (ROOT / "docs" / "orders.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
SCRIPTS = {text.partition("\n")[0].removeprefix("# "): text for language, text in BLOCKS if language == "python"}
COMMANDS = [
    shlex.split(line, comments=True) for language, text in BLOCKS if language == "sh" for line in text.splitlines()
]
ORDERS = [line for language, text in BLOCKS if language == "json" for line in text.splitlines()]


def test_every_word_has_a_command_a_row_and_its_json() -> None:
    assert {words[1] for words in COMMANDS} - {"show", "log"} == set(WORDS)
    table = " ".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    assert [word for word in WORDS if f"`{word}" not in table and f"{word}`" not in table] == []
    given = [parse(line.encode()) for line in ORDERS]
    assert {type(order) for order in given} == set(WORDS.values())
    for line, order in zip(ORDERS, given, strict=True):
        assert msgspec.json.decode(line).items() <= msgspec.json.decode(msgspec.json.encode(order)).items()


def saved(root: Path, trial: int, iteration: int) -> bool:
    try:
        kept = tune.ExperimentAnalysis(root).trials[trial].checkpoints
    except (OSError, IndexError):  # it has not begun yet
        return False
    return any(record.iteration == iteration for record in kept)


def test_the_commands_and_the_script_do_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = environment(tmp_path / "home")
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "TMPDIR", "PATH"):
        monkeypatch.setenv(name, seen[name])
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text)
    root = tmp_path / "home" / "tuner_results" / "live"
    with open(tmp_path / "printed", "w") as printed:
        run = subprocess.Popen([sys.executable, "train.py"], env=seen, stdout=printed, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 60
        while not all(saved(root, trial, 10) for trial in (1, 2)):
            assert run.poll() is None and time.monotonic() < until, (tmp_path / "printed").read_text()
            time.sleep(0.1)
        for words in COMMANDS:
            wait = [] if words[1] in ("show", "log") else ["--wait", "60"]
            assert main([*words[1:], *wait]) == 0, (words, capsys.readouterr())
        steered = subprocess.run([sys.executable, "steer.py"], env=seen, capture_output=True, text=True, timeout=100)
        assert steered.returncode == 0, steered.stderr
        assert steered.stdout.startswith("done done") and "fork" in steered.stdout and "'good'" in steered.stdout
        run.wait(60)
    finally:
        run.kill()
        run.wait()
    trials = tune.ExperimentAnalysis(root).trials
    assert len(trials) == 6 and all(trial.is_finished() for trial in trials)
    assert trials[5].evaluated_params["lr"] == 0.001 and trials[5].clones[0].donor.iteration == 10
    assert [note.text for note in trials[2].notes] == ["looks flat"]
