"""Directory scan and file fingerprints (size, mtime, BLAKE3) of a checkpoint."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import field
from pathlib import Path

import blake3

from trainables.errors import CheckpointError, CheckpointNotFoundError
from trainables.quick_dataclass import dataclass
from trainables.store.manifest import FileEntry

_BLOCK = 4 * 1024 * 1024
"""Bytes read at once: the publisher takes the interpreter's lock twice per block, so few large ones disturb least."""

_KINDS = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
}


@dataclass(frozen=True, slots=True)
class File:
    """One file that was found."""

    name: str
    """Relative to the scanned directory, with `/`."""
    source: str
    """Where its content is; elsewhere when a symlink was followed."""
    size: int


@dataclass(slots=True)
class Tree:
    """Everything below a directory, names relative to it, parents before children."""

    files: list[File] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    """Symlinks; those that were followed are among the files and directories too."""

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    def empty_directories(self) -> list[str]:
        filled = {name.rpartition("/")[0] for name in (*self.directories, *(file.name for file in self.files))}
        return [name for name in self.directories if name not in filled]


def scan(root: Path, *, follow: bool) -> Tree:
    """Walk a directory.

    With `follow`, symlinks count as what they point to; otherwise they are listed in `links`. Raises
    CheckpointNotFoundError when `root` is no directory, and CheckpointError naming the entry for a dangling or
    circular symlink, for what is neither file nor directory, and for a name that is not UTF-8.
    """
    try:
        status = os.stat(root)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointNotFoundError(f"there is no checkpoint directory {root}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise CheckpointNotFoundError(f"{root} is not a directory: a checkpoint is one")
    tree = Tree()
    _walk(os.fspath(root), "", tree, follow, [(status.st_dev, status.st_ino)])
    return tree


def _walk(path: str, prefix: str, tree: Tree, follow: bool, above: list[tuple[int, int]]) -> None:
    with os.scandir(path) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        name = prefix + entry.name
        try:
            name.encode()
        except UnicodeEncodeError:
            raise CheckpointError(f"{entry.path!r}: a file name in a checkpoint must be UTF-8; rename it") from None
        if entry.is_symlink():
            tree.links.append(name)
            if not follow:
                continue
        try:
            status = entry.stat()
        except OSError as error:
            if entry.is_symlink():
                raise CheckpointError(
                    f"{entry.path} is a symlink to {os.readlink(entry.path)}, which cannot be followed "
                    f"({error.strerror}); remove it, or put the file in its place"
                ) from error
            raise
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFREG:
            tree.files.append(File(name, entry.path, status.st_size))
        elif kind == stat.S_IFDIR:
            here = (status.st_dev, status.st_ino)
            if here in above:
                raise CheckpointError(f"{entry.path} is a symlink to a directory that contains it; remove it")
            tree.directories.append(name)
            _walk(entry.path, name + "/", tree, follow, [*above, here])
        else:
            raise CheckpointError(
                f"{entry.path} is {_KINDS.get(kind, 'no file')}: a checkpoint holds files and directories; remove it"
            )


def fingerprint(path: str | Path, name: str, *, progress: Callable[[int], None] | None = None) -> FileEntry:
    """Hash one file; `progress` is told of the bytes of each block. Raises CheckpointError when it changes meanwhile.

    Reads and does not map it: a file that shrinks meanwhile must not kill the process.
    """
    # NONBLOCK: a named pipe that somebody put there would otherwise be waited for
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise CheckpointError(f"{path} is no file")
        hasher = blake3.blake3()
        view = memoryview(bytearray(min(before.st_size + 1, _BLOCK)))
        while count := os.readv(fd, [view]):
            hasher.update(view[:count])
            if progress is not None:
                progress(count)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise CheckpointError(f"{path} was written to while it was being hashed")
    return FileEntry(name=name, size=after.st_size, mtime_ns=after.st_mtime_ns, blake3=hasher.hexdigest())
