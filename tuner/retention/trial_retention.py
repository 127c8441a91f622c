"""What stays of one trial's checkpoints by the settings: a policy applied, with what R3 protects beside it.

Pure; cost depends on how many checkpoints a trial keeps, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import Protocol

from trainables.config import CheckpointConfig, CheckpointStrategy
from trainables.store.retention import All, CheckpointView, Order, Ranking, RetentionPolicy, policy_for, ranking_for
from trainables.wire import CheckpointRef
from tuner.retention.rules import rule_of


class HeldCheckpoint(CheckpointView, Protocol):
    """A published and journaled checkpoint; `tuner.experiment.trial.CheckpointRecord` is one."""

    @property
    def ref(self) -> CheckpointRef: ...

    @property
    def bytes(self) -> int: ...


class Ending(Enum):
    """How a trial stands, as far as its checkpoints are concerned."""

    UNFINISHED = "unfinished"
    """It runs, waits or is paused: its latest checkpoint stays, whatever the settings say."""
    ERRORED = "errored"
    """It failed and can be resumed: its latest checkpoint stays, whatever the settings say."""
    ENDED = "ended"
    """It came to a good end: its latest stays too, unless a `CheckpointStrategy` or a budget says otherwise."""

    @classmethod
    def of(cls, status: str) -> Ending:
        """From a `Trial.status`."""
        return {"TERMINATED": cls.ENDED, "ERROR": cls.ERRORED}.get(status, cls.UNFINISHED)


class TrialRetention:
    """What stays of one trial's checkpoints; every trial of an experiment shares it.

    Args:
        config: what is kept. Under a `CheckpointStrategy` the latest does not stay after a good end.
    """

    def __init__(self, config: CheckpointConfig | CheckpointStrategy) -> None:
        self.policy: RetentionPolicy = policy_for(config)
        self.ranking: Ranking = ranking_for(config)
        self.rule = rule_of(self.policy)
        """What the journal says about what goes: the settings as text."""
        self._exact_at_end = isinstance(config, CheckpointStrategy)

    def forget(
        self, records: Sequence[HeldCheckpoint], ending: Ending, in_use: Collection[Order] = ()
    ) -> list[CheckpointRef]:
        """What may go, oldest first.

        Args:
            records: the trial's complete checkpoints, and no others: what is incomplete or broken does not count.
            ending: how the trial stands.
            in_use: the orders of those that are being restored or uploaded, are pinned, or that an attempt (of this
                trial or of a clone) started from and has nothing newer than. They stay, and the best N beside them.
        """
        if not records or self.keeps_all:
            return []
        ordered = sorted(records, key=lambda record: record.order)
        keep = {*self.policy.keep(ordered), *in_use}
        if not (self._exact_at_end and ending is Ending.ENDED):
            keep.add(ordered[-1].order)  # R3: no policy is asked about the latest
        return [record.ref for record in ordered if record.order not in keep]

    @property
    def keeps_all(self) -> bool:
        """The settings let nothing go."""
        return isinstance(self.policy, All)
