"""Stoppers: N means N, a direction can be said, and each goes on from its state."""

from __future__ import annotations

import datetime
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import tuner as tune
from trainables.errors import InvalidSettingError
from tuner.clock import VirtualClock
from tuner.error import MetricMissingError, SettingError
from tuner.stopper import (
    CombinedStopper,
    CostStopper,
    DictStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    MaximumResultsStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
    TrialTimeoutStopper,
    as_stopper,
    at_least,
    at_most,
)
from tuner.stopper.plateau import deviation


def results_until_stop(stopper: Stopper, limit: int = 100, **metrics: Callable[[int], Any]) -> int:
    """How many results of one trial there are, the last one included."""
    for iteration in range(1, limit + 1):
        result = {"training_iteration": iteration, **{name: value(iteration) for name, value in metrics.items()}}
        if stopper("trial", result):
            return iteration
    return limit + 1


@pytest.mark.parametrize("count", [1, 2, 10])
@pytest.mark.parametrize("make", [lambda n: {"training_iteration": n}, MaximumIterationStopper])
def test_d26_n_iterations_are_exactly_n_results(make: Callable[[int], Any], count: int) -> None:
    stopper = as_stopper(make(count))
    assert stopper is not None
    assert results_until_stop(stopper) == count


def test_d26_trials_are_counted_apart() -> None:
    stopper = MaximumIterationStopper(2)
    assert [bool(stopper(name, {})) for name in "abab"] == [False, False, True, True]


def test_d25_a_direction_can_be_said() -> None:
    plain, directed = DictStopper({"loss": 0.1}), DictStopper({"loss": at_most(0.1)})
    falling = [0.3, 0.2, 0.1, 0.05]
    assert [bool(plain("t", {"loss": loss})) for loss in falling] == [True, True, True, False]
    assert [bool(directed("t", {"loss": loss})) for loss in falling] == [False, False, True, True]


def test_d25_at_least_is_what_a_plain_number_means() -> None:
    plain, directed = DictStopper({"acc": 0.5}), DictStopper({"acc": at_least(0.5)})
    story = [0.4, 0.5, math.nan, math.inf, None, -1]
    assert [directed("t", {"acc": acc}) for acc in story] == [plain("t", {"acc": acc}) for acc in story]
    assert [bool(directed("t", {"acc": acc})) for acc in story] == [False, True, False, True, False, False]


@pytest.mark.parametrize("result", [{"eval": {"acc": 0.9}}, {"eval/acc": 0.9}, {"eval.acc": 0.9}])
def test_f12_a_nested_metric_is_found_however_it_is_spelled(result: dict[str, Any]) -> None:
    assert DictStopper({"eval/acc": 0.9})("t", result)
    assert TrialPlateauStopper("eval/acc", num_results=1, grace_period=1)("t", result)
    plateau = ExperimentPlateauStopper("eval/acc", top=2)
    assert [bool(plateau("t", result)), bool(plateau("t", result))] == [False, True]


@pytest.mark.parametrize(
    ("criteria", "result", "stops"),
    [
        ({"done": True}, {"done": True}, True),
        ({"done": True}, {"done": False}, False),
        ({"done": True}, {}, False),
        ({"acc": 1}, {"acc": math.nan}, False),
        ({"acc": 1}, {"acc": None}, False),
        ({"acc": 1}, {"acc": "2"}, False),
        ({"acc": 1}, {"acc": math.inf}, True),
        ({"acc": 1, "n": 5}, {"acc": 0, "n": 5}, True),
        ({"acc": at_most(1)}, {"acc": -math.inf}, True),
        ({"acc": at_most(1)}, {"acc": math.nan}, False),
    ],
)
def test_what_meets_a_criterion(criteria: dict[str, Any], result: dict[str, Any], stops: bool) -> None:
    assert bool(DictStopper(criteria)("t", result)) is stops


