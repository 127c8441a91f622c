"""Disk for all checkpoints of an experiment: what goes, least useful first, and when a save is refused.

Least useful first: the other checkpoints of trials that came to a good end, then the best one of each of them beyond
the top k trials, then what running trials hold besides their latest. The rest is protected: the latest of every trial
that can still run, what is in use, and the best of the top k trials.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainables.config import Budget, ScoreOrder
from trainables.metrics import score_of
from trainables.store.retention import Order, rank_key
from trainables.wire import CheckpointRef
from tuner.retention.manager import Record

Key = tuple[str, Order]
"""(trial id, order): one checkpoint of the experiment."""

_Use = tuple[int, float, int]
"""How useful a checkpoint is, without regard to what protects it: greater is more."""

_OTHER_OF_ENDED, _BEST_OF_ENDED, _OLD_OF_RUNNING = range(3)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a save does not fit: what is protected is larger than the budget."""

    trial_id: str
    save: int
    """Bytes of the save, or of the trial's latest where it is there already."""
    protected: int
    """Bytes that have to stay, the save among them."""
    budget: int

    @property
    def message(self) -> str:
        return (
            f"the save of trial {self.trial_id} ({human_bytes(self.save)}) does not fit into "
            f"checkpoint_budget={human_bytes(self.budget)}: what has to stay would take {human_bytes(self.protected)} "
            "(the latest checkpoint of every trial that can still run, those in use, and the best of the top trials). "
            "Resume with a larger checkpoint_budget to continue this trial."
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What to forget now, least useful first, and by how many bytes that is not enough (0: it is)."""

    forget: tuple[CheckpointRef, ...] = ()
    missing: int = 0


def human_bytes(size: float) -> str:
    """A size for people: 5 GB, 120.5 MB."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.1f}".removesuffix(".0") + f" {unit}"


@dataclass(slots=True)
class _Held:
    ref: CheckpointRef
    bytes: int
    use: _Use


@dataclass(slots=True)
class _TrialHoldings:
    held: dict[Order, _Held] = field(default_factory=dict)
    saving: list[int] = field(default_factory=list)
    """Sizes of saves that were admitted and are not published."""
    ended: bool = False
    latest: Order | None = None
    best: Order | None = None

    @property
    def floor(self) -> int:
        """Bytes of the latest, where it has to stay; a save on its way is the latest already."""
        if self.ended:
            return 0
        if self.saving:
            return self.saving[-1]
        return 0 if self.latest is None else self.held[self.latest].bytes

    def find_latest_and_best(self) -> None:
        self.latest = max(self.held, default=None)
        self.best = max(self.held, key=lambda order: self.held[order].use, default=None)


class BudgetLedger:
    """Keeps the totals, and plans. Holds no more than what is on disk; nothing is sorted while there is room.

    Args:
        budget: the limit and the number of top trials.
        metric: ranks checkpoints and, by their best one, trials: the experiment's; None: recency, by the order of saves.
        mode: "max" or "min".

    Facts come in by `saved`, `gone`, `ended`, `reopened`; at a resume, in the journal's order.
    """

    def __init__(self, budget: Budget, *, metric: str | None = None, mode: ScoreOrder = "max") -> None:
        self.budget = budget
        self.used = 0
        """Bytes of all checkpoints that are published and not forgotten."""
        self._metric, self._mode = metric, mode
        self._trials: dict[str, _TrialHoldings] = {}
        self._floor = 0
        self._saves = 0
        # Lazy heaps: an entry counts only if it is still true when it comes up.
        self._going: tuple[list[tuple[_Use, str, Order]], ...] = ([], [], [])
        self._leading: list[tuple[_Use, str, Order]] = []

    # --- facts --------------------------------------------------------------------------------------

    def saved(self, record: Record) -> None:
        """A checkpoint was published and journaled."""
        trial_id, order = record.ref.trial_id, record.ref.order
        self._saves += 1
        with _Change(self, trial_id) as trial:
            if trial.saving:
                trial.saving.pop(0)  # a trial publishes in the order in which it saves
            before = trial.held.pop(order, None)
            self.used += record.bytes - (before.bytes if before is not None else 0)
            trial.held[order] = _Held(record.ref, record.bytes, self._use(record.metrics))

    def not_saved(self, trial_id: str) -> None:
        """The oldest admitted save of a trial failed, or went with its process."""
        with _Change(self, trial_id) as trial:
            if trial.saving:
                trial.saving.pop(0)

    def attempt_ended(self, trial_id: str) -> None:
        """No save of the trial is on its way any more."""
        with _Change(self, trial_id) as trial:
            trial.saving.clear()

    def gone(self, ref: CheckpointRef) -> None:
        """A checkpoint was forgotten or set aside; one that is not known is no error."""
        if ref.trial_id in self._trials:
            with _Change(self, ref.trial_id) as trial:
                held = trial.held.pop(ref.order, None)
                self.used -= held.bytes if held is not None else 0

    def ended(self, trial_id: str) -> None:
        """A trial came to a good end. (One that failed can be resumed: it goes on counting as unfinished.)"""
        with _Change(self, trial_id) as trial:
            trial.ended = True
            trial.saving.clear()

    def reopened(self, trial_id: str) -> None:
        """An ended trial runs again."""
        with _Change(self, trial_id) as trial:
            trial.ended = False

    # --- answers ------------------------------------------------------------------------------------

    def admit(
        self, trial_id: str, size: int, *, metrics: Mapping[str, Any] | None = None, in_use: Collection[Key] = ()
    ) -> Refusal | None:
        """May a trial save `size` bytes? None is yes, and holds the place until `saved` or `not_saved`.

        Args:
            metrics: the result that the save belongs to: it may become the best there is.
            in_use: as for `plan`, without what this trial's own attempt started from: that goes when this is published.
        """
        with _Change(self, trial_id) as trial:
            trial.saving.append(size)
        use = self._use(metrics or {}, self._saves + 1)
        refusal = self._refusal(trial_id, size, in_use, coming=use)
        if refusal is not None:
            with _Change(self, trial_id) as trial:
                trial.saving.pop()
        return refusal

    def overfull(self, trial_id: str, *, in_use: Collection[Key] = ()) -> Refusal | None:
        """The same question about a save that is published already, whose size was not known before.

        To be asked before anything is forgotten for it: on a refusal it is the new one that goes, and the older stays.
        """
        trial = self._trials.get(trial_id)
        if trial is None or trial.latest is None or self.used <= self.budget.size:
            return None
        return self._refusal(trial_id, trial.held[trial.latest].bytes, in_use)

    def plan(self, in_use: Collection[Key] = ()) -> Plan:
        """What to forget so that the rest fits. Changes nothing: what is done about it comes back by `gone`.

        Args:
            in_use: checkpoints that are being restored or uploaded, are pinned, or that an attempt started from.
        """
        excess = self.used - self.budget.size
        if excess <= 0:
            return Plan()
        protected = {*in_use, *self._leaders()}
        forget: dict[Key, CheckpointRef] = {}
        for kind, heap in enumerate(self._going):
            seen = []
            while heap and excess > 0:
                entry = heapq.heappop(heap)
                _, trial_id, order = entry
                key = (trial_id, order)
                if key in forget or not self._is(kind, entry):
                    continue
                seen.append(entry)
                if key not in protected:
                    held = self._trials[trial_id].held[order]
                    forget[key] = held.ref
                    excess -= held.bytes
            for entry in seen:
                heapq.heappush(heap, entry)
        return Plan(tuple(forget.values()), max(excess, 0))

    # --- within -------------------------------------------------------------------------------------

    def _use(self, metrics: Mapping[str, Any], number: int | None = None) -> _Use:
        number = self._saves if number is None else number
        if self._metric is None:
            return (0, 0.0, number)
        rank, score, _ = rank_key(score_of(metrics, self._metric), self._mode, (0, 0, 0))
        return (rank, score, -number)  # of equals the earlier is better

    def _refusal(self, trial_id: str, size: int, in_use: Collection[Key], coming: _Use | None = None) -> Refusal | None:
        if self._floor + self._most_beside(in_use) <= self.budget.size:
            return None
        protected = self._floor
        for key in {*in_use, *self._leaders(trial_id if coming is not None else None, coming)}:
            trial = self._trials.get(key[0])
            held = trial.held.get(key[1]) if trial is not None else None
            counted = trial is not None and not trial.ended and not trial.saving and trial.latest == key[1]
            protected += held.bytes if held is not None and not counted else 0
        if protected <= self.budget.size:
            return None
        return Refusal(trial_id, size, protected, self.budget.size)

    def _most_beside(self, in_use: Collection[Key]) -> int:
        """At most so many bytes are protected beside the latest ones: all that there are, without looking closer."""
        return self.used if in_use or self.budget.top_k else 0

    def _kind(self, trial: _TrialHoldings, order: Order) -> int | None:
        if trial.ended:
            return _BEST_OF_ENDED if trial.best == order else _OTHER_OF_ENDED
        return None if trial.latest == order else _OLD_OF_RUNNING

    def _is(self, kind: int, entry: tuple[_Use, str, Order]) -> bool:
        use, trial_id, order = entry
        trial = self._trials.get(trial_id)
        held = trial.held.get(order) if trial is not None else None
        return trial is not None and held is not None and held.use == use and self._kind(trial, order) == kind

    def _leaders(self, coming_trial: str | None = None, coming: _Use | None = None) -> Iterator[Key]:
        """The best checkpoint of each of the top k trials; `coming` is one on its way, that leads nothing yet."""
        leaders: dict[str, tuple[_Use, str, Order]] = {}
        while self._leading and len(leaders) < self.budget.top_k:
            entry = heapq.heappop(self._leading)
            negative, trial_id, order = entry
            trial = self._trials.get(trial_id)
            if trial is not None and trial.best == order and trial_id not in leaders:
                if _negative(trial.held[order].use) == negative:
                    leaders[trial_id] = entry
        for entry in leaders.values():
            heapq.heappush(self._leading, entry)
        ranked = list(leaders.values())
        if coming_trial is not None and coming is not None:
            ahead = [entry for entry in ranked if entry[1] == coming_trial and entry[0] < _negative(coming)]
            worse = [entry for entry in ranked if entry[1] != coming_trial and entry[0] > _negative(coming)]
            if not ahead and (worse or len(ranked) <= self.budget.top_k):
                ranked = [entry for entry in ranked if entry[1] != coming_trial]
                ranked = sorted(ranked)[: max(self.budget.top_k - 1, 0)] if worse or len(ranked) < len(leaders) else ranked
        return iter([(trial_id, order) for _, trial_id, order in ranked])
