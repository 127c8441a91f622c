"""One keeper per slot: it runs one trial after another, and the next only when nothing of the last is left.

It is the subreaper of its trial, so whatever the trial started and abandoned (`setsid`, double fork) falls to it.
Packets of its socket to the driver:

    driver -> keeper   L + descriptors         run an attempt: main, side and perhaps output pipes
                       K                       end the attempt now
                       P                       the attempt is over, its process stays for another: end what else is left
    keeper -> driver   X <pid> <status> <kB>   the attempt is over and nothing is left of it; the peak of its memory
                       P <pid> 0 0             the process stays, and nothing else is left

It ends, descendants first, when the driver's end closes, or the server's pipe, or the server dies.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
from typing import NoReturn

from tuner.executors.local import attempt_process, process_tree
from tuner.executors.local.attempt_process import Preloaded

TOLD = struct.Struct("<cIiQ")
CANNOT_FORK = 71  # EX_OSERR


class SignalPipe:
    """Makes SIGCHLD and SIGTERM readable as a descriptor, so that one poll waits for everything."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()
        for fd in (self.fd, self._write):
            os.set_blocking(fd, False)
        for signum in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(signum, lambda *_: None)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def clear(self) -> None:
        """Forget the signals so far. What they were about is to be looked at after this, not before."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)

    def close(self) -> None:
        """In a forked child: let go of the parent's pipe."""
        signal.set_wakeup_fd(-1)
        os.close(self.fd)
        os.close(self._write)


class Keeper:
    """The life of one keeper process."""

    def __init__(self, control: int, alive: int, server: int, shared: Preloaded) -> None:
        process_tree.adopt_orphans()
        self._wakeups = SignalPipe()
        process_tree.die_with_parent(server, signal.SIGTERM)
        self._control = socket.socket(fileno=control)
        self._alive = alive
        self._server = server
        self._shared = shared
        self._trial = 0

    def serve(self) -> NoReturn:
        """Run attempts until driver or server are gone."""
        poll = select.poll()
        for fd in (self._control.fileno(), self._alive, self._wakeups.fd):
            poll.register(fd, select.POLLIN)
        try:
            while os.getppid() == self._server:
                ready = [fd for fd, _ in poll.poll()]
                if self._alive in ready:
                    break
                if self._wakeups.fd in ready:
                    self._wakeups.clear()
                    self._reap()
                if self._control.fileno() in ready and not self._obey():
                    break
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            self._end_trial()
            os._exit(0)

    def _obey(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, 16, 8)
        except ConnectionError:
            return False
        if data == b"L":
            self._start(fds)
        elif data == b"K" and self._trial:
            self._over(self._end_trial())
        elif data == b"P" and self._trial:
            process_tree.end_orphans(keep=self._trial)
            self._tell(b"P", self._trial, 0)
        return bool(data)

    def _start(self, fds: list[int]) -> None:
        keeper = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            try:
                self._control.close()
                os.close(self._alive)
                self._wakeups.close()
                attempt_process.run(fds, keeper, self._shared)
            finally:
                os._exit(1)
        for fd in fds:
            os.close(fd)
        if pid < 0:
            self._tell(b"X", 0, CANNOT_FORK)
        else:
            self._trial = pid

    def _reap(self) -> None:
        """Collect dead children. When the trial's own process is among them, end what it left."""
        for pid, status, peak in process_tree.dead_children():
            if pid == self._trial:
                peaks = [peak]
                process_tree.end_children(peaks=peaks)
                self._over(status, sum(peaks))

    def _end_trial(self) -> int:
        if self._trial:
            process_tree.kill_group(self._trial)
            process_tree.kill(self._trial)  # it may not have made its group yet
        return process_tree.end_children(keep=self._trial) or 0

    def _over(self, status: int, peak_kb: int = 0) -> None:
        pid, self._trial = self._trial, 0
        self._tell(b"X", pid, os.waitstatus_to_exitcode(status), peak_kb)

    def _tell(self, kind: bytes, pid: int, status: int, peak_kb: int = 0) -> None:
        with contextlib.suppress(OSError):  # the driver is gone; the next poll says so
            self._control.send(TOLD.pack(kind, pid, status, peak_kb))
