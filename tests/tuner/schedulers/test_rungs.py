"""Rungs: where they lie, who is stopped at one, and who is promoted from one."""

from __future__ import annotations

import math

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.schedulers.rungs import (
    Cut,
    PromotionBracket,
    PromotionRung,
    StoppingBracket,
    StoppingRung,
    milestones,
    percentile,
)

SCORES = st.lists(st.floats(-10, 10).map(lambda value: round(value, 1)) | st.just(math.nan), min_size=1, max_size=30)
FACTORS = st.sampled_from([1.5, 2, 3, 4, 7.5])


@pytest.mark.parametrize(
    ("arguments", "heights"),
    [
        ((1, 9, 3, 0), [1, 3, 9]),
        ((1, 10, 3, 0), [1, 3, 9]),
        ((1, 9, 3, 1), [3, 9]),
        ((1, 9, 3, 3), []),
        ((10, 9, 3, 0), []),
        ((0.5, 2, 2, 0), [0.5, 1, 2]),
        ((1, 1000, 10, 0), [1, 10, 100, 1000]),
        ((1, 0.1 + 0.7, 2, 0), []),
    ],
)
def test_rungs_lie_at_powers_of_the_factor_up_to_the_end(
    arguments: tuple[float, float, float, int], heights: list[float]
) -> None:
    assert milestones(*arguments) == heights


@given(st.integers(1, 20), FACTORS, st.integers(0, 6))
def test_a_rung_at_the_very_end_is_not_lost_to_rounding(grace: int, factor: float, rungs: int) -> None:
    heights = milestones(grace, grace * factor**rungs, factor, 0)
    assert len(heights) == rungs + 1
    assert all(high / low == pytest.approx(factor) for low, high in zip(heights, heights[1:], strict=False))


@given(
    st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=40).filter(
        lambda v: any(x == x for x in v)
    ),
    st.floats(1.01, 20),
)
def test_the_cutoff_is_numpys_nanpercentile(values: list[float], factor: float) -> None:
    percent = (1 - 1 / factor) * 100
    ordered = sorted(value for value in values if value == value)
    assert percentile(ordered, percent) == float(np.nanpercentile(values, percent))


def test_a_cutoff_between_infinities_is_one_of_them() -> None:
    assert percentile([-math.inf, math.inf], 40) == -math.inf
    assert percentile([-math.inf, math.inf], 50) == math.inf
    assert percentile([1.0, math.inf], 75) == math.inf
    assert percentile([3.0], 99.9) == 3.0


# --- rungs that stop


def test_a_place_is_counted_from_the_best_and_equal_ones_share_the_best_place() -> None:
    rung = StoppingRung(1)
    assert rung.cutoff(2) is None
    for name, score in (("a", 1.0), ("b", math.nan), ("c", 3.0), ("d", 1.0), ("e", 2.0)):
        rung.record(name, score)
    assert [rung.rank(score) for score in (3.0, 2.0, 1.0, math.nan)] == [1, 2, 3, 5]
    assert rung.ordered == [1.0, 1.0, 2.0, 3.0]


def test_who_is_below_the_cutoff_of_those_before_it_ends_and_is_told_where_it_stood() -> None:
    bracket = StoppingBracket([1, 3], 2, StoppingRung, once=False)
    assert bracket.on_result("a", 1, 4.0) is None
    assert bracket.on_result("b", 1, 2.0) == Cut(score=2.0, rank=2, of=2, needed=4.0)
    assert bracket.on_result("c", 1, 3.0) is None, "the median of 2 and 4"
    cut = bracket.on_result("d", 1, math.nan)
    assert cut is not None and math.isnan(cut.score) and cut[1:4] == (4, 4, 3.0)
    assert bracket.on_result("a", 2, -9.0) is None, "it was at 1 already"
    assert bracket.on_result("a", 3, 0.0) is None, "the first there"
    assert [bracket.knows(name) for name in "abz"] == [True, True, False]


def test_who_is_high_up_is_not_looked_at_further_down_where_once_is_said() -> None:
    for once, cut in ((True, None), (False, Cut(1.0, 2, 2, 5.0))):
        bracket = StoppingBracket([1, 3], 2, StoppingRung, once=once)
        bracket.on_result("a", 1, 5.0)
        bracket.on_result("b", 4, 1.0)
        assert bracket.on_result("b", 5, 1.0) == cut, "a result at 3 and none at 1"


