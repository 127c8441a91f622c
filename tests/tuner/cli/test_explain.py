"""tuner explain: every error that is raised on purpose points to it, and it tells cause and remedy."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from tests.tuner.replicated import answer
from trainables.errors import MetricError, TrainablesError
from trainables.user_frames import last_said
from tuner.cli import main
from tuner.cli.explain import cause, classes, remedies
from tuner.error import Interrupted, SettingError, TrialTimeoutError, TuneError

SAY_ALL = (TuneError, TrainablesError, Interrupted)
"""The roots, and how a run that was stopped ends: its message says how to continue."""


@pytest.mark.parametrize("name", classes())
def test_each_error_points_to_what_is_told_of_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = classes()[name]
    error = pickle.loads(pickle.dumps(kind("it is so")))
    lines = "".join(traceback.format_exception(error)).splitlines()
    pointer = f"what helps: tuner explain {name}"
    assert str(error) == "it is so" and lines.count(pointer) == (kind not in SAY_ALL)
    if kind not in SAY_ALL:
        assert lines[-1] == pointer
    told = answer(capsys, "explain", name)
    assert told.startswith(f"{name}: {cause(kind)}\n\nWhat helps: ") and "](" not in told


def test_a_class_that_nothing_is_told_of_points_to_its_parent() -> None:
    class Late(TrialTimeoutError):
        pass

    assert Late("x").__notes__ == ["what helps: tuner explain TrialTimeoutError"]


def test_the_last_line_of_an_error_is_what_it_says() -> None:
    error = MetricError("loss is an object")
    error.add_note("and a note")
    told = "".join(traceback.format_exception(error))
    assert last_said(told) == "and a note"
    assert last_said("".join(traceback.format_exception(MetricError("first\nsecond")))) == "second"
    assert last_said("") == last_said(" \n") == ""


@pytest.mark.parametrize("said", ["resumeerror", "tuner.error.ResumeError", "ResumeError"])
def test_a_name_is_found_as_people_write_it(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(answer(capsys, "explain", said, "--json"))
    assert told["name"] == "ResumeError" and told["what_helps"] == remedies()["ResumeError"]
    assert told["module"] == "tuner.error" and told["kinds"] == ["TuneError"]


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert [line.partition(":")[0] for line in answer(capsys, "explain").splitlines()] == list(classes())
    rows = json.loads(answer(capsys, "explain", "--json"))
    assert [row["name"] for row in rows] == list(classes()) and all(row["cause"] for row in rows)


def test_a_name_that_there_is_not_is_said_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "ResumError"]) == 2
    assert "unknown error 'ResumError'; did you mean 'ResumeError'?" in capsys.readouterr().err


def test_the_command_line_points_there_too_but_not_for_what_is_not_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.endswith("\nwhat helps: tuner explain ExperimentNotFoundError\n")
    assert main(["best", str(tmp_path), "--mode", "min"]) != 0
    said = capsys.readouterr().err
    assert isinstance(SettingError(""), ValueError) and "tuner explain SettingError" not in said


def test_a_script_shows_it_and_the_trial_its_own(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import tuner as tune\n\n\ndef train(config):\n    tune.report({'loss': object()})\n\n\n"
        "tune.run(train, name='e', storage_path='results', verbose=0)\n"
    )
    ended = subprocess.run([sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True)
    assert ended.stderr.splitlines()[-1] == "what helps: tuner explain TrialsFailedError", ended.stderr
    (text,) = (tmp_path / "results" / "e").glob("*/error.txt")
    assert "\nwhat helps: tuner explain MetricError\n" in text.read_text("utf-8")
