"""The verbs, from an empty directory to a verified experiment, as a person types them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tuner as tune
from tests.tuner.replicated import answer
from tuner.cli import main


def test_run_prints_nothing_when_told_so(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "run", str(config)) == ""


def test_run_says_where_it_lies_and_what_was_best(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(capsys, "run", str(config), "--set", "verbose=1")

    assert f"experiment       {config.parent / 'results' / 'small'}" in said
    assert "best config" in said
    checkpoint = said.split("best checkpoint")[1].splitlines()[0].strip()
    assert (Path(checkpoint) / ".manifest.json").exists()


def test_an_unknown_experiment_names_the_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path / "nothing")]) == 2
    assert str(tmp_path / "nothing") in capsys.readouterr().err


def test_a_name_is_looked_for_under_the_default_storage(
    experiment: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_RESULT_DIR", str(experiment.parent))

    assert "returned" in answer(capsys, "show", "small")


def test_reading_verbs_change_nothing(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in experiment.rglob("*")}

    before = state()
    for verb in (["ls", str(experiment.parent)], ["show", str(experiment)], ["show", str(experiment), "0"]):
        answer(capsys, *verb)
    answer(capsys, "verify", str(experiment))

    assert state() == before


def test_resume_runs_exactly_the_missing_trials_from_the_directory_alone(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = experiment.parent.parent / "elsewhere" / "renamed"
    moved.parent.mkdir()
    experiment.rename(moved)

    assert main(["resume", str(moved), "--set", "num_samples=5"]) == 0

    trials = json.loads(answer(capsys, "show", str(moved), "--json"))["trials"]
    assert [trial["status"] for trial in trials] == ["TERMINATED"] * 5
    assert not experiment.exists()


def test_failed_trials_exit_with_1_and_resume_continues_them_when_asked(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(config), "--set", "param_space.fails=true"]) == 1
    experiment = config.parent / "results" / "small"
    assert [t["status"] for t in json.loads(answer(capsys, "show", str(experiment), "--json"))["trials"]] == [
        "ERROR"
    ] * 3
    assert "as configured" in answer(capsys, "show", str(experiment), "0")

    train = config.parent / "train.py"
    train.write_text(train.read_text().replace("raise RuntimeError", "print"))
    assert main(["resume", str(experiment), "--errored"]) == 0

    rows = json.loads(answer(capsys, "show", str(experiment), "--json"))["trials"]
    assert [(row["status"], row["iteration"]) for row in rows] == [("TERMINATED", 4)] * 3


def test_resume_of_a_scripts_experiment_needs_its_trainable(
    config: Path, experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (experiment / "config.yaml").unlink()

    assert main(["resume", str(experiment)]) == 2
    assert "--trainable" in capsys.readouterr().err
    assert main(["resume", str(experiment), "--trainable", f"{config.parent / 'train.py'}:train"]) == 0


def test_a_config_mistake_exits_with_2_and_touches_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(config), "--set", "num_sample=3"]) == 2
    assert "did you mean 'num_samples'?" in capsys.readouterr().err
    assert not (config.parent / "results").exists()


def test_without_a_verb_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "verify" in capsys.readouterr().out


# --- mistakes, odd values, narrow terminals --------------------------------------------------------------------------


def test_set_of_an_unknown_key_names_the_nearest_and_all_that_are(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(config), "--set", "num_sample=5"]) == 2
    said = capsys.readouterr().err
    assert "--set 'num_sample=5': unknown key 'num_sample'; did you mean 'num_samples'? Accepted: " in said
    assert "trial_timeout_s" in said and "directory_" not in said
    assert main(["run", str(config), "--set", "a.b=5"]) == 2
    assert "unknown key 'a'" in capsys.readouterr().err
    assert not (config.parent / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "usage", "hint"),
    [
        (("ls", "--jsn"), "usage: tuner ls", "unrecognized arguments: --jsn; did you mean --json?"),
        (("show", "e", "--metrics=loss"), "usage: tuner show", "--metrics=loss; did you mean --metric?"),
        (("verify", "e", "f"), "usage: tuner verify", "unrecognized arguments: f\n"),
        (("--versio",), "usage: tuner", ""),
    ],
)
def test_an_unknown_option_is_an_error_of_its_verb_with_the_nearest(
    arguments: tuple[str, ...], usage: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments == ("--versio",):
        assert main(arguments) == 0  # an abbreviation that only one option has
        return
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert usage in said and hint in said


ODD = """
import tuner as tune

