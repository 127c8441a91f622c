"""Local cache of remote checkpoints: fetched on use, verified, kept by content.

The cache lies in `<knobs.cache_dir()>/checkpoints`, by content: a checkpoint that is in two places is fetched once.
It has no bound; whatever is in it may be removed while nothing uses it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainables import knobs
from trainables.errors import CheckpointCorruptError, CheckpointError, InvalidSettingError
from trainables.places import child_of, parent_and_name, trim_slash
from trainables.store import fs, manifest, verify
from trainables.transfer import remote_checkpoints
from trainables.transfer.open import check_scheme, open_backend, shown


class CachedCheckpoint:
    """A checkpoint at a URI or on another host. Making one looks at nothing.

    Args:
        uri: where it is; credentials and endpoints come from the environment.
        digest: BLAKE3 of its manifest, where it is known: then what is in the cache already is used without asking.

    Raises InvalidSettingError for a scheme that is not known, and for what is no place of a checkpoint.
    """

    def __init__(self, uri: str, digest: str = "") -> None:
        check_scheme(uri)
        self._place, self._name = parent_and_name(uri)
        if not self._name:
            raise InvalidSettingError(
                f"{shown(uri)!r} is no checkpoint: scheme://bucket/path or host:/path is expected"
            )
        self.uri = trim_slash(shown(uri))
        self._digest = digest
        self._remote: remote_checkpoints.RemoteCheckpoint | None = None

    def look(self) -> remote_checkpoints.RemoteCheckpoint:
        """Its manifest, asked for once. Raises CheckpointNotFoundError, CheckpointCorruptError, TransferError."""
        if self._remote is None:
            with open_backend(self._place) as backend:
                self._remote = remote_checkpoints.read_manifest(backend, self._name)
            if self._digest not in ("", self._remote.digest):
                raise CheckpointCorruptError(f"{self.uri}: its manifest is not the one that was published")
        return self._remote

    def read(self, name: str) -> bytes | None:
        """One small file, hashed; None when the checkpoint has none of that name."""
        entry = next((entry for entry in self.look().manifest.files if entry.name == name), None)
        if entry is None:
            return None
        with open_backend(self._place) as backend:
            data = backend.read(f"{self._name}/{name}")
        if manifest.digest(data) != entry.blake3:
            raise CheckpointCorruptError(
                f"{child_of(self.uri, name)} is not what was published: its BLAKE3 hash differs"
            )
        return data

    def fetch(self) -> Path:
        """Its directory in the cache: brought there now, or as it was published still.

        Raises CheckpointNotFoundError, CheckpointCorruptError, PublishError when the disk does not take it,
        TransferError.
        """
        digest = self._digest or self.look().digest
        with locked_cache(f"checkpoints/{digest}") as directory:
            for leftover in verify.leftovers(directory):  # of a process that was killed: nobody else is in here
                fs.remove_quietly(leftover)
            for name in fs.listdir(directory):
                if not name.startswith("."):
                    if _is_whole(directory / name, digest):
                        return directory / name
                    fs.rmtree(directory / name)
            name = self._name if not self._name.startswith(".") else "checkpoint"
            with open_backend(self._place) as backend:
                return remote_checkpoints.fetch(backend, self._name, directory / name, digest=digest).path


def root() -> Path:
    """The directory of everything that is cached."""
    return Path(knobs.cache_dir()).expanduser().absolute()


@contextmanager
def locked_cache(name: str) -> Iterator[Path]:
    """A directory of the cache, made where it is missing; one process at a time is in it."""
    directory = root() / name
    fs.make_dirs(directory)
    lock = fs.open_append(directory / ".lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory
    finally:
        os.close(lock)


def _is_whole(path: Path, digest: str) -> bool:
    try:
        verify.quick(path)
        return manifest.read(path).digest == digest
    except CheckpointError:
        return False  # somebody wrote into it