def test_a_criterion_that_the_first_result_lacks_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    stopper = DictStopper({"acuracy": 1.0})
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not stopper("t", {"accuracy": 2.0, "loss": 1.0})
    (record,) = caplog.records
    assert "'acuracy'" in record.getMessage() and "accuracy" in record.getMessage().split("there are:")[1]


def without(stopper: Stopper, count: int, trial: str = "t") -> None:
    for _ in range(count):
        assert not stopper(trial, {"accuracy": 2.0, "loss": 1.0})


def test_a_lone_dict_whose_metrics_never_come_is_an_error_after_a_hundred_results() -> None:
    stopper = as_stopper({"acuracy": 1.0, "epocs": 3})
    assert stopper is not None
    without(stopper, 100)
    without(stopper, 99, "other")
    with pytest.raises(MetricMissingError, match=r"101 results of t .*'acuracy' \(there are: accuracy.*'epocs'.*AUTO"):
        without(stopper, 1)


def test_a_metric_that_came_once_is_waited_for() -> None:
    stopper = as_stopper({"acuracy": 1.0, "epocs": 3})
    assert stopper is not None
    without(stopper, 99)
    assert not stopper("other", {"epocs": 1})
    without(stopper, 500)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DictStopper({"acuracy": 1.0}),
        lambda: as_stopper({"acuracy": 1.0}, strict=False),
        lambda: as_stopper([{"acuracy": 1.0}, MaximumIterationStopper(1000)]),
        lambda: as_stopper({"acuracy": 1.0, "done": True}),
    ],
    ids=["not strict", "checking disabled", "others may end it", "done may come"],
)
def test_where_something_else_may_end_the_trials_it_stays_a_warning(make: Callable[[], Stopper]) -> None:
    without(make(), 300)


def test_the_count_of_results_without_goes_on_after_a_resume_but_not_for_other_criteria() -> None:
    first = as_stopper({"acuracy": 1.0})
    assert first is not None
    without(first, 100)
    state = cloudpickle.loads(cloudpickle.dumps(first.get_state()))
    mended, same = as_stopper({"accuracy": 9.0}), as_stopper({"acuracy": 1.0})
    assert mended is not None and same is not None
    mended.set_state(state)
    without(mended, 300)
    same.set_state(state)
    with pytest.raises(MetricMissingError):
        without(same, 1)


def test_a_plateau_of_a_trial() -> None:
    stopper = TrialPlateauStopper("loss", std=0.01, num_results=3, grace_period=2)
    assert results_until_stop(stopper, loss=lambda i: max(5 - i, 1)) == 6  # 1, 1, 1 at iterations 4, 5, 6


def test_a_plateau_waits_for_the_grace_period_and_the_threshold() -> None:
    flat = {"loss": lambda i: 1.0}
    assert results_until_stop(TrialPlateauStopper("loss", num_results=2, grace_period=7), **flat) == 7
    assert results_until_stop(TrialPlateauStopper("loss", metric_threshold=0.0, mode="min"), **flat) == 101
    assert results_until_stop(TrialPlateauStopper("loss", metric_threshold=1.0, mode="min"), **flat) == 4
    assert results_until_stop(TrialPlateauStopper("loss", metric_threshold=2.0, mode="max"), **flat) == 101


def test_a_plateau_is_not_made_of_gaps_or_nan() -> None:
    seldom = TrialPlateauStopper("loss", num_results=2, grace_period=1)
    assert [bool(seldom("t", {"loss": 1.0} if i % 3 == 0 else {})) for i in range(5)] == [
        False,
        False,
        False,
        True,
        False,
    ]
    broken = TrialPlateauStopper("loss", num_results=2, grace_period=1)
    assert not any(broken("t", {"loss": math.nan}) for _ in range(5))


def test_a_plateau_of_the_experiment() -> None:
    stopper = ExperimentPlateauStopper("acc", top=3, mode="max", patience=2)
    asked = [stopper(f"t{i}", {"acc": acc}) for i, acc in enumerate([0.1, 0.9, 0.9, math.nan, 0.9, 0.2])]
    assert asked == [False, False, False, False, False, True]  # the best three are equal from the fifth on
    assert stopper.stop_all()


