"""Wrappers that limit a searcher: how many trials at a time, in batches, or in all."""

from __future__ import annotations

from typing import Any

import tuner as tune
import tuner.search
from tests.tuner.search.searchers import Ladder, Noting, optuna_search
from tuner.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher, as_searcher
from tuner.search.limiter import SampleLimit
from tuner.search.optuna import OptunaSearch


def test_a_searcher_that_does_not_count_ends_after_num_samples() -> None:
    searcher = as_searcher(Ladder(), {}, num_samples=3)
    assert [searcher.suggest(str(number)) is not None for number in range(3)] == [True] * 3
    assert searcher.suggest("4") is Searcher.FINISHED
    grown = as_searcher(Ladder(), {}, num_samples=5)
    grown.set_state(searcher.get_state())
    assert [grown.suggest(str(number)) for number in range(4, 7)] == [
        {"x": 4.0, "nested": {"y": [4.0]}},
        {"x": 5.0, "nested": {"y": [5.0]}},
        Searcher.FINISHED,
    ]
    assert all(as_searcher(Ladder(), {}, num_samples=-1).suggest(str(number)) for number in range(50))


def test_a_limit_waits_until_a_trial_ends() -> None:
    searcher = ConcurrencyLimiter(Ladder(), 2)
    assert searcher.suggest("a") and searcher.suggest("b")
    assert searcher.suggest("c") is None
    searcher.on_trial_complete("b", error=True)
    assert searcher.suggest("c")
    assert searcher.suggest("d") is None


def test_a_batch_is_told_together() -> None:
    inner = Noting()
    searcher = ConcurrencyLimiter(inner, 2, batch=True)
    for name in "ab":
        assert searcher.suggest(name)
    searcher.on_trial_complete("a", {"loss": 1.0})
    assert inner.told == [] and searcher.suggest("c") is None
    searcher.on_trial_complete("b", error=True)
    assert inner.told == [("a", {"loss": 1.0}, False), ("b", None, True)]
    assert searcher.suggest("c")


def test_a_limit_leaves_it_to_a_searcher_that_can() -> None:
    inner = BasicVariantGenerator()
    searcher = as_searcher(ConcurrencyLimiter(inner, 2), {"g": tune.grid_search([1, 2, 3])}, num_samples=2)
    assert inner.max_concurrent == 2
    assert searcher.suggest("a") and searcher.suggest("b") and searcher.suggest("c") is None
    for number in range(10):
        searcher.on_trial_complete("abcdefghij"[number])
        searcher.suggest("cdefghijkl"[number])
    assert searcher.suggest("z") == Searcher.FINISHED
    assert searcher.total == 6  # type: ignore[attr-defined]


def test_wrappers_show_what_they_wrap() -> None:
    searcher = as_searcher(ConcurrencyLimiter(optuna_search(), 2), {"x": tune.uniform(0, 1)}, num_samples=3)
    assert isinstance(searcher, SampleLimit)
    assert isinstance(searcher.unwrapped, OptunaSearch)
    assert (searcher.metric, searcher.mode) == ("loss", "min")
    assert not hasattr(searcher, "on_rollback")

    class Undoing(Ladder):
        def on_rollback(self, trial: Any, iteration: int) -> None:
            self.undone = iteration

    undoing = as_searcher(Undoing(), {})
    undoing.on_rollback(None, 4)  # type: ignore[attr-defined]
    assert undoing.unwrapped.undone == 4  # type: ignore[attr-defined]
