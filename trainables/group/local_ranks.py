"""The ranks of one node, as the process that starts them sees them: met, heard, and watched until they end."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from trainables.group.event_loop import EventLoop
from trainables.group.launcher import Launcher, NodeRanks
from trainables.group.rank import Rank
from trainables.group.rank_messages import FromRank, Hello
from trainables.net import handshake
from trainables.store import fs, staging

_HELLO_S = 60.0
"""How long one that has connected may take to show that it is a rank."""


class LocalRanks:
    """Starts the ranks of this node, hears them in a loop, and sees their ends.

    Args:
        ranks: those of this node.
        launcher: how they are started.
        loop: in which they are heard. Lines come before deaths: a last word is heard first.
        key: which they show when they connect.
        heard: called with what one says.
        died: called with one whose process has ended, and with what of its words nobody has heard.
    """

    def __init__(
        self,
        ranks: Sequence[Rank],
        launcher: Launcher,
        loop: EventLoop,
        *,
        key: bytes,
        heard: Callable[[Rank, FromRank], None],
        died: Callable[[Rank, list[FromRank]], None],
    ) -> None:
        self._ranks = {rank.number: rank for rank in ranks}
        self._launcher, self._loop, self._key, self._heard, self._died = launcher, loop, key, heard, died
        self.none_left = False
        """No process of the ranks is left."""
        self._listener = socket.socket(socket.AF_UNIX)
        # An abstract name: a path may be too long for a socket, and nothing is left of it. The key says who may speak.
        self.address = f"\0trial-{os.getpid()}-{secrets.token_hex(8)}"
        self._listener.bind(self.address)
        self._listener.listen(len(self._ranks))
        loop.watch(self._listener.fileno(), self._accept)

    def start(self, entry: Callable[[int], bool], node: NodeRanks) -> None:
        """Start them; each calls `entry` with its number."""

        def ended() -> None:
            self.none_left = True
            self._loop.wake()

        self._launcher.start(len(self._ranks), entry, ended, node)

    def serve(self) -> bool:
        """`EventLoop.serve`."""
        return self._loop.serve(last={rank.pidfd for rank in self._ranks.values()})

    def complete(self) -> None:
        """All have come: nobody else is let in."""
        self._loop.forget(self._listener.fileno())

    def not_started(self, silent: Iterable[Rank]) -> tuple[Rank, str] | None:
        """With no process left: the first of those that never said hello, and what is known of it."""
        for rank in silent:
            why, status = self._launcher.join(), self._launcher.status(rank.number)
            how = "" if status is None else f" (its process ended with {status})"
            return rank, how + (f": {why}" if why else "")
        return None

    def status(self, rank: Rank) -> int | None:
        """How the process of one that has died ended; None: nobody knows."""
        status = rank.status()
        if status is None:  # the launcher was faster, and knows
            self.kill()
            self._launcher.join()
            status = self._launcher.status(rank.number)
        return status

    def kill(self) -> None:
        """End all of them now: those that wait for a dead one would wait for ever."""
        for rank in self._ranks.values():
            if not rank.gone:
                rank.kill()
        self._launcher.kill()

    def close(self) -> None:
        """Wait until none is left, and let go of everything."""
        self._launcher.join()
        self._listener.close()

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        if (sock := handshake.admit(accepted, self._key, knock_s=_HELLO_S, answer_s=_HELLO_S)) is None:
            return
        line = Connection(sock.detach())
        hello = line.recv()
        assert isinstance(hello, Hello)
        rank = self._ranks[hello.rank]
        rank.met(line, hello.pid)
        self._heard(rank, hello)
        self._loop.watch(line.fileno(), lambda: self._hear(rank, line))
        self._loop.watch(rank.pidfd, lambda: self._end(rank))

    def _hear(self, rank: Rank, line: Connection) -> None:
        try:
            message: FromRank = line.recv()
        except (EOFError, OSError):
            self._loop.forget(line.fileno())  # its process is ending: that is told by its own descriptor
            return
        self._heard(rank, message)

    def _end(self, rank: Rank) -> None:
        self._loop.forget(rank.pidfd)
        rank.gone = True
        self._died(rank, list(rank.unread()))


def remove_staged(directory: Path) -> None:
    """Remove what dead ranks were staging in the directory of their trial."""
    for left in directory.glob(f"{staging.PREFIX}*-rank*"):
        fs.remove_quietly(left)
