"""Whether it was the kernel that killed a process, for want of memory: by what it counts, and by its log."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from tuner.executors.base import Death, OutOfMemory

_KILLED = re.compile(rb"\d+,\d+,(?P<microseconds>\d+),[^;]*;.*[Kk]illed process (?P<pid>\d+)[ ,]")
_SLACK_S = 60.0
"""The log's clock is not quite ours."""
_MAX_RECORDS = 20_000
_UNLIMITED = 1 << 60
"""What cgroup v1 says where there is no limit is about the largest number of bytes that it can write down."""


class OomKills:
    """Kills for want of memory that this machine counts, from the moment on that this is made.

    Args:
        root: of the file systems in which the kernel tells that.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._since = root, time.monotonic() - _SLACK_S
        self._group = memory_group(root)
        self._before = self._count()

    def death(self, pid: int, peak_bytes: int) -> Death:
        """What is known of a process that SIGKILL has ended, and that nobody here has sent."""
        before, self._before = self._before, self._count()
        limit = self._group.limit if self._group is not None else None
        source = str(self._group.counter) if self._group is not None else "/proc/vmstat"
        if pid and pid in killed_in_log(self._root, self._since):
            return Death(peak_bytes, OutOfMemory.KILLED, "the kernel's log names it", limit)
        if before is None or self._before is None:
            return Death(peak_bytes, OutOfMemory.UNKNOWN, "", limit)
        if self._before > before:
            return Death(peak_bytes, OutOfMemory.KILLED, f"{source} counts it", limit)
        return Death(peak_bytes, OutOfMemory.NOT_KILLED, source, limit)

    def _count(self) -> int | None:
        if self._group is not None:
            return self._group.kills()
        return _field(self._root / "proc/vmstat", "oom_kill")


class MemoryGroup:
    """The cgroup that limits the memory of this process."""

    def __init__(self, directory: Path, counter: str, limit: str) -> None:
        self.counter, self.limit_file = directory / counter, directory / limit

    def kills(self) -> int | None:
        return _field(self.counter, "oom_kill")

    @property
    def limit(self) -> int | None:
        """Bytes; None: there is none."""
        with suppress(OSError, ValueError):  # "max" is none
            limit = int(self.limit_file.read_text())
            return limit if limit < _UNLIMITED else None
        return None


def memory_group(root: Path) -> MemoryGroup | None:
    """The one of version 1 or 2 that this process is in; None: there is none that counts kills."""
    names: tuple[str, ...]
    for controllers, path in _groups(root):
        if "memory" in controllers.split(","):
            names, files = ("memory",), ("memory.oom_control", "memory.limit_in_bytes")
        elif not controllers:
            names, files = ("", "unified"), ("memory.events", "memory.max")
        else:
            continue
        for name in names:
            mount = root / "sys/fs/cgroup" / name
            for directory in (mount / path.lstrip("/"), mount):  # the latter: mounted for this container alone
                group = MemoryGroup(directory, *files)
                if group.kills() is not None:
                    return group
    return None


def killed_in_log(root: Path, since: float) -> set[int]:
    """Processes that the kernel's log says were killed for want of memory; empty where it may not be read.

    Args:
        since: in seconds from the start of the machine; numbers of processes come again.
    """
    killed = set()
    with suppress(OSError):
        fd = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            for record in _records(lambda: os.read(fd, 8192)):
                found = _KILLED.match(record)
                if found is not None and int(found["microseconds"]) >= since * 1e6:
                    killed.add(int(found["pid"]))
        finally:
            os.close(fd)
    return killed


def _records(read: Callable[[], bytes]) -> Iterator[bytes]:
    for _ in range(_MAX_RECORDS):
        try:
            record = read()
        except BrokenPipeError:
            continue  # it was overwritten meanwhile
        except OSError:
            return  # there is no more
        if not record:
            return
        yield record


def _groups(root: Path) -> Iterator[tuple[str, str]]:
    """(controllers, path) of the cgroups that this process is in."""
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            yield controllers, path


def _field(file: Path, name: str) -> int | None:
    """The number beside a name in a file of such lines."""
    with suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            key, _, number = line.partition(" ")
            if key == name:
                return int(number)
    return None