def test_time_is_counted_from_the_first_look_and_goes_on_after_a_resume() -> None:
    clock = VirtualClock()
    stopper = as_stopper([TimeoutStopper(datetime.timedelta(minutes=1)), {"training_iteration": 5}], clock=clock)
    assert stopper is not None
    clock.advance(1000)
    assert not stopper.stop_all()
    clock.advance(40)
    assert not stopper.stop_all()
    state = stopper.get_state()
    clock.advance(5000)  # not running
    again = as_stopper([TimeoutStopper(60), {"training_iteration": 5}], clock=clock)
    assert again is not None
    again.set_state(state)
    assert not again.stop_all()
    clock.advance(19.9)
    assert not again.stop_all()
    clock.advance(0.2)
    assert again.stop_all()
    assert not again("t", {"training_iteration": 4})


def test_a_timeout_without_a_clock_takes_the_systems() -> None:
    assert not TimeoutStopper(3600).stop_all()
    assert TimeoutStopper(0).stop_all()


def trials_of(path: Path, **settings: Any) -> list[int]:
    """How many results each trial of a run had, one trial after another."""

    def train(config: dict[str, Any]) -> None:
        for step in range(1, 11):
            tune.report({"loss": 1 / step, "acc": step / 10, "cost": 2.0})

    results = tune.run(
        train,
        num_samples=3,
        max_concurrent_trials=1,
        storage_path=str(path),
        executor="inline",
        verbose=0,
        **settings,
    )
    return [trial.iteration for trial in results.trials]


@pytest.mark.parametrize(
    ("stop", "counts"),
    [
        ({"loss": at_most(0.25), "acc": 0.9}, [4, 4, 4]),
        ({"loss": at_most(0.01), "acc": at_least(0.7)}, [7, 7, 7]),
        ([{"acc": 0.5}, MaximumIterationStopper(8), lambda trial_id, result: result["loss"] < 0.3], [4, 4, 4]),
        (CostStopper(6.0, per="trial"), [3, 3, 3]),
        (CostStopper(26.0), [10, 3]),
        (MaximumResultsStopper(12), [10, 2]),
        ([MaximumResultsStopper(1000), NoopStopper()], [10, 10, 10]),
    ],
    ids=["at most", "at least", "a list", "cost of each", "cost", "results", "not reached"],
)
def test_d26_a_run_has_exactly_the_results_that_stop_says(tmp_path: Path, stop: Any, counts: list[int]) -> None:
    assert trials_of(tmp_path, stop=stop) == counts


# --- budgets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5])
def test_d26_a_budget_of_n_results_of_all_trials_is_spent_with_the_nth(count: int) -> None:
    stopper = MaximumResultsStopper(count)
    asked = [stopper(f"t{i % 3}", {}) for i in range(8)]
    assert asked == [i + 1 >= count for i in range(8)]
    assert stopper.stop_all()


def test_a_trials_time_is_that_of_all_its_attempts() -> None:
    stopper = TrialTimeoutStopper(datetime.timedelta(minutes=1))
    spent = [("a", 30.0), ("b", 59.9), ("a", 60.0), ("b", None), ("b", 61)]
    assert [bool(stopper(trial, {"time_total_s": s})) for trial, s in spent] == [False, False, True, False, True]
    assert not stopper("a", {}) and not stopper.stop_all()


def test_a_cost_is_added_up_over_all_trials_or_per_trial() -> None:
    story = [("a", 2.0), ("b", math.nan), ("b", 2.0), ("a", 1.0), ("b", None)]
    whole, each = CostStopper(4.0), CostStopper(3.0, per="trial")
    assert [bool(whole(trial, {"cost": cost})) for trial, cost in story] == [False, False, True, True, True]
    assert [bool(each(trial, {"cost": cost})) for trial, cost in story] == [False, False, False, True, False]
    assert whole.stop_all() and not each.stop_all()


