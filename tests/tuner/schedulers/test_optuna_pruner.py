"""Optuna's pruners as schedulers, against Optuna itself."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from typing import Any

import cloudpickle
import optuna
import pytest
from optuna import pruners

from tuner.error import SettingError
from tuner.schedulers import Decision, OptunaPruner
from tuner.testing import TrialStub, check_scheduler

CONTINUE, STOP = Decision.CONTINUE, Decision.STOP

PRUNERS: dict[str, Callable[[], pruners.BasePruner]] = {
    "median": lambda: pruners.MedianPruner(n_startup_trials=1),
    "percentile": lambda: pruners.PercentilePruner(30.0, n_startup_trials=2),
    "successive halving": lambda: pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
    "successive halving, auto": pruners.SuccessiveHalvingPruner,
    "hyperband": lambda: pruners.HyperbandPruner(max_resource=9, reduction_factor=2),
    "hyperband, auto": pruners.HyperbandPruner,
    "patient": lambda: pruners.PatientPruner(pruners.MedianPruner(n_startup_trials=1), 1),
    "threshold": lambda: pruners.ThresholdPruner(upper=2.0),
    "wilcoxon": lambda: pruners.WilcoxonPruner(p_threshold=0.4),
    "nop": pruners.NopPruner,
}

# What these say of NaN and infinite values is Optuna's own.
quietly = pytest.mark.filterwarnings(
    "ignore:(Wilcoxon|Patient)Pruner is experimental",
    "ignore:.*contain infinity/NaNs",
    "ignore:All-NaN",
    "ignore:.*exist in the",
)


@quietly
@pytest.mark.parametrize(
    "name",
    # The bounds of a threshold have no mirror image.
    [name for name in PRUNERS if name != "threshold"],
)
def test_it_meets_its_obligations(name: str) -> None:
    check_scheduler(lambda: OptunaPruner(PRUNERS[name]()))


@quietly
@pytest.mark.parametrize("name", PRUNERS)
@pytest.mark.parametrize("mode", ["min", "max"])
def test_it_decides_as_the_pruner_does_in_a_study(name: str, mode: str) -> None:
    draw = random.Random(name)
    curves = [[draw.random() + trial / 20 + step / 10 for step in range(9)] for trial in range(20)]

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction={"min": "minimize", "max": "maximize"}[mode], pruner=PRUNERS[name](), study_name="tuner"
    )
    theirs = []
    for curve in curves:
        trial = study.ask()
        for step, value in enumerate(curve, start=1):
            trial.report(value, step)
            if trial.should_prune():
                theirs.append(step)
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            theirs.append(0)
            study.tell(trial, curve[-1])

    scheduler = OptunaPruner(PRUNERS[name](), metric="x", mode=mode)
    ours = []
    for number, curve in enumerate(curves):
        stub = TrialStub(f"t{number}")
        scheduler.on_trial_add(stub)
        stopped = 0
        result: dict[str, Any] = {}
        for step, value in enumerate(curve, start=1):
            result = {"training_iteration": step, "x": value}
            if scheduler.on_trial_result(stub, result) == STOP:
                stopped = step
                break
        scheduler.on_trial_complete(stub, result)
        ours.append(stopped)
        state = cloudpickle.loads(cloudpickle.dumps(scheduler.get_state()))
        scheduler = OptunaPruner(PRUNERS[name](), metric="x", mode=mode)
        scheduler.set_state(state)
    assert ours == theirs
    assert any(ours) is (name != "nop")


def test_the_medians_by_hand() -> None:
    scheduler = OptunaPruner(pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=0), metric="loss", mode="min")
    for name, losses in (("a", [5.0, 1.0]), ("b", [9.0, 4.0])):
        trial = TrialStub(name)
        scheduler.on_trial_add(trial)
        for step, loss in enumerate(losses, start=1):
            assert scheduler.on_trial_result(trial, {"training_iteration": step, "loss": loss}) == CONTINUE
        scheduler.on_trial_complete(trial, {})
    trial = TrialStub("c")
    scheduler.on_trial_add(trial)
    assert scheduler.on_trial_result(trial, {"training_iteration": 1, "loss": 7.0}) == CONTINUE  # the median of 5, 9
    assert scheduler.on_trial_result(trial, {"training_iteration": 2, "loss": 2.5}) == CONTINUE  # of 1, 4
    other = TrialStub("d")
    scheduler.on_trial_add(other)
    assert scheduler.on_trial_result(other, {"training_iteration": 1, "loss": 7.1}) == STOP
    assert scheduler.debug_string() == "Using OptunaPruner(MedianPruner): 1 of 4 trials pruned"


def test_a_trial_that_was_pruned_or_had_ended_may_be_continued() -> None:
    scheduler = OptunaPruner(pruners.ThresholdPruner(upper=5.0), metric="loss", mode="min")
    trial = TrialStub("a")
    scheduler.on_trial_add(trial)
    assert scheduler.on_trial_result(trial, {"training_iteration": 1, "loss": 6.0}) == STOP
    scheduler.on_trial_complete(trial, {"training_iteration": 1, "loss": 6.0})
    assert scheduler.on_trial_result(trial, {"training_iteration": 2, "loss": 4.0}) == CONTINUE
    scheduler.on_trial_complete(trial, {"training_iteration": 2, "loss": 4.0})
    assert scheduler.on_trial_result(trial, {"training_iteration": 3, "loss": 7.0}) == STOP
    assert scheduler.debug_string().endswith("1 of 1 trials pruned")


def test_a_last_result_that_nobody_asked_about_counts() -> None:
    scheduler = OptunaPruner(pruners.NopPruner(), metric="loss", mode="min")
    trial = TrialStub("a")
    scheduler.on_trial_add(trial)
    scheduler.on_trial_complete(trial, {"training_iteration": 4, "loss": 2.0})
    (frozen,) = scheduler.get_state()["trials"]
    assert (frozen.state.name, frozen.value, frozen.intermediate_values) == ("COMPLETE", 2.0, {4: 2.0})


def test_a_trial_that_ends_with_nan_has_failed_for_optuna() -> None:
    scheduler = OptunaPruner(pruners.NopPruner(), metric="loss", mode="min")
    trial = TrialStub("a")
    scheduler.on_trial_add(trial)
    scheduler.on_trial_result(trial, {"training_iteration": 1, "loss": math.nan})
    scheduler.on_trial_complete(trial, {})
    assert scheduler.get_state()["trials"][0].state.name == "FAIL"


def test_other_clocks_are_rounded_down() -> None:
    scheduler = OptunaPruner(pruners.NopPruner(), "loss", "min", "time_total_s")
    trial = TrialStub("a")
    scheduler.on_trial_add(trial)
    for time, loss in ((0.4, 3.0), (0.9, 2.0), (1.2, 1.0), (-1.0, 9.0)):
        assert scheduler.on_trial_result(trial, {"time_total_s": time, "loss": loss}) == CONTINUE
    assert scheduler.get_state()["trials"][0].intermediate_values == {0: 2.0, 1: 1.0}


def test_one_pruner_may_serve_two_runs() -> None:
    pruner = pruners.HyperbandPruner()
    scheduler = OptunaPruner(pruner, metric="x", mode="max")
    for name in "ab":
        trial = TrialStub(name)
        scheduler.on_trial_add(trial)
        scheduler.on_trial_result(trial, {"training_iteration": 9, "x": 1.0})
        scheduler.on_trial_complete(trial, {})
    assert pruner._n_brackets is None


def test_it_says_nothing_about_its_study(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    optuna.logging.set_verbosity(optuna.logging.INFO)
    with caplog.at_level(logging.INFO):
        scheduler = OptunaPruner(pruners.NopPruner(), metric="x", mode="max")
        scheduler.on_trial_add(TrialStub("a"))
    assert caplog.records == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("pruner", "message"),
    [("median", "pruner='median' is not accepted"), (pruners.MedianPruner, "create an instance of it"), (None, "None")],
)
def test_what_is_no_pruner_is_said_at_once(pruner: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        OptunaPruner(pruner)
