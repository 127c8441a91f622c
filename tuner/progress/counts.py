"""Numbers for progress output: counts of trials, and the best last score."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from trainables.metrics import as_score, lookup
from trainables.printable import one_line
from trainables.quick_dataclass import dataclass
from tuner.analysis import scopes
from tuner.experiment.trial import Trial
from tuner.progress import formatting


@dataclass(frozen=True, slots=True)
class UnsavedWork:
    """What running trials have done since their last checkpoints: a kill loses it."""

    trials: int
    results: int
    seconds: float

    @classmethod
    def of(cls, running: Iterable[Trial]) -> UnsavedWork:
        trials, results, seconds = 0, 0, 0.0
        for trial in running:
            kept = trial.latest_checkpoint
            lost = trial.iteration - (0 if kept is None else kept.iteration)
            if lost > 0:
                spent = as_score(trial.last_result.get("time_total_s")) or 0.0
                before = 0.0 if kept is None else as_score(kept.metrics.get("time_total_s")) or 0.0
                trials, results, seconds = trials + 1, results + lost, seconds + max(spent - before, 0.0)
        return cls(trials, results, seconds)

    def __str__(self) -> str:
        if not self.results:
            return "a kill now would lose nothing"
        of = f" of {formatting.counted(self.trials, 'trial')}" if self.trials > 1 else ""
        done = f"{formatting.counted(self.results, 'result')}{of}, {formatting.duration(self.seconds)} of work"
        return f"a kill now would lose {done}"


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
    to_copy: int = 0
    """How many are still to be copied to the replica."""
    bytes_to_copy: int = 0
    copy_error: str | None = None
    """Why the replica does not take them just now."""
    used: Mapping[str, float] = field(default_factory=dict)
    """Resources that running trials hold: {"cpu": 2.0}."""
    total: Mapping[str, float] = field(default_factory=dict)
    """All there is of them."""
    memory: tuple[int, int] | None = None
    """Bytes that are in use on the driver's host, and all it has; None: not known."""
    unsaved: UnsavedWork | None = None
    """What a kill of the driver now would cost."""
    planned: int | None = None
    """How many trials there will be in all, 0: no end is known; None: as was said at the start."""

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> ProgressFacts:
        """Counted from the trials themselves, for who has no cheaper source."""
        every = list(trials)
        kept = [record.bytes for trial in every for record in trial.checkpoints]
        counts = Counter(trial.status for trial in every)
        return cls.by_status(counts, checkpoints=len(kept), checkpoint_bytes=sum(kept))

    @classmethod
    def by_status(cls, counts: Mapping[str, int], **others: Any) -> ProgressFacts:
        """With the numbers of trials by their status, 0 for those that are not there."""
        statuses = (Trial.PENDING, Trial.RUNNING, Trial.PAUSED, Trial.TERMINATED, Trial.ERROR)
        numbers: list[Any] = [counts.get(status, 0) for status in statuses]
        return cls(*numbers, **others)


@dataclass(frozen=True, slots=True)
class BestScore:
    """The last score of a trial."""

    score: float
    trial: str
    index: int
    iteration: int
    """Of the result that it is from; 0 when a resume cannot tell."""


class LastScores:
    """The last score of every trial: what `get_best_result` goes by, with its scope "last".

    Taking in a result costs the same however many there were; `best` and `top` look at one number per trial.
    """

    def __init__(self, metric: str | None, mode: str | None) -> None:
        self.metric = metric
        self._mode = "min" if mode == "min" else "max"
        self._last: dict[str, BestScore] = {}

    def add(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """Take in a result. One without a number there leaves the trial's score as it was; NaN takes it away."""
        score = None if self.metric is None else as_score(lookup(result, self.metric))
        if score is not None:
            self._set(trial, score, result.get("training_iteration", trial.iteration))

    def again(self, trial: Trial) -> None:
        """Look at a trial itself: at a resume, or after results of it became void."""
        self._last.pop(trial.trial_id, None)
        score = None if self.metric is None else scopes.score(trial, self.metric, self._mode, "last")
        if score is not None:
            has_it = as_score(lookup(trial.last_result, self.metric or "")) is not None
            self._set(trial, score, trial.iteration if has_it else 0)

    @property
    def best(self) -> BestScore | None:
        """The best of the last scores; of equals that of the earlier trial."""
        return max(self._last.values(), key=self._rank, default=None)

    def top(self, count: int) -> list[str]:
        """Ids of the trials with the best last scores, best first."""
        best = heapq.nlargest(count, self._last.items(), key=lambda item: self._rank(item[1]))
        return [trial_id for trial_id, _ in best]

    def _set(self, trial: Trial, score: float, iteration: int) -> None:
        if score == score:
            self._last[trial.trial_id] = BestScore(score, one_line(trial.name), trial.index, iteration)
        else:
            self._last.pop(trial.trial_id, None)

    def _rank(self, last: BestScore) -> tuple[float, int]:
        return (-last.score if self._mode == "min" else last.score, -last.index)
