"""Files of trials and their checkpoints, without following a link anywhere: a trial may have put one there."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Generator
from pathlib import Path

from tuner.error import ExperimentNotFoundError
from tuner.experiment.trial import Trial

NAMES = ("stdout", "stderr", "error.txt")
"""What is served of a trial's directory."""
CHUNK = 256 * 1024
END = bytes(2 * tarfile.BLOCKSIZE)
"""Of a tar file."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_inside(root: Path, *names: str) -> int:
    """A descriptor of a plain file below a directory. Raises ExperimentNotFoundError."""
    fd = _open(root, *names, flags=_FILE)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ExperimentNotFoundError(f"{names[-1]} is no plain file")
    return fd


def _open(root: Path, *names: str, flags: int) -> int:
    if any("/" in name or name in ("", ".", "..") or "\0" in name for name in names):
        raise ExperimentNotFoundError("there is no such file")
    fd = -1
    try:
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in names[:-1]:
            above, fd = fd, os.open(name, _DIRECTORY, dir_fd=fd)
            os.close(above)
        above, fd = fd, os.open(names[-1], flags, dir_fd=fd)
        os.close(above)
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        raise ExperimentNotFoundError(f"{names[-1]} is not there, or no plain file: {error.strerror}") from None
    return fd


def pieces(fd: int, start: int, end: int) -> Generator[bytes, None, None]:
    """What a file holds from `start` to `end`; the descriptor is closed."""
    try:
        os.lseek(fd, start, os.SEEK_SET)
        while start < end and (data := os.read(fd, min(CHUNK, end - start))):
            start += len(data)
            yield data
    finally:
        os.close(fd)


def sizes(root: Path, trial: Trial) -> dict[str, int]:
    """The files of a trial that are served, and their bytes."""
    found = {}
    for name in NAMES:
        try:
            fd = open_inside(root, trial.dirname, name)
        except ExperimentNotFoundError:
            continue
        found[name] = os.fstat(fd).st_size
        os.close(fd)
    return found


def as_tar(root: Path, trial: Trial, name: str) -> Generator[bytes, None, None]:
    """A checkpoint that is kept here, as a tar file. Raises ExperimentNotFoundError before its first piece."""
    if not any(record.ref.name == name for record in trial.checkpoints):
        raise ExperimentNotFoundError(f"{trial.trial_id} has no checkpoint {name!r:.200} here")
    return _tar(_open(root, trial.dirname, name, flags=_DIRECTORY), name)


def _tar(top: int, name: str) -> Generator[bytes, None, None]:
    try:
        for folder, folders, files, fd in os.fwalk(".", dir_fd=top, follow_symlinks=False):
            folders.sort()
            inside = name if folder == "." else f"{name}/{folder.removeprefix('./')}"
            for file in sorted(files):
                try:
                    opened = os.open(file, _FILE, dir_fd=fd)
                except OSError:
                    continue  # a link
                yield from member(opened, f"{inside}/{file}")
        yield END
    finally:
        os.close(top)


def member(fd: int, name: str, mtime_ns: int | None = None) -> Generator[bytes, None, None]:
    """One file of a tar file; what is no plain file is left out, and the descriptor is closed."""
    sent = 0
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return
        yield _head(name, status.st_size, status.st_mtime_ns if mtime_ns is None else mtime_ns)
        while piece := os.read(fd, min(CHUNK, status.st_size - sent)):
            sent += len(piece)
            yield piece
    finally:
        os.close(fd)
    if sent != status.st_size:
        raise OSError(f"{name} was cut while it was read")
    yield bytes(-sent % tarfile.BLOCKSIZE)


def member_of(data: bytes, name: str) -> bytes:
    """The same of a small file that is in memory."""
    return _head(name, len(data), 0) + data + bytes(-len(data) % tarfile.BLOCKSIZE)


def _head(name: str, size: int, mtime_ns: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, mtime_ns // 10**9, 0o644
    return info.tobuf(tarfile.PAX_FORMAT)
