"""The shipped suite for searchers finds the faults of faulty ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.tuner.search.searchers import Ladder
from tuner.search import Searcher
from tuner.testing import check_searcher


class Forgetful(Ladder):
    def get_state(self) -> dict[str, Any]:
        return {}


class Sharing(Ladder):
    def __init__(self) -> None:
        super().__init__()
        self.config = {"x": 1.0}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        self.config["x"] = self.config.get("x", 0.0) + 1
        return self.config


class Random(Ladder):
    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        import random

        return {"x": random.random()}


class Writing(Ladder):
    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        result.clear()


class Lazy(Ladder):
    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        return None


class Counting(Ladder):
    """Depends on how often it was told, which a replay of the calls repeats and its state leaves out."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.next += 0.5

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        return True


def test_a_searcher_of_ones_own_needs_one_method() -> None:
    check_searcher(Ladder, {})


@pytest.mark.parametrize(
    ("make", "obligation"),
    [
        (Forgetful, "goes on from its state"),
        (Sharing, "is the caller's"),
        (Random, "the same calls give the same"),
        (Writing, "does not change what it is told"),
        (Lazy, "without unfinished trials"),
        (Counting, "goes on after a replay"),
    ],
)
def test_the_suite_finds_faults(make: Callable[[], Searcher], obligation: str) -> None:
    with pytest.raises(AssertionError, match=obligation):
        check_searcher(make, {})
