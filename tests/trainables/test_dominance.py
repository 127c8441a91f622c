"""Fronts against their definition, pair by pair."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainables.dominance import Fronts, Point, first_front, is_beaten

POINTS = st.integers(1, 4).flatmap(lambda size: st.lists(st.tuples(*[st.integers(0, 6)] * size), max_size=40))


def beats(one: Point, other: Point) -> bool:
    return one != other and all(mine <= its for mine, its in zip(one, other, strict=True))


def fronts_by_definition(points: list[Point]) -> list[list[Point]]:
    left, fronts = set(points), []
    while left:
        front = {point for point in left if not any(beats(other, point) for other in left)}
        fronts.append(sorted(front))
        left -= front
    return fronts


@given(POINTS)
def test_the_first_front_is_what_none_beats(points: list[Point]) -> None:
    assert first_front(points) == (fronts_by_definition(points) or [[]])[0]


@given(POINTS)
def test_points_that_come_one_after_another_are_in_their_fronts_each_time(points: list[Point]) -> None:
    fronts = Fronts()
    for count, point in enumerate(points, start=1):
        number = fronts.add(point)
        assert fronts.levels == fronts_by_definition(points[:count])
        assert point in fronts.levels[number]
        assert fronts.find(point) == number


@given(POINTS, st.data())
def test_a_point_that_was_not_taken_is_looked_up_where_it_would_be(points: list[Point], data: st.DataObject) -> None:
    if points:
        new = data.draw(st.tuples(*[st.integers(0, 6)] * len(points[0])))
        fronts = Fronts(points)
        before = [list(level) for level in fronts.levels]
        assert fronts.find(new) == Fronts([*points, new]).add(new)
        assert fronts.levels == before


@given(POINTS, st.data())
def test_being_beaten_by_a_front(points: list[Point], data: st.DataObject) -> None:
    front = first_front(points)
    new = data.draw(st.tuples(*[st.integers(0, 6)] * (len(points[0]) if points else 2)))
    if new not in front:
        assert is_beaten(new, front) == any(beats(point, new) for point in front)
