"""One rank, as its leader sees it: a line, a process, and what it waits for."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trainables.errors import RanksError
from trainables.group.rank_messages import FromRank, Held, Raised, RankReport, Returned
from trainables.starting import signal_name
from trainables.store.delete import pins


@dataclass(slots=True)
class Rank:
    """What the leader knows of one rank. Its process is named by a descriptor: a pid may be somebody else's later."""

    number: int
    send: Callable[[Any], object] | None = None
    """Says something to it; None: it has not said hello."""
    line: Connection | None = None
    """None too for one on another node."""
    pid: int = 0
    where: str = ""
    """The node that it runs on, in words; "": the leader's."""
    pidfd: int = -1
    reports: int = 0
    """Calls of `report()` so far, the one that waits included."""
    report: RankReport | None = None
    """The call that waits."""
    asks: int | None = None
    """The number of the call of `should_stop()` that waits."""
    last: Returned | Raised | None = None
    gone: bool = False
    """Its process is dead."""
    holds: dict[Path, contextlib.ExitStack] = field(default_factory=dict)

    def __str__(self) -> str:
        on = f" on {self.where}" if self.where else ""
        return f"rank {self.number} (pid {self.pid}{on})" if self.pid else f"rank {self.number}"

    def met(self, line: Connection, pid: int) -> None:
        """It has said hello."""
        self.line, self.send, self.pid = line, line.send, pid
        try:
            self.pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            raise RanksError(f"{self} ended right after its start") from None

    def met_elsewhere(self, send: Callable[[Any], object], pid: int, where: str) -> None:
        """It has said hello, on another node, whose launcher tells of its end."""
        self.send, self.pid, self.where = send, pid, where

    def answer(self, message: Any) -> None:
        """Send; one that is dead is told by its own descriptor."""
        assert self.send is not None
        with contextlib.suppress(OSError):
            self.send(message)

    def unread(self) -> Iterator[FromRank]:
        """What a dead process said that was not heard yet."""
        with contextlib.suppress(EOFError, OSError):
            while self.line is not None and self.line.poll():  # a process of its own may hold its end open
                yield self.line.recv()

    def last_word(self) -> Returned | Raised | None:
        """What a dead process said at last, of what is still unread on its line."""
        return next((message for message in self.unread() if isinstance(message, Returned | Raised)), None)

    def hold(self, message: Held) -> None:
        """Keep what it reads from being deleted, or no longer."""
        if message.held and message.path not in self.holds:
            stack = self.holds[message.path] = contextlib.ExitStack()
            stack.enter_context(pins.hold(message.path))
        elif not message.held and message.path in self.holds:
            self.holds.pop(message.path).close()

    def kill(self) -> None:
        """End its process now."""
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def status(self) -> int | None:
        """How its process ended, left for who collects it; None when that has been done."""
        try:
            found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return None
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def how_it_died(self, status: int | None) -> str:
        """The end of a process that said nothing, in words."""
        after = f"after {times(self.reports)} of report()"
        where = f"in call number {self.reports} of report()" if self.report else after
        if status is None:
            return f"{self} ended without a word, {where}"
        if status < 0:
            hint = "; was the machine out of memory?" if status == -signal.SIGKILL else ""
            return f"{self} was killed by signal {-status} ({signal_name(-status)}), {where}{hint}"
        return f"{self} exited with status {status}, {where}"

    def whereabouts(self) -> str:
        """Where a process is that runs, in words."""
        if self.report:
            return f"{self} waits in report() number {self.reports}"
        return f"{self} runs after {times(self.reports)} of report()"

    def close(self) -> None:
        """Let go of everything that belongs to it."""
        for stack in self.holds.values():
            stack.close()
        if self.line is not None:
            self.line.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)


def names(ranks: Sequence[Rank]) -> str:
    """Several ranks, in words."""
    return ", ".join(str(rank) for rank in ranks)


def times(count: int) -> str:
    """How many calls, in words."""
    return f"{count} call{'' if count == 1 else 's'}"
