"""One attempt on other hosts, as the driver knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainables.wire import AttemptErrored, Finished
from tuner.executors.base import Exited, Launch, Message
from tuner.executors.host_agent.protocol import KillTrial, TellTrial
from tuner.executors.remote.arriving import Arriving
from tuner.executors.remote.host import RemoteHost
from tuner.executors.remote.transfers import Landing


class LeasedSlot(Protocol):
    """What an attempt was given to run in."""

    @property
    def nodes(self) -> Sequence[str]:
        """Id of the node of each of its parts."""

    @property
    def gpus(self) -> Mapping[str, Sequence[str]]:
        """Ids of its GPUs on each of its nodes."""


@dataclass(slots=True, eq=False)
class RemoteAttempt:
    """From its launch until all that it saved has come here."""

    launch: Launch
    ordered: Launch
    """As its host gets it."""
    slot: LeasedSlot
    host: RemoteHost
    others: list[RemoteHost]
    """Further hosts of its processes."""
    running: dict[str, RemoteHost] = field(default_factory=dict)
    """Its processes, as hosts call them, from their order to their end."""
    told: list[TellTrial | KillTrial] = field(default_factory=list)
    """Orders from before it was sent to its host."""
    sent: bool = False
    coming: Arriving = field(default_factory=Arriving)
    """Checkpoints of it that are on their way here."""
    landing: Landing = field(default_factory=Landing)
    failed: bool = False
    """They were too many: that is its last word."""
    last_word: Message | None = None
    given_back: bool = False
    """Its slot may be used again."""
    exited: Exited | None = None
    """It is over, and both are told when they have come: one that ended well has ended with its last checkpoint."""

    @property
    def trial_id(self) -> str:
        return self.launch.job.trial_id

    @property
    def number(self) -> int:
        return self.launch.job.attempt

    def is_on(self, host: RemoteHost) -> bool:
        """A process of it was meant to run there."""
        return host is self.host or host in self.others

    def order(self, order: TellTrial | KillTrial) -> None:
        (self.host.orders if self.sent else self.told).append(order)

    def send(self) -> None:
        """Have its first process begin, and do what was ordered meanwhile."""
        self.sent = True
        self.running[self.trial_id] = self.host
        self.host.orders += [self.ordered, *self.told]

    def end_processes(self) -> None:
        for name, host in self.running.items():
            host.orders.append(KillTrial(name))

    def fail(self, why: AttemptErrored) -> None:
        """End it with that, unless it has failed already, was preempted, or died."""
        said = None if self.last_word is None else self.last_word.body
        if isinstance(said, Finished) or (said is None and self.exited is None):
            self.last_word, self.failed = Message(self.trial_id, self.number, why), True
            self.end_processes()
