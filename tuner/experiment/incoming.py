"""A directory beside an experiment, in which it lies until it is whole and gets its place."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainables.store import fs


@contextmanager
def beside(root: Path, kind: str) -> Iterator[Path]:
    """An empty directory for this process alone, `.<name>.<kind>-<random>` beside `root`.

    It goes at the end unless it was renamed, and with it the directories above that were made for it and are empty.
    What killed processes left is removed first: a lock says that one lives. Where the filesystem has no locks such a
    directory stays.
    """
    prefix = f".{root.name}.{kind}-"
    made = [path for path in root.parents if not fs.exists(path)]
    fs.make_dirs(root.parent)
    _remove_left(root.parent, prefix)
    directory, fd = _locked(root.parent, prefix)
    try:
        yield directory
    finally:
        if fs.exists(directory):
            fs.rmtree(directory)
        os.close(fd)
        with contextlib.suppress(OSError):  # something was laid there
            for path in made:
                fs.rmdir(path)


def _locked(parent: Path, prefix: str) -> tuple[Path, int]:
    """Make one, and take its lock; whoever looked at it before that may have taken it for a dead one's."""
    while True:
        directory = parent / f"{prefix}{secrets.token_hex(4)}"
        fs.make_dirs(directory)
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            continue
        except OSError:
            pass  # no locks on this filesystem: nobody takes it for a dead one's there
        if fs.exists(directory):
            return directory, fd
        os.close(fd)


def _remove_left(parent: Path, prefix: str) -> None:
    for name in fs.listdir(parent):
        if not name.startswith(prefix):
            continue
        try:
            fd = os.open(parent / name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # gone, or nothing of ours
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fs.rmtree(parent / name)
        except OSError:
            pass  # it lives, or nobody can tell
        finally:
            os.close(fd)
