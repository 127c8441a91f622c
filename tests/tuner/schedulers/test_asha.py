"""ASHA against traces worked out by hand, and against numpy."""

from __future__ import annotations

import logging
import math
import random
from typing import Any

import numpy as np
import pytest

from tuner.schedulers import ASHAScheduler, Decision, as_scheduler
from tuner.testing import TrialStub

CONTINUE, STOP = Decision.CONTINUE, Decision.STOP


def asha(**kwargs: Any) -> ASHAScheduler:
    return ASHAScheduler(**{"metric": "acc", "mode": "max", "max_t": 4, "reduction_factor": 2, **kwargs})


def play(scheduler: ASHAScheduler, script: list[tuple[str, int, float]], key: str = "acc") -> list[Decision]:
    """(trial, iteration, value) in order; trials are added when they come first."""
    trials: dict[str, TrialStub] = {}
    decisions = []
    for name, iteration, value in script:
        if name not in trials:
            trials[name] = TrialStub(name)
            scheduler.on_trial_add(trials[name])
        decisions.append(scheduler.on_trial_result(trials[name], {"training_iteration": iteration, key: value}))
    return decisions


TRACE: list[tuple[str, int, float, Decision]] = [
    ("a", 1, 10.0, CONTINUE),  # nobody was at rung 1 before
    ("b", 1, 20.0, CONTINUE),  # the median of [10] is 10
    ("c", 1, 12.0, STOP),  # of [10, 20] 15
    ("d", 1, 13.0, CONTINUE),  # of [10, 12, 20] 12: a stopped trial's result counts
    ("a", 2, 11.0, CONTINUE),  # the first at rung 2
    ("b", 2, 9.0, STOP),  # of [11] 11
    ("d", 2, 30.0, CONTINUE),  # of [9, 11] 10
    ("a", 3, 0.0, CONTINUE),  # between rungs nothing is decided
    ("e", 2, 10.5, STOP),  # straight to rung 2, where the median of [9, 11, 30] is 11
    ("a", 4, 99.0, STOP),  # max_t
    ("d", 5, 99.0, STOP),  # beyond it
]


def test_a_trace_worked_out_by_hand() -> None:
    decisions = play(asha(), [step[:3] for step in TRACE])
    assert decisions == [step[3] for step in TRACE]


def test_an_unknown_argument_gets_the_nearest() -> None:
    with pytest.raises(ValueError, match="argument of AsyncHyperBandScheduler 'max_tt'; did you mean 'max_t'"):
        ASHAScheduler(max_tt=3)  # type: ignore[call-arg]


def test_a_resume_with_another_max_t_finds_its_rungs_by_their_height() -> None:
    low, high = asha(), asha(max_t=8)  # rungs 4, 2, 1 and 8, 4, 2, 1
    play(low, [("a", 1, 10.0), ("b", 1, 20.0), ("b", 2, 30.0)])
    high.set_state(low.get_state())
    assert high.debug_string().endswith("bracket 0: 8: -, 4: -, 2: 30, 1: 15")


def test_the_percentile_is_one_minus_one_over_the_reduction_factor() -> None:
    # rung 1 holds 1, 2, 3, 4, 5; the 75th percentile is 4, and the 80th 4.2
    script = [(str(value), 1, float(value)) for value in (5, 4, 3, 2, 1)]
    for factor, value, expected in ((4, 4.0, CONTINUE), (4, 3.9, STOP), (5, 4.3, CONTINUE), (5, 4.1, STOP)):
        scheduler = asha(reduction_factor=factor, max_t=100)
        play(scheduler, script)
        assert play(scheduler, [("new", 1, value)]) == [expected]


@pytest.mark.parametrize("where", ["constructor", "run"])
def test_f07_min_decides_as_max_of_the_negated(where: str) -> None:
    draw = random.Random(3)
    script = [(f"t{t}", i, draw.gauss(0, 1)) for i in range(1, 9) for t in range(12)]

    def decide(mode: str, sign: float) -> list[Decision]:
        own = {"metric": "acc", "mode": mode} if where == "constructor" else {"metric": None, "mode": None}
        scheduler = asha(max_t=8, **own)
        as_scheduler(scheduler, metric="acc", mode=mode)
        return play(scheduler, [(name, iteration, sign * value) for name, iteration, value in script])

    assert decide("min", 1.0) == decide("max", -1.0)
    assert decide("min", 1.0) != decide("max", 1.0)


@pytest.mark.parametrize("result", [{"eval": {"acc": 1.0}}, {"eval/acc": 1.0}, {"eval.acc": 1.0}])
def test_f12_a_nested_metric_is_found_however_it_is_spelled(result: dict[str, Any]) -> None:
    scheduler = asha(metric="eval/acc")
    play(scheduler, [("a", 1, 2.0)], key="eval/acc")
    trial = TrialStub("b")
    scheduler.on_trial_add(trial)
    assert scheduler.on_trial_result(trial, {"training_iteration": 1, **result}) == STOP


def test_nan_is_worse_than_every_number_and_moves_no_cutoff() -> None:
    nan = math.nan
    assert play(asha(), [("a", 1, nan), ("b", 1, -5.0), ("c", 1, nan), ("d", 1, -5.0), ("e", 1, -6.0)]) == [
        CONTINUE,  # there is nothing to compare it with
        CONTINUE,
        STOP,
        CONTINUE,
        STOP,
    ]


def test_infinities_rank_as_numbers() -> None:
    inf = math.inf
    assert play(asha(), [("a", 1, inf), ("b", 1, 1.0), ("c", 1, -inf), ("d", 1, inf)]) == [
        CONTINUE,
        STOP,
        STOP,
        CONTINUE,
    ]


