"""Every scheduler of ours under the shipped suite, and how schedulers are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tuner as tune
import tuner.schedulers
from tuner.error import SettingError
from tuner.schedulers import (
    ASHAScheduler,
    AsyncHyperBandScheduler,
    Decision,
    FIFOScheduler,
    FreezeThawScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    ResourceChangingScheduler,
    TrialScheduler,
    as_scheduler,
    create_scheduler,
)
from tuner.schedulers.curve_stopping import CurveStopping
from tuner.testing import TrialStub, check_scheduler

OURS: dict[str, Callable[[], TrialScheduler]] = {
    "fifo": FIFOScheduler,
    "asha": lambda: ASHAScheduler(max_t=9),
    "asha, its own metric": lambda: ASHAScheduler(metric="score", mode="max", max_t=9),
    "asha, three brackets": lambda: ASHAScheduler(max_t=9, reduction_factor=2, brackets=3),
    "asha, late": lambda: ASHAScheduler(max_t=9, grace_period=3, reduction_factor=1.5),
    "asha, open end": lambda: ASHAScheduler(max_t=5, stop_last_trials=False),
    "asha, by time": lambda: ASHAScheduler(time_attr="time_total_s", max_t=16, reduction_factor=2),
    "asha, promotion": lambda: ASHAScheduler(max_t=9, reduction_factor=3, type="promotion"),
    "asha, promotion, brackets": lambda: ASHAScheduler(max_t=9, reduction_factor=2, brackets=2, type="promotion"),
    "asha, promotion, open end": lambda: ASHAScheduler(
        max_t=5, reduction_factor=2, stop_last_trials=False, type="promotion"
    ),
    "asha, several": lambda: ASHAScheduler(metric=["loss", "size"], mode=["min", "max"], max_t=9, reduction_factor=2),
    "asha, promotion, several": lambda: ASHAScheduler(
        metric=["loss", "size", "time"], mode=["min"] * 3, max_t=9, reduction_factor=2, type="promotion"
    ),
    "hyperband": lambda: HyperBandScheduler(max_t=9),
    "hyperband, halving": lambda: HyperBandScheduler(metric="score", mode="max", max_t=8, reduction_factor=2),
    "hyperband, open end": lambda: HyperBandScheduler(max_t=4, reduction_factor=2, stop_last_trials=False),
    "hyperband, by time": lambda: HyperBandScheduler(time_attr="time_total_s", max_t=16, reduction_factor=2),
    "hyperband for bohb": lambda: HyperBandForBOHB(max_t=9),
    "hyperband for bohb, small brackets": lambda: HyperBandForBOHB(max_t=4, reduction_factor=2),
    "freeze-thaw": lambda: FreezeThawScheduler(max_t=9),
    "freeze-thaw, few paused": lambda: FreezeThawScheduler(metric="score", mode="max", max_t=9, max_paused=2),
    "freeze-thaw, at once": lambda: FreezeThawScheduler(max_t=6, grace_period=1),
    "resources, over hyperband": lambda: ResourceChangingScheduler(HyperBandScheduler(max_t=9)),
    "resources, over promotion": lambda: ResourceChangingScheduler(
        ASHAScheduler(max_t=9, reduction_factor=3, type="promotion")
    ),
    "curves": lambda: CurveStopping({"x": tune.uniform(0, 1)}, max_t=9),
    "median": lambda: MedianStoppingRule(grace_period=3),
    "median, pausing": lambda: MedianStoppingRule("training_iteration", grace_period=2, hard_stop=False),
    "median, slices": lambda: MedianStoppingRule(grace_period=0, min_samples_required=5, min_time_slice=3),
}


@pytest.mark.parametrize("make", OURS.values(), ids=OURS)
def test_it_meets_its_obligations(make: Callable[[], TrialScheduler]) -> None:
    check_scheduler(make)


def test_the_exported_names() -> None:
    assert tuner.schedulers.__all__ == sorted(tuner.schedulers.__all__)
    assert set(tuner.schedulers.__all__) == {
        "ASHAScheduler",
        "AsyncHyperBandScheduler",
        "Decision",
        "FIFOScheduler",
        "FreezeThawScheduler",
        "HyperBandForBOHB",
        "HyperBandScheduler",
        "MedianStoppingRule",
        "OptunaPruner",
        "PB2",
        "PopulationBasedTraining",
        "PopulationBasedTrainingReplay",
        "Reason",
        "ReasonKind",
        "Reasoned",
        "ResourceChangingScheduler",
        "TrialScheduler",
        "TrialView",
        "as_scheduler",
        "create_scheduler",
    }
    assert ASHAScheduler is AsyncHyperBandScheduler
    assert TrialScheduler.STOP is Decision.STOP


@pytest.mark.parametrize("name", ["asha", "async_hyperband", "asynchyperband", "ASHA"])
def test_create_scheduler(name: str) -> None:
    made = create_scheduler(name, metric="loss", mode="min", max_t=7)
    assert isinstance(made, AsyncHyperBandScheduler)
    assert (made.metric, made.mode) == ("loss", "min")


def test_arguments_of_another_scheduler_are_passed_over() -> None:
    assert isinstance(create_scheduler("fifo", metric="loss", mode="min", max_t=7), FIFOScheduler)


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(SettingError, match="did you mean 'asha'"):
        create_scheduler("ahsa")
    with pytest.raises(SettingError, match="did you mean 'reduction_factor'"):
        create_scheduler("asha", reduction_facter=3)


def test_the_runs_metric_fills_in_what_is_not_set() -> None:
    scheduler = as_scheduler(ASHAScheduler(), metric="loss", mode="min")
    assert (scheduler.metric, scheduler.mode) == ("loss", "min")
    assert as_scheduler(ASHAScheduler(mode="min")).metric == "_metric"
    assert isinstance(as_scheduler(None, metric=["a", "b"], mode=["min", "max"]), FIFOScheduler)
    own = as_scheduler(ASHAScheduler(metric="a", mode="min"), metric=["a", "b"], mode=["min", "max"])
    assert own.metric == "a"
    several = as_scheduler(ASHAScheduler(), metric=("a", "b"), mode=("min", "max"))
    assert (several.metric, several.mode) == (["a", "b"], ["min", "max"])
    assert as_scheduler(ASHAScheduler(metric=["a", "b"], mode=["min"] * 2), metric=("a", "b")).metric == ["a", "b"]


@pytest.mark.parametrize(
    ("scheduler", "arguments", "message"),
    [
        (ASHAScheduler(), {}, "needs a metric"),
        (ASHAScheduler(metric="loss"), {}, "needs a mode"),
        (ASHAScheduler(metric="loss", mode="min"), {"metric": "acc", "mode": "min"}, "in one place"),
        (ASHAScheduler(metric="loss", mode="min"), {"metric": "loss", "mode": "max"}, "in one place"),
        (MedianStoppingRule(), {"metric": ["a", "b"], "mode": ["min"] * 2}, "one number.*ASHAScheduler takes all"),
        (ASHAScheduler(), {"metric": ["a", "b"], "mode": "min"}, "needs one mode each"),
        (ASHAScheduler(), {"metric": ["a", "b"], "mode": ["min"]}, "needs one mode each"),
        (ASHAScheduler(), {"metric": ["a", "a"], "mode": ["min"] * 2}, "each name once"),
        (ASHAScheduler(), {"metric": ["a", "b"], "mode": ["min", "lowest"]}, "mode='lowest'"),
        (ASHAScheduler, {}, "create an instance"),
        (3, {}, "accepted are a TrialScheduler"),
    ],
)
def test_what_does_not_fit_is_said_at_once(scheduler: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        as_scheduler(scheduler, **arguments)


def test_state_to_a_file_and_back(tmp_path: Any) -> None:
    scheduler, trial = ASHAScheduler(metric="loss", mode="min"), TrialStub("a")
    scheduler.on_trial_add(trial)
    scheduler.on_trial_result(trial, {"training_iteration": 1, "loss": 1.0})
    scheduler.save(tmp_path / "state")
    other = ASHAScheduler(metric="loss", mode="min")
    other.restore(tmp_path / "state")
    assert other.get_state() == scheduler.get_state()
