"""The other nodes of a group, as its leader sees them: a line to the launcher of each, which speaks for its ranks."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trainables.errors import RanksError
from trainables.group.file_transfer import HANDSHAKE_S, FileServer
from trainables.group.launcher import NodeRanks
from trainables.group.rank_messages import FromRank, GroupMessage
from trainables.job import Job
from trainables.net import handshake

# ---------------------------------------------------------------- from a node's launcher


class NodeJoined(GroupMessage, frozen=True):
    """The first message. Answer: `StartRanks`."""

    node: int


class RankSaid(GroupMessage, frozen=True):
    """What a rank said."""

    rank: int
    message: FromRank
    flags: int
    """What it has looked at so far, see `Flags`."""


class RankExited(GroupMessage, frozen=True):
    """A rank's process has ended; all that it said came before."""

    rank: int
    status: int | None


class FlagsSeen(GroupMessage, frozen=True):
    """Answer to `Leave`: what each rank had looked at when it could see that."""

    at: dict[int, int]


class Noticed(GroupMessage, frozen=True):
    """A signal told a process of that node to leave."""


class LaunchFailed(GroupMessage, frozen=True):
    """The ranks could not be started there."""

    why: str


# ---------------------------------------------------------------- to a node's launcher


class StartRanks(GroupMessage, frozen=True):
    """Start the ranks."""

    node: NodeRanks
    next_save: int
    probe: str
    """A file in the trial's directory: who sees it there shares that directory with the leader."""
    start: Path | None
    """What the attempt starts from, where the leader is."""


class ToRank(GroupMessage, frozen=True):
    """What a rank is told."""

    rank: int
    message: Any


class Leave(GroupMessage, frozen=True):
    """The trial was told to leave. Answer: `FlagsSeen`."""


# ---------------------------------------------------------------- the leader's end


@dataclass(eq=False, slots=True)
class RemoteNode:
    """A further node: its launcher, which starts and watches the ranks there."""

    number: int
    address: str
    ranks: range
    line: Connection | None = None
    flags_seen: bool = False
    """It has answered `Leave`."""

    def __str__(self) -> str:
        return f"node {self.address}"

    def send(self, message: Any) -> None:
        """Send; one that is gone is told by its line."""
        with contextlib.suppress(OSError):
            if self.line is not None:
                self.line.send(message)

    def send_to(self, rank: int, message: Any) -> None:
        """Have something passed on to a rank there."""
        self.send(ToRank(rank, message))

    def lost(self) -> RanksError:
        """What its end means."""
        first, last = self.ranks[0], self.ranks[-1]
        lost = f"rank {first}" if first == last else f"ranks {first} to {last}"
        return RanksError(f"{self} was lost, and with it {lost}")


@dataclass(slots=True)
class RemoteNodes:
    """All nodes of a group but the leader's own."""

    job: Job
    node: NodeRanks
    """The leader's own."""
    remote: list[RemoteNode] = field(default_factory=list)
    listener: socket.socket | None = None
    _server: FileServer | None = None
    _probe: Path | None = None

    @classmethod
    def of(cls, job: Job, size: int) -> RemoteNodes:
        """Those of a job; none where the whole group is on one node. Raises RanksError for another number of ranks."""
        if job.group_nodes is None:
            return cls(job, NodeRanks(size))
        firsts, nodes = first_ranks(job), job.group_nodes.nodes
        if firsts[-1] != size:
            raise RanksError(
                f"there is room for {firsts[-1]} ranks on {len(nodes)} nodes, and the trial has {size}: where "
                "groups are on several nodes, a worker has to ask for the same in all trials"
            )
        ranks = [range(first, end) for first, end in pairwise(firsts)]
        remote = [RemoteNode(number, nodes[number][0], ranks[number]) for number in range(1, len(nodes))]
        return cls(job, NodeRanks(firsts[1], nodes=len(nodes), address=nodes[0][0]), remote)

    @contextlib.contextmanager
    def listening(self, name: str) -> Iterator[int | None]:
        """Listen for the other nodes, in this life `name` of the group. The port; None where there are none."""
        if not self.remote:
            yield None
            return
        address = self.node.address
        with contextlib.ExitStack() as stack:
            self.listener = stack.enter_context(socket.create_server((address, 0)))
            with socket.create_server((address, 0)) as free:
                meeting = (address, int(free.getsockname()[1]))
            self.node = replace(self.node, meeting=meeting, name=name)
            self._probe = self.job.directory / f".staging-{name}-rank"  # goes with what dead ranks leave
            self._probe.touch()
            stack.callback(self._probe.unlink, missing_ok=True)
            stack.callback(self.close)
            yield int(self.listener.getsockname()[1])

    @property
    def missing(self) -> list[RemoteNode]:
        """Those that have not come yet."""
        return [node for node in self.remote if node.line is None]

    def accept(self, next_save: int) -> RemoteNode | None:
        """Hear who has connected, and have it begin; None: it was a stranger."""
        across, listener = self.job.group_nodes, self.listener
        assert across is not None and listener is not None and self._probe is not None
        accepted, _ = listener.accept()
        if (sock := handshake.admit(accepted, across.key, knock_s=HANDSHAKE_S, answer_s=HANDSHAKE_S)) is None:
            return None
        line = Connection(sock.detach())
        joined = line.recv()
        assert isinstance(joined, NodeJoined)
        found = self.remote[joined.node - 1]
        found.line, ranks = line, found.ranks
        node = replace(self.node, ranks=len(ranks), first=ranks.start, number=found.number, address=found.address)
        found.send(StartRanks(node, next_save, self._probe.name, self.job.checkpoint_path))
        return found

    def serve_files(self) -> None:
        """Take what ranks on other hosts save, from now on. Starts a thread: all ranks of this node run already."""
        if self.job.group_nodes is not None and self.listener is not None:
            self._server = FileServer(self.listener, self.job.group_nodes.key, self.job.directory)

    def leave(self) -> None:
        """Pass on that the trial was told to leave."""
        for node in self.remote:
            node.send(Leave())

    @property
    def flags_seen(self) -> bool:
        """What their ranks have looked at is known."""
        return all(node.flags_seen for node in self.remote)

    def cause(self, within_s: float, heard: Callable[[GroupMessage], str | None]) -> str | None:
        """Why a rank may have failed that waited for another: what `heard` finds in a message, or a lost node."""
        poll = select.poll()
        lines = {node.line.fileno(): node for node in self.remote if node.line is not None}
        for fd in lines:
            poll.register(fd, select.POLLIN)
        while ready := poll.poll(within_s * 1000) if lines else []:
            for fd, _ in ready:
                try:
                    assert (line := lines[fd].line) is not None
                    message = line.recv()
                except (EOFError, OSError):
                    return str(lines[fd].lost())
                if (found := heard(message)) is not None:
                    return found
        return None

    def close(self) -> None:
        """End what is left there: each launcher ends its ranks when its line is closed."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for node in self.remote:
            if node.line is not None:
                node.line.close()
                node.line = None


def first_ranks(job: Job) -> list[int]:
    """The first rank of each node, and the number of all."""
    assert job.group_nodes is not None
    return [0, *accumulate(count for _, count in job.group_nodes.nodes)]
