"""The Protocol by which a replica runs its streams, and what all of them know of the replica."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol, Union

from trainables.config import SyncConfig
from trainables.quick_dataclass import dataclass
from trainables.store import fs
from trainables.transfer import transfer_jobs
from trainables.transfer.backend import Can
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed
from tuner.clock import Clock
from tuner.experiment.journal import JournalWriter
from tuner.experiment.paths import ExperimentPaths, parse_snapshot
from tuner.experiment.state import ExperimentState
from tuner.syncer.inventory import Inventory

Answer = Union[Done, JobFailed]
OnAnswer = Callable[[Answer], None]
Group = tuple[str, str, list[str]]
"""(local directory, remote one, names) of files that go there."""


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    """One replica, as its streams know it.

    Args:
        uri: the replica's address, as facts and messages name it.
        config: what is copied, and how often.
        paths, journal: the experiment here; the name of its directory is that of the replica.
        generation: this owner's.
        can: what the place can do.
        clock: its monotonic time paces everything.
        submit: has a job done by the agent, whose answer the function gets; returns the number of both.
    """

    uri: str
    config: SyncConfig
    paths: ExperimentPaths
    journal: JournalWriter
    generation: int
    can: Can
    clock: Clock
    submit: Callable[[AnyJob, OnAnswer], int]

    def key(self, *names: str) -> str:
        return "/".join((self.paths.root.name, *names))

    @property
    def guard(self) -> str:
        """The key whose appearance means that the next owner has taken over."""
        return self.key("generations", self.paths.generation(self.generation + 1).name)

    def push(self, groups: list[Group], answered: OnAnswer) -> None:
        self.submit(transfer_jobs.Push(groups=groups, guard=self.guard), answered)

    def delete(self, names: Iterable[str], answered: OnAnswer) -> None:
        self.submit(transfer_jobs.Delete(keys=[self.key(name) for name in names], guard=self.guard), answered)

    def lacks_snapshot(self, names: Collection[str]) -> bool:
        """A local snapshot is not among them: files of trials, which hold what it drops, may not be there either."""
        local = fs.listdir(self.paths.journal) if fs.is_dir(self.paths.journal) else []
        return any(parse_snapshot(name) and f"journal/{name}" not in names for name in local)


class Stream(Protocol):
    """One kind of things that goes to a replica, or comes from it: it submits jobs, and gets their answers."""

    early: bool = False
    """It goes on before the first trial runs, too."""
    begun: bool = False
    """A trial has run."""
    closing: bool = False
    """Nothing more will be told: what is left goes there now."""

    def take_up(self, state: ExperimentState, held: Inventory) -> None:
        """What is kept and not there is to go there, what is there and not kept is to go."""
        return

    def period(self) -> None:
        """Time for what does not go there at once."""
        return

    @property
    def holds(self) -> bool:
        """The streams after it wait for it."""
        return False

    def start_jobs(self, now: float) -> bool:
        """Submit what can be done now; False: nothing."""
        ...

    def due_at(self, now: float) -> float | None:
        """When `start_jobs` has something to do although nothing happens before, in monotonic seconds; None: never."""
        return None

    def look_at(self, now: float) -> float | None:
        """The same, if meanwhile something happens of which nobody tells it."""
        return self.due_at(now)

    @property
    def drained(self) -> bool:
        """All that it has to do is done."""
        ...

    @property
    def refused(self) -> bool:
        """All that is left was refused again and again."""
        return False

    def missing(self) -> list[str]:
        """What did not arrive, one line each."""
        return []
