from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner.schedulers.depths import Depths

SCORES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=12)


@given(SCORES, st.sets(st.integers(0, 11)))
def test_ranks_are_those_of_a_stable_sort_and_who_waits_is_found_best_first(
    scores: list[float], left: set[int]
) -> None:
    depths = Depths()
    for number, score in enumerate(scores):
        depths.wait(f"{number:02}", 3, depths.record(3, score))
    for number in left:
        depths.leave(f"{number:02}")
    again = Depths()
    again.set_state(depths.get_state())
    best_first = sorted(range(len(scores)), key=lambda number: (-scores[number], number))
    expected = [(rank, f"{number:02}") for rank, number in enumerate(best_first, 1) if number not in left]
    for each in (depths, again):
        assert list(each.waiting_at(3)) == expected
        assert len(each) == len(expected)
        assert each.reached(3) == len(scores)
        assert list(each.worst()) == [(3, *last) for last in expected[-1:]]


def test_the_deepest_come_first_and_nobody_waits_twice() -> None:
    depths = Depths()
    depths.wait("a", 2, depths.record(2, 1.0))
    depths.wait("b", 2, depths.record(2, 3.0))
    depths.wait("a", 5, depths.record(5, 0.0))
    assert (depths.with_waiting(), depths.waiting(), depths.reached(2), depths.reached(9)) == ([5, 2], ["a", "b"], 2, 0)
    depths.leave("nobody")
    depths.leave("a")
    assert depths.waiting() == ["b"]
