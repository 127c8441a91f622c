"""Listing and verification of checkpoints against their manifests; quarantine of broken ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import field
from pathlib import Path
from typing import Generic, TypeVar

from trainables.errors import CheckpointCorruptError, CheckpointError, CheckpointNotFoundError
from trainables.quick_dataclass import dataclass
from trainables.store import file_tree, fs, manifest, staging
from trainables.store.manifest import MANIFEST_NAME, FileEntry, Manifest, Published

BROKEN_PREFIX = ".broken-"


C = TypeVar("C")
W = TypeVar("W")
"""A path, or a key at a remote place."""


@dataclass(frozen=True, slots=True)
class Broken(Generic[W]):
    """A checkpoint that cannot be used."""

    where: W
    reason: str


@dataclass(slots=True)
class Listing(Generic[C, W]):
    """What lies in a trial's directory, here or at a remote place."""

    complete: list[C] = field(default_factory=list)
    """With a manifest, and every file of it present with its size; the oldest save first."""
    broken: list[Broken[W]] = field(default_factory=list)
    """With a manifest that cannot be read, or with a file missing or of another size."""
    unknown: list[W] = field(default_factory=list)
    """Directories without a manifest, or with another's: still being pushed, or not ours. Never used, never deleted."""


LocalListing = Listing[Published, Path]


def scan(trial_dir: Path, *, pass_over_unread: bool = False) -> LocalListing:
    """Look at every directory that is not hidden. Nothing is hashed and nothing changed.

    Raises CheckpointError when a newer version of this library wrote one of them, or one cannot be read just now,
    unless that is to be passed over.
    """
    listing = LocalListing()
    for name in _names(trial_dir):
        path = trial_dir / name
        if name.startswith(".") or not fs.is_dir(path):
            continue
        try:
            published = manifest.read(path)
            if published.manifest.name != name:
                listing.unknown.append(path)  # somebody's copy: the one that it was copied from counts
                continue
            missing = _differing(published, look_at_mtime=False)
            if missing:
                listing.broken.append(Broken(path, missing[0][1]))
            else:
                listing.complete.append(published)
        except CheckpointNotFoundError:
            listing.unknown.append(path)
        except CheckpointCorruptError as error:
            listing.broken.append(Broken(path, str(error)))
        except CheckpointError as error:
            if not (pass_over_unread and isinstance(error.__cause__, OSError)):
                raise
    listing.complete.sort(key=lambda published: published.ref.order)
    return listing


def list_checkpoints(trial_dir: Path) -> list[Published]:
    """The checkpoints of a trial with all their files, the oldest save first (by their manifests, never by name).

    One that cannot be read just now is left out. Raises CheckpointError when a newer version wrote one of them.
    """
    return scan(trial_dir, pass_over_unread=True).complete


def check(path: Path, *, digest: str | None = None) -> Manifest:
    """Hash every file of a checkpoint, as is done before a trial gets it.

    `digest` is that of the manifest, where the journal knows it. Raises CheckpointNotFoundError when there is no
    manifest, CheckpointCorruptError that names the first file that is not what was published, CheckpointError when one
    cannot be read just now: it may be whole.
    """
    published = manifest.read(path)
    if digest is not None and digest != published.digest:
        raise CheckpointCorruptError(f"{path / MANIFEST_NAME} is not the one that was published")
    return _hashed(published, published.manifest.files)


def quick(path: Path) -> Manifest:
    """Like `check`, but only files whose size or mtime is not the manifest's are hashed."""
    published = manifest.read(path)
    return _hashed(published, [entry for entry, _ in _differing(published, look_at_mtime=True)])


def _hashed(published: Published, entries: Iterable[FileEntry]) -> Manifest:
    for entry in entries:
        reason = _wrong(published.path, entry)
        if reason is not None:
            raise CheckpointCorruptError(reason)
    return published.manifest


def problems(path: Path, *, files_only: bool = False, progress: Callable[[int], None] | None = None) -> list[str]:
    """Everything that is wrong with a checkpoint, one sentence each; [] when it is as it was published.

    With `files_only` it lies where copies go: its empty directories are in the manifest alone, and whoever fetches it
    makes them again. A file that the manifest does not name is a problem here, though the checkpoint can be used all
    the same. `progress` is told of the bytes that were read just now.
    """
    try:
        published = manifest.read(path)
        found = file_tree.scan(path, follow=False)
    except CheckpointError as error:
        return [str(error)]
    result = []
    for entry in published.manifest.files:
        try:
            reason = _wrong(path, entry, progress)
        except CheckpointError as error:
            reason = str(error)
        result += [] if reason is None else [reason]
    known = {entry.name for entry in published.manifest.files} | {MANIFEST_NAME}
    for name in (*(file.name for file in found.files), *found.links):
        if name not in known:
            result.append(f"{path / name} is not in the manifest: somebody put it there")
    for name in () if files_only else published.manifest.directories:
        if name not in found.directories:
            result.append(f"{path / name}, an empty directory, is missing")
    return result


def quarantine(path: Path) -> Path:
    """Hide a broken checkpoint as `.broken-<name>`, where it is neither used nor counted, and return that path."""
    target = path.with_name(BROKEN_PREFIX + path.name)
    number = 1
    while fs.exists(target):
        number += 1
        target = path.with_name(f"{BROKEN_PREFIX}{path.name}~{number}")
    fs.rename(path, target)
    fs.fsync_dir(path.parent)
    return target


def leftovers(trial_dir: Path, prefix: str = staging.PREFIX) -> list[Path]:
    """Staged directories of saves that never ended, for the next owner to remove."""
    return [trial_dir / name for name in _names(trial_dir) if name.startswith(prefix)]


def _names(trial_dir: Path) -> list[str]:
    try:
        return fs.listdir(trial_dir)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _differing(published: Published, *, look_at_mtime: bool) -> list[tuple[FileEntry, str]]:
    """Files that are not there as the manifest has them, by what `stat` says. Raises as `check` does."""
    found = []
    for entry in published.manifest.files:
        path = published.path / entry.name
        try:
            status = os.lstat(path)
        except OSError as error:
            if error.errno not in manifest.NOT_THERE:
                raise manifest.unread(str(path), error) from error
            found.append((entry, f"{path} is missing ({error.strerror})"))
            continue
        if status.st_size != entry.size:
            found.append((entry, f"{path} has {status.st_size} bytes, published were {entry.size}"))
        elif look_at_mtime and status.st_mtime_ns != entry.mtime_ns:
            found.append((entry, f"{path} was written to after it was published"))
    return found


def _wrong(directory: Path, entry: FileEntry, progress: Callable[[int], None] | None = None) -> str | None:
    """Why a file is not what was published; None when it is. Raises CheckpointError when it cannot be read just now."""
    path = directory / entry.name
    inner = entry.name.split("/")[:-1]
    if any(os.path.islink(directory.joinpath(*inner[:depth])) for depth in range(1, len(inner) + 1)):
        return f"{path} lies behind a symlink, which nobody published"
    try:
        found = file_tree.fingerprint(path, entry.name, progress=progress)
    except OSError as error:
        if error.errno not in manifest.NOT_THERE:
            raise manifest.unread(str(path), error) from error
        return f"{path} cannot be read: {error.strerror}"
    except CheckpointError as error:
        return str(error)
    if found.size != entry.size:
        return f"{path} has {found.size} bytes, published were {entry.size}"
    if found.blake3 != entry.blake3:
        return f"{path} is not what was published: its BLAKE3 hash differs"
    return None
