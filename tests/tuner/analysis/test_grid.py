"""`ResultGrid`: one result per trial, their errors, and the best of them."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tuner.analysis.harness import run_trials
from trainables import tagged
from tuner.analysis import ExperimentAnalysis, ResultGrid
from tuner.analysis.grid import error_of
from tuner.error import MetricMissingError, SettingError, TrialError, TrialProcessDiedError, TrialTimeoutError
from tuner.experiment import events as ev
from tuner.experiment.blobs import Blobs


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"num_to_keep": None}, [1, 2, 3, 4]),
        ({"num_to_keep": 2}, [3, 4]),
        ({"num_to_keep": 2, "checkpoint_score_attribute": "loss", "checkpoint_score_order": "min"}, [4, 2]),
        ({"num_to_keep": 3, "checkpoint_score_attribute": "loss", "checkpoint_score_order": "max"}, [4, 1, 3]),
    ],
)
def test_best_checkpoints_are_exactly_the_best_n_worst_to_best(
    lab: Any, settings: dict[str, Any], wanted: list[int]
) -> None:
    trial = lab.trial()
    for value in (3.0, 1.0, 4.0, 2.0):
        lab.report(trial, loss=value)
        lab.save(trial)
    (result,) = ResultGrid(lab.analysis(**settings))

    assert [int(Path(made.path).name[-6:]) for made, _ in result.best_checkpoints] == wanted
    assert all(metrics["loss"] for _, metrics in result.best_checkpoints)
    assert Path(result.checkpoint.path).name == "checkpoint_000004"


def test_a_grid_is_a_sequence_of_results(lab: Any) -> None:
    run_trials(lab, [0.5], [0.4, 0.3], [0.9])
    grid = ResultGrid(lab.analysis())

    assert len(grid) == 3
    assert [result.metrics["loss"] for result in grid] == [0.5, 0.3, 0.9]
    assert grid[-1].metrics["loss"] == 0.9
    assert [result.metrics["loss"] for result in grid[:2]] == [0.5, 0.3]
    assert grid.num_terminated == 3
    assert grid.errors == []
    best = grid.get_best_result()
    assert (best.metrics["loss"], best.config, best.metrics["config"]) == (0.3, {"lr": 0.1}, {"lr": 0.1})
    assert list(best.metrics_dataframe["loss"]) == [0.4, 0.3]
    assert list(grid.get_dataframe()["loss"]) == [0.5, 0.3, 0.9]
    assert list(grid.get_dataframe("loss", "max")["loss"]) == [0.5, 0.4, 0.9]
    assert grid.experiment_path == str(lab.state.root)
    with pytest.raises(IndexError):
        grid[3]


def test_errors_carry_the_trials_own_traceback(lab: Any) -> None:
    lab.end(lab.trial(), ev.ErrorInfo("ValueError", "boom", "Traceback ...\nValueError: boom"))
    lab.end(lab.trial(), ev.ErrorInfo("TrialTimeoutError", "too long"))
    lab.end(lab.trial())
    grid = ResultGrid(lab.analysis())

    assert grid.num_errors == 2
    assert [type(error) for error in grid.errors] == [TrialError, TrialTimeoutError]
    assert grid.errors[0].traceback == "Traceback ...\nValueError: boom"
    assert grid[0].error is not None
    assert grid[2].error is None


def test_a_mistyped_metric_is_an_error_with_the_nearest_names(lab: Any) -> None:
    run_trials(lab, [0.5], [0.4])

    with pytest.raises(MetricMissingError, match="nearest first: loss"):
        ResultGrid(lab.analysis()).get_best_result("losss", "min")


def test_no_result_at_all_is_an_error_that_says_so(lab: Any) -> None:
    lab.end(lab.trial(), ev.ErrorInfo("ValueError", "boom"))
    lab.end(lab.trial(), ev.ErrorInfo("ValueError", "boom"))

    with pytest.raises(MetricMissingError, match="no trial has reported anything"):
        ResultGrid(lab.analysis()).get_best_result()


def test_the_result_of_a_single_trial_needs_no_metric(lab: Any) -> None:
    run_trials(lab, [0.5])
    assert ResultGrid(lab.analysis(None, None)).get_best_result().metrics["loss"] == 0.5
    run_trials(lab, [0.4])
    with pytest.raises(SettingError, match="No metric is provided"):
        ResultGrid(lab.analysis(None, None)).get_best_result()


def test_a_grid_is_readable(lab: Any) -> None:
    run_trials(lab, *([float(n)] for n in range(12)))
    text = repr(ResultGrid(lab.analysis()))

    assert text.startswith("ResultGrid<[")
    assert text.count("Result(") == 10
    assert "... and 2 more" in text
    assert "config" not in text


def test_t06_configs_come_back_with_their_types_and_are_opened_when_asked_for(lab: Any) -> None:
    blobs = Blobs(lab.state.root / "blobs")
    config = {"activation": Path.exists, "shape": (1, 2), "lr": 0.1}
    raw = msgspec.Raw(tagged.dumps(config, blobs=blobs))
    lab.state.apply(ev.TrialCreated("x_00000", 0, raw, raw, "", "train_x_00000", "train_x_00000"))
    grid = ResultGrid(lab.analysis())
    opened: list[str] = []
    original = Blobs.get
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blobs, "get", lambda self, digest: opened.append(digest) or original(self, digest))
        result = grid[0]
        repr(grid)
        grid.get_dataframe()
        assert not opened
        assert result.config == config
        assert opened


def test_results_can_be_pickled(lab: Any) -> None:
    trial = lab.trial(lr=0.1)
    lab.report(trial, loss=0.5)
    lab.save(trial)
    result = ResultGrid(lab.analysis())[0]
    assert result.metrics_dataframe is not None

    copied = pickle.loads(pickle.dumps(result))

    assert copied.metrics == result.metrics
    assert copied.config == {"lr": 0.1}
    assert copied.checkpoint == result.checkpoint
    assert copied.best_checkpoints[0][0] == result.checkpoint
    assert list(copied.metrics_dataframe["loss"]) == [0.5]


# --- the best result


@pytest.mark.parametrize(("scope", "best"), [("last", 1), ("all", 0), ("avg", 2), ("last-2-avg", 2)])
def test_the_best_result_is_that_of_the_trial_that_the_scope_says(lab: Any, scope: str, best: int) -> None:
    run_trials(lab, [0.1, 0.9, 0.9], [0.9, 0.9, 0.3], [0.4, 0.4, 0.4])
    result = ResultGrid(lab.analysis()).get_best_result(scope=scope)
    assert result.path == lab.state.trials[best].path


def test_the_best_of_infinities_may_be_left_out(lab: Any) -> None:
    run_trials(lab, [-math.inf], [0.4])
    grid = ResultGrid(lab.analysis())
    assert grid.get_best_result().metrics["loss"] == -math.inf
    assert grid.get_best_result(filter_nan_and_inf=True).metrics["loss"] == 0.4


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"scope": "best"}, SettingError, "last-5-avg"),
        ({"mode": "least"}, SettingError, "mode"),
        ({"metric": "acc"}, MetricMissingError, "No best trial found for the given metric: acc: no trial has reported"),
    ],
)
def test_what_cannot_be_best_is_said(lab: Any, arguments: dict[str, Any], error: Any, message: str) -> None:
    run_trials(lab, [0.5], [0.4])
    with pytest.raises(error, match=message):
        ResultGrid(lab.analysis()).get_best_result(**arguments)


def test_a_metric_without_a_mode_is_refused_also_for_a_single_trial(lab: Any) -> None:
    run_trials(lab, [0.5])
    with pytest.raises(SettingError, match="mode"):
        ResultGrid(lab.analysis(None, None)).get_best_result("loss")


# --- errors


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("TrialTimeoutError", TrialTimeoutError),
        ("TrialProcessDiedError", TrialProcessDiedError),
        ("ValueError", TrialError),
        ("SettingError", TrialError),
    ],
)
def test_an_error_is_of_the_kind_that_the_trial_failed_of(lab: Any, name: str, kind: type) -> None:
    trial = lab.trial()
    assert error_of(trial) is None
    lab.end(trial, ev.ErrorInfo(name, "boom", "Traceback"))
    error = error_of(trial)
    assert type(error) is kind and error is not None
    assert (str(error), error.traceback) == (f"{name}: boom", "Traceback")


def test_an_error_that_was_tried_again_is_none_of_the_results(lab: Any) -> None:
    trial = lab.trial()
    lab.facts.apply(ev.AttemptEnded(trial.trial_id, trial.attempt, "failed", ev.ErrorInfo("KeyError", "boom")))
    grid = ResultGrid(lab.analysis())
    assert trial.error is not None and error_of(trial) is None
    assert (grid.num_errors, grid.num_terminated, grid.errors) == (0, 0, [])


# --- the rest


def test_a_trial_without_results_has_its_config(lab: Any) -> None:
    trial = lab.trial(lr=0.1)
    (result,) = ResultGrid(lab.analysis())
    assert (result.metrics, result.config, result.checkpoint) == ({"config": {"lr": 0.1}}, {"lr": 0.1}, None)
    assert (result.path, result.error, result.best_checkpoints) == (trial.path, None, [])


def test_a_grid_of_a_path_is_that_of_its_analysis(lab: Any) -> None:
    run_trials(lab, [0.5, 0.4])
    given = lab.analysis()
    grid = ResultGrid(given)
    assert grid.experiment_path == given.experiment_path
    (trial,) = grid.study.trials
    assert trial.values == [0.4]
    assert grid.plot("curves").data[0]["y"] == (0.5, 0.4)
    assert repr(ResultGrid(ExperimentAnalysis(lab.state.root, trials=[], settings={}))) == "ResultGrid<[\n  \n]>"
