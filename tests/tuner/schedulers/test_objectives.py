"""The order in which points go on, against its definition."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.dominance import Fronts, first_front
from tuner.schedulers.objectives import Objectives, PlaceOrder, Point, epsilon_net, has_place

POINTS = st.integers(2, 4).flatmap(
    lambda size: st.lists(st.tuples(*[st.integers(0, 8).map(float)] * size), min_size=1, max_size=30)
)


def net_by_definition(front: list[Point], begin: list[Point]) -> list[Point]:
    ranges = [(min(axis), max(axis)) for axis in zip(*front, strict=True)]
    placed = {
        point: [(value - low) / (high - low or 1) for value, (low, high) in zip(point, ranges, strict=True)]
        for point in front
    }
    order = list(begin) or [min(front)]
    while len(order) < len(front):
        left = sorted(set(front) - set(order))
        order.append(max(left, key=lambda point: min(math.dist(placed[point], placed[other]) for other in order)))
    return order


@given(POINTS, st.randoms(use_true_random=False))
def test_each_point_of_a_net_is_as_far_as_can_be_from_those_before_it(points: list[Point], draw: Any) -> None:
    front = first_front(points)
    begin = sorted(draw.sample(front, draw.randint(0, len(front))))
    found, expected = list(epsilon_net(front, chosen=begin)), net_by_definition(front, begin)
    assert found[0] == expected[0] and sorted(found) == front and found[: len(begin)] == begin
    ranges = [max(axis) - min(axis) or 1 for axis in zip(*front, strict=True)]

    def room(order: list[Point], count: int) -> float:
        def far(one: Point, other: Point) -> float:
            return math.hypot(*((a - b) / r for a, b, r in zip(one, other, ranges, strict=True)))

        return min(far(order[count], other) for other in order[:count])

    for count in range(max(1, len(begin)), len(front)):  # ties that rounding breaks are as far
        best = max(room([*found[:count], other], count) for other in found[count:])
        assert room(found, count) == pytest.approx(best)


def test_objectives_are_normalised() -> None:
    front = [(0.0, 2e6), (0.5, 1.9e6), (0.6, 1e6), (1.0, 0.0)]
    assert list(epsilon_net(front)) == [front[0], front[3], front[2], front[1]]


def test_infinities_lie_at_the_end_of_the_range_and_nothing_overflows() -> None:
    inf, huge = math.inf, 1.7e308
    assert list(epsilon_net([(-inf, 3.0), (0.0, 2.0), (10.0, -huge), (11.0, -inf)]))[:2] == [(-inf, 3.0), (11.0, -inf)]
    assert list(epsilon_net([(-huge, huge), (0.0, 0.0), (huge, -huge)])) == [(-huge, huge), (huge, -huge), (0.0, 0.0)]
    assert list(epsilon_net([(-inf, 1.0)])) == [(-inf, 1.0)]


@given(POINTS)
def test_places_follow_fronts_then_nets_and_equal_points_share_the_best(points: list[Point]) -> None:
    ranking = PlaceOrder()
    for point in points:
        ranking.add(point)
    order = [point for front in Fronts(points).levels for point in epsilon_net(front)]
    expected = {point: 1 + sum(points.count(before) for before in order[: order.index(point)]) for point in points}
    for point in points:
        front, place = ranking.place(point)
        assert place == expected[point]
        assert front is not None and point in Fronts(points).levels[front - 1]
    for count in range(len(points) + 1):
        best = {point for point in points if expected[point] <= count}
        assert set(ranking.top(count)) >= best
        assert sum(map(points.count, ranking.top(count))) >= count


def test_what_is_not_a_number_or_as_bad_as_can_be_is_behind_all() -> None:
    nan, inf = math.nan, math.inf
    ranking = PlaceOrder()
    for point in [(nan, 0.0), (5.0, 5.0), (0.0, inf), (-inf, 6.0)]:
        ranking.add(point)
    assert [has_place(point) for point in [(nan, 0.0), (0.0, inf), (-inf, 6.0)]] == [False, False, True]
    assert ranking.place((nan, 0.0)) == ranking.place((0.0, inf)) == (None, 3)
    assert ranking.first == [(-inf, 6.0), (5.0, 5.0)]


def test_a_result_is_a_point_turned_so_that_lower_is_better() -> None:
    objectives = Objectives(["loss", "eval/acc"], ["min", "max"])
    assert objectives.point({"loss": 1, "eval": {"acc": 0.5}}) == (1.0, -0.5)
    assert objectives.values((1.0, -0.5)) == {"loss": 1.0, "eval/acc": 0.5}
    for bad in ({"loss": 1.0}, {"loss": "low", "eval/acc": 1.0}, {"loss": None, "eval/acc": True}):
        assert objectives.point(bad) is None
