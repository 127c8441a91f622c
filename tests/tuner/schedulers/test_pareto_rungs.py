"""Rungs of several objectives: who is stopped, who goes on, and that they continue from their state."""

from __future__ import annotations

import math
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.schedulers.objectives import PlaceOrder, Point
from tuner.schedulers.pareto_rungs import ParetoPromotionRung, ParetoStoppingRung
from tuner.schedulers.rungs import Cut, PromotionBracket, StoppingBracket, StoppingRung

VALUES = st.integers(0, 6).map(float) | st.sampled_from([math.nan, math.inf])
POINTS = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=40)
FACTORS = st.sampled_from([1.5, 2, 3, 4, 7.5])


def test_who_is_beaten_ends_and_is_told_where_it_stood() -> None:
    rung = ParetoStoppingRung(1)
    assert rung.judge("a", (2.0, 2.0), 2) is None, "the first"
    assert rung.judge("b", (3.0, 3.0), 2) == Cut((3.0, 3.0), rank=2, of=2, front=2)
    assert rung.judge("c", (1.0, 1.0), 2) is None
    assert rung.judge("d", (2.0, 1.5), 2) is None, "2nd of 4, and two go on"
    assert rung.judge("e", (1.0, 1.0), 2) is None, "as good as the best"
    assert rung.text(2) == "1 of 5 unbeaten"


def test_the_ends_of_a_front_go_on_before_its_middle() -> None:
    rung = ParetoStoppingRung(1)
    assert rung.judge("left", (0.0, 10.0), 4) is None
    for number in range(1, 5):
        rung.judge(f"crowd{number}", (1.0 + number / 100, 9.0 - number / 100), 4)
    assert rung.judge("right", (10.0, 0.0), 4) is None, "2nd of 6, and two go on"
    assert rung.judge("crowd", (1.005, 9.0), 4) is not None


def test_one_that_diverged_goes_on_only_where_nobody_is_sound() -> None:
    rung = ParetoStoppingRung(1)
    assert rung.judge("a", (math.nan, 1.0), 2) is None
    assert rung.judge("b", (0.0, math.inf), 2) is None
    assert rung.judge("c", (9.0, 9.0), 2) is None
    for number in range(20):
        rung.judge(f"{number}", (float(number), float(-number)), 2)
    cut = rung.judge("z", (math.nan, -1e9), 2)
    assert cut is not None and cut[1:] == (22, 24, None, None)


@given(st.lists(st.integers(0, 30).map(float), min_size=1, max_size=40), st.sampled_from([2, 4, 8]))
def test_with_objectives_that_agree_it_decides_as_a_single_one_but_for_the_interpolation(
    values: list[float], factor: float
) -> None:
    several, single = ParetoStoppingRung(1), StoppingRung(1)
    for number, value in enumerate(values):
        goes_on = several.judge(f"{number}", (value, value), factor) is None
        cut = single.judge(f"{number}", -value, factor)
        if goes_on:
            assert cut is None
        elif cut is None:  # between two earlier scores, above the percentile between them
            rank = single.rank(-value)
            assert rank == math.ceil(1 + (number - 1) / factor)


@given(POINTS, FACTORS, st.integers(0, 30))
def test_stopping_goes_on_from_its_state(points: list[Point], factor: float, cut: int) -> None:
    def play(at: int | None) -> list[str]:
        bracket, found = StoppingBracket([1, 2, 4], factor, ParetoStoppingRung, once=False), []
        for number, point in enumerate(points):
            if number == at:
                state = cloudpickle.loads(cloudpickle.dumps(bracket.get_state()))
                bracket = StoppingBracket([1, 2, 4], factor, ParetoStoppingRung, once=False)
                bracket.set_state(state)
            found.append(repr(bracket.on_result(f"t{number % 5}", number // 5 + 1, point)))
        return found

    assert play(cut) == play(None)


@given(POINTS, FACTORS)
def test_as_many_as_the_share_have_gone_on_and_nobody_who_is_beaten_by_one_who_waits(
    points: list[Point], factor: float
) -> None:
    rung, ranking = ParetoPromotionRung(1), PlaceOrder()
    for number, point in enumerate(points):
        before = dict(rung.promoted)
        chosen = rung.record(f"t{number}", point, factor)
        ranking.add(point)
        assert not set(chosen) & set(before) and list(rung.promoted) == [*before, *chosen]
        assert len(rung.promoted) >= min(int((number + 1) / factor), ranking.placed)
        waiting = {name for name in rung.recorded if name not in rung.promoted}
        for name in chosen:
            front = ranking.place(rung.recorded[name])[0]
            assert front is not None
            better = [ranking.place(rung.recorded[other])[0] for other in waiting]
            assert not any(each is not None and each < front for each in better)


def test_who_has_gone_on_keeps_its_place_where_a_front_is_cut() -> None:
    rung = ParetoPromotionRung(1)
    points = [(float(number), float(10 - number)) for number in (5, 4, 6, 3)]
    chosen = [rung.record(f"{point[0]:g}", point, 2) for point in points]
    assert chosen == [[], ["4"], [], ["6"]], "the best in the first objective, then the farthest from it"
    assert rung.record("0", (0.0, 10.0), 2) == [], "two of five have gone on"
    assert rung.record("1", (1.0, 1.0), 2) == ["0", "1"], "nothing beats these; the third place is taken"


def test_who_has_ended_is_not_promoted_and_the_best_of_too_few_goes_on_alone() -> None:
    rung = ParetoPromotionRung(1)
    assert rung.promote_one() == []
    for name, point in (("a", (2.0, 2.0)), ("b", (math.nan, 0.0)), ("c", (1.0, 1.0)), ("d", (3.0, 3.0))):
        rung.record(name, point, 9)
    rung.give_up("c")
    assert rung.promote_one() == ["a"]
    assert rung.promote_one() == []


@given(POINTS, FACTORS, st.integers(0, 30))
def test_promotion_goes_on_from_its_state(points: list[Point], factor: float, cut: int) -> None:
    def play(at: int | None) -> list[Any]:
        bracket, found = PromotionBracket([1, 2, 4], factor, ParetoPromotionRung), list[Any]()
        for number, point in enumerate(points):
            if number == at:
                state = cloudpickle.loads(cloudpickle.dumps(bracket.get_state()))
                bracket = PromotionBracket([1, 2, 4], factor, ParetoPromotionRung)
                bracket.set_state(state)
            found.append(bracket.on_result(f"t{number % 5}", number // 5 + 1, point))
            if number % 7 == 6:
                found.append(bracket.promote_one())
                bracket.give_up(f"t{number % 3}")
        return found

    assert play(cut) == play(None)


@pytest.mark.parametrize("rung", [ParetoStoppingRung, ParetoPromotionRung])
def test_a_state_replaces_what_was_there(rung: Any) -> None:
    kind = StoppingBracket if rung is ParetoStoppingRung else PromotionBracket
    more: dict[str, Any] = {"once": False} if kind is StoppingBracket else {}
    empty, used = kind([1], 2, rung, **more), kind([1], 2, rung, **more)
    for number in range(6):
        used.on_result(f"{number}", 1, (float(number), float(number)))
    used.set_state(empty.get_state())
    assert used.get_state() == empty.get_state()