@pytest.mark.parametrize("value", [None, "0.5", True, [1.0]])
def test_what_is_no_number_decides_nothing(value: Any) -> None:
    scheduler = asha()
    play(scheduler, [("a", 1, 2.0)])
    assert play(scheduler, [("b", 1, value)]) == [CONTINUE]


def test_a_missing_time_attribute_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = asha(time_attr="timesteps")
    with caplog.at_level(logging.WARNING):
        play(scheduler, [("a", 1, 2.0), ("b", 1, 1.0)])
    (record,) = caplog.records
    assert (
        "a result has no number 'timesteps', so it decides nothing; it has: acc, training_iteration"
        in record.getMessage()
    )


def test_without_stop_last_trials_those_who_passed_all_rungs_run_on() -> None:
    scheduler = asha(stop_last_trials=False)
    assert play(scheduler, [("a", i, 1.0) for i in range(1, 10)]) == [CONTINUE] * 9
    assert play(scheduler, [("b", 4, 0.5)]) == [STOP]


def test_the_last_result_of_a_trial_that_a_stopper_ended_counts_once() -> None:
    scheduler = asha()
    ended, stopped = TrialStub("ended"), TrialStub("stopped")
    for trial in (ended, stopped):
        scheduler.on_trial_add(trial)
    scheduler.on_trial_complete(ended, {"training_iteration": 2, "acc": 8.0})  # nobody asked about it
    assert scheduler.on_trial_result(stopped, {"training_iteration": 2, "acc": 1.0}) == STOP
    before = scheduler.get_state()["recorded"]
    scheduler.on_trial_complete(stopped, {"training_iteration": 2, "acc": 1.0})
    assert scheduler.get_state()["recorded"] == before


def test_brackets_are_drawn_by_softmax_and_the_same_each_time() -> None:
    def draw(seed: int) -> list[int]:
        scheduler = asha(max_t=81, reduction_factor=3, brackets=3, seed=seed)
        trials = [TrialStub(str(number)) for number in range(3000)]
        for trial in trials:
            scheduler.on_trial_add(trial)
        state: dict[str, int] = scheduler.get_state()["bracket_of"]
        return [state[trial.trial_id] for trial in trials]

    drawn = draw(1)
    assert drawn == draw(1) != draw(2)
    weights = np.exp([5.0, 4.0, 3.0])  # five, four and three rungs
    shares = [drawn.count(bracket) / len(drawn) for bracket in range(3)]
    assert shares == pytest.approx(list(weights / weights.sum()), abs=0.03)


def test_a_later_bracket_starts_a_rung_later() -> None:
    text = asha(max_t=27, reduction_factor=3, brackets=2).debug_string()
    assert text == "Using ASHA: num_stopped=0; bracket 0: 27: -, 9: -, 3: -, 1: -; bracket 1: 27: -, 9: -, 3: -"


def test_a_rung_at_max_t_is_not_lost_to_rounding() -> None:
    assert "1000: -, 100: -, 10: -, 1: -" in asha(max_t=1000, reduction_factor=10).debug_string()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_t", 0),
        ("max_t", -1),
        ("max_t", "a"),
        ("max_t", None),
        ("max_t", True),
        ("max_t", math.nan),
        ("max_t", math.inf),
        ("grace_period", "a"),
        ("grace_period", -1),
        ("reduction_factor", "a"),
        ("reduction_factor", 0),
        ("reduction_factor", -3),
        ("brackets", "a"),
        ("brackets", 1.5),
        ("stop_last_trials", "no"),
        ("time_attr", 3),
        ("grace_period", 0),
        ("grace_period", 5),
        ("reduction_factor", 1),
        ("brackets", 0),
        ("mode", "maximum"),
        ("time_attr", ""),
        ("metric", 3),
    ],
)
def test_a_number_out_of_its_range_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*not accepted"):
        asha(**{name: value})


def test_a_hundred_thousand_trials_cost_the_same_at_the_end() -> None:
    scheduler = asha(max_t=3, reduction_factor=3)
    draw = random.Random(0)
    stopped = 0
    for number in range(100_000):
        trial = TrialStub(str(number))
        scheduler.on_trial_add(trial)
        result = {"training_iteration": 1, "acc": draw.random()}
        stopped += scheduler.on_trial_result(trial, result) == STOP
    assert stopped == pytest.approx(66_667, rel=0.02)


@pytest.mark.parametrize("kind", ["stopping", "promotion"])
def test_between_its_rungs_nothing_is_decided(kind: str) -> None:
    scheduler, draw = asha(max_t=20, reduction_factor=3, type=kind), random.Random(1)
    seen = set()
    for number in range(30):
        trial, iteration, first = TrialStub(f"t{number}"), 0, 1.0
        scheduler.on_trial_add(trial)
        decision: Any = CONTINUE
        while decision == CONTINUE:
            iteration += 1
            decision = scheduler.on_trial_result(trial, {"training_iteration": iteration, "acc": draw.random()})
            assert iteration >= first or decision == CONTINUE
            first = scheduler.decides_from(trial, iteration)
            seen.add(first)
    assert {3} <= seen and (kind == "promotion" or {9, 20} <= seen)


def test_who_extends_it_or_goes_by_another_time_decides_at_each_result() -> None:
    class Mine(ASHAScheduler):
        def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
            return CONTINUE

    for scheduler in (Mine(metric="acc", mode="max"), asha(time_attr="time_total_s")):
        scheduler.on_trial_add(trial := TrialStub("t"))
        assert scheduler.decides_from(trial, 1) == 2
