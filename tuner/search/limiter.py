"""Wrappers of searchers that limit how many trials there are at a time, or in all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trainables.validation import checked_names
from tuner.error import require
from tuner.search.arguments import fitting, whole_number
from tuner.search.delegation import delegates
from tuner.search.searcher import Metric, Searcher, Suggestion

_PASSED_ON = (
    "metric", "mode", "needs_metric", "warm_start", "set_max_concurrency", "set_num_samples", "suggest",
    "replay_suggest", "prepare", "on_search_end", "on_pause", "on_unpause", "on_trial_result", "on_trial_complete",
    "learn_from", "learns", "add_evaluated_point",
)  # fmt: skip


@delegates("searcher", *_PASSED_ON)
class Wrapper(Searcher):
    """A searcher that passes everything on to another one, `searcher`."""

    _remembered: ClassVar[tuple[str, ...]] = ("searcher",)

    def __init__(self, searcher: Searcher) -> None:
        require(isinstance(searcher, Searcher), f"{type(self).__name__}: searcher", searcher, "it is a Searcher")
        self.searcher = searcher

    @property
    def unwrapped(self) -> Searcher:
        """The searcher that really proposes, for messages."""
        inner = self.searcher
        return inner.unwrapped if isinstance(inner, Wrapper) else inner

    def __getattr__(self, name: str) -> Any:
        # Also `on_rollback`, which only searchers have that take results back.
        if name.startswith("__") or name == "searcher":
            raise AttributeError(name)
        return getattr(self.searcher, name)

    def set_search_properties(self, metric: Metric, mode: Metric, config: Mapping[str, Any], **spec: Any) -> bool:
        return tell_properties(self.searcher, metric, mode, config, **spec)


@checked_names
@delegates("searcher", "counts_samples", "total")
class ConcurrencyLimiter(Wrapper):
    """Keeps at most `max_concurrent` trials of a searcher unfinished, so that it knows more when it proposes.

    Args:
        searcher: whose trials are limited; one that limits by itself is told the number and left to it.
        max_concurrent: how many, from 1.
        batch: tell the searcher of finished trials only when all of a batch have finished.

    Example:
        >>> searcher = ConcurrencyLimiter(OptunaSearch(metric="loss", mode="min"), max_concurrent=4)  # doctest: +SKIP
    """

    _remembered = ("_live", "_held", "searcher")

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        super().__init__(searcher)
        self.max_concurrent = whole_number("max_concurrent", max_concurrent, least=1)
        self.batch = bool(batch)
        self._passes = searcher.set_max_concurrency(max_concurrent)
        self._live: list[str] = []
        self._held: dict[str, tuple[dict[str, Any] | None, bool]] = {}

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self.max_concurrent = max_concurrent
        self._passes = self.searcher.set_max_concurrency(max_concurrent)
        return True

    def suggest(self, trial_id: str) -> Suggestion:
        if not self._passes and len(self._live) >= self.max_concurrent:
            return None
        suggestion = self.searcher.suggest(trial_id)
        if isinstance(suggestion, dict):
            self._live.append(trial_id)
        return suggestion

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        self._live.append(trial_id)
        return self.searcher.replay_suggest(trial_id, config)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if self._passes or not self.batch or trial_id not in self._live:
            if trial_id in self._live:
                self._live.remove(trial_id)
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
            return
        self._held[trial_id] = (result, error)
        if all(live in self._held for live in self._live):
            held, self._held, self._live = self._held, {}, []
            for name, (last, failed) in held.items():
                self.searcher.on_trial_complete(name, result=last, error=failed)


class SampleLimit(Wrapper):
    """Ends a searcher after `num_samples` suggestions; -1: never. The number may be larger after a resume."""

    counts_samples = True
    _remembered = ("_count", "searcher")

    def __init__(self, searcher: Searcher, num_samples: int) -> None:
        super().__init__(searcher)
        self.num_samples = num_samples
        self._count = 0

    @property
    def total(self) -> int | None:  # type: ignore[override]
        """How many configs are asked of the searcher; None: without end."""
        return self.num_samples if self.num_samples >= 0 else None

    def set_num_samples(self, num_samples: int) -> bool:
        taken = self.searcher.set_num_samples(num_samples)
        self.num_samples = num_samples if taken else self.num_samples
        return bool(taken)

    def suggest(self, trial_id: str) -> Suggestion:
        if 0 <= self.num_samples <= self._count:
            return Searcher.FINISHED
        suggestion = self.searcher.suggest(trial_id)
        if isinstance(suggestion, dict):
            self._count += 1
        return suggestion

    def prepare(self, trial_id: str) -> None:
        if self.num_samples < 0 or self._count < self.num_samples:  # what nobody will run is not asked for
            self.searcher.prepare(trial_id)

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        self._count += 1
        return self.searcher.replay_suggest(trial_id, config)


def tell_properties(searcher: Searcher, metric: Metric, mode: Metric, config: Any, **spec: Any) -> bool:
    """`set_search_properties`, also of searchers that were written before it took more than three arguments."""
    method = searcher.set_search_properties
    return bool(method(metric, mode, config, **fitting(method, spec)))