def test_a_cumulative_cost_counts_what_was_added() -> None:
    story = [("a", 2.0), ("b", 1.0), ("a", 2.5), ("a", 1.0), ("b", 1.5)]  # a went back to a checkpoint once
    whole = CostStopper(4.0, "eval/usd", cumulative=True)
    each = CostStopper(2.5, "eval/usd", cumulative=True, per="trial")
    assert [bool(whole(trial, {"eval": {"usd": cost}})) for trial, cost in story] == [False, False, False, False, True]
    assert [bool(each(trial, {"eval": {"usd": cost}})) for trial, cost in story] == [False, False, True, True, False]


def test_a_stopper_that_stops_nothing() -> None:
    assert results_until_stop(NoopStopper()) == 101
    assert not NoopStopper().stop_all()


def test_all_of_a_combination_are_asked() -> None:
    stopper = CombinedStopper(MaximumIterationStopper(1), MaximumIterationStopper(2))
    assert [bool(stopper("t", {})), bool(stopper("t", {}))] == [True, True]
    assert stopper.get_state()["stoppers"][1] == {"count": {"t": 2}}
    assert not stopper.stop_all()


STATEFUL: dict[str, Callable[[], Stopper]] = {
    "maximum": lambda: MaximumIterationStopper(7),
    "trial plateau": lambda: TrialPlateauStopper("loss", std=0.5, num_results=3),
    "experiment plateau": lambda: ExperimentPlateauStopper("loss", std=0.3, top=3, patience=2),
    "results": lambda: MaximumResultsStopper(17),
    "cost": lambda: CostStopper(9.0, "loss"),
    "cost of each": lambda: CostStopper(3.0, "loss", cumulative=True, per="trial"),
    "dict": lambda: DictStopper({"loss": at_most(0.3), "training_iteration": 9}),
    "function": lambda: FunctionStopper(lambda trial_id, result: result["loss"] < 0.2),
    "combined": lambda: CombinedStopper(MaximumIterationStopper(6), TrialPlateauStopper("loss", std=0.1)),
}


