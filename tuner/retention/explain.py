"""Why checkpoints stayed or went, and what another policy would have kept: the journal's facts, replayed. Pure.

Of checkpoints that went before the first fact only the number is known.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainables.metrics import MISSING, lookup
from trainables.store.retention import Order, RetentionPolicy, ranking_metrics
from trainables.wire import CheckpointRef
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.retention.rules import BUDGET, parts_of, rule_of
from tuner.retention.trial_retention import Ending, TrialRetention

LATEST = "latest"
"""The rule that no setting changes: the latest of a trial stays."""


@dataclass(slots=True)
class CheckpointLife:
    """What became of one checkpoint."""

    record: CheckpointRecord
    gone: str = ""
    """"" while it is kept, else "deleted" or "set aside"."""
    why: str = ""
    """The rule by which it went, or what is wrong with it."""
    newer: CheckpointRef | None = None
    """The save for which it went; None: none that is known."""
    at: float | None = None
    """When that was, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class RetentionStep:
    """Something after which retention decides about a trial."""

    trial_id: str
    saved: CheckpointRecord | None = None
    lost: Order | None = None
    """It was set aside."""
    ending: Ending = Ending.UNFINISHED
    in_use: frozenset[Order] = frozenset()
    ranked_since: tuple[int, int] = (0, 0)
    """(generation, attempt) in which the trial last started anew: once it has saved since, older checkpoints go."""


@dataclass
class Chronicle:
    """All that a journal tells about an experiment's checkpoints.

    Args:
        state: what the facts before the first of `facts` add up to; it goes on with them.
        facts: those that follow.
    """

    state: ExperimentState
    facts: Iterable[ev.AnyFact]
    lives: dict[str, dict[Order, CheckpointLife]] = field(default_factory=dict, init=False)
    """Trial -> its checkpoints by save order."""
    steps: list[RetentionStep] = field(default_factory=list, init=False)
    _reading: dict[str, CheckpointRef] = field(default_factory=dict, init=False)
    """Trial -> what its attempt started from, until it has something newer."""
    _newest: CheckpointLife | None = field(default=None, init=False)
    """The last save, unless its trial has ended since: then that was the reason."""

    def __post_init__(self) -> None:
        there = [(trial.trial_id, record) for trial in self.state.trials for record in trial.checkpoints]
        for trial_id, record in sorted(there, key=lambda pair: pair[1].number):
            self._save(trial_id, record)
        for trial in self.state.trials:
            attempt = (trial.attempt_generation, trial.attempt)
            if trial.is_finished():
                self._decide(trial.trial_id)
            elif (
                trial.status == Trial.RUNNING
                and trial.started_from is not None
                and all(one.order[:2] != attempt for one in trial.checkpoints)
            ):
                self._reading[trial.trial_id] = trial.started_from
        self._newest = None
        for fact in self.facts:
            about = fact.ref.trial_id if isinstance(fact, ev.CheckpointPublished) else getattr(fact, "trial", "")
            lent = self.state.borrowed.get(about)
            self.state.apply(fact)
            self._note(fact)
            if lent is not None and self.state.borrowed.get(about) != lent:
                self._decide(lent.trial_id)  # a clone has something of its own: the donor's may go

    def unknown(self, trial: Trial) -> int:
        """How many checkpoints of a trial were made and deleted without a trace in what is left of the journal."""
        return max(trial.saves - len(self.lives.get(trial.trial_id, ())), 0)

    def _note(self, fact: ev.AnyFact) -> None:
        match fact:
            case ev.AttemptStarted(trial=trial_id, checkpoint=ref):
                self._reading.pop(trial_id, None)
                if ref is not None:
                    self._reading[trial_id] = ref
            case ev.CheckpointPublished(ref=ref):
                self._reading.pop(ref.trial_id, None)
                trial = self.state.trials.get(ref.trial_id)
                assert trial is not None  # the state knew it
                self._save(ref.trial_id, next(kept for kept in trial.checkpoints if kept.order == ref.order))
            case ev.CheckpointForgotten(ref=ref, why=why):
                self._goes(ref, "deleted", why, self._newest if why == BUDGET else self._newest_of(ref))
            case ev.CheckpointSetAside(ref=ref, problem=problem):
                self._goes(ref, "set aside", problem, None)
                self._decide(ref.trial_id, lost=ref.order)
            case ev.AttemptEnded(trial=trial_id):
                self._reading.pop(trial_id, None)
            case ev.TrialEnded(trial=trial_id):
                self._reading.pop(trial_id, None)
                self._newest = None
                self._decide(trial_id)

    def _save(self, trial_id: str, record: CheckpointRecord) -> None:
        self._newest = self.lives.setdefault(trial_id, {})[record.order] = CheckpointLife(record)
        self._decide(trial_id, saved=record)

    def _decide(self, trial_id: str, *, saved: CheckpointRecord | None = None, lost: Order | None = None) -> None:
        """Retention decides about a trial as it stands."""
        trial = self.state.trials.get(trial_id)
        assert trial is not None  # the state knows it
        ending, in_use = Ending.of(trial.status), self.in_use(trial_id)
        self.steps.append(RetentionStep(trial_id, saved, lost, ending, in_use, trial.ranked_since))

    def _goes(self, ref: CheckpointRef, gone: str, why: str, newest: CheckpointLife | None) -> None:
        life = self.lives.get(ref.trial_id, {}).get(ref.order)
        if life is not None:
            life.gone, life.why = gone, why
            if newest is not None:
                life.newer, life.at = newest.record.ref, newest.record.saved_at

    def _newest_of(self, ref: CheckpointRef) -> CheckpointLife | None:
        """The last save of the same trial, if there was one after this."""
        trial = self.state.trials.get(ref.trial_id)
        newest = max(self.lives.get(ref.trial_id, {}).items(), default=None, key=operator.itemgetter(0))
        ended = trial is not None and trial.is_finished()
        return None if newest is None or ended or newest[0] <= ref.order else newest[1]

    def used(self, trial_id: str) -> frozenset[Order]:
        """The orders of a trial's checkpoints that an attempt started from and has nothing newer than."""
        refs = (*self._reading.values(), *self.state.borrowed.values())
        return frozenset(ref.order for ref in refs if ref.trial_id == trial_id)

    def in_use(self, trial_id: str) -> frozenset[Order]:
        """Those, and the ones that users pinned."""
        return self.used(trial_id) | {order for holder, order in self.state.pinned if holder == trial_id}


