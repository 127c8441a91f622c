"""The driver's end of the fork server and its keepers: what waits gets one, and what became of it is told."""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from trainables.quick_dataclass import dataclass
from tuner.error import TuneError
from tuner.executors.base import KILLED, Event
from tuner.executors.local.changed_globals import CHANGED
from tuner.executors.local.forkserver import NUMBER
from tuner.executors.local.keeper import CANNOT_FORK, TOLD
from tuner.executors.local.kept import KeptProcess
from tuner.executors.local.local_attempts import LocalAttempt
from tuner.executors.local.process_tree import start_time
from tuner.executors.local.server import ForkServer, describe
from tuner.executors.reactor import Reactor

log = logging.getLogger(__name__)

_MAX_FALSE_STARTS = 3
_NOTICEABLE_S = 1.0
"""An import that each trial repeats and that takes so long is a warning; a shorter one is a line of driver.log."""
_REMEDY = "A module of your own is imported once for all trials if it does this when it is first used, not at import."


@dataclass(slots=True, eq=False)
class Slot:
    """One keeper process, idle when it has neither an attempt nor a process that is kept."""

    number: int
    control: socket.socket
    server: ForkServer
    pid: int = 0
    attempt: LocalAttempt | None = None
    kept: KeptProcess | None = None
    gone: bool = False


