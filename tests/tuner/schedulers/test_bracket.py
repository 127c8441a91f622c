"""A bracket of HyperBand: who joins, who waits at a rung, who goes on, and how much of it is done."""

from __future__ import annotations

import math
import random

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.schedulers.bracket import Bracket
from tuner.schedulers.rungs import Cut


def bracket(names: str = "", *, size: int = 9, rungs: tuple[int, ...] = (1, 3, 9), factor: float = 3) -> Bracket:
    made = Bracket(2, 0, size, list(rungs), factor)
    for name in names:
        made.add(name)
    return made


def test_it_is_full_when_all_have_joined_and_when_it_is_closed() -> None:
    made = bracket("abc", size=4)
    assert not made.full
    made.add("d")
    assert made.full
    closed = bracket("a", size=4)
    closed.close()
    assert closed.full


def test_it_halves_when_everybody_is_at_the_rung() -> None:
    made = bracket("abc")
    assert (made.end, made.halvings_left, made.may_halve) == (9, 2, False)
    made.reach("a", 1, 0.3)
    made.reach("b", 1, 0.1)
    assert [made.is_ready(name) for name in "abc"] == [True, True, False]
    assert not made.may_halve
    made.reach("c", 1, 0.2)
    assert made.may_halve


def test_the_worst_are_dropped_first_with_where_they_stood() -> None:
    made = bracket("abcdefghi")
    for place, name in enumerate("abcdefghi"):
        made.reach(name, 1, float(place))
    dropped = made.halve()
    assert [name for name, _ in dropped] == list("abcdef")
    assert dropped[0][1] == Cut(score=0.0, rank=9, of=9, needed=6.0)
    assert dropped[-1][1] == Cut(score=5.0, rank=4, of=9, needed=6.0)
    assert (list(made.live), made.size, made.halvings_left) == (list("ghi"), 3, 1)
    assert [made.is_ready(name) for name in "ghi"] == [False] * 3, "the next rung is at 3"


def test_of_equal_scores_the_later_one_stays_and_nan_goes_first() -> None:
    made = bracket("abcd", size=4, factor=2)
    for name, score in (("a", 1.0), ("b", math.nan), ("c", 1.0), ("d", 1.0)):
        made.reach(name, 1, score)
    assert [name for name, _ in made.halve()] == ["b", "a"]
    assert list(made.live) == ["c", "d"]


def test_the_first_result_at_a_rung_counts_whatever_comes_later() -> None:
    made = bracket("ab", size=2, rungs=(2, 4), factor=2)
    made.reach("a", 1, 9.0)
    assert not made.is_ready("a")
    made.reach("a", 2, 1.0)
    made.reach("a", 3, 9.0)
    made.reach("b", 2, 2.0)
    assert made.halve() == [("a", Cut(1.0, 2, 2, 2.0))]


def test_who_saves_seldom_may_be_rungs_ahead_and_is_ready_there_at_once() -> None:
    made = bracket("abc", size=3)
    made.reach("a", 4, 5.0)  # past the rungs at 1 and 3
    made.reach("b", 1, 1.0)
    made.reach("c", 1, 0.0)
    made.halve()
    assert made.live == {"a": {0: 5.0, 1: 5.0}}
    assert made.is_ready("a") and made.may_halve


def test_who_leaves_is_waited_for_no_longer() -> None:
    made = bracket("abc", size=3)
    made.reach("a", 1, 1.0)
    made.reach("b", 2, 1.0)
    assert not made.may_halve
    assert made.remove("c") == 0.0
    assert made.may_halve
    assert (made.remove("b"), made.remove("b"), made.remove("stranger")) == (2, 0.0, 0.0)


def test_an_empty_bracket_and_one_at_its_last_rung_are_not_halved() -> None:
    assert not bracket().may_halve
    last = bracket("a", rungs=(1,))
    last.reach("a", 1, 1.0)
    assert (last.halvings_left, last.may_halve) == (0, False)


