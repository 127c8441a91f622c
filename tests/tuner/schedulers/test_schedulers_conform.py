"""Every scheduler of ours under the shipped suite, the suite under faulty ones, and how schedulers are named."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
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
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    ResourceChangingScheduler,
    TrialScheduler,
    TrialView,
    as_scheduler,
    create_scheduler,
)
from tuner.schedulers.base import Directive, Exploit, Reallocate, T, Verdict
from tuner.testing import TrialStub, check_scheduler
from tuner.testing.scripted_life import ScriptedLife

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
    "hyperband": lambda: HyperBandScheduler(max_t=9),
    "hyperband, halving": lambda: HyperBandScheduler(metric="score", mode="max", max_t=8, reduction_factor=2),
    "hyperband, open end": lambda: HyperBandScheduler(max_t=4, reduction_factor=2, stop_last_trials=False),
    "hyperband, by time": lambda: HyperBandScheduler(time_attr="time_total_s", max_t=16, reduction_factor=2),
    "hyperband for bohb": lambda: HyperBandForBOHB(max_t=9),
    "hyperband for bohb, small brackets": lambda: HyperBandForBOHB(max_t=4, reduction_factor=2),
    "resources, over hyperband": lambda: ResourceChangingScheduler(HyperBandScheduler(max_t=9)),
    "resources, over promotion": lambda: ResourceChangingScheduler(
        ASHAScheduler(max_t=9, reduction_factor=3, type="promotion")
    ),
    "median": lambda: MedianStoppingRule(grace_period=3),
    "median, pausing": lambda: MedianStoppingRule("training_iteration", grace_period=2, hard_stop=False),
    "median, slices": lambda: MedianStoppingRule(grace_period=0, min_samples_required=5, min_time_slice=3),
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


class Cloning(Counting):
    """Does everything that a scheduler may: asks for saves, pauses, clones, moves to other resources, orders."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: dict[str, int] = {}
        self.ordered: list[Directive] = []

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict:
        self.count += 1
        donor = next(iter(self.saved), None)
        if donor is None:
            return Decision.SAVE
        if self.count % 7 == 0 and donor != trial.trial_id:
            return Exploit(donor, {**trial.config, "lr": trial.config["lr"] / 2})
        if self.count % 11 == 0:
            self.ordered = [Directive("t03", Exploit(donor, {"lr": 1.0})), Directive("t06", Decision.STOP)]
        return (Decision.CONTINUE, Decision.PAUSE, Reallocate({"cpu": 2.0}))[self.count % 3]

    def on_checkpoint(self, trial: TrialView, iteration: int) -> None:
        self.saved[trial.trial_id] = iteration

    def orders(self) -> list[Directive]:
        ordered, self.ordered = self.ordered, []
        return [] if self.count < 40 else ordered


class Stalling(Counting):
    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        return next((trial for trial in pending if trial.status == "PENDING"), None)

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        return Decision.PAUSE


class Choosy(Counting):
    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        self.count += 1
        return pending[self.count % len(pending)] if pending else None


class Hoarding(Counting):
    def __init__(self) -> None:
        super().__init__()
        self.pending: Sequence[Any] = ()

    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        assert len(self.pending) < 99
        self.pending = pending
        return pending[0] if pending else None


class Talking(Counting):
    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        return "STOP"  # type: ignore[return-value]


class Ordering(Counting):
    what: Any = Decision.STOP
    whom = "t99"

    def orders(self) -> list[Directive]:
        return [Directive(self.whom, self.what)] if self.count == 3 else []


class Resuming(Ordering):
    what = Decision.CONTINUE
    whom = "t00"


class Confused(Counting):
    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict:
        return Exploit("nobody", {})


class Restarting(Counting):
    """Takes an attempt for a trial."""

    def on_trial_start(self, trial: TrialView) -> None:
        self.count += 1

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        return Decision.STOP if self.count >= 5 else Decision.CONTINUE


class Directed(Counting):
    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        value = result.get("loss", 0.0)
        return Decision.STOP if isinstance(value, float) and value > 4 else Decision.CONTINUE


def test_a_scheduler_of_ones_own_needs_one_method() -> None:
    check_scheduler(Counting)


def test_a_scheduler_of_ones_own_may_do_everything() -> None:
    check_scheduler(Cloning)
    decisions = ScriptedLife(Cloning).play().decisions
    verdicts = [decision[2] for decision in decisions if len(decision) == 3]
    kinds = {type(verdict) if isinstance(verdict, (Exploit, Reallocate)) else verdict for verdict in verdicts}
    assert kinds == {Decision.CONTINUE, Decision.SAVE, Decision.PAUSE, Exploit, Reallocate}
    assert {decision[1].trial_id for decision in decisions if decision[0] == "order"} == {"t03", "t06"}


@pytest.mark.parametrize(
    ("make", "obligation"),
    [
        (Forgetful, "goes on from its state"),
        (Keeping, "keeps trial_ids"),
        (Writing, "are not changed"),
        (Directed, "nested|min of x"),
        (Stalling, "nobody waits for ever"),
        (Choosy, "chooses the same"),
        (Hoarding, "and not kept"),
        (Talking, "not 'STOP'"),
        (Ordering, "a trial that there is, not 't99'"),
        (Resuming, "an order is STOP or an Exploit"),
        (Confused, "a donor is a trial that there is"),
        (Restarting, "begins again"),
    ],
)
def test_the_suite_finds_faults(make: Callable[[], TrialScheduler], obligation: str) -> None:
    with pytest.raises(AssertionError, match=obligation):
        check_scheduler(make)


def test_every_decision_says_what_happens_to_the_checkpoint() -> None:
    source = Path(inspect.getfile(Decision)).read_text("utf-8")
    body = source.split("class Decision(Enum)")[1].split("@dataclass")[0]
    for member in Decision:
        described = body.split(f"{member.name} = ")[1].split('"""')[1]
        assert "checkpoint" in described or "saved" in described


def test_the_exported_names() -> None:
    assert tuner.schedulers.__all__ == sorted(tuner.schedulers.__all__)
    assert set(tuner.schedulers.__all__) == {
        "ASHAScheduler",
        "AsyncHyperBandScheduler",
        "Decision",
        "FIFOScheduler",
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
