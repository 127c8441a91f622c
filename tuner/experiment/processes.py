"""Processes of this host as an owner's record names them: is it alive, does it hold a file, end what is left of it."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

OWNER_VARIABLE = "TUNER_OWNER"
"""In the environment of every process that a driver starts: the id of the driver's generation."""


class Identity(msgspec.Struct, frozen=True):
    """One process, told apart from all others that ever were, on any host."""

    host: str
    boot: str
    pid_namespace: int
    pid: int
    start: int
    """Field 22 of /proc/<pid>/stat: clock ticks since boot. No wall clock comes into it."""


class Processes:
    """What can be seen and done in this pid namespace. Tests give another one."""

    def me(self) -> Identity:
        pid = os.getpid()
        return Identity(
            host=socket.gethostname(),
            boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            pid_namespace=os.stat("/proc/self/ns/pid").st_ino,
            pid=pid,
            start=self.start_time(pid) or 0,
        )

    def start_time(self, pid: int) -> int | None:
        """Start time of a process that lives (stopped counts); None for one that is gone or a zombie."""
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()  # the name before it may hold anything
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in (b"Z", b"X") else int(fields[19])

    def sees(self, other: Identity) -> bool:
        """True if that process belongs to this pid namespace: only there is one called dead by looking."""
        mine = self.me()
        return (mine.host, mine.boot, mine.pid_namespace) == (other.host, other.boot, other.pid_namespace)

    def lives(self, other: Identity) -> bool:
        """True if that process, which can be seen, is there still."""
        return self.start_time(other.pid) == other.start

    def holds(self, pid: int, path: Path) -> bool:
        """True if the process has that very file open, or nobody may look; this one, which asks, opened it to do so."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return False
        try:
            return _times_open(pid, (status.st_dev, status.st_ino)) > (pid == os.getpid())
        except PermissionError:
            return True
        except (FileNotFoundError, ProcessLookupError):
            return False

    def holders(self, path: Path) -> list[int]:
        """Pids, other than this one, that have that file open."""
        status = os.stat(path)
        found = []
        for pid in _pids():
            try:
                if pid != os.getpid() and _times_open(pid, (status.st_dev, status.st_ino)):
                    found.append(pid)
            except (PermissionError, FileNotFoundError, ProcessLookupError):
                continue  # gone, or another user's
        return found

    def end(self, recorded: Collection[tuple[int, int]], owners: Collection[str], *, timeout_s: float) -> list[int]:
        """SIGKILL what is left of dead owners, wait until it is gone; return the pids that would not die.

        Args:
            recorded: (pid, start time); a pid that has another start time now is somebody else's and left alone.
            owners: ids; every process started with one of them as TUNER_OWNER is meant.
            timeout_s: for each round of waiting.
        """
        spared = set(_ancestors(os.getpid()))
        marks = {f"{OWNER_VARIABLE}={owner}".encode() for owner in owners}
        while True:
            victims = {pid: start for pid, start in recorded if self.start_time(pid) == start}
            for pid in _pids() if marks else ():
                # Nearly none has one; of one that has, it counts only if it is there after the start time was read too.
                if not marks.isdisjoint(_environment(pid)) and (start := self.start_time(pid)) is not None:
                    if not marks.isdisjoint(_environment(pid)):
                        victims[pid] = start
            victims = {pid: start for pid, start in victims.items() if pid not in spared}
            if not victims:
                return []
            stubborn = self._kill(victims, timeout_s)
            if stubborn:
                return stubborn
            # again: one of them may have forked between the look and the kill

    def _kill(self, victims: dict[int, int], timeout_s: float) -> list[int]:
        waiting: dict[int, int] = {}
        stubborn = []
        poller = select.poll()
        try:
            for pid, start in victims.items():
                try:
                    fd = os.pidfd_open(pid)
                except ProcessLookupError:
                    continue
                waiting[fd] = pid
                if self.start_time(pid) != start:  # looked at while the pidfd pins it: the pid cannot change hands now
                    os.close(fd)
                    del waiting[fd]
                    continue
                poller.register(fd, select.POLLIN)
                try:
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # ended by itself: the poll returns at once
                except PermissionError:
                    stubborn.append(pid)
            pending = set(waiting) if not stubborn else set()
            while pending:
                ready = poller.poll(timeout_s * 1000)
                if not ready:
                    return [waiting[fd] for fd in pending]
                for fd, _ in ready:
                    pending.discard(fd)
                    poller.unregister(fd)
            return stubborn
        finally:
            for fd in waiting:
                os.close(fd)


def describe(pid: int) -> str:
    """A process for a message: its pid and the start of its command line."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        command = ""
    return f"{pid} ({command[:60]})" if command else str(pid)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # gone, or another user's


def _times_open(pid: int, file: tuple[int, int]) -> int:
    directory, times = f"/proc/{pid}/fd", 0
    for name in os.listdir(directory):
        try:
            status = os.stat(f"{directory}/{name}")
        except OSError:
            continue  # closed meanwhile; or of something that cannot be looked at, which is no file of ours
        times += (status.st_dev, status.st_ino) == file
    return times


def _ancestors(pid: int) -> Iterator[int]:
    """The process itself, its parent, and so on."""
    while pid > 0:
        yield pid
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            return
