"""How the processes of a group come into being: `Launcher`, and the plain one that forks."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Protocol

from trainables.errors import LimitError
from trainables.quick_dataclass import dataclass
from trainables.starting import no_process, start_thread


@dataclass(frozen=True, slots=True)
class NodeRanks:
    """Which ranks of a group one node has. By default there is no other node."""

    ranks: int = 1
    """Ranks on this node."""
    first: int = 0
    """The first of them; the others follow it."""
    number: int = 0
    """The node's, from 0, which is the leader's."""
    nodes: int = 1
    address: str = ""
    """This node's, where there are several."""
    meeting: tuple[str, int] = ("", 0)
    """Address and free port of the first node, where the nodes may meet."""
    name: str = ""
    """Of this life of the group."""


ONE_NODE = NodeRanks()


class Launcher(Protocol):
    """Starts the ranks of one node and collects them when they have ended."""

    def start(self, size: int, entry: Callable[[int], bool], ended: Callable[[], None], node: NodeRanks) -> None:
        """Start `size` processes that call `entry(rank)` and exit with 0 if it returned True, else with another status.

        `ended` is called once, in any thread, when no process of the group is left, or none could be started.
        """

    def kill(self) -> None:
        """End what is left of the group, now."""

    def join(self) -> str | None:
        """Wait until `ended` was called. Why ranks could not be started, or None."""

    def status(self, rank: int) -> int | None:
        """How a rank ended: its exit status, or the negative number of a signal; None: nobody knows."""


class ForkLauncher:
    """Forks the ranks off the trial's process. Needs a process with one thread, as a trial's is at its start."""

    def __init__(self) -> None:
        self._pids: list[int] = []
        self._first = 0
        self._statuses: dict[int, int] = {}
        self._thread: threading.Thread | None = None

    def start(self, size: int, entry: Callable[[int], bool], ended: Callable[[], None], node: NodeRanks) -> None:
        self._first = node.first
        for rank in range(node.first, node.first + size):
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            try:
                pid = os.fork()
            except OSError as error:
                self._give_up()
                raise no_process(f"rank {rank}", error) from error
            if pid == 0:
                _be(entry, rank)
            self._pids.append(pid)
        try:
            self._thread = start_thread(self._collect, name="group-collector", args=(ended,))
        except LimitError:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """End the ranks that there are: without the others, or without one that waits for them, they are of no use."""
        self.kill()
        for pid in self._pids:
            os.waitpid(pid, 0)
        self._pids.clear()

    def kill(self) -> None:
        for pid in self._pids:
            if pid not in self._statuses:  # collected: the number may be somebody else's by now
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def join(self) -> str | None:
        if self._thread is not None:
            self._thread.join()
        return None

    def status(self, rank: int) -> int | None:
        number = rank - self._first
        return self._statuses.get(self._pids[number]) if number < len(self._pids) else None

    def _collect(self, ended: Callable[[], None]) -> None:
        for pid in self._pids:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            _, status = os.waitpid(pid, 0)
            self._statuses[pid] = os.waitstatus_to_exitcode(status)
        ended()


def _be(entry: Callable[[int], bool], rank: int) -> None:
    status = 1
    try:
        status = 0 if entry(rank) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(status)
