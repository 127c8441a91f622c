"""What is shown: the counts that the loop hands in, and the best result so far."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainables.metrics import as_score, lookup
from tuner.experiment.trial import Trial


@dataclass(frozen=True, slots=True)
class ProgressFacts:
    """Numbers about a run, built by the loop when a view is drawn."""

    pending: int = 0
    running: int = 0
    paused: int = 0
    done: int = 0
    failed: int = 0
    checkpoints: int = 0
    """How many are kept, of all trials."""
    checkpoint_bytes: int = 0
    used: Mapping[str, float] = field(default_factory=dict)
    """Resources that running trials hold: {"cpu": 2.0}."""
    total: Mapping[str, float] = field(default_factory=dict)
    """All there is of them."""

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> ProgressFacts:
        """Counted from the trials themselves, for who has no cheaper source."""
        counts: dict[str, int] = {}
        kept = size = 0
        for trial in trials:
            counts[trial.status] = counts.get(trial.status, 0) + 1
            kept += len(trial.checkpoints)
            size += sum(record.bytes for record in trial.checkpoints)
        return cls(
            pending=counts.get(Trial.PENDING, 0),
            running=counts.get(Trial.RUNNING, 0),
            paused=counts.get(Trial.PAUSED, 0),
            done=counts.get(Trial.TERMINATED, 0),
            failed=counts.get(Trial.ERROR, 0),
            checkpoints=kept,
            checkpoint_bytes=size,
        )


@dataclass(frozen=True, slots=True)
class Best:
    """The best result so far."""

    score: float
    trial: str
    iteration: int


class Standing:
    """Keeps the last score of every trial and the best of all; costs the same per result however many there were."""

    def __init__(self, metric: str | None, mode: str | None) -> None:
        self.metric = metric
        self.best: Best | None = None
        self._sign = -1.0 if mode == "min" else 1.0
        self._last: dict[str, float] = {}

    def add(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """Take in a result."""
        if self.metric is None:
            return
        score = as_score(lookup(result, self.metric))
        if score is None or score != score:
            return  # absent, text or NaN: never best, and what was last stays
        self._last[trial.trial_id] = score
        self._offer(score, trial, result.get("training_iteration", trial.iteration))

    def recount(self, trials: Iterable[Trial]) -> None:
        """Start again from the trials themselves: at a resume, or after results became void."""
        self.best, self._last = None, {}
        if self.metric is None:
            return
        for trial in trials:
            summary = trial.metric_summary.get(self.metric)
            if summary is not None:
                self._offer(summary[0] if self._sign < 0 else summary[1], trial, 0)
            if trial.iteration:
                self.add(trial, trial.last_result)

    def top(self, count: int) -> list[str]:
        """Ids of the trials with the best last scores, best first."""
        best = heapq.nlargest(count, self._last.items(), key=lambda item: self._sign * item[1])
        return [trial_id for trial_id, _ in best]

    def _offer(self, score: float, trial: Trial, iteration: int) -> None:
        if self.best is None or self._sign * score > self._sign * self.best.score:
            self.best = Best(score, trial.name, iteration)
