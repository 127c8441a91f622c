"""ASHA's promotion variant against a trace worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import cloudpickle
import pytest

from tests.tuner.schedulers.calls import CONTINUE, PAUSE, STOP, Told, Worker, count_calls, stops
from tuner.schedulers import ASHAScheduler, Decision


def asha(**kwargs: Any) -> ASHAScheduler:
    given = {"metric": "acc", "mode": "max", "max_t": 9, "reduction_factor": 3, "type": "promotion", **kwargs}
    return ASHAScheduler(**given)


# Rungs lie at 1, 3 and 9. Of n that were at a rung the best floor(n / 3) go on.
TRACE: list[tuple[str, int, float, Decision, str | None]] = [
    # trial, iteration, value, what it is told, who of those that wait is chosen then
    ("a", 1, 5.0, PAUSE, None),  # floor(1/3) = 0
    ("b", 1, 7.0, PAUSE, None),  # floor(2/3) = 0
    ("c", 1, 6.0, PAUSE, "b"),  # floor(3/3) = 1: 7
    ("b", 2, 0.0, CONTINUE, None),
    ("b", 3, 1.0, PAUSE, None),  # the first one at 3
    ("d", 1, 9.0, CONTINUE, None),  # one of four, and it is itself the best one: no pause
    ("e", 1, 1.0, PAUSE, None),
    ("f", 1, 2.0, PAUSE, None),  # two of six: 9 and 7 have gone on
    ("g", 1, 6.5, PAUSE, None),
    ("h", 1, 0.0, PAUSE, None),
    ("i", 1, 0.0, PAUSE, "g"),  # three of nine: 9, 7 and 6.5
    ("d", 3, 4.0, PAUSE, None),  # 4 and 1 at 3
    ("g", 3, 2.0, PAUSE, "d"),  # one of three: 4
    ("d", 8, 0.0, CONTINUE, None),
    ("d", 9, 0.0, STOP, None),
    ("j", 1, 6.2, PAUSE, None),
    ("k", 1, 0.0, PAUSE, None),
    ("l", 1, 0.0, PAUSE, "j"),  # four of twelve: 9, 7, 6.5 and 6.2
]


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_trace_worked_out_by_hand(sign: float, saved: bool) -> None:
    told = Told(asha(mode="max" if sign > 0 else "min"))
    waiting: dict[str, None] = {}
    for name, iteration, value, expected, chosen in TRACE:
        if name not in told.trials:
            told.add(name)
        assert (told.say(name, iteration, sign * value), told.orders) == (expected, []), (name, iteration)
        if expected == PAUSE:
            waiting[name] = None
        assert told.choose("".join(waiting)) == chosen, (name, iteration)
        if chosen is not None:
            del waiting[chosen]
            told.do("on_trial_start", chosen)
        if saved:
            state = cloudpickle.dumps(told.scheduler.get_state())
            told.scheduler = asha(mode="max" if sign > 0 else "min")
            told.scheduler.set_state(cloudpickle.loads(state))


def test_of_those_who_are_promoted_the_highest_goes_first_and_all_before_a_new_one() -> None:
    told = Told(asha(reduction_factor=2, max_t=4), "abcd")
    assert told.say("a", 1, 1.0) == PAUSE
    assert told.say("b", 1, 2.0) == CONTINUE
    told.say("b", 2, 1.0)
    told.say("c", 1, 1.5)
    assert told.say("d", 1, 1.2) == PAUSE  # two of four: b and c
    assert told.say("b", 2, 1.0) == PAUSE
    assert told.choose("abcd") == "c"
    told.do("on_trial_start", "c")
    assert told.say("c", 2, 0.5) == PAUSE  # one of two at 2: b
    told.add("ef")
    told.say("e", 1, 0.0)
    assert told.say("f", 1, 1.4) == CONTINUE  # three of six
    assert told.choose("abcde") == "b"
    assert told.choose("abcdef") == "f", "it was told to go on, so that it was interrupted"
    assert told.choose("acde") is None


@pytest.mark.parametrize("saved", [False, True])
def test_who_was_interrupted_runs_first_also_where_another_one_is_promoted_higher(saved: bool) -> None:
    told = Told(asha(reduction_factor=2, max_t=4), "abc")
    for name in "abc":
        told.do("on_trial_start", name)
    assert told.say("a", 1, 1.0) == PAUSE
    assert told.say("b", 1, 2.0) == CONTINUE
    assert told.say("b", 2, 2.0) == PAUSE
    told.add("d")
    told.do("on_trial_start", "d")
    assert told.say("d", 1, 3.0) == CONTINUE
    assert told.say("d", 2, 1.0) == PAUSE  # and b may go on
    if saved:
        state = cloudpickle.dumps(told.scheduler.get_state())
        told.scheduler = asha(reduction_factor=2, max_t=4)
        told.scheduler.set_state(cloudpickle.loads(state))
    assert told.choose("abcd") == "c", "its process is gone: it has shown nothing yet"
    assert told.choose("abd") == "b"


def test_of_equal_ones_the_earlier_is_better() -> None:
    told = Told(asha(), "abc")
    for name in "abc":
        told.say(name, 1, 1.0)
    assert told.choose("abc") == "a"


def test_f06_nan_is_never_promoted_and_infinities_rank() -> None:
    told = Told(asha(reduction_factor=2), "abcdef")
    values = {"a": math.nan, "b": math.nan, "c": -math.inf, "d": math.nan}
    assert [told.say(name, 1, value) for name, value in values.items()] == [PAUSE, PAUSE, CONTINUE, PAUSE]
    assert told.say("e", 1, math.inf) == CONTINUE
    assert told.choose("abd") is None
    told.say("f", 1, math.nan)
    assert told.choose("abdf") is None


def test_who_waited_and_ended_leaves_its_result_but_not_its_place() -> None:
    told = Told(asha(), "abcd")
    told.say("a", 1, 9.0)
    told.say("b", 1, 8.0)
    told.do("on_trial_remove", "a")
    told.say("c", 1, 1.0)  # one of three, and that one is gone
    assert told.choose("bc") is None


def test_f26_while_it_runs_on_to_its_save_a_trial_stands_where_it_paused() -> None:
    told = Told(asha(), "abc")
    assert [told.say("a", iteration, float(iteration)) for iteration in (1, 2, 3, 4)] == [PAUSE] * 4
    told.say("b", 1, 0.5)
    told.say("c", 1, 0.5)
    assert told.say("a", 5, 5.0) == PAUSE  # promoted, and beyond the rung at 3 by now: there it is the first one
    assert told.choose("a") is None
    assert told.say("a", 9, 9.0) == STOP


def test_a_run_with_few_trials_reaches_max_t_too_and_the_rest_has_ended() -> None:
    told = Told(asha(), "ab")
    told.say("a", 1, 1.0)
    told.say("b", 1, 2.0)
    assert (told.do("on_idle"), told.choose("ab")) == ([], "b")
    told.do("on_trial_start", "b")
    assert told.say("b", 3, 2.0) == PAUSE
    assert (told.do("on_idle"), told.choose("ab")) == ([], "b")
    told.do("on_trial_start", "b")
    assert told.say("b", 9, 2.0) == STOP
    told.do("on_trial_complete", "b", {"training_iteration": 9, "acc": 2.0})
    assert told.do("on_idle") == stops("a")
    assert told.choose("a") is None
    assert told.do("on_idle") == stops("a")  # the driver was killed before it did that
    told.do("on_trial_complete", "a", {})
    assert told.do("on_idle") == []


def test_the_stopping_variant_orders_nothing_and_takes_whom_it_is_given() -> None:
    told = Told(asha(type="stopping"), "ab")
    assert told.choose("ba") == "b"
    assert told.do("on_idle") == []


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(ValueError, match="type='pausing' is not accepted; accepted: 'stopping', 'promotion'"):
        asha(type="pausing")


def test_a_hundred_thousand_trials_cost_the_same_at_the_end() -> None:
    worker = Worker(asha(max_t=27), trials=100_000)
    first = count_calls(lambda: worker.work(5_000))
    worker.work(240_000)
    assert worker.created > 80_000
    assert len(worker.waiting) > 50_000
    assert count_calls(lambda: worker.work(5_000)) < 1.2 * first
    worker.work(10**9)
    assert worker.created == 100_000
    assert worker.waiting == {}
