"""`atomic_torch_save`: `torch.save` that a kill, a crash or a full disk cannot tear."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from pathlib import Path
from typing import Any

from trainables.pickling import FileWriter
from trainables.store import fs, staging
from trainables.validation import invalid

_SUFFIX = ".saving"


def atomic_torch_save(obj: Any, f: str | os.PathLike[str], **kwargs: Any) -> None:
    """Save an object to a file, whole or not at all; in the place of `torch.save`.

    It is written beside `f`, made durable, and renamed over it: whoever reads `f` sees the old content or the new, also
    after a power cut. What an earlier call left when it was killed is removed. Ranks may save to one file at the same
    time; one of them stays. Where `f` is a link, what it leads to is replaced; a file's permissions stay.

    Args:
        obj: anything that `torch.save` takes.
        f: a path; its directory must be there. An open file cannot be replaced, and is refused.
        **kwargs: of `torch.save`.

    Raises:
        InvalidSettingError: `f` is no path.
        PublishError: the disk did not take it; the message gives the path and the free bytes. `f` is as it was.

    Example:
        >>> import tempfile, torch
        >>> path = tempfile.mkdtemp() + "/model.pt"
        >>> atomic_torch_save({"weight": torch.ones(2)}, path)
        >>> torch.load(path)
        {'weight': tensor([1., 1.])}
    """
    import torch

    if not isinstance(f, str | os.PathLike) or not os.fspath(f):
        raise invalid("atomic_torch_save: f", f, "a path")
    path = Path(os.path.realpath(f))  # torch.save writes where a link leads, too
    with staging.disk_errors(path):
        _remove_leftovers(path)
        beside, fd = _claimed(path)
    file = FileWriter(fd)
    try:
        with staging.disk_errors(path, remove=beside):
            try:
                # To an object, not to a path: torch writes the name of the path into the file.
                torch.save(obj, file, **kwargs)  # type: ignore[arg-type]
            except RuntimeError:
                if file.refused is not None:
                    raise file.refused from None  # torch's own message does not say what the disk said
                raise
            _as_private(beside, path)
            fs.fsync(fd)
            fs.rename(beside, path)  # the file exists from this instant on
            fs.fsync_dir(path.parent)
    finally:
        fs.close(fd)


def _as_private(beside: Path, path: Path) -> None:
    """Give the new file the permissions of the one that it replaces."""
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode != stat.S_IMODE(beside.stat().st_mode):
            fs.chmod(beside, mode)


def _claimed(path: Path) -> tuple[Path, int]:
    """A fresh file beside `path`, locked: while it is, nobody takes it for a leftover."""
    while True:
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
        try:
            fd = fs.create(beside, exclusive=True)
        except FileExistsError:
            continue
        if _locked(fd) is False or not fs.exists(beside):  # somebody saw it before it was locked
            fs.close(fd)
            continue
        return beside, fd


def _remove_leftovers(path: Path) -> None:
    """Remove what killed saves of this file left: nobody holds its lock any more."""
    prefix = f".{path.name}."
    for name in fs.listdir(path.parent):
        if name.startswith(prefix) and name.endswith(_SUFFIX):
            left = path.with_name(name)
            try:
                fd = os.open(left, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue  # gone meanwhile
            try:
                if _locked(fd):
                    fs.remove_quietly(left)
            finally:
                fs.close(fd)


def _locked(fd: int) -> bool | None:
    """Take the lock of a file. False: somebody has it. None: this filesystem has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True
