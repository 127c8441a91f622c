"""What trials print is nowhere on the screen of a run: one line says where it is."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.progress.printed import named


def quiet(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0})


def loud(config: dict[str, Any]) -> None:
    print("hello")
    tune.report({"loss": 1.0})


@pytest.mark.parametrize(("trainable", "verbose", "said"), [(loud, 2, 1), (quiet, 2, 0), (loud, 3, 0), (loud, 0, 0)])
def test_it_is_said_once_where_a_user_would_wonder(
    trainable: Any, verbose: int, said: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune.run(trainable, name="my_run", num_samples=3, storage_path=tmp_path, verbose=verbose)
    out = capsys.readouterr().out
    assert out.count(f"what trials print goes to files: tuner logs {tmp_path / 'my_run'} [TRIAL] [-f]\n") == said
    assert out.count("tuner logs") == said


def test_an_experiment_is_named_as_the_command_line_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_RESULT_DIR", str(tmp_path))
    assert (named(tmp_path / "mine"), named(tmp_path / "a b" / "mine")) == ("mine", shlex.quote(f"{tmp_path}/a b/mine"))