class Slots:
    """Places attempts on keepers, of which it has as many forked as are needed at once.

    Args:
        start: starts a fork server that preloads none of the modules named.
        modules: those that it preloads else; "" stands for the trainable.
        ended: called when nothing of an attempt is left, with its pid (0: not known), exit status, and the most memory
            that it had, in kB (0: not known).
        keep: called when nothing of an attempt is left but its process, at that keeper, which waits for another one.
        left: called when one that was kept has ended.
        note: called with a line for the log that is no warning.
    """

    def __init__(
        self,
        reactor: Reactor,
        start: Callable[[Sequence[str]], ForkServer],
        modules: Iterable[str],
        ended: Callable[[LocalAttempt, int, int, int, list[Event]], None],
        keep: Callable[[LocalAttempt, socket.socket, list[Event]], KeptProcess],
        left: Callable[[KeptProcess], None],
        note: Callable[[str], None] = log.info,
    ) -> None:
        self._reactor, self._start, self._ended = reactor, start, ended
        self._keep, self._left, self._note = keep, left, note
        self._modules = [*modules, ""]
        self._unsafe: list[str] = []
        self._waiting: deque[LocalAttempt] = deque()
        self._numbers = itertools.count(1)
        self._slots: dict[int, Slot] = {}
        self._idle: list[Slot] = []
        self._false_starts = 0
        self.server: ForkServer | None = None
        self._start_server()

    @property
    def usable(self) -> bool:
        """Attempts can be placed; else the server is gone, and what it left is being ended."""
        return self.server is None or not self.server.gone

    def add(self, attempt: LocalAttempt) -> None:
        """Have an attempt run, with the next `place`."""
        self._waiting.append(attempt)

    def place(self) -> None:
        """Give those that wait a keeper."""
        while self._waiting and self.usable:
            slot = self._idle.pop() if self._idle else self._fork_keeper()
            if slot is None:
                return
            attempt = self._waiting[0]
            try:
                socket.send_fds(slot.control, [b"L"], attempt.fds)
            except ConnectionError:  # no wider: a signal handler of the user's may raise an OSError right here
                continue  # it died just now and will be reported; the attempt has not begun
            self._waiting.popleft()
            slot.attempt, attempt.keeper = attempt, slot.control
            if slot.pid:
                attempt.hand_over()
            if attempt.reason is not None:
                attempt.end(None)

    def hand_on(self, kept: KeptProcess, attempt: LocalAttempt) -> bool:
        """Have an attempt run in a process that waits; False: that has died just now, and will be reported."""
        if not kept.line.pass_on(attempt.fds):
            return False
        slot = next(slot for slot in self._slots.values() if slot.kept is kept)
        slot.kept, slot.attempt, attempt.keeper = None, attempt, slot.control
        attempt.hand_over()
        return True

    def stays(self, attempt: LocalAttempt) -> None:
        """The process of an attempt says that it waits for another one."""
        if attempt.keeper is not None:
            with contextlib.suppress(ConnectionError):  # the keeper goes just now, and the process with it
                attempt.keeper.send(b"P")

    def processes(self) -> list[tuple[int, int]]:
        """(pid, start time) of the server and of each keeper."""
        pids = [slot.pid for slot in self._slots.values() if slot.pid and not slot.gone]
        if self.server is not None and not self.server.gone:
            pids.insert(0, self.server.pid)
        return [(pid, started) for pid in pids if (started := start_time(pid)) is not None]

    def close(self) -> None:
        """End all of it. Returns when no process is left."""
        for slot in self._slots.values():
            self._reactor.forget(slot.control.fileno())
            slot.control.close()
        if self.server is not None:
            self._reactor.forget(self.server.control.fileno())
            self.server.end()

    # --- beginning ----------------------------------------------------------------------------------------

    def _start_server(self) -> None:
        self.server = self._start(self._unsafe)
        self._reactor.watch(self.server.control.fileno(), self._on_server)

    def _fork_keeper(self) -> Slot | None:
        if self.server is None:
            self._start_server()
        assert self.server is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        slot = Slot(next(self._numbers), ours, self.server)
        asked = self.server.fork_keeper(slot.number, theirs)
        theirs.close()
        if not asked:
            ours.close()  # the server just died; its end is on the way
            return None
        self._slots[slot.number] = slot
        ours.setblocking(False)
        self._reactor.watch(ours.fileno(), lambda events: self._on_keeper(slot, events))
        return slot

    # --- what they say ------------------------------------------------------------------------------------

    def _on_keeper(self, slot: Slot, events: list[Event]) -> None:
        while True:
            try:
                data = slot.control.recv(64)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                break
            kind, pid, status, peak_kb = TOLD.unpack(data)
            self._on_told(slot, kind, pid, status, peak_kb, events)
        slot.gone = True
        if slot.attempt is not None:
            slot.attempt.keeper = None
        if slot in self._idle:
            self._idle.remove(slot)
        self._reactor.forget(slot.control.fileno())
        slot.control.close()
        if slot.server.gone:
            self._after_server(events)

    def _on_told(self, slot: Slot, kind: bytes, pid: int, status: int, peak_kb: int, events: list[Event]) -> None:
        attempt, slot.attempt = slot.attempt, None
        if kind == b"P" and attempt is not None:
            slot.kept = self._keep(attempt, slot.control, events)
            return
        self._idle.append(slot)
        if attempt is not None:
            self._ended(attempt, pid, status, peak_kb, events)
        if slot.kept is not None:
            self._let_go(slot)

    def _let_go(self, slot: Slot) -> None:
        kept, slot.kept = slot.kept, None
        if kept is not None:
            self._left(kept)

    def _on_server(self, events: list[Event]) -> None:
        server = self.server
        assert server is not None
        while (data := server.receive()) is not None:
            kind = data[:1]
            if kind == b"R":
                server.ready = True
            elif kind == b"U":
                self._on_unsafe(*data[1:].decode().split("\0", 2))
            elif kind == b"G":
                for index in data[1:].split():
                    log.warning(CHANGED, server.changed[int(index)])
            elif kind == b"W":
                log.warning("trials are forked although that is not safe: %s", data[1:].decode())
            elif kind == b"P":
                _, number, pid = NUMBER.unpack(data)
                slot = self._slots[number]
                slot.pid = pid
                if slot.attempt is not None:
                    slot.attempt.hand_over()
            elif kind == b"D":
                self._keeper_lost(self._slots[NUMBER.unpack(data)[1]], events)
            else:
                server.gone = True
                self._reactor.forget(server.control.fileno())
                server.control.close()
                self._after_server(events)
                return

    def _on_unsafe(self, seconds: str, module: str, why: str) -> None:
        if module in self._unsafe:
            return
        self._unsafe.append(module)
        line = (
            f"Trials import {module or 'the trainable'} themselves, because importing it {why}. "
            f"This takes each trial about {seconds} s. {_REMEDY}"
        )
        if float(seconds) < _NOTICEABLE_S:
            self._note(line)
        else:
            log.warning(line)  # as the format: each module is a cause of its own

    # --- their ends ---------------------------------------------------------------------------------------

    def _keeper_lost(self, slot: Slot, events: list[Event]) -> None:
        """The server says that a keeper died and that nothing is left below it."""
        if not slot.gone:
            self._on_keeper(slot, events)  # it may have said something before
        del self._slots[slot.number]
        self._let_go(slot)
        attempt, slot.attempt = slot.attempt, None
        if attempt is None:
            return
        if slot.pid:
            attempt.reason = attempt.reason or "lost"
            self._ended(attempt, 0, KILLED, 0, events)
        elif slot.server.gone:
            self._waiting.append(attempt)  # it never began
        else:
            self._ended(attempt, 0, CANNOT_FORK, 0, events)

    def _after_server(self, events: list[Event]) -> None:
        """The server died. Its keepers end their trials and go; when the last one has, what is left is swept up."""
        server = self.server
        assert server is not None
        if any(not slot.gone for slot in self._slots.values()):
            return
        server.process.wait()
        server.sweep()
        how = describe(server.process.returncode)
        log.warning("the fork server %s; another one is started", how)
        self.server = None
        if not server.ready:
            self._false_starts += 1
            if self._false_starts >= _MAX_FALSE_STARTS:
                raise TuneError(f"the process that trials are forked from does not start: it {how}; see its output")
            self._unsafe = list(self._modules)  # whatever it was, the trials may do better
        for slot in list(self._slots.values()):
            self._keeper_lost(slot, events)