def would_keep(steps: Iterable[RetentionStep], retention: TrialRetention) -> dict[str, list[CheckpointRecord]]:
    """Trial -> what another retention would have kept, oldest first, had it decided after each step."""
    disks: dict[str, dict[Order, CheckpointRecord]] = {}
    for step in steps:
        disk = disks.setdefault(step.trial_id, {})
        if step.saved is not None:
            disk[step.saved.order] = step.saved
        ranked = [order for order in disk if order[:2] >= step.ranked_since]
        if ranked:
            disk = {order: disk[order] for order in disk if order in ranked or order in step.in_use}
        gone = {ref.order for ref in retention.forget([*disk.values()], step.ending, step.in_use)}
        disks[step.trial_id] = {order: disk[order] for order in disk if order not in gone and order != step.lost}
    return {trial_id: [disk[order] for order in sorted(disk)] for trial_id, disk in disks.items()}


def explain(chronicle: Chronicle, trial: Trial, policy: RetentionPolicy) -> list[dict[str, Any]]:
    """What became of each checkpoint of a trial, oldest first, as plain values.

    Args:
        policy: what is kept now, for the reasons of those that are.
    """
    lives = sorted(chronicle.lives.get(trial.trial_id, {}).values(), key=lambda life: life.record.order)
    reasons = reasons_to_keep([life.record for life in lives if not life.gone], policy)
    users = dict.fromkeys(chronicle.used(trial.trial_id), "in use: an attempt started from it")
    metrics = [name for names in ranking_metrics(policy) for name in names]
    told = []
    for life in lives:
        record = life.record
        pinned = ["pinned", *record.tags] if record.pinned else []
        kept = [*reasons.get(record.order, ()), *filter(None, [users.get(record.order)]), *pinned]
        told.append(
            {
                "name": record.ref.name,
                "iteration": record.iteration,
                "bytes": record.bytes,
                "saved_at": record.saved_at,
                "fate": life.gone or "kept",
                "why": [life.why] * bool(life.why) if life.gone else kept,
                "for": None if life.newer is None else _called(life.newer, trial),
                "at": life.at,
                "metrics": _scores(record.metrics, metrics),
            }
        )
    return told


def reasons_to_keep(records: list[CheckpointRecord], policy: RetentionPolicy) -> dict[Order, list[str]]:
    """By order: the rules that keep a checkpoint, of those of one trial that are kept."""
    reasons: dict[Order, list[str]] = {}
    for part in parts_of(policy):
        for order in part.keep(records):
            reasons.setdefault(order, []).append(rule_of(part))
    if records:
        reasons.setdefault(max(record.order for record in records), []).append(LATEST)
    return reasons


def _called(ref: CheckpointRef, trial: Trial) -> str:
    return ref.name if ref.trial_id == trial.trial_id else f"{ref.trial_id}/{ref.name}"


def _scores(metrics: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    found = {name: lookup(metrics, name) for name in names}
    return {name: value for name, value in found.items() if value is not MISSING}
