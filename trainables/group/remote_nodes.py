"""The other nodes of a group, as its leader sees them: a line to the deputy of each, which speaks for its ranks."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trainables.errors import RanksError
from trainables.group.file_transfer import FileServer, met
from trainables.group.launcher import NodeRanks
from trainables.group.rank_messages import FromRank
from trainables.job import Job

# ---------------------------------------------------------------- from a deputy


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """The first message. Answer: `StartRanks`."""

    node: int


@dataclass(frozen=True, slots=True)
class RankSaid:
    """What a rank said."""

    rank: int
    message: FromRank
    looked: int
    """What it has looked at so far, see `Flags`."""


@dataclass(frozen=True, slots=True)
class RankExited:
    """A rank's process has ended; all that it said came before."""

    rank: int
    status: int | None


@dataclass(frozen=True, slots=True)
class FlagsSeen:
    """Answer to `Leave`: what each rank had looked at when it could see that."""

    at: dict[int, int]


@dataclass(frozen=True, slots=True)
class Noticed:
    """A signal told a process over there to leave."""


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The ranks could not be started over there."""

    why: str


# ---------------------------------------------------------------- to a deputy


@dataclass(frozen=True, slots=True)
class StartRanks:
    """Start the ranks."""

    spot: NodeRanks
    next_save: int
    probe: str
    """A file in the trial's directory: who sees it there shares that directory with the leader."""
    start: Path | None
    """What the attempt starts from, where the leader is."""


@dataclass(frozen=True, slots=True)
class ToRank:
    """What a rank is told."""

    rank: int
    message: Any


@dataclass(frozen=True, slots=True)
class Leave:
    """The trial was told to leave. Answer: `FlagsSeen`."""


# ---------------------------------------------------------------- the leader's end


class RelayedLine:
    """The line to a rank on another node, which its deputy passes on."""

    def __init__(self, deputy: RemoteNode, rank: int) -> None:
        self._deputy, self._rank = deputy, rank

    def send(self, message: Any) -> None:
        """As `Connection.send`."""
        self._deputy.send(ToRank(self._rank, message))

    def fileno(self) -> int:
        """None."""
        return -1

    def poll(self) -> bool:
        """Nothing waits here: what a rank says comes through its deputy."""
        return False

    def recv(self) -> Any:
        """Never called, because nothing waits here."""
        raise EOFError

    def close(self) -> None:
        """The deputy's line stays."""


@dataclass(eq=False, slots=True)
class RemoteNode:
    """The process that starts and watches the ranks of another node."""

    node: int
    address: str
    ranks: range
    line: Connection | None = None
    looked: bool = False
    """It has answered `Leave`."""

    def __str__(self) -> str:
        return f"node {self.address}"

    def send(self, message: Any) -> None:
        """Send; one that is gone is told by its line."""
        with contextlib.suppress(OSError):
            if self.line is not None:
                self.line.send(message)

    def lost(self) -> RanksError:
        """What its end means."""
        return RanksError(f"{self} was lost, and with it {_ranks(self.ranks)}")


@dataclass(slots=True)
class RemoteNodes:
    """All nodes of a group but the leader's own."""

    job: Job
    deputies: list[RemoteNode] = field(default_factory=list)
    listener: socket.socket | None = None
    spot: NodeRanks = NodeRanks()
    """The leader's own node's."""
    here: int = 0
    """Ranks on that."""
    _server: FileServer | None = None
    _probe: Path | None = None

    @classmethod
    def of(cls, job: Job, size: int) -> RemoteNodes:
        """Those of a job; none where the whole group is on one node. Raises RanksError for another number of ranks."""
        made = cls(job, here=size)
        if job.group_nodes is not None:
            firsts = first_ranks(job)
            if firsts[-1] != size:
                raise RanksError(
                    f"there is room for {firsts[-1]} ranks on {len(firsts) - 1} nodes, and the trial has {size}: where "
                    "groups are on several nodes, a worker has to ask for the same in all trials"
                )
            made.here = firsts[1]
            made.deputies = [
                RemoteNode(node, address, range(firsts[node], firsts[node + 1]))
                for node, (address, _) in enumerate(job.group_nodes.nodes)
                if node
            ]
        return made

    @contextlib.contextmanager
    def listening(self, name: str) -> Iterator[int | None]:
        """Listen for the deputies. The port; None where there are none."""
        across = self.job.group_nodes
        if across is None:
            yield None
            return
        address = across.nodes[0][0]
        with contextlib.ExitStack() as stack:
            self.listener = stack.enter_context(socket.create_server((address, 0)))
            with socket.create_server((address, 0)) as free:
                meeting = (address, int(free.getsockname()[1]))
            self.spot = NodeRanks(0, len(across.nodes), 0, address, meeting, name)
            self._probe = self.job.directory / f".staging-{name}-rank"  # goes with what dead ranks leave
            self._probe.touch()
            stack.callback(self._probe.unlink, missing_ok=True)
            stack.callback(self.close)
            yield int(self.listener.getsockname()[1])

    @property
    def missing(self) -> list[RemoteNode]:
        """Those that have not come yet."""
        return [deputy for deputy in self.deputies if deputy.line is None]

    def accept(self, next_save: int) -> RemoteNode | None:
        """Hear who has connected, and have it begin; None: it was a stranger."""
        across, listener = self.job.group_nodes, self.listener
        assert across is not None and listener is not None and self._probe is not None
        accepted, _ = listener.accept()
        line = met(accepted, across.key)
        if line is None:
            return None
        joined = line.recv()
        assert isinstance(joined, NodeJoined)
        deputy = self.deputies[joined.node - 1]
        deputy.line = line
        spot = NodeRanks(
            deputy.node, self.spot.nodes, deputy.ranks.start, deputy.address, self.spot.meeting, self.spot.name
        )
        deputy.send(StartRanks(spot, next_save, self._probe.name, self.job.checkpoint_path))
        return deputy

    def serve_files(self) -> None:
        """Take what ranks on other hosts save, from now on. Starts a thread: all ranks of this node run already."""
        across = self.job.group_nodes
        if across is not None and self.listener is not None:
            self._server = FileServer(self.listener, across.key, self.job.directory)

    def leave(self) -> None:
        """Pass on that the trial was told to leave."""
        for deputy in self.deputies:
            deputy.send(Leave())

    @property
    def all_looked(self) -> bool:
        """What their ranks have looked at is known."""
        return all(deputy.looked for deputy in self.deputies)

    def cause(self, within_s: float, how: Callable[[RankExited], str | None]) -> str | None:
        """Why a rank may have failed that waited for another: one over there that died, or a whole node."""
        poll = select.poll()
        lines = {deputy.line.fileno(): deputy for deputy in self.deputies if deputy.line is not None}
        for fd in lines:
            poll.register(fd, select.POLLIN)
        while ready := poll.poll(within_s * 1000) if lines else []:
            for fd, _ in ready:
                try:
                    assert (line := lines[fd].line) is not None
                    message = line.recv()
                except (EOFError, OSError):
                    return str(lines[fd].lost())
                if isinstance(message, RankExited) and (found := how(message)) is not None:
                    return found
        return None

    def close(self) -> None:
        """End what is left over there: each deputy ends its ranks when its line is closed."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for deputy in self.deputies:
            if deputy.line is not None:
                deputy.line.close()
                deputy.line = None


def first_ranks(job: Job) -> list[int]:
    """The first rank of each node, and the number of all."""
    assert job.group_nodes is not None
    firsts = [0]
    for _, count in job.group_nodes.nodes:
        firsts.append(firsts[-1] + count)
    return firsts


def _ranks(ranks: range) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
