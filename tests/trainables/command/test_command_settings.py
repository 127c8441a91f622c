"""What may be said of a command, and what a mistake in it gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainables.command.command import Command
from trainables.errors import InvalidSettingError

METRICS = {"jsonl": "{trial_dir}/log.jsonl"}
CHECKPOINTS = {"glob": "{trial_dir}/epoch-(?P<step>[0-9]+)", "complete": "renamed"}


@pytest.mark.parametrize(
    ("line", "given", "said"),
    [
        ("train --out {trial_dir}", {}, "nothing of the config reaches the command"),
        ("train {lr}", {"checkpoints": CHECKPOINTS}, "nothing tells the command to continue"),
        ("train {lr}", {"metrics": {"jsonl": "log.jsonl"}}, "trial_dir"),
        ("train {lr}", {"metrics": {"json": "{trial_dir}/x"}}, "did you mean 'jsonl'"),
        ("train {lr}", {"metrics": {"regex": "loss=([0-9]+)"}}, "named groups"),
        ("train {lr}", {"metrics": {"regex": "(?P<loss"}}, "no regular expression"),
        ("train {lr}", {"metrics": {"tensorboard": "{trial_dir}", "step": "x"}}, "step"),
        ("train {lr} {config_file}", {}, "needs config="),
        ("train {lr}", {"stop_grace_s": -1}, "stop_grace_s"),
        ("train {lr} [[{checkpoint}]]", {"checkpoints": {"glob": "{trial_dir}/x"}}, "complete"),
        ("train {lr} [[{checkpoint}]]", {"checkpoints": {**CHECKPOINTS, "complete": "quiet"}}, "renamed"),
        ("train {lr} [[{checkpoint}]]", {"checkpoints": {**CHECKPOINTS, "complete": {"quiet_s": 0}}}, "quiet_s"),
        (
            "train {lr} [[{checkpoint}]]",
            {"checkpoints": {**CHECKPOINTS, "glob": "{trial_dir}/checkpoint_*"}},
            "own files",
        ),
        ("train {lr} [[{checkpoint}]]", {"checkpoints": {**CHECKPOINTS, "glob": "{trial_dir}/*"}}, "own files"),
        ("train {lr} [[{checkpoint}]]", {"checkpoints": {**CHECKPOINTS, "glob": "{trial_dir}/../a"}}, "leads out of"),
        ("train {lr}", {"metrics": {"jsonl": "{trial_dir}/a/../../log.jsonl"}}, "leads out of"),
        ("", {}, "text or a list"),
    ],
)
def test_a_setting_that_is_not_accepted_is_named(line: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        Command(line, **{"metrics": METRICS, **given})


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("torchrun --nproc-per-node 2 src/train.py --lr {lr}", "train"),
        ("/usr/bin/fit {lr}", "fit"),
        (["bash", "a/go.sh", "{lr}"], "go"),
    ],
)
def test_it_is_called_as_its_script_or_program(command: Any, name: str) -> None:
    assert Command(command, metrics=METRICS).__name__ == name


def test_resume_is_a_part_at_the_end() -> None:
    command = Command("a {lr}", metrics=METRICS, checkpoints=CHECKPOINTS, resume=["--from", "{checkpoint}"])
    assert [part.optional for part in command.settings.parts] == [False, True]
    with pytest.raises(InvalidSettingError, match="resume"):
        Command("a {lr}", metrics=METRICS, checkpoints=CHECKPOINTS, resume="--from x")


def test_it_is_told_whether_it_guesses() -> None:
    quiet = {**CHECKPOINTS, "complete": {"quiet_s": 5}}
    command = Command("a {lr} [[{checkpoint}]]", metrics=METRICS, checkpoints=quiet)
    assert command.guesses
    with pytest.warns(UserWarning, match=r'quiet_s is a guess: {"marker": NAME} and "renamed" are certain'):
        command.check_run([], here=False)
    command.check_run([], here=False)  # once
    assert not Command("a {lr} [[{checkpoint}]]", metrics=METRICS, checkpoints=CHECKPOINTS).guesses


@pytest.mark.parametrize(
    ("line", "given", "said"),
    [
        ("nosuchprogram {lr}", {}, "'nosuchprogram' cannot be started: it is in no directory of PATH"),
        ("./none.sh {lr}", {}, "'./none.sh' cannot be started: there is no file .*none.sh"),
        ("./run.sh {lr}", {}, r"run.sh is not executable; make it so with chmod \+x"),
        ("true {lr}", {"cwd": "nowhere"}, "cwd=.*nowhere. is not accepted"),
        ("../run.sh {lr}", {"cwd": "below"}, "not executable"),
    ],
)
def test_a_program_that_cannot_be_started_is_known_before(
    tmp_path: Path, line: str, given: dict[str, Any], said: str
) -> None:
    (tmp_path / "run.sh").write_text("exit 0")
    (tmp_path / "below").mkdir()
    with pytest.raises(InvalidSettingError, match=said):
        Command(line, metrics=METRICS, **given).settings.check_program(tmp_path)


def test_what_is_known_in_a_trial_only_is_left_to_it(tmp_path: Path) -> None:
    for line, given in [("{program} x", {}), ("nosuch {x}", {"shell": True}), ("nosuch {x}", {"env": {"PATH": "/x"}})]:
        Command(line, metrics=METRICS, **given).settings.check_program(tmp_path)  # type: ignore[arg-type]
    Command("./x {y}", metrics=METRICS, cwd="{trial_dir}").settings.check_program(tmp_path)


def test_a_metric_that_no_line_can_have_is_known_before() -> None:
    settings = Command("a {lr}", metrics={"regex": ["(?P<loss>x)", "(?P<step>y)"]}).settings
    settings.check_metric("loss"), settings.check_metric("training_iteration")
    with pytest.raises(InvalidSettingError, match="metric='acc' never comes: the groups .* are loss, step"):
        settings.check_metric("acc")
    Command("a {lr}", metrics=METRICS).settings.check_metric("acc")
