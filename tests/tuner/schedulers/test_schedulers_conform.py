"""Every scheduler of ours under the shipped suite, the suite under faulty ones, and how schedulers are named."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tuner.schedulers
from tuner.error import SettingError
from tuner.schedulers import (
    ASHAScheduler,
    AsyncHyperBandScheduler,
    Decision,
    FIFOScheduler,
    TrialScheduler,
    TrialView,
    as_scheduler,
    create_scheduler,
)
from tuner.testing import TrialStub, check_scheduler

OURS: dict[str, Callable[[], TrialScheduler]] = {
    "fifo": FIFOScheduler,
    "asha": lambda: ASHAScheduler(max_t=9),
    "asha, its own metric": lambda: ASHAScheduler(metric="score", mode="max", max_t=9),
    "asha, three brackets": lambda: ASHAScheduler(max_t=9, reduction_factor=2, brackets=3),
    "asha, late": lambda: ASHAScheduler(max_t=9, grace_period=3, reduction_factor=1.5),
    "asha, open end": lambda: ASHAScheduler(max_t=5, stop_last_trials=False),
    "asha, by time": lambda: ASHAScheduler(time_attr="time_total_s", max_t=16, reduction_factor=2),
}


@pytest.mark.parametrize("make", OURS.values(), ids=OURS)
def test_it_meets_its_obligations(make: Callable[[], TrialScheduler]) -> None:
    check_scheduler(make)


class Counting(TrialScheduler):
    """Stops after its fifth result, whoever reports it."""

    def __init__(self) -> None:
        super().__init__(metric="loss", mode="min")
        self.count = 0

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        self.count += 1
        return Decision.STOP if self.count == 5 else Decision.CONTINUE


class Forgetful(Counting):
    def get_state(self) -> dict[str, Any]:
        return {}


class Keeping(Counting):
    def on_trial_add(self, trial: TrialView) -> None:
        self.trial = trial


class Writing(Counting):
    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        result["seen"] = True
        return Decision.CONTINUE


class Directed(Counting):
    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        value = result.get("loss", 0.0)
        return Decision.STOP if isinstance(value, float) and value > 4 else Decision.CONTINUE


def test_a_scheduler_of_ones_own_needs_one_method() -> None:
    check_scheduler(Counting)


@pytest.mark.parametrize(
    ("make", "obligation"),
    [
        (Forgetful, "goes on from its state"),
        (Keeping, "keeps trial_ids"),
        (Writing, "are not changed"),
        (Directed, "nested|min of x"),
    ],
)
def test_the_suite_finds_faults(make: Callable[[], TrialScheduler], obligation: str) -> None:
    with pytest.raises(AssertionError, match=obligation):
        check_scheduler(make)


def test_every_decision_says_what_happens_to_the_checkpoint() -> None:
    source = Path(inspect.getfile(Decision)).read_text("utf-8")
    body = source.split("class Decision(Enum)")[1].split("class ")[0]
    for member in Decision:
        described = body.split(f"{member.name} = ")[1].split('"""')[1]
        assert "checkpoint" in described


def test_the_exported_names() -> None:
    assert tuner.schedulers.__all__ == sorted(tuner.schedulers.__all__)
    assert set(tuner.schedulers.__all__) == {
        "ASHAScheduler",
        "AsyncHyperBandScheduler",
        "Decision",
        "FIFOScheduler",
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


@pytest.mark.parametrize(
    ("scheduler", "arguments", "message"),
    [
        (ASHAScheduler(), {}, "needs a metric"),
        (ASHAScheduler(metric="loss"), {}, "needs a mode"),
        (ASHAScheduler(metric="loss", mode="min"), {"metric": "acc", "mode": "min"}, "in one place"),
        (ASHAScheduler(metric="loss", mode="min"), {"metric": "loss", "mode": "max"}, "in one place"),
        (ASHAScheduler(), {"metric": ["a", "b"], "mode": ["min", "min"]}, "one number"),
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
