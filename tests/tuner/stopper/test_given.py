"""What `stop=` accepts, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from trainables.errors import InvalidSettingError
from tuner.error import SettingError
from tuner.stopper import (
    CombinedStopper,
    CostStopper,
    DictStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    MaximumResultsStopper,
    TimeoutStopper,
    TrialPlateauStopper,
    TrialTimeoutStopper,
    as_stopper,
    at_least,
    at_most,
)


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
        (lambda: as_stopper({"eval": {"auc": 0.3}}), r"stop={'eval': {'auc': 0.3}} .* slashes: stop={'eval/auc': 0.3}"),
        (lambda: as_stopper({"a": {"b": {"c": 1}, "d": 2}}), "stop={'a/b/c': 1, 'a/d': 2}"),
        (lambda: as_stopper([{"a": {"b": at_most(1)}}]), r"stop={'a/b': AtMost\(limit=1.0\)}"),
        (lambda: as_stopper({"a": {}}), "stop={'a': {}} is not accepted; a metric's name has a number"),
        (lambda: as_stopper({"a": math.nan}), "not accepted"),
        (lambda: as_stopper({1: 2}), "not accepted"),
        (lambda: at_most(math.nan), "at_most"),
        (lambda: at_least("b"), "at_least.'b'."),  # type: ignore[arg-type]
        (lambda: MaximumResultsStopper(0), "max_results=0"),
        (lambda: TrialTimeoutStopper(-1), "timeout=-1"),
        (lambda: CostStopper(0), "max_cost=0"),
        (lambda: CostStopper(1, 3), "cost_attr=3"),  # type: ignore[arg-type]
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
