"""Deletion of checkpoints, and the pins that prevent it while one is open.

A checkpoint is hidden first, in one durable rename, and emptied then: at no instant is there a directory under a
checkpoint's name that lacks files.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainables.store import fs
from trainables.store.manifest import MANIFEST_NAME

PREFIX = ".deleting-"


class Pins:
    """Counts, per checkpoint, who has its directory open in this process. Thread-safe."""

    def __init__(self) -> None:
        self.on_change: Callable[[Path, bool], None] | None = None
        """Told when the first one holds a path, and when nobody does any more."""
        self._lock = threading.Lock()
        self._counts: Counter[Path] = Counter()

    @contextmanager
    def hold(self, path: Path) -> Iterator[None]:
        """Keep the checkpoint at `path` from being deleted meanwhile."""
        key = _key(path)
        with self._lock:
            self._counts[key] += 1
            first = self._counts[key] == 1
        try:
            if first and self.on_change is not None:
                self.on_change(key, True)
            yield
        finally:
            with self._lock:
                self._counts[key] -= 1
                last = not self._counts[key]
                if last:
                    del self._counts[key]
            if last and self.on_change is not None:
                self.on_change(key, False)

    def paths(self) -> set[Path]:
        """What is held now."""
        with self._lock:
            return set(self._counts)

    def __contains__(self, path: Path) -> bool:
        with self._lock:
            return _key(path) in self._counts

    def hide(self, path: Path) -> Path | None:
        """Rename a checkpoint out of sight unless it is held: None then, and when it is gone already."""
        with self._lock:  # between the look and the rename nobody may open it
            if _key(path) in self._counts:
                return None
            hidden = path.with_name(f"{PREFIX}{path.name}-{secrets.token_hex(4)}")
            try:
                fs.rename(path, hidden)
            except FileNotFoundError:
                return None
        fs.fsync_dir(path.parent)  # before a file goes: a power cut must not bring the name back without its files
        return hidden


pins = Pins()
"""Those of this process."""


def delete(path: Path) -> bool:
    """Delete a checkpoint; one that is gone already is no error.

    Returns False when an `as_directory()` of it is open: nothing happened then, ask again later. Raises OSError
    when the disk refuses; what is half done then is finished by another call, or by `finish_deletes`.
    """
    hidden = pins.hide(path)
    if hidden is not None:
        _empty(hidden)
        return True
    if fs.exists(path):
        return False
    _empty_left(path.parent, f"{PREFIX}{path.name}-")  # by an earlier call that the disk refused
    return True


def finish_deletes(trial_dir: Path) -> list[Path]:
    """Remove what an interrupted deletion left; returns what was there."""
    return _empty_left(trial_dir, PREFIX)


def _empty_left(trial_dir: Path, prefix: str) -> list[Path]:
    try:
        found = [trial_dir / name for name in fs.listdir(trial_dir) if name.startswith(prefix)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    if found:
        fs.fsync_dir(trial_dir)  # whoever hid them may have been killed before that was durable
    for path in found:
        _empty(path)
    return found


def _empty(hidden: Path) -> None:
    if not fs.is_dir(hidden):
        fs.unlink(hidden)  # a symlink of that name: only itself
        return
    with suppress(FileNotFoundError):  # it never had one, or an earlier call came this far
        fs.unlink(hidden / MANIFEST_NAME)  # first: what is half deleted is no checkpoint, under whatever name
    fs.rmtree(hidden)


def _key(path: Path) -> Path:
    return Path(os.path.realpath(path))
