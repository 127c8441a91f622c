"""`Result`: read from a trial's directory, and its best checkpoint."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.analysis.harness import run_trials
from tests.tuner.lab import Lab
from trainables.result import Result
from trainables.store import publish, staging
from tuner.analysis import ResultGrid
from tuner.experiment.trial import Trial
from tuner.logger import JsonLoggerCallback


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A run without a loop, whose results are in files."""
    return Lab(tmp_path / "experiment", JsonLoggerCallback())


def published(lab: Any, trial: Trial) -> None:
    """A checkpoint on disk, by the store's own means."""
    staged = staging.new_directory(trial.directory, "x")
    (staged / "model.txt").write_text("weights")
    made = publish.prepare(staged, ref=lab.save(trial), metrics=trial.raw_result, created=0.0)
    publish.commit(made, trial.directory / made.ref.name)


def test_a_result_from_a_path_has_its_complete_checkpoints(lab: Any) -> None:
    trial = lab.trial(lr=0.1)
    for loss in (0.3, 0.1, 0.2):
        lab.report(trial, loss=loss)
        published(lab, trial)
    (trial.directory / "checkpoint_000003" / "model.txt").unlink()
    (trial.directory / "checkpoint_000009").mkdir()
    result = Result.from_path(trial.path)

    assert result.checkpoint is not None
    assert Path(result.checkpoint.path).name == "checkpoint_000002"
    assert [metrics["loss"] for _, metrics in result.best_checkpoints] == [0.3, 0.1]
    assert result.get_best_checkpoint("loss", "max").path.endswith("checkpoint_000001")


def test_a_result_is_read_from_a_trials_directory(lab: Any, tmp_path: Path) -> None:
    (trial,) = run_trials(lab, [0.5, 0.4])
    moved = tmp_path / "elsewhere" / "trial"
    shutil.copytree(trial.path, moved)

    for where in (moved, str(moved), moved.as_uri()):
        result = Result.from_path(where)
        assert result.metrics["loss"] == 0.4
        assert result.config == {"lr": 0.1}
        assert list(result.metrics_dataframe["loss"]) == [0.5, 0.4]
        assert result.error is None
        assert result.checkpoint is None
        assert result.path == str(moved)


def test_a_result_from_a_path_has_the_last_failure_unless_results_followed(lab: Any) -> None:
    (trial,) = run_trials(lab, [0.5], ended=False)
    file = trial.directory / "error.txt"
    file.write_text("Failure # 1 (occurred at x)\nKeyError: 1\n\nFailure # 2 (occurred at y)\nTB\nValueError: boom\n\n")
    error = Result.from_path(trial.path).error
    assert str(error) == "ValueError: boom"
    assert error is not None
    assert error.__notes__ == ["TB\nValueError: boom"]
    os.utime(file, ns=(0, 0))
    assert Result.from_path(trial.path).error is None


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        Result.from_path(tmp_path / "nothing")


@pytest.mark.parametrize(("metric", "mode", "best"), [("loss", "min", 2), ("loss", "max", 1), ("eval/auc", "max", 2)])
def test_a_result_knows_its_best_checkpoint_by_any_metric(lab: Any, metric: str, mode: str, best: int) -> None:
    trial = lab.trial()
    for loss, auc in ((3.0, 0.1), (1.0, 0.9), (math.nan, 0.5)):
        lab.report(trial, loss=loss, eval={"auc": auc})
        lab.save(trial)
    result = ResultGrid(lab.analysis())[0]

    assert result.get_best_checkpoint(metric, mode).path.endswith(f"{best:06d}")


def test_a_result_names_what_there_is_instead_of_a_metric(lab: Any) -> None:
    trial = lab.trial()
    lab.report(trial, loss=1.0)
    empty = ResultGrid(lab.analysis())[0]
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        empty.get_best_checkpoint("loss", "min")
    lab.save(trial)
    with pytest.raises(ValueError, match="nearest first: loss"):
        ResultGrid(lab.analysis())[0].get_best_checkpoint("lost", "min")
    with pytest.raises(ValueError, match="'min' and 'max'"):
        ResultGrid(lab.analysis())[0].get_best_checkpoint("loss", "lowest")
