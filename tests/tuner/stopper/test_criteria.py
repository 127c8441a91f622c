"""Criteria of a dict: N means N, a direction can be said, and a metric that never comes is told."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from tuner.error import MetricMissingError
from tuner.stopper import (
    CombinedStopper,
    DictStopper,
    ExperimentPlateauStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TrialPlateauStopper,
    as_stopper,
    at_least,
    at_most,
)


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
    wanted = r"101 results of t .*'acuracy' \(there are: accuracy.*'epocs'.*resume the run"
    with pytest.raises(MetricMissingError, match=wanted):
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


@pytest.mark.parametrize(
    ("criteria", "at", "first"),
    [
        ({"training_iteration": 10}, 1, 10),
        ({"training_iteration": 9.5}, 1, 10),
        ({"training_iteration": at_least(10)}, 1, 2),
        ({"training_iteration": 10}, 12, 13),
        ({"training_iteration": 10, "loss": 1}, 1, 2),
        ({"loss": 1}, 1, 2),
    ],
)
def test_who_counts_iterations_only_says_when_it_decides(criteria: dict[str, Any], at: int, first: int) -> None:
    assert DictStopper(criteria).decides_from("t", at) == first
    assert CombinedStopper(DictStopper(criteria), NoopStopper()).decides_from("t", at) == at + 1
