"""Records what a run does to its disk, call by call.

The primitives of `trainables.store.fs` are wrapped; what is written past them (a trial's own files) is found by looking
at the tree before each recorded call, so that nothing is missing between two calls.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from crash_disk import Directory, Disk, File, Op, View, materialize

from trainables.store import fs
from tuner.experiment import processes
from tuner.experiment.processes import Identity, Processes
from tuner.opening import trainable_code

_PLAIN = {"mkdir": "mkdir", "unlink": "unlink", "rmdir": "rmdir", "fsync_dir": "fsync_dir", "fsync_file": "fsync_file"}
_PAIRS = ("rename", "link")
_OPENING = {"open_append": False, "create": True}
_SYNCING = ("fsync", "fdatasync")
RECORDED = (*_PLAIN, *_PAIRS, *_OPENING, *_SYNCING, "write", "truncate", "copy_file")
"""The primitives that change something that is modelled. `close` and `chmod` are not among them."""


class Recorder:
    """What happens to the tree at `root`, as operations of a `Disk`."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.root = root
        self.disk = disk
        self.ops: list[Op] = []
        self.unannounced: list[str] = []
        """Paths that changed without a recorded call."""
        self._inodes: dict[int, tuple[int, int]] = {}
        """Descriptor -> inode on the disk, and in the model."""
        self._stats: dict[str, tuple[int, int, int]] = {}
        self._lock = threading.RLock()

    def add(self, *op: Any) -> Any:
        self.ops.append(op)
        return self.disk.apply(op)

    # --- recorded calls ---------------------------------------------------------------------------------

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **more: Any) -> Any:
            with self._lock:
                self.look()
                result = real(*args, **more)
                self._recorded(name, args, result)
                return result

        return recorded

    def _recorded(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name in ("write", *_SYNCING):
            real, inode = self._inodes.get(args[0], (None, -1))
            if real != os.fstat(args[0]).st_ino:
                return  # opened by somebody else, after that number was closed
            self.add("append", inode, bytes(args[1])) if name == "write" else self.add("fsync", inode)
            return
        path = self._inside(args[0])
        if name in _OPENING:
            if path is not None:
                self._inodes[result] = (os.fstat(result).st_ino, self.add("open", path, _OPENING[name]))
        elif name in _PAIRS:
            target = self._inside(args[1])
            if path is not None and target is not None:
                self.add(name, path, target)
            # else: a move from or to another filesystem's directory; `look` finds what came or went
        elif name == "copy_file":
            self.look()
        elif path is None:
            pass
        elif name == "truncate":
            self.add(name, path, args[1])
        else:
            self.add(_PLAIN[name], path)

    def pwrite(self, fd: int, data: bytes, at: int) -> None:
        """Somebody rewrote bytes in place."""
        path = self._inside(os.readlink(f"/proc/self/fd/{fd}"))
        if path is not None:
            self.add("write", self.disk.open(path), at, bytes(data))

    def _inside(self, path: Any) -> str | None:
        """The path relative to the root; None for what lies elsewhere. The root itself is ""."""
        absolute = os.path.abspath(os.fspath(path))
        root = str(self.root)
        if absolute == root:
            return ""
        return absolute[len(root) + 1 :] if absolute.startswith(root + "/") else None

    # --- what nobody announced -----------------------------------------------------------------------------

    def look(self) -> None:
        """Bring the record up to what lies there."""
        with self._lock:
            seen: set[str] = set()
            self._look_into("", seen)
            self._find_missing("", self.disk.nodes[0], seen)

    def _look_into(self, prefix: str, seen: set[str]) -> None:
        with os.scandir(self.root / prefix) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path = prefix + entry.name
            seen.add(path)
            if entry.is_dir(follow_symlinks=False):
                if self.disk.find(path) is None:
                    self.unannounced.append(path)
                    self.add("mkdir", path)
                self._look_into(path + "/", seen)
                continue
            status = entry.stat(follow_symlinks=False)
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._stats.get(path) == stamp:
                continue
            self._stats[path] = stamp
            self._compare(path, Path(entry.path).read_bytes())

    def _compare(self, path: str, content: bytes) -> None:
        inode = self.disk.find(path)
        if inode is not None:
            node = self.disk.nodes[inode]
            assert isinstance(node, File)
            if node.now == content:
                return
        self.unannounced.append(path)
        inode = self.add("open", path, True)
        if content:
            self.add("append", inode, content)

    def _find_missing(self, prefix: str, node: Directory | File, seen: set[str]) -> None:
        assert isinstance(node, Directory)
        for name, child in list(node.now.items()):
            path = prefix + name
            if path not in seen:
                self._stats.pop(path, None)
                self.unannounced.append(path)
                self._gone(path, child)
            elif isinstance(self.disk.nodes[child], Directory):
                self._find_missing(path + "/", self.disk.nodes[child], seen)

    def _gone(self, path: str, inode: int) -> None:
        node = self.disk.nodes[inode]
        if isinstance(node, Directory):
            for name, child in list(node.now.items()):
                self._gone(f"{path}/{name}", child)
        self.add("unlink", path)


@contextmanager
def recording(root: Path, base: Disk | None = None) -> Iterator[Recorder]:
    """Record what happens below `root` meanwhile. With `base` its tree is made there first."""
    disk = base or Disk()
    materialize(disk.view(), root)
    recorder = Recorder(root, disk)
    recorder.look()
    assert not recorder.ops
    real_pwrite = os.pwrite

    def pwrite(fd: int, data: bytes, at: int) -> int:
        with recorder._lock:
            recorder.look()
            written = real_pwrite(fd, data, at)
            recorder.pwrite(fd, data, at)
            return written

    with pytest.MonkeyPatch.context() as patch:
        for name in RECORDED:
            patch.setattr(fs, name, recorder.wrap(name, getattr(fs, name)))
        patch.setattr(os, "pwrite", pwrite)
        yield recorder
        recorder.look()


@contextmanager
def lives() -> Iterator[None]:
    """Every claim from now on is made by a process of its own, which is dead when the next one looks."""
    real = Processes.me
    born = 0

    def me(self: Processes) -> Identity:
        nonlocal born
        born += 1
        known = real(self)
        return Identity(known.host, known.boot, known.pid_namespace, 2**31 - born, 1)  # beyond every real pid

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Processes, "me", me)
        patch.setattr(processes, "_environment", lambda pid: [])  # none of these left a process
        patch.setattr(trainable_code, "_plain", cache(trainable_code._plain))  # the code of a scenario stays as it is
        yield


def replay(ops: list[Op], base: View | Disk | None = None) -> Disk:
    """The disk after these operations."""
    disk = base if isinstance(base, Disk) else Disk(base)
    for op in ops:
        disk.apply(op)
    return disk
