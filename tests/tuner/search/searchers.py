"""Searchers that tests wrap."""

from __future__ import annotations

from typing import Any

from tuner.search import Searcher
from tuner.search.optuna import OptunaSearch


def optuna_search(**kwargs: Any) -> OptunaSearch:
    return OptunaSearch(metric="loss", mode="min", **kwargs)


class Ladder(Searcher):
    """The simplest searcher of a user's, as Ray's documentation writes them."""

    def __init__(self) -> None:
        super().__init__(metric="loss", mode="min")
        self.next = 0.0

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        self.next += 1.0
        return {"x": self.next, "nested": {"y": [self.next]}}

    def set_search_properties(self, metric: Any, mode: Any, config: Any) -> bool:  # type: ignore[override]
        return True


class Noting(Ladder):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, Any, bool]] = []

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.told.append((trial_id, result, error))
