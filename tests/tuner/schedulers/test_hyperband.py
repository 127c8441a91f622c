"""HyperBand against traces worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.tuner.schedulers.calls import CONTINUE, PAUSE, STOP, Told, Worker, count_calls, stops
from tuner.schedulers import Decision, HyperBandForBOHB, HyperBandScheduler
from tuner.schedulers.base import Verdict
from tuner.testing import TrialStub


def hyperband(**kwargs: Any) -> HyperBandScheduler:
    return HyperBandScheduler(**{"metric": "acc", "mode": "max", "max_t": 4, "reduction_factor": 2, **kwargs})


# With max_t=4 and reduction_factor=2 a band has log2(4) + 1 = 3 brackets:
#   s=0: ceil(3/1 * 1) = 3 trials, which train to 4                      abc
#   s=1: ceil(3/2 * 2) = 3 trials; at 2 ceil(3/2) = 2 go on, to 4        def
#   s=2: ceil(3/3 * 4) = 4 trials; at 1 two go on, at 2 one, to 4        ghij
NAMES = "abcdefghij"

TRACE: list[tuple[str, int, float, Decision, str]] = [
    # trial, iteration, value, what it is told, who is ordered to end
    ("a", 1, 0.0, CONTINUE, ""),
    ("a", 4, 0.0, STOP, ""),  # its bracket is never halved
    ("g", 1, 40.0, PAUSE, ""),
    ("h", 1, 10.0, PAUSE, ""),
    ("i", 1, 30.0, PAUSE, ""),
    ("d", 1, 99.0, CONTINUE, ""),  # its bracket's first rung is at 2
    ("d", 2, 3.0, PAUSE, ""),
    ("j", 1, 20.0, STOP, "h"),  # the last one of four: g and i are the best two
    ("g", 2, 5.0, PAUSE, ""),
    ("i", 2, 6.0, CONTINUE, "g"),  # the best one of two
    ("i", 3, 0.0, CONTINUE, ""),
    ("e", 2, 1.0, PAUSE, ""),
    ("f", 2, 2.0, CONTINUE, "e"),  # the best two of three
    ("i", 4, 0.0, STOP, ""),
    ("f", 4, 0.0, STOP, ""),
    ("d", 3, 0.0, CONTINUE, ""),
    ("d", 4, 9.0, STOP, ""),
]


def test_a_trace_worked_out_by_hand() -> None:
    told = Told(hyperband(), NAMES)
    for name, iteration, value, expected, ended in TRACE:
        assert (told.say(name, iteration, value), told.orders) == (expected, stops(*ended)), (name, iteration)


def test_f07_min_decides_as_max_of_the_negated() -> None:
    told = Told(hyperband(mode="min"), NAMES)
    for name, iteration, value, expected, ended in TRACE:
        assert (told.say(name, iteration, -value), told.orders) == (expected, stops(*ended)), (name, iteration)


@pytest.mark.parametrize(
    ("max_t", "factor", "brackets"),
    [
        (
            81,
            3,
            [(5, [81]), (8, [27, 81]), (15, [9, 27, 81]), (34, [3, 9, 27, 81]), (81, [1, 3, 9, 27, 81])],
        ),
        (8, 2, [(4, [8]), (4, [4, 8]), (6, [2, 4, 8]), (8, [1, 2, 4, 8])]),
        (10, 3, [(3, [10]), (5, [3, 9]), (9, [1, 3, 9])]),  # rungs are cut to whole numbers one after the other
        (100, 4, [(4, [100]), (8, [25, 100]), (22, [6, 24, 96]), (64, [1, 4, 16, 64])]),
    ],
)
def test_sizes_and_rungs_of_brackets_are_ray_tunes(max_t: int, factor: int, brackets: list[Any]) -> None:
    scheduler = hyperband(max_t=max_t, reduction_factor=factor)
    assert [scheduler.bracket(s) for s in range(len(brackets))] == brackets


def joined(scheduler: HyperBandScheduler, count: int) -> list[int]:
    """Which bracket each of so many trials joins."""
    trials = [TrialStub(str(number)) for number in range(count)]
    for trial in trials:
        scheduler.on_trial_add(trial)
    state: dict[str, int] = scheduler.get_state()["bracket_of"]
    return [state[trial.trial_id] for trial in trials]


def test_brackets_are_filled_one_after_the_other_and_bands_too() -> None:
    assert joined(hyperband(), 12) == [0] * 3 + [1] * 3 + [2] * 4 + [3] * 2


def test_for_bohb_the_largest_bracket_comes_first() -> None:
    scheduler = HyperBandForBOHB(metric="acc", mode="max", max_t=4, reduction_factor=2)
    assert joined(scheduler, 12) == [0] * 4 + [1] * 3 + [2] * 3 + [3] * 2
    told = Told(HyperBandForBOHB(metric="acc", mode="max", max_t=4, reduction_factor=2), "abcd")
    answers = [told.say(name, 1, value) for name, value in (("a", 1.0), ("b", 4.0), ("c", 3.0), ("d", 2.0))]
    assert answers == [PAUSE, PAUSE, PAUSE, STOP]
    assert told.orders == stops("a")


def test_a_bracket_whose_trials_would_end_before_they_begin_is_left_out() -> None:
    # max_t=2, reduction_factor=3: round(log3(2)) + 1 = 2 brackets, and the one with s=1 would begin with int(2/3) = 0
    assert joined(hyperband(max_t=2, reduction_factor=3), 5) == [0, 0, 2, 2, 4]


def test_the_milestones_are_all_rungs_of_all_brackets() -> None:
    assert hyperband(max_t=100, reduction_factor=4).milestones == [1, 4, 6, 16, 24, 25, 64, 96, 100]


@pytest.mark.parametrize(
    ("values", "ended"),
    [
        ([1.0, 1.0, 1.0, 1.0], "gh"),  # of equal ones those that came later stay
        ([math.nan, 1.0, math.nan, 2.0], "gi"),
        ([math.nan] * 4, "gh"),
        ([math.inf, -math.inf, 0.0, math.nan], "jh"),
    ],
)
def test_f06_ties_and_what_is_no_number(values: list[float], ended: str) -> None:
    told = Told(hyperband(), NAMES)
    answers: list[Verdict] = [told.say(name, 1, value) for name, value in zip("ghij", values, strict=True)]
    assert {order.trial_id for order in told.orders} | set("j" if answers[3] == STOP else "") == set(ended)


@pytest.mark.parametrize("end", ["on_trial_error", "on_trial_remove", "on_trial_complete"])
def test_the_others_do_not_wait_for_one_that_ended(end: str) -> None:
    told = Told(hyperband(), NAMES)
    for name, value in (("g", 3.0), ("h", 1.0), ("i", 2.0)):
        assert told.say(name, 1, value) == PAUSE
    assert told.choose("ghi") is None
    assert told.do(end, "j", *([{}] if end == "on_trial_complete" else [])) == stops("h")
    assert told.choose("gi") == "g"


def test_who_reported_and_ended_is_not_among_the_best_any_more() -> None:
    told = Told(hyperband(), NAMES)
    told.say("g", 1, 9.0)
    told.do("on_trial_complete", "g", {"training_iteration": 1, "acc": 9.0})
    assert [told.say(name, 1, value) for name, value in (("h", 3.0), ("i", 2.0), ("j", 1.0))] == [PAUSE, PAUSE, STOP]
    assert told.orders == []


def test_a_result_without_a_number_decides_nothing() -> None:
    told = Told(hyperband(), NAMES)
    assert told.say("g", 1, "high") == CONTINUE
    assert told.scheduler.on_trial_result(told.trials["g"], {"training_iteration": 2}) == CONTINUE
    assert told.say("g", 3, 1.0) == PAUSE
    assert told.say("g", 4, None) == PAUSE


# --- saves that come late --------------------------------------------------------------------------------------


def test_f26_what_was_reported_at_the_rung_counts_and_not_what_comes_while_it_runs_on_to_its_save() -> None:
    told = Told(hyperband(max_t=8), "klmnabcdefghijopqrstuv")
    names = [name for name, number in told.scheduler.get_state()["bracket_of"].items() if number == 3]
    late, *others = names
    assert told.say(late, 1, 0.0) == PAUSE
    assert told.say(late, 2, 99.0) == PAUSE
    assert told.say(late, 3, 99.0) == PAUSE
    for name in others[:-1]:
        told.say(name, 1, 5.0)
    told.say(others[-1], 1, 5.0)
    assert late in {order.trial_id for order in told.orders}
    assert told.say(late, 4, 99.0) == STOP  # it had not come to rest yet


def test_f26_who_ran_on_beyond_the_next_rung_waits_there() -> None:
    told = Told(hyperband(), NAMES)
    assert [told.say("g", iteration, 9.0 - iteration) for iteration in (1, 2, 3)] == [PAUSE] * 3
    told.say("h", 1, 1.0)
    told.say("i", 1, 2.0)
    assert (told.say("j", 1, 3.0), told.orders) == (CONTINUE, stops("h", "i"))
    assert told.choose("g") is None  # it is at 2 already, with 7
    assert (told.say("j", 2, 8.0), told.orders) == (CONTINUE, stops("g"))


def test_f26_all_who_ran_to_the_end_are_let_go_and_nobody_waits_for_ever() -> None:
    told = Told(hyperband(), NAMES)
    for name, value in (("g", 4.0), ("h", 3.0), ("i", 2.0), ("j", 1.0)):
        answers = [told.say(name, iteration, value) for iteration in (1, 2, 3, 4)]
        if name != "j":
            assert answers == [PAUSE] * 4
    assert told.scheduler.get_state()["bracket_of"].keys() == set("abcdef")


# --- fewer trials than places ----------------------------------------------------------------------------------


def test_a_bracket_waits_until_it_is_full_or_no_more_come() -> None:
    told = Told(hyperband(), "abcdefgh")  # two of four in the third one
    assert [told.say("g", 1, 1.0), told.say("h", 1, 2.0)] == [PAUSE, PAUSE]
    assert told.choose("gh") is None
    assert told.do("on_search_end") == []  # two may go on, and there are no more
    assert told.choose("gh") == "g"
    assert [told.say("g", 2, 1.0), told.say("h", 2, 2.0)] == [PAUSE, CONTINUE]
    assert told.orders == stops("g")


def test_when_nothing_runs_a_bracket_that_is_not_full_goes_on() -> None:
    told = Told(hyperband(), "abcdefgh")
    told.say("g", 1, 1.0)
    told.say("h", 1, 2.0)
    assert told.do("on_idle") == []
    assert told.choose("gh") == "g"


def test_f26_no_stall_when_all_are_beyond_the_last_rung_of_a_bracket_that_is_not_full() -> None:
    told = Told(hyperband(), "abcdefgh")
    for name in "gh":
        for iteration in (1, 2, 3, 4):
            assert told.say(name, iteration, 1.0) == PAUSE
    assert told.do("on_idle") == stops("g", "h")


def test_who_comes_after_a_bracket_was_halved_catches_up() -> None:
    told = Told(hyperband(), "abcdefg")
    told.say("g", 1, 5.0)
    told.do("on_idle")  # one of two places at the next rung is free
    told.add("k")
    assert told.say("g", 2, 5.0) == PAUSE
    assert told.say("k", 1, 1.0) == CONTINUE
    assert (told.say("k", 2, 6.0), told.orders) == (CONTINUE, stops("g"))


def test_a_bracket_that_was_full_is_not_filled_again() -> None:
    told = Told(hyperband(), NAMES)
    told.do("on_trial_error", "j")
    told.add("k")
    assert told.scheduler.get_state()["bracket_of"]["k"] == 3
    told.say("g", 1, 1.0)
    told.say("h", 1, 2.0)
    assert (told.say("i", 1, 3.0), told.orders) == (CONTINUE, stops("g"))


def test_trials_that_end_one_after_the_other_do_not_keep_the_first_bracket_open() -> None:
    scheduler = hyperband()
    numbers = []
    for number in range(10):  # as many workers as one
        trial = TrialStub(str(number))
        scheduler.on_trial_add(trial)
        numbers.append(scheduler.get_state()["bracket_of"][trial.trial_id])
        scheduler.on_trial_complete(trial, {})
    assert numbers == [0] * 3 + [1] * 3 + [2] * 4


def test_a_trial_that_comes_back_joins_the_bracket_that_is_being_filled() -> None:
    told = Told(hyperband(), NAMES)
    told.do("on_trial_error", "j")
    assert told.choose("j") == "j"
    told.do("on_trial_start", "j")
    assert told.scheduler.get_state()["bracket_of"]["j"] == 3


def test_an_order_that_was_not_carried_out_is_given_again() -> None:
    told = Told(hyperband(), NAMES)
    for name, value in (("g", 4.0), ("h", 1.0), ("i", 3.0), ("j", 2.0)):
        told.say(name, 1, value)
    assert told.orders == stops("h")  # and the driver is killed
    for name in "abcdefgij":
        told.do("on_trial_error", name)
    assert told.choose("h") is None
    assert told.do("on_idle") == stops("h")
    told.do("on_trial_complete", "h", {})
    assert told.do("on_idle") == []


# --- who runs next ----------------------------------------------------------------------------------------------


def test_the_bracket_that_has_come_least_far_runs_first_and_an_earlier_band_before_a_later_one() -> None:
    told = Told(hyperband(), NAMES + "k")
    told.say("a", 3, 1.0)
    assert told.choose("abcdefghijk") == "d"
    told.say("d", 1, 1.0)
    assert told.choose("abcdefghijk") == "g"
    assert told.choose("kb") == "b"
    assert told.choose("k") == "k"
    told.say("g", 1, 1.0)
    assert told.choose("gk") == "k"
    assert told.choose("g") is None


def test_without_stop_last_trials_the_best_run_on() -> None:
    told = Told(hyperband(stop_last_trials=False), NAMES)
    assert [told.say("a", iteration, 1.0) for iteration in (4, 5, 50)] == [CONTINUE] * 3
    for name, value in (("g", 4.0), ("h", 3.0), ("i", 2.0), ("j", 1.0)):
        told.say(name, 1, value)
    told.say("h", 2, 1.0)
    assert (told.say("g", 2, 2.0), told.orders) == (CONTINUE, stops("h"))
    assert [told.say("g", iteration, 0.0) for iteration in (3, 4, 5)] == [CONTINUE] * 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_t", 0),
        ("max_t", 0.5),
        ("max_t", math.inf),
        ("max_t", "a"),
        ("max_t", True),
        ("reduction_factor", 1),
        ("reduction_factor", math.nan),
        ("stop_last_trials", "no"),
        ("time_attr", ""),
        ("mode", "maximum"),
    ],
)
@pytest.mark.parametrize("kind", [HyperBandScheduler, HyperBandForBOHB])
def test_a_number_out_of_its_range_is_named(kind: type[HyperBandScheduler], name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*not accepted"):
        kind(**{name: value})


def test_a_hundred_thousand_trials_cost_the_same_at_the_end() -> None:
    scheduler = hyperband(max_t=9, reduction_factor=3)
    worker = Worker(scheduler, trials=100_000)
    first = count_calls(lambda: worker.work(5_000))
    worker.work(400_000)
    assert worker.created > 90_000
    assert count_calls(lambda: worker.work(5_000)) < 1.2 * first
    assert len(scheduler.get_state()["brackets"]) < 5
    worker.work(10**9)
    assert worker.created == 100_000
    assert worker.waiting == {}