def odd(config):
    tune.report({"loss": 1.0, "caf\\u00e9": "half \\ud800 \\u2603 \\x1b[31m\\nred"})

tune.run(odd, name="odd", storage_path=STORAGE, executor="inline", verbose=0, metric="caf\\u00e9", mode="max",
         config={"half": "\\ud800", "snow": tune.grid_search(["\\u2603 \\x1b[2J"])})
"""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("verb", [("show", "odd"), ("show", "odd", "0"), ("show", "odd", "0", "--json"), ("ls",)])
def test_what_a_terminal_cannot_show_is_escaped(tmp_path: Path, encoding: str, verb: tuple[str, ...]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "TUNE_RESULT_DIR": str(tmp_path)}
    exec(ODD.replace("STORAGE", repr(str(tmp_path))), {})
    shown = subprocess.run([sys.executable, "-m", "tuner.cli", *verb], env=environment, capture_output=True)
    assert (shown.returncode, shown.stderr) == (0, b"")
    text = shown.stdout.decode(encoding)
    if verb[0] == "show":
        assert ("\\ud800" in text or "--json" in verb) and "\x1b" not in text
    if verb == ("show", "odd"):
        assert text.count("returned") == 1 and len(text.splitlines()) == 7  # two say that there is a warning
        assert ("☃" if encoding == "utf-8" else "\\u2603") in text


def in_a_terminal(columns: int, *arguments: str) -> list[str]:
    """What a person sees in a terminal of so many columns."""
    import fcntl
    import pty
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    shown = subprocess.Popen([sys.executable, "-m", "tuner.cli", *arguments], stdout=follower, stdin=follower)
    os.close(follower)
    text = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # EIO: nobody has the other end any more
            break
        if not part:
            break
        text += part
    os.close(leader)
    assert shown.wait() == 0
    return text.decode().replace("\r\n", "\n").splitlines()


def test_in_a_narrow_terminal_columns_are_cut_and_the_others_named(experiment: Path) -> None:
    listed = in_a_terminal(40, "ls", str(experiment.parent))
    assert all(len(line) <= 40 for line in listed[:2])
    assert listed[0].split()[:3] == ["name", "state", "best"]
    assert re.search(r"finished  loss 0\.\d+ ", listed[1]) and "started" in listed[-1], "whole, or not at all"
    assert "small" in listed[1] and "finished" in listed[1]
    assert "(no room for:" in listed[-1] and "checkpoints" in listed[-1]

    shown = in_a_terminal(40, "show", str(experiment))
    rows = [line.split() for line in shown if "returned" in line]
    assert len(rows) == 3 and all(len(line) <= 40 for line in shown[-4:])
    losses = [float(row[1]) for row in rows]
    assert losses == sorted(losses), "the best first, by a metric that is not cut"
    assert shown[-4].split() == ["#", "loss", "iter", "time", "state", "+1"]
    wide = in_a_terminal(300, "show", str(experiment))
    assert wide[-4].split()[5:] == ["x", "checkpoints", "id"] and sum("returned" in line for line in wide) == 3


def test_a_pipe_gets_whole_columns(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(capsys, "ls", str(experiment.parent))
    assert "no room" not in said and "checkpoints" in said


def damage(experiment: Path) -> str:
    """Flip a byte of the third line of the journal; returns what is to be said of it."""
    (segment,) = (experiment / "journal").glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[-3] = lines[-3].replace(b'"c":"', b'"c":"0', 1)
    segment.write_bytes(b"".join(lines))
    return f"{segment.name} is damaged before its end: facts {len(lines) - 2} to {len(lines)} are lost (3)"


def test_ls_and_show_say_on_stderr_that_a_journal_is_damaged(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = damage(experiment)
    for verb, name in ((["ls", str(experiment.parent)], "small: "), (["show", str(experiment)], "")):
        capsys.readouterr()
        assert main(verb) == 0
        said = capsys.readouterr()
        assert said.err == f"tuner {verb[0]}: {name}{line}\n"
        assert "small" in said.out
        assert main([*verb, "--json"]) == 0
        json.loads(capsys.readouterr().out)


def test_results_read_from_a_damaged_journal_come_with_a_warning(
    experiment: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = damage(experiment)
    tune.ExperimentAnalysis(experiment)
    assert [record.getMessage() for record in caplog.records] == [f"{experiment / 'journal'}/{line}"]
