"""Processes as the kernel sees them: who is whose child, who dies with whom, and how to end what is left.

Used by the fork server and its keepers, so it imports next to nothing.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ENVIRONMENT_END = 48
"""Field of /proc/<pid>/stat, counted from the state on: the address at which the environment ends."""


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def fill_standard_descriptors() -> None:
    """Have 0, 1 and 2 be something: of a program that was started without (`>&-`) the next file that is opened, as a
    lock or the journal, would have such a number, and whatever a library in C prints would be written there."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def die_with_parent(parent: int, signum: int) -> None:
    """Have the kernel send `signum` to this process when `parent` dies; exits if it is already dead.

    The kernel ties this to the thread that forked, not to its process.
    """
    _prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os._exit(1)  # it died before the line above


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent dies (child subreaper)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/<pid>/stat from the state on."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2].split()
    except OSError:
        return None  # it is gone


def start_time(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; with the pid it names one process for good."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def other_threads() -> dict[int, str]:
    """Return the kernel's name of each thread of this process but the first, by id; those of C libraries too."""
    found = {}
    for tid in os.listdir("/proc/self/task"):
        if int(tid) != os.getpid():
            with suppress(OSError):  # it has just ended
                with open(f"/proc/self/task/{tid}/comm", errors="replace") as file:
                    found[int(tid)] = file.read().strip()
    return found


def children(parent: int) -> list[int]:
    """Living and dead children of a process.

    /proc/<pid>/task/<tid>/children is an option of the kernel that many lack, so all processes are asked.
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields is not None and int(fields[1]) == parent:
                found.append(int(name))
    return found


def kill(pid: int) -> None:
    """SIGKILL; a process that is gone is no error."""
    with suppress(ProcessLookupError, PermissionError):  # gone, or a setuid program: init has it then
        os.kill(pid, signal.SIGKILL)


def kill_group(pgid: int) -> None:
    """SIGKILL to a whole process group in one step, so that none of it can fork past it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, signal.SIGKILL)


def dead_children() -> Iterator[tuple[int, int, int]]:
    """Collect the children that are dead by now: (pid, wait status, peak memory in kB)."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status, usage.ru_maxrss


def end_children(keep: int | None = None, peaks: list[int] | None = None) -> int | None:
    """End every child, and what falls to this process as they die, until there is none.

    Needs `adopt_orphans`. Returns the wait status of child `keep` if it was among them; `peaks` gets the peak memory of
    each in kB.
    """
    me = os.getpid()
    status = None
    while True:
        try:
            pid, found, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                left = children(me)
                for child in left:
                    kill(child)
                if not left:
                    continue  # it fell to this process while /proc was being read
                pid, found, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return status
        if peaks is not None:
            peaks.append(usage.ru_maxrss)
        if pid == keep:
            status = found


def end_orphans(keep: int) -> None:
    """End every child but `keep`, and what falls to this process as they die, until there is no other.

    Needs `adopt_orphans`.
    """
    me = os.getpid()
    while orphans := [pid for pid in children(me) if pid != keep]:
        for pid in orphans:
            kill(pid)
        for pid in orphans:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def marked(variable: str, value: str) -> list[int]:
    """Processes, other than this one, that were started with `variable=value` in their environment.

    A value covers those that begin with it and a dot: agents of one driver on several nodes are told apart so.
    """
    needle = f"\0{variable}={value}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environment = b"\0" + _environment(int(name)) + b"\0"
        except OSError:
            continue  # it has ended, or belongs to another user
        if needle + b"\0" in environment or needle + b"." in environment:
            found.append(int(name))
    return found


def _environment(pid: int) -> bytes:
    """Return the environment a process was started with, as the kernel has it.

    For a moment of exec, between the two programs, it is empty. That moment is waited for, up to a second.

    Raises:
        OSError: the process has ended, or belongs to another user.
    """
    deadline = time.monotonic() + 1.0
    while True:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if environment := file.read():
                return environment
        if not _is_in_exec(pid) or time.monotonic() >= deadline:
            return environment
        time.sleep(0.001)


def _is_in_exec(pid: int) -> bool:
    """Return True if the kernel has not placed the environment of the process's program yet."""
    fields = _stat(pid)
    if fields is None or fields[_ENVIRONMENT_END] != b"0":
        return False
    try:
        return bool(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False  # it has ended, or is a thread of the kernel


def end_marked(variable: str, value: str, *, timeout_s: float = 10.0) -> None:
    """SIGKILL every process with that mark, and return when none is left (or after the time limit)."""
    deadline = time.monotonic() + timeout_s
    while pids := [pid for pid in marked(variable, value) if not is_zombie(pid)]:
        waiting = []
        for pid in pids:
            try:
                waiting.append(os.pidfd_open(pid))
            except OSError:
                pass  # gone
            kill(pid)
        for fd in waiting:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            os.close(fd)
        if time.monotonic() >= deadline:
            return


def is_zombie(pid: int) -> bool:
    """True for a process that is dead (or gone) and only waits to be collected."""
    fields = _stat(pid)
    return fields is None or fields[0] in (b"Z", b"X")
