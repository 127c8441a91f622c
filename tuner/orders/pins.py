"""Orders about checkpoints: what users pin and tag stays, whatever the settings say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tuner.error import OrderError
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.orders import order as words

Effect = Callable[[], tuple[bool, str] | None]
"""Whether what was ordered is there (True) or never will be (False), and how; None: not yet."""


class Facts(Protocol):
    """What keeps facts: the fact log of a run, or who owns an experiment briefly."""

    @property
    def state(self) -> ExperimentState:
        """What they add up to."""
        ...

    def add(self, fact: ev.AnyFact) -> object:
        """Journal a fact and apply it."""
        ...


def pin(facts: Facts, trial: Trial, order: words.PinOrder | words.TagOrder) -> Effect:
    """Raises OrderError where there is no such checkpoint, or another one has that tag."""
    record, tag = record_of(trial, order.iteration), order.tag if isinstance(order, words.TagOrder) else ""
    for other in facts.state.trials if tag else ():
        for one in other.checkpoints:
            if tag in one.tags and one is not record:
                raise OrderError(f"{tag!r} is {other.name}@{one.iteration} already: unpin that first")
    if not record.pinned or (tag and tag not in record.tags):
        facts.add(ev.CheckpointPinned(record.ref, tag=tag))
    return lambda: (True, record.ref.name)


def unpin(facts: Facts, trial: Trial, iteration: int) -> Effect:
    """Raises OrderError where there is no such checkpoint."""
    record = record_of(trial, iteration)
    if record.pinned:
        facts.add(ev.CheckpointPinned(record.ref, pinned=False))
    return lambda: (True, record.ref.name)


def record_of(trial: Trial, iteration: int) -> CheckpointRecord:
    """The newest checkpoint of that iteration. Raises OrderError."""
    found = [record for record in trial.checkpoints if record.iteration == iteration]
    if not found:
        there = ", ".join(str(record.iteration) for record in trial.checkpoints[-10:]) or "none"
        raise OrderError(f"{trial.name} has no checkpoint of iteration {iteration}; it has {there}")
    return found[-1]