def test_below_the_lowest_rung_nothing_is_decided() -> None:
    bracket = StoppingBracket([2], 2, StoppingRung, once=False)
    assert bracket.on_result("a", 1.9, -1.0) is None
    assert not bracket.knows("a")
    assert str(bracket) == "2: -"
    bracket.on_result("a", 2, 0.123456)
    assert str(bracket) == "2: 0.1235"


@given(SCORES, FACTORS, st.integers(0, 30))
def test_stopping_goes_on_from_its_state(scores: list[float], factor: float, cut: int) -> None:
    def play(at: int | None) -> list[Cut | None]:
        bracket, found = StoppingBracket([1, 2, 4], factor, StoppingRung, once=False), []
        for number, score in enumerate(scores):
            if number == at:
                state = cloudpickle.loads(cloudpickle.dumps(bracket.get_state()))
                bracket = StoppingBracket([1, 2, 4], factor, StoppingRung, once=False)
                bracket.set_state(state)
            found.append(bracket.on_result(f"t{number % 5}", number // 5 + 1, score))
        return found

    assert play(cut) == play(None)


# --- rungs that promote


@given(SCORES, FACTORS)
def test_exactly_the_best_share_has_ever_been_promoted(scores: list[float], factor: float) -> None:
    rung = PromotionRung(1)
    for number, score in enumerate(scores):
        before = dict(rung.promoted)
        chosen = rung.record(f"t{number}", score, factor)
        assert not set(chosen) & set(before), "nobody twice"
        assert list(rung.promoted) == [*before, *chosen]
        numbers = [(value, -place) for place, value in enumerate(scores[: number + 1]) if not math.isnan(value)]
        best = sorted(numbers, reverse=True)[: int((number + 1) / factor)]
        assert {f"t{-place}" for _, place in best} <= set(rung.promoted)
    assert not any(math.isnan(rung.recorded[name]) for name in rung.promoted)


def test_who_has_ended_is_not_promoted_and_nobody_in_its_place() -> None:
    rung = PromotionRung(1)
    assert rung.record("a", 9.0, 2) == []
    rung.give_up("a")
    assert rung.record("b", 1.0, 2) == [], "one of two: that was a"
    assert rung.record("c", 2.0, 2) == []
    assert rung.record("d", 0.0, 2) == ["c"], "two of four"
    rung.give_up("c")
    rung.give_up("stranger")
    assert rung.get_state()["ended"] == ["a"], "who went on has not ended here"


def test_the_best_of_too_few_goes_on_alone() -> None:
    rung = PromotionRung(1)
    assert rung.promote_one() == []
    for name, score in (("a", 2.0), ("b", math.nan), ("c", 3.0)):
        rung.record(name, score, 9)
    rung.give_up("c")
    assert rung.promote_one() == ["a"]
    assert rung.promote_one() == [], "not a second one"


def test_a_ladder_of_promotions() -> None:
    bracket = PromotionBracket([1, 3], 2, PromotionRung)
    assert bracket.on_result("a", 0.5, 1.0) is None
    assert not bracket.knows("a") and bracket.height_of("a") == 0.0
    assert bracket.on_result("a", 1, 1.0) == []
    assert bracket.on_result("a", 2, 9.0) is None, "it was there already"
    assert bracket.on_result("b", 3, 5.0) == []
    assert (bracket.height_of("a"), bracket.height_of("b")) == (1, 3)
    assert bracket.promote_one() == ["b"], "of the highest rung"
    assert bracket.promote_one() == ["a"]
    assert bracket.promote_one() == []
    assert str(bracket) == "3: 1 (1 up), 1: 1 (1 up)"
    bracket.give_up("a")
    assert bracket.get_state()[1] == {"recorded": {"a": 1.0}, "promoted": ["a"], "ended": []}


@given(SCORES, FACTORS, st.integers(0, 30))
def test_promotion_goes_on_from_its_state(scores: list[float], factor: float, cut: int) -> None:
    def play(at: int | None) -> list[list[str] | None]:
        bracket, found = PromotionBracket([1, 2, 4], factor, PromotionRung), []
        for number, score in enumerate(scores):
            if number == at:
                state = cloudpickle.loads(cloudpickle.dumps(bracket.get_state()))
                bracket = PromotionBracket([1, 2, 4], factor, PromotionRung)
                bracket.set_state(state)
            found.append(bracket.on_result(f"t{number % 7}", number // 7 + 1, score))
            if number % 4 == 3:
                bracket.give_up(f"t{number % 7}")
                found.append(bracket.promote_one())
        return found

    assert play(cut) == play(None)