@pytest.mark.parametrize(("joined", "room"), [(4, False), (3, True)])
def test_who_was_full_once_is_not_filled_again(joined: int, room: bool) -> None:
    """One that was not takes as many as may still go on from its next rung."""
    made = bracket("abcd"[:joined], size=4, rungs=(1, 2, 4), factor=1.2)
    for name in list(made.live):
        made.reach(name, 1, 1.0)
    made.remove("a")
    made.halve()
    assert made.full is not room


@pytest.mark.parametrize(("left", "more"), [("c", 1), ("bc", 0), ("abc", 0)])
def test_who_never_was_full_takes_as_many_as_may_go_on_from_its_next_rung(left: str, more: int) -> None:
    made = bracket("abc", size=4, rungs=(1, 2, 4), factor=2)
    for name in "abc":
        made.reach(name, 1, 1.0)
        if name not in left:
            made.remove(name)
    made.halve()
    for number in range(more):
        assert not made.full
        made.add(f"new {number}")
    assert made.full


def test_its_work_is_what_all_rungs_take_and_ends_at_one() -> None:
    made = bracket("ab", size=2, rungs=(2, 6), factor=2)  # 2 trials to 2, 1 to 6: 10
    assert made.completion() == 0.0
    made.reach("a", 1, 1.0)
    assert made.completion() == 0.1
    made.reach("a", 2, 1.0)
    made.reach("b", 2, 0.0)
    assert made.completion() == 0.4
    made.halve()
    made.reach("a", 5, 1.0)
    assert made.completion() == 0.7
    made.reach("a", 6, 1.0)
    assert made.completion() == 1.0
    assert str(made) == "bracket 2: size 1, rung 6, trials 1, 100.0%"


def test_work_is_never_more_than_all_of_it() -> None:
    made = bracket("ab", size=2, rungs=(2, 6), factor=2)
    made.reach("a", 100, 1.0)
    assert made.completion() == 1.0


def story(seed: int, factor: float, size: int) -> list[tuple[str, int, float]]:
    draw = random.Random(seed)
    times = {f"t{number}": 0 for number in range(size)}
    steps = []
    for _ in range(size * 6):
        name = draw.choice(list(times))
        times[name] += draw.randint(1, 3)
        steps.append((name, times[name], draw.choice([1.0, 2.0, math.nan, math.inf, draw.random()])))
    return steps


@given(st.integers(0, 10_000), st.sampled_from([1.5, 2, 3, 4]), st.integers(1, 9), st.integers(0, 60))
def test_each_halving_keeps_the_best_share_and_a_state_goes_on_alike(
    seed: int, factor: float, size: int, cut: int
) -> None:
    made = bracket(size=size, factor=factor)
    for number in range(size):
        made.add(f"t{number}")
    for number, (name, time, score) in enumerate(story(seed, factor, size)):
        if number == cut:
            made = Bracket.from_state(cloudpickle.loads(cloudpickle.dumps(made.get_state())))
        if name not in made.live:
            continue
        made.reach(name, time, score)
        copied = Bracket.from_state(made.get_state())
        if not made.may_halve:
            continue
        before, rung = dict(made.live), len(made._rungs) - 1 - made.halvings_left
        dropped = made.halve()
        assert copied.halve() == dropped, "a copy has the same before it, and is not the same object"
        assert len(made.live) == min(len(before), made.size)
        assert {*made.live} | {name for name, _ in dropped} == set(before)
        scores = {name: marks[rung] for name, marks in before.items()}
        gone = [scores[name] for name, _ in dropped if not math.isnan(scores[name])]
        assert all(kept >= score for score in gone for kept in map(scores.__getitem__, made.live))
        assert [where.rank for _, where in dropped] == list(range(len(before), len(made.live), -1))
    assert 0.0 <= made.completion() <= 1.0
