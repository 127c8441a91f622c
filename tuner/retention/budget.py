"""Disk for all checkpoints of an experiment: what goes, least useful first, and when a save is refused.

Least useful first: the other checkpoints of trials that came to a good end, then the best one of each of them beyond
the top k trials, then what running trials hold besides their latest. The rest is protected: the latest of every trial
that can still run, what is in use, and the best of the top k trials.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from typing import Any

from trainables.config import Budget, ScoreOrder
from trainables.metrics import score_of
from trainables.quick_dataclass import dataclass
from trainables.store.retention import Order, rank_key
from trainables.wire import CheckpointRef
from tuner.retention.trial_retention import HeldCheckpoint

Key = tuple[str, Order]
"""(trial id, order): one checkpoint of the experiment."""

_Use = tuple[int, float, int]
"""How useful a checkpoint is, without regard to what protects it: greater is more."""
_Entry = tuple[_Use, str, Order]

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
class _Holdings:
    """What one trial has on disk, and on its way there."""

    held: dict[Order, _Held] = field(default_factory=dict)
    saving: list[int] = field(default_factory=list)
    """Sizes of saves that were admitted and are not published."""
    ended: bool = False
    latest: Order | None = None
    best: Order | None = None

    @property
    def floor(self) -> int:
        """Bytes of the latest, where it has to stay; a save on its way counts as the latest already."""
        if self.ended:
            return 0
        if self.saving:
            return self.saving[-1]
        return 0 if self.latest is None else self.held[self.latest].bytes

    def kind(self, order: Order) -> int | None:
        """Which of the three kinds that may go a checkpoint is; None: it may not."""
        if self.ended:
            return _BEST_OF_ENDED if self.best == order else _OTHER_OF_ENDED
        return None if self.latest == order else _OLD_OF_RUNNING

    def use(self, order: Order) -> _Use:
        return self.held[order].use


class BudgetLedger:
    """Keeps the totals, and plans. Knows no more than what is on disk; nothing is sorted while there is room.

    Args:
        budget: the limit and the number of top trials.
        metric: the experiment's; ranks checkpoints and, by their best one, trials. None: recency, by save order.
        mode: "max" or "min".

    Facts come in by `saved`, `not_saved`, `gone`, `attempt_ended`, `ended`; at a resume in the order of the journal.
    """

    def __init__(self, budget: Budget, *, metric: str | None = None, mode: ScoreOrder = "max") -> None:
        self.budget = budget
        self.used = 0
        """Bytes of all checkpoints that are published and not forgotten."""
        self._metric, self._mode = metric, mode
        self._trials: dict[str, _Holdings] = {}
        self._count = 0
        self._floor = 0
        self._saves = 0
        # Lazy heaps: an entry counts only if it is still true when it comes up.
        self._going: list[list[_Entry]] = [[], [], []]
        self._leading: list[_Entry] = []

    # --- facts --------------------------------------------------------------------------------------

    def saved(self, record: HeldCheckpoint) -> None:
        """A checkpoint was published and journaled."""
        self.gone(record.ref)  # told twice is told once
        trial_id, order = record.ref.trial_id, record.ref.order
        trial = self._trials.setdefault(trial_id, _Holdings())
        floor = trial.floor
        if trial.saving:
            trial.saving.pop(0)  # a trial publishes in the order in which it saves
        self._saves += 1
        self._count += 1
        self.used += record.bytes
        trial.held[order] = _Held(record.ref, record.bytes, self._use(record.metrics, self._saves))
        touched = {order, trial.latest, trial.best}
        trial.latest = order if trial.latest is None else max(trial.latest, order)
        trial.best = order if trial.best is None else max(trial.best, order, key=trial.use)
        self._settle(trial_id, trial, floor, touched)

    def not_saved(self, trial_id: str) -> None:
        """The oldest admitted save of a trial failed."""
        trial = self._trials.get(trial_id)
        if trial is not None and trial.saving:
            floor = trial.floor
            trial.saving.pop(0)
            self._settle(trial_id, trial, floor, ())

    def gone(self, ref: CheckpointRef) -> None:
        """A checkpoint was forgotten or set aside; one that is not known is no error."""
        trial = self._trials.get(ref.trial_id)
        if trial is None or ref.order not in trial.held:
            return
        floor = trial.floor
        self._count -= 1
        self.used -= trial.held.pop(ref.order).bytes
        if trial.latest == ref.order:
            trial.latest = max(trial.held, default=None)
        if trial.best == ref.order:
            trial.best = max(trial.held, key=trial.use, default=None)
        self._settle(ref.trial_id, trial, floor, {trial.latest, trial.best})

    def attempt_ended(self, trial_id: str) -> None:
        """No save of the trial is on its way any more."""
        self._at_rest(trial_id, ended=False)

    def ended(self, trial_id: str) -> None:
        """A trial came to a good end. (One that failed can be resumed: it goes on counting as unfinished.)"""
        self._at_rest(trial_id, ended=True)

    # --- answers ------------------------------------------------------------------------------------

    def admit(
        self, trial_id: str, size: int, *, metrics: Mapping[str, Any] | None = None, in_use: Collection[Key] = ()
    ) -> Refusal | None:
        """May a trial save `size` bytes? None is yes, and holds the place until `saved` or `not_saved`.

        Args:
            metrics: the result that the save belongs to: it may become the best there is.
            in_use: as for `plan`, without what this trial's own attempt started from: that goes when this is published.
        """
        trial = self._trials.setdefault(trial_id, _Holdings())
        floor = trial.floor
        trial.saving.append(size)
        self._settle(trial_id, trial, floor, ())
        refusal = self._refusal(trial_id, size, in_use, coming=self._use(metrics or {}, self._saves + 1))
        if refusal is not None:
            floor = trial.floor
            trial.saving.pop()
            self._settle(trial_id, trial, floor, ())
        return refusal

    def overfull(self, trial_id: str, *, in_use: Collection[Key] = ()) -> Refusal | None:
        """The same question about a trial's latest, which is published already because its size was not known before.

        To be asked before anything is forgotten for it: on a refusal it is the new one that goes, and the older stays.
        """
        trial = self._trials.get(trial_id)
        if trial is None or trial.latest is None:
            return None
        return self._refusal(trial_id, trial.held[trial.latest].bytes, in_use)

    def plan(self, in_use: Collection[Key] = ()) -> tuple[CheckpointRef, ...]:
        """What to forget so that the rest fits, least useful first. Changes nothing: what is done comes back by `gone`.

        Args:
            in_use: checkpoints that are being restored or uploaded, are pinned, or that an attempt started from.
        """
        excess = self.used - self.budget.size
        if excess <= 0:
            return ()
        protected = {*in_use, *self._leaders()}
        forget: dict[Key, CheckpointRef] = {}
        for kind, heap in enumerate(self._going):
            true = []
            while heap and excess > 0:
                entry = heapq.heappop(heap)
                use, trial_id, order = entry
                held = self._holds(entry, use)
                if held is None or self._trials[trial_id].kind(order) != kind or (trial_id, order) in forget:
                    continue
                true.append(entry)
                if (trial_id, order) not in protected:
                    forget[trial_id, order] = held.ref
                    excess -= held.bytes
            for entry in true:
                heapq.heappush(heap, entry)
        return tuple(forget.values())

    # --- within -------------------------------------------------------------------------------------

    def _use(self, metrics: Mapping[str, Any], number: int) -> _Use:
        if self._metric is None:
            return (0, 0.0, number)
        rank, score, _ = rank_key(score_of(metrics, self._metric), self._mode, (0, 0, 0))
        return (rank, score, -number)  # of equals the earlier is better

    def _at_rest(self, trial_id: str, *, ended: bool) -> None:
        trial = self._trials.setdefault(trial_id, _Holdings())
        floor = trial.floor
        trial.saving.clear()
        touched: Iterable[Order] = ()
        if ended and not trial.ended:
            trial.ended = True
            touched = tuple(trial.held)
        self._settle(trial_id, trial, floor, touched)

    def _settle(self, trial_id: str, trial: _Holdings, floor_before: int, touched: Iterable[Order | None]) -> None:
        """After every change: totals, and entries for what may be of another kind than it was."""
        self._floor += trial.floor - floor_before
        if not trial.held and not trial.saving:
            del self._trials[trial_id]  # a trial with nothing on disk costs nothing here
            return
        for order in touched:
            if order is None or order not in trial.held:
                continue
            entry = (trial.use(order), trial_id, order)
            kind = trial.kind(order)
            if kind is not None:
                self._push(self._going[kind], entry)
            if order == trial.best:
                self._push(self._leading, (_opposite(entry[0]), trial_id, order))

    def _push(self, heap: list[_Entry], entry: _Entry) -> None:
        heapq.heappush(heap, entry)
        if len(heap) > 4 * self._count + 64:  # mostly entries that are not true any more
            leading = heap is self._leading
            live = {each for each in heap if self._holds(each, _opposite(each[0]) if leading else each[0]) is not None}
            heap[:] = sorted(live)

    def _holds(self, entry: _Entry, use: _Use) -> _Held | None:
        trial = self._trials.get(entry[1])
        held = trial.held.get(entry[2]) if trial is not None else None
        return held if held is not None and held.use == use else None

    def _refusal(self, trial_id: str, size: int, in_use: Collection[Key], coming: _Use | None = None) -> Refusal | None:
        limit = self.budget.size
        if self._floor + self.used <= limit:  # protected is no more than that
            return None
        protected = self._floor
        for key in {*in_use, *self._leaders(None if coming is None else (coming, trial_id))}:
            trial = self._trials.get(key[0])
            if trial is None or key[1] not in trial.held:
                continue
            in_floor = not trial.ended and not trial.saving and trial.latest == key[1]
            protected += 0 if in_floor else trial.held[key[1]].bytes
        return Refusal(trial_id, size, protected, limit) if protected > limit else None

    def _leaders(self, coming: tuple[_Use, str] | None = None) -> list[Key]:
        """The best checkpoint of each of the top k trials; `coming` takes its place among them, but is no key yet."""
        found: dict[str, _Entry] = {}
        while self._leading and len(found) < self.budget.top_k:
            entry = heapq.heappop(self._leading)
            opposite, trial_id, order = entry
            held = self._holds(entry, _opposite(opposite))
            if held is not None and self._trials[trial_id].best == order:
                found[trial_id] = entry
        for entry in found.values():
            heapq.heappush(self._leading, entry)
        ranked: list[tuple[_Use, str, Order | None]] = list(found.values())
        if coming is not None:
            opposite, mine = _opposite(coming[0]), found.get(coming[1])
            if mine is None or opposite < mine[0]:
                others = [entry for entry in ranked if entry[1] != coming[1]]
                ranked = sorted([*others, (opposite, coming[1], None)], key=lambda entry: entry[0])
        return [(trial, order) for _, trial, order in ranked[: self.budget.top_k] if order is not None]


def _opposite(use: _Use) -> _Use:
    return (-use[0], -use[1], -use[2])
