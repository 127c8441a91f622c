"""The manifest: what makes a directory a checkpoint.

JSON beside the user's files, written last. Reading one executes nothing, and a name in it never leads out
of its directory.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blake3
import msgspec

from trainables.decoding import decoder
from trainables.errors import CheckpointCorruptError, CheckpointError, CheckpointNotFoundError
from trainables.quick_dataclass import dataclass
from trainables.store import fs
from trainables.wire import CheckpointRef

MANIFEST_NAME = ".manifest.json"
FORMAT = 1
"""What this code writes. Older ones are read, newer ones refused."""
_LONGEST, _LONGEST_PART = 4095, 255
"""Bytes of a path and of a name that the kernel, and a filesystem, take."""
_BEYOND = 1 << 63
NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG})
"""Errors of a name that has no file of ours. Any other error of a read says nothing about a checkpoint."""


class FileEntry(msgspec.Struct, frozen=True):
    """One file of a checkpoint."""

    name: str
    """Relative to the checkpoint, with `/`."""
    size: int
    mtime_ns: int
    """As it was published: while size and mtime are these, the content is believed without hashing it."""
    blake3: str
    """Hash of the content, hex."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known about one checkpoint."""

    format: int = FORMAT
    name: str
    """Of the directory it was published as."""
    trial_id: str
    generation: int
    attempt: int
    index: int
    iteration: int
    created: float
    """Seconds since the epoch, for people. Nothing is ordered by it."""
    files: list[FileEntry]
    directories: list[str] = []
    """Empty ones; all others follow from the files."""
    metrics: msgspec.Raw = msgspec.Raw(b"{}")
    """The result it belongs to, as tagged JSON."""
    extra: dict[str, Any] = {}
    """What the one who saved wanted to note, plain JSON."""

    @property
    def ref(self) -> CheckpointRef:
        return CheckpointRef(self.trial_id, self.name, self.generation, self.attempt, self.index, self.iteration)

    @property
    def bytes(self) -> int:
        """Size of the user's files."""
        return sum(entry.size for entry in self.files)


@dataclass(frozen=True, slots=True)
class SealedCheckpoint:
    """A checkpoint that has its manifest, at whatever place."""

    manifest: Manifest
    digest: str
    """BLAKE3 of the manifest file, hex."""

    @property
    def ref(self) -> CheckpointRef:
        return self.manifest.ref


@dataclass(frozen=True, slots=True)
class Published(SealedCheckpoint):
    """A checkpoint that is on disk under its final name."""

    path: Path


class _Version(msgspec.Struct):
    format: int


_decode_version: Callable[[bytes], _Version] = decoder(_Version)
_decode: Callable[[bytes], Manifest] = decoder(Manifest)


def decode(data: bytes, path: Path | str) -> Manifest:
    """Read the bytes of the manifest of `path`, a directory's or a URI.

    Raises CheckpointCorruptError when they are none or lead out of the directory, CheckpointError when a newer
    version of this library wrote them.
    """
    try:
        version = _decode_version(data).format
        if version > FORMAT:
            raise CheckpointError(f"{path} has format {version}, this version reads up to {FORMAT}: upgrade to read it")
        manifest = _decode(data)
    except (msgspec.DecodeError, RecursionError) as error:  # ValidationError is one
        raise CheckpointCorruptError(f"the manifest of {path} cannot be read: {error}") from error
    _check_names(manifest, path)
    if "/" in manifest.name or not stays_inside(manifest.name):
        raise CheckpointCorruptError(f"the manifest of {path} calls it {manifest.name!r}, which is not a plain name")
    return manifest


def _check_names(manifest: Manifest, path: Path | str) -> None:
    """Refuse what no directory can hold, whoever wrote it."""
    files = [entry.name for entry in manifest.files]
    for name in (*files, *manifest.directories):
        if not stays_inside(name):
            raise CheckpointCorruptError(f"the manifest of {path} names {name!r}, which is not inside the checkpoint")
        if len(name) > _LONGEST or any(len(part.encode()) > _LONGEST_PART for part in name.split("/")):
            raise CheckpointCorruptError(f"the manifest of {path} names {name[:80]!r}..., which is too long for a file")
    once = set(files)
    above = {parent for parent in {name.rpartition("/")[0] for name in (*files, *manifest.directories)} if parent}
    while fresh := {up for parent in above if (up := parent.rpartition("/")[0])} - above:
        above |= fresh
    for name in (*above, *manifest.directories):
        if name in once:
            raise CheckpointCorruptError(f"the manifest of {path} names {name!r} as file and directory")
    if len(once) < len(files):
        twice = Counter(files).most_common(1)[0][0]
        raise CheckpointCorruptError(f"the manifest of {path} names {twice!r} twice")
    if any(not (0 <= entry.size < _BEYOND and abs(entry.mtime_ns) < _BEYOND) for entry in manifest.files):
        raise CheckpointCorruptError(f"the manifest of {path} names a size or a time that no file has")


def digest(data: bytes) -> str:
    """BLAKE3 of a manifest's bytes, hex: it stands for the whole checkpoint."""
    return blake3.blake3(data).hexdigest()


def read(path: Path) -> Published:
    """The manifest of the checkpoint at `path`; its files are not looked at.

    Raises CheckpointNotFoundError when there is no manifest, CheckpointError when it cannot be read just now, else what
    `decode` raises.
    """
    try:
        data = fs.read_file(path / MANIFEST_NAME)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointNotFoundError(f"there is no complete checkpoint at {path}") from None
    except OSError as error:
        if error.errno in NOT_THERE:
            raise CheckpointCorruptError(f"the manifest of {path} cannot be read: {error}") from error
        raise unread(f"the manifest of {path}", error) from error
    manifest = decode(data, path)
    return Published(manifest, digest(data), path)


def unread(what: str, error: OSError) -> CheckpointError:
    """What to raise where the disk did not give a file: no judgement of the checkpoint."""
    return CheckpointError(f"{what} cannot be read just now: {error.strerror or error}")


def is_published(path: Path) -> bool:
    """Whether `path` is a checkpoint of ours, complete or not; nothing but its manifest is looked at."""
    if not fs.exists(path / MANIFEST_NAME):  # of nearly all that are asked about; cheaper than an error
        return False
    try:
        read(path)
    except CheckpointError:
        return False
    return True


def stays_inside(name: str) -> bool:
    """Whether a name from outside is relative, without `..`, and thus stays in the directory it is joined to."""
    return bool(name) and "\0" not in name and all(part not in ("", ".", "..") for part in name.split("/"))
