"""The shipped suite for searchers finds the faults of faulty ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.tuner.search.searchers import Ladder
from trainables.metrics import score_of
from tuner.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher
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


class Ending(Ladder):
    def suggest(self, trial_id: str) -> Any:
        return Searcher.FINISHED if self.next >= 3 else super().suggest(trial_id)


class Deaf(Ladder):
    """Looks a nested metric up under one of its spellings only."""

    needs_metric = True

    def __init__(self) -> None:
        Searcher.__init__(self)
        self.next = 0.0

    def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:  # type: ignore[override]
        return Searcher.set_search_properties(self, metric, mode, config)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if result is not None and str(self.metric) in result:
            self.next += 1.0


class Listing(Ladder):
    def suggest(self, trial_id: str) -> Any:
        return [1.0]


@pytest.mark.parametrize(
    ("make", "obligation"),
    [
        (Ending, "trial 3: a suggestion is a dict, not 'FINISHED'"),
        (Listing, r"trial 0: a suggestion is a dict, not \[1.0\]"),
        (Deaf, "a nested metric is found however it is spelled"),
    ],
)
def test_it_finds_who_ends_early_or_does_not_hear(make: Callable[[], Searcher], obligation: str) -> None:
    with pytest.raises(AssertionError, match=obligation):
        check_searcher(make, {}, replays=False)


def test_who_cannot_be_replayed_is_judged_by_its_state_only() -> None:
    check_searcher(Counting, {}, replays=False)


def test_who_takes_a_metric_hears_it_in_every_spelling() -> None:
    class Hearing(Deaf):
        def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
            score = score_of(result or {}, str(self.metric))
            self.next += 0.0 if score is None or score != score else score

    check_searcher(Hearing, {})


def test_a_searcher_that_waits_for_its_trials_is_waited_for() -> None:
    check_searcher(lambda: ConcurrencyLimiter(Ladder(), 2), {})


def test_a_searcher_without_a_metric_needs_none() -> None:
    class Blind(Ladder):
        def __init__(self) -> None:
            Searcher.__init__(self)
            self.next = 0.0

    check_searcher(Blind, {})
    check_searcher(BasicVariantGenerator)
