"""Threads and processes are started here: where the system refuses one, the error says which limit is reached.

Nothing remembers a thread before it runs: who waits for one that never started waits for ever.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.errors import LimitError

if TYPE_CHECKING:
    import subprocess

_REFUSED = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_NEAR = 0.9
_ROOM = 2
"""From that share of a limit on, or with so much room, it is named: what was refused is not there, and others ended."""


def start_thread(
    target: Callable[..., object], *, name: str, args: Sequence[Any] = (), daemon: bool = True
) -> threading.Thread:
    """Start a thread and return it. Raises LimitError."""
    thread = threading.Thread(target=target, args=tuple(args), name=name, daemon=daemon)
    start(thread)
    return thread


def start(thread: threading.Thread) -> None:
    """Start a thread that was made elsewhere. Raises LimitError."""
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise LimitError(f"no thread can be started ({thread.name}): {limits()}") from error


def start_process(command: Sequence[str], *, what: str, **how: Any) -> subprocess.Popen[bytes]:
    """`subprocess.Popen`, for a process of which `what` says what it is for. Raises LimitError, and other OSErrors."""
    import subprocess  # slow to import, and not for every trial

    try:
        return subprocess.Popen(command, **how)
    except OSError as error:
        if refused(error):
            raise no_process(what, error) from error
        raise


def refused(error: OSError) -> bool:
    """Whether the system had no more of what a process needs."""
    return error.errno in _REFUSED


def no_process(what: str, error: OSError | None = None) -> LimitError:
    """The error to raise when a process could not be started."""
    if error is not None and error.errno in (errno.EMFILE, errno.ENFILE):
        open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return LimitError(
            f"no process can be started for {what}: {error.strerror}; RLIMIT_NOFILE (ulimit -n) is {open_files}: "
            "raise it"
        )
    return LimitError(f"no process can be started for {what}: {limits()}")


def signal_name(number: int) -> str:
    """What a signal is called; most of the real-time ones are no member of `Signals`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN{number - signal.SIGRTMIN:+}"


def limits() -> str:
    """The limits of this process on processes and threads that are reached, or all that there are, and what to do."""
    found = list(_limits())
    reached = [text for text, held, most in found if held >= min(most * _NEAR, most - _ROOM)]
    told = "; ".join(reached or [text for text, _, _ in found]) or "the system has no memory for it"
    return f"{told}. Raise the limit, or run fewer trials at once"


def _limits() -> Iterator[tuple[str, int, int]]:
    """(in words, how many there are, how many there may be)"""
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most != resource.RLIM_INFINITY:
        user = os.getuid()
        held = _tasks_of(user)
        yield f"RLIMIT_NPROC (ulimit -u) is {most}, and user {user} has {held} processes and threads", held, most
    for group in _groups():
        try:
            text = (group / "pids.max").read_text().strip()
            held = int((group / "pids.current").read_text())
        except (OSError, ValueError):
            continue  # the root has no limit; others may not be shown here
        if text != "max":
            yield (
                f"pids.max of the cgroup {group} is {text}, and {held} processes and threads are there",
                held,
                int(text),
            )
    most, held = _number("/proc/sys/kernel/threads-max"), _all_tasks()
    if most and held >= most * _NEAR:
        yield f"kernel.threads-max is {most}, and {held} are there", held, most


def _groups() -> Iterator[Path]:
    """The directories of this process's cgroup that may limit processes, and of those above it."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if "pids" in controllers.split(","):
            top = Path("/sys/fs/cgroup/pids")
        elif number == "0" and not controllers:
            top = Path("/sys/fs/cgroup")
        else:
            continue
        group = top / path.lstrip("/")
        while group.is_relative_to(top):
            yield group
            group = group.parent


def _tasks_of(user: int) -> int:
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                if entry.stat().st_uid == user:
                    count += len(os.listdir(f"{entry.path}/task"))
            except OSError:
                continue  # it has just ended
    return count


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return 0


def _all_tasks() -> int:
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0