@pytest.mark.parametrize("make", STATEFUL.values(), ids=STATEFUL)
def test_it_goes_on_from_its_state(make: Callable[[], Stopper]) -> None:
    story = [(f"t{i % 3}", {"training_iteration": i // 3 + 1, "loss": 5 / (i + 1)}) for i in range(30)]
    whole = make()
    expected = [(whole(*step), whole.stop_all()) for step in story]
    assert any(stop for stop, _ in expected)
    for cut in range(0, 30, 4):
        first, second = make(), make()
        got = [(first(*step), first.stop_all()) for step in story[:cut]]
        second.set_state(cloudpickle.loads(cloudpickle.dumps(first.get_state())))
        assert got + [(second(*step), second.stop_all()) for step in story[cut:]] == expected


class Own(Stopper):
    """A stopper of a user's, with something in it that cannot be pickled."""

    def __init__(self) -> None:
        self.seen = 0
        self.lock = __import__("threading").Lock()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.seen += 1
        return self.seen == 3

    def stop_all(self) -> bool:
        return False


def test_a_stopper_of_ones_own_keeps_its_attributes() -> None:
    first, second = Own(), Own()
    first("t", {})
    state = cloudpickle.loads(cloudpickle.dumps(first.get_state()))
    assert state == {"seen": 1}
    second.set_state(state)
    assert [bool(second("t", {})), bool(second("t", {}))] == [False, True]


@pytest.mark.parametrize(
    ("stop", "kind"),
    [
        ({"a": 1}, DictStopper),
        (lambda trial_id, result: True, FunctionStopper),
        (MaximumIterationStopper(1), MaximumIterationStopper),
        ([{"a": 1}, MaximumIterationStopper(1), None], CombinedStopper),
    ],
)
def test_as_stopper(stop: Any, kind: type) -> None:
    assert type(as_stopper(stop)) is kind


@pytest.mark.parametrize("nothing", [None, {}, [], [None]])
def test_nothing_is_no_stopper(nothing: Any) -> None:
    assert as_stopper(nothing) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: as_stopper(3), "accepted are a dict like"),
        (lambda: as_stopper("10"), "accepted are a dict like"),
        (lambda: as_stopper(lambda result: True), "trial_id, result"),
        (lambda: as_stopper(MaximumIterationStopper), "create an instance"),
        (lambda: as_stopper({"a": "b"}), "stop=.'a': 'b'. is not accepted"),
        (lambda: as_stopper({"a": math.nan}), "not accepted"),
        (lambda: as_stopper({1: 2}), "not accepted"),
        (lambda: at_most(math.nan), "at_most"),
        (lambda: at_least("b"), "at_least.'b'."),  # type: ignore[arg-type]
        (lambda: MaximumResultsStopper(0), "max_results=0"),
        (lambda: TrialTimeoutStopper(-1), "timeout=-1"),
        (lambda: CostStopper(0), "max_cost=0"),
        (lambda: CostStopper(1, 3), "metric=3"),  # type: ignore[arg-type]
        (lambda: CostStopper(1, per="worker"), "per='worker'.*'experiment' and 'trial'"),
        (lambda: CostStopper(1, cumulative="yes"), "cumulative='yes'"),  # type: ignore[arg-type]
        (lambda: MaximumIterationStopper(0), "max_iter=0"),
        (lambda: TrialPlateauStopper("a", metric_threshold=1.0), "mode=None"),
        (lambda: TrialPlateauStopper("a", num_results=0), "num_results=0"),
        (lambda: TrialPlateauStopper("a", std="b"), "std='b'"),  # type: ignore[arg-type]
        (lambda: TrialPlateauStopper("a", std=-1), "std=-1"),
        (lambda: TrialPlateauStopper("a", grace_period="b"), "grace_period='b'"),  # type: ignore[arg-type]
        (lambda: TrialPlateauStopper("a", metric_threshold="b", mode="min"), "metric_threshold='b'"),  # type: ignore
        (lambda: TrialPlateauStopper(3), "metric=3"),  # type: ignore[arg-type]
        (lambda: ExperimentPlateauStopper(""), "metric=''"),
        (lambda: ExperimentPlateauStopper("a", std="b"), "std='b'"),  # type: ignore[arg-type]
        (lambda: MaximumIterationStopper("b"), "max_iter='b'"),  # type: ignore[arg-type]
        (lambda: TimeoutStopper(-1), "timeout=-1"),
        (lambda: DictStopper(3), "criteria=3"),  # type: ignore[arg-type]
        (lambda: ExperimentPlateauStopper("a", top=1), "top=1"),
        (lambda: ExperimentPlateauStopper("a", std=0), "std=0"),
        (lambda: ExperimentPlateauStopper("a", mode="least"), "mode='least'"),
        (lambda: ExperimentPlateauStopper("a", patience=-1), "patience=-1"),
        (lambda: TimeoutStopper("soon"), "timeout='soon'"),  # type: ignore[arg-type]
        (lambda: CombinedStopper({"a": 1}), "all are Stoppers"),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_accepted_is_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "near"),
    [
        (lambda: MaximumIterationStopper(max_iters=3), "did you mean 'max_iter'"),
        (lambda: TrialPlateauStopper("a", num_result=3), "did you mean 'num_results'"),
        (lambda: ExperimentPlateauStopper("a", patients=3), "did you mean 'patience'"),
        (lambda: TimeoutStopper(time_out=3), "did you mean 'timeout'"),
        (lambda: CostStopper(3, comulative=True), "did you mean 'cumulative'"),
    ],
)
def test_an_unknown_argument_gets_the_nearest(make: Callable[[], Any], near: str) -> None:
    with pytest.raises(InvalidSettingError, match=near):
        make()


def test_the_deviation_is_that_of_numpy() -> None:
    import numpy as np

    values = [1.0, 2.5, -3.0, 7.25]
    assert deviation(values) == pytest.approx(float(np.std(values)))
