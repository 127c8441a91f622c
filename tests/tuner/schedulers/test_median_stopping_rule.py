"""The median stopping rule against a trace worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.tuner.schedulers.calls import CONTINUE, PAUSE, STOP, Told, count_calls
from tuner.schedulers import Decision, MedianStoppingRule
from tuner.testing import TrialStub


def median(**kwargs: Any) -> MedianStoppingRule:
    given = {"time_attr": "training_iteration", "metric": "acc", "mode": "max", "grace_period": 1, **kwargs}
    return MedianStoppingRule(**given)


# min_samples_required=2
TRACE: list[tuple[str, int, float, Decision]] = [
    ("a", 1, 4.0, CONTINUE),  # nobody to compare with
    ("b", 1, 2.0, CONTINUE),  # one
    ("c", 1, 2.9, STOP),  # means at 1: 4 and 2; their median is 3
    ("d", 1, 2.9, CONTINUE),  # 4, 2 and the ended one's 2.9: 2.9 is not worse
    ("a", 2, 0.0, CONTINUE),  # nobody else has come to 2
    ("b", 2, 8.0, CONTINUE),  # only a has
    ("d", 2, 0.0, STOP),  # means at 2: a (4+0)/2 = 2, b (2+8)/2 = 5; their median is 3.5, and its best is 2.9
    ("e", 2, 3.6, CONTINUE),  # 2, 5 and d's 1.45: 2
    ("a", 3, 0.0, CONTINUE),  # nobody else has come to 3
    ("b", 3, 0.0, CONTINUE),
    ("e", 3, 0.0, CONTINUE),  # a 4/3, b 10/3: 7/3, and its best is 3.6
    ("f", 1, 3.0, CONTINUE),  # at 1: a 4, b 2, c 2.9, d 2.9, but not e, which reported nothing then: 2.9
]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_trace_worked_out_by_hand(sign: float) -> None:
    told = Told(median(mode="max" if sign > 0 else "min", min_samples_required=2), "abcdef")
    for name, iteration, value, expected in TRACE:
        assert told.say(name, iteration, sign * value) == expected, (name, iteration)
        if expected == STOP:
            told.do("on_trial_complete", name, {"training_iteration": iteration, "acc": sign * value})
    assert told.scheduler.debug_string() == "Using MedianStoppingRule: num_stopped=2"


def test_nobody_is_stopped_in_the_grace_period_and_means_begin_there() -> None:
    told = Told(median(grace_period=2, min_samples_required=1), "ab")
    told.say("a", 1, 100.0)
    told.say("a", 2, 1.0)
    assert told.say("b", 1, 0.0) == CONTINUE
    assert told.say("b", 2, 1.0) == CONTINUE  # the mean of a is 1
    told.say("a", 3, 4.0)
    assert told.say("b", 3, 2.4) == STOP  # 2.5


def test_the_best_result_counts_also_one_of_the_grace_period() -> None:
    told = Told(median(grace_period=2, min_samples_required=1), "ab")
    told.say("a", 2, 5.0)
    told.say("b", 1, 6.0)
    assert told.say("b", 2, 0.0) == CONTINUE


def test_f06_nan_is_worse_than_every_number() -> None:
    nan = math.nan
    told = Told(median(min_samples_required=1), "abcd")
    assert told.say("a", 1, nan) == CONTINUE
    assert told.say("b", 1, -5.0) == CONTINUE
    assert told.say("c", 1, nan) == STOP
    assert told.say("d", 1, math.inf) == CONTINUE
    assert told.say("b", 2, nan) == CONTINUE  # its best is a number


def test_a_last_result_that_nobody_asked_about_counts_once() -> None:
    told = Told(median(min_samples_required=1), "ab")
    told.do("on_trial_complete", "a", {"training_iteration": 1, "acc": 5.0})
    assert told.say("b", 1, 4.0) == STOP
    before = told.scheduler.get_state()["curves"]
    told.do("on_trial_complete", "b", {"training_iteration": 1, "acc": 4.0})
    assert told.scheduler.get_state()["curves"] == before


def test_without_hard_stop_it_waits_until_no_other_is_left_and_then_runs_to_its_end() -> None:
    told = Told(median(min_samples_required=1, hard_stop=False), "abc")
    told.say("a", 1, 5.0)
    assert told.say("b", 1, 4.0) == PAUSE
    assert told.say("b", 2, 9.0) == PAUSE  # it runs on to its next save
    assert told.choose("b") is None
    assert told.choose("bc") == "c"
    assert told.do("on_idle") == []
    assert told.choose("b") == "b"
    told.do("on_trial_start", "b")
    told.say("a", 3, 5.0)
    assert told.say("b", 3, 0.0) == CONTINUE


def test_one_makes_room_where_there_are_too_few_to_compare_with_and_others_wait() -> None:
    told = Told(median(min_samples_required=2, min_time_slice=2), "ab")
    assert told.say("a", 1, 1.0) == CONTINUE  # nobody waits
    waiting = told.trials["c"] = TrialStub("c")
    told.scheduler.on_trial_add(waiting)
    assert told.say("a", 2, 1.0) == PAUSE
    told.do("on_trial_start", "a")
    assert told.say("a", 3, 1.0) == CONTINUE  # it ran for 1 since
    assert told.say("a", 4, 1.0) == CONTINUE
    assert told.say("a", 5, 1.0) == PAUSE
    assert told.choose("ca") == "c"
    told.do("on_trial_start", "c")
    assert told.say("b", 1, 1.0) == PAUSE  # a waits by now
    told.do("on_trial_start", "a")
    told.do("on_trial_start", "b")
    assert told.say("b", 4, 1.0) == CONTINUE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grace_period", -1),
        ("grace_period", math.nan),
        ("min_samples_required", 0),
        ("min_samples_required", 1.5),
        ("min_time_slice", -1),
        ("hard_stop", "yes"),
        ("time_attr", ""),
    ],
)
def test_a_number_out_of_its_range_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*not accepted"):
        median(**{name: value})


def test_many_trials_cost_the_same_at_the_end() -> None:
    scheduler = median()

    def play(first: int, count: int) -> None:
        for number in range(first, first + count):
            trial = TrialStub(str(number))
            scheduler.on_trial_add(trial)
            scheduler.on_trial_start(trial)
            result = {"training_iteration": 1, "acc": float(number)}
            scheduler.on_trial_result(trial, result)
            scheduler.on_trial_complete(trial, result)

    play(0, 1_200)
    first = count_calls(lambda: play(1_200, 20))
    play(1_220, 1_000)
    assert count_calls(lambda: play(2_220, 20)) == first
    assert len(scheduler.get_state()["curves"]) == 1_001
