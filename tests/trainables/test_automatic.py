"""The keys that every result gets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainables.automatic import AutomaticKeys

COUNT = st.none() | st.integers(0, 99)


@given(st.lists(st.tuples(COUNT, COUNT), max_size=9), st.integers(0, 9))
def test_steps_and_episodes_are_summed_where_they_are_given(told: list[tuple[Any, Any]], cut: int) -> None:
    """Whether a trial runs through or continues from a result of its own, the totals are the same."""

    def metrics(steps: int | None, episodes: int | None) -> dict[str, int]:
        given = {"timesteps_this_iter": steps, "episodes_this_iter": episodes}
        return {key: value for key, value in given.items() if value is not None}

    through, last = AutomaticKeys(), dict[str, int]()
    for steps, episodes in told[:cut]:
        last = through.complete(metrics(steps, episodes))
    resumed = AutomaticKeys(earlier=lambda: last)
    for steps, episodes in told[cut:]:
        one, other = (keys.complete(metrics(steps, episodes)) for keys in (through, resumed))
        for total in ("timesteps_total", "episodes_total"):
            assert one.get(total) == other.get(total) or total not in other

    sums = [sum(each or 0 for each in column) for column in zip(*told, strict=True)] or [0, 0]
    assert [through.totals.get("timesteps_total", 0), through.totals.get("episodes_total", 0)] == sums


def test_a_users_own_total_wins_and_earlier_is_asked_once_and_late() -> None:
    asked = []
    keys = AutomaticKeys(earlier=lambda: asked.append(1) or {"timesteps_total": 5})
    assert "timesteps_total" not in keys.complete({"loss": 1}) and not asked
    assert keys.complete({"timesteps_this_iter": 1})["timesteps_total"] == 6
    assert keys.complete({"timesteps_this_iter": 1, "timesteps_total": 100})["timesteps_total"] == 100
    assert asked == [1]


def test_the_keys_of_a_moment_count_nothing() -> None:
    keys = AutomaticKeys(iteration=3, time_total_s=2.0)
    found = keys.at(datetime.fromtimestamp(1_000_000))
    assert (found["timestamp"], found["training_iteration"], found["time_total_s"]) == (1_000_000, 3, 2.0)
    assert keys.iteration == 3
