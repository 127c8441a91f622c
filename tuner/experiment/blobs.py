"""What JSON cannot hold, beside the journal: files named by the BLAKE3 hash of their content."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from blake3 import blake3

from trainables.store import fs
from tuner.error import ExperimentDamagedError, StorageFullError
from tuner.experiment.reserve import is_full

_HASH = re.compile(r"[0-9a-f]{64}")
_spoken: set[Path] = set()


def trust(root: Path) -> None:
    """This process runs the experiment: what it unpickles is not worth a word."""
    _spoken.add(root)


def speak_of(root: Path) -> bool:
    """Whether to say that something of the experiment is unpickled: once, and not in a process that runs it."""
    first = root not in _spoken
    _spoken.add(root)
    return first


class Blobs:
    """A directory of blobs. Nothing here unpickles anything."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: set[str] = set()

    def put(self, data: bytes) -> str:
        """Store bytes durably, unless they are there already; return their hash. Raises StorageFullError."""
        hash = blake3(data).hexdigest()
        if hash in self._known:
            return hash
        path = self._directory / hash
        if not self._is_whole(path, len(data)):
            try:
                fs.make_dirs(self._directory)
                fs.replace_file(path, data)  # durable before the line that names it
            except OSError as error:
                if not is_full(error):
                    raise
                text = f"the disk is full: {len(data)} bytes could not be stored in {self._directory} ({error})"
                raise StorageFullError(error.errno, text) from error
        self._known.add(hash)
        return hash

    def get(self, hash: str) -> bytes:
        """The bytes of that hash. Raises ExperimentDamagedError where they are missing, or not what their name says."""
        if not _HASH.fullmatch(hash):
            raise ExperimentDamagedError(f"{hash!r} is no name of a blob")
        path = self._directory / hash
        try:
            data = fs.read_file(path)
        except FileNotFoundError as error:
            raise ExperimentDamagedError(f"the blob {path} is missing") from error
        if blake3(data).hexdigest() != hash:
            raise ExperimentDamagedError(f"the blob {path} is damaged: its content has another hash")
        return data

    def remove(self, hashes: Iterable[str]) -> None:
        """Remove the blobs of these hashes, where they are there."""
        for hash in sorted(hashes):
            if _HASH.fullmatch(hash) and fs.exists(self._directory / hash):
                fs.unlink(self._directory / hash)
                self._known.discard(hash)

    def _is_whole(self, path: Path, size: int) -> bool:
        try:
            if fs.size(path) != size or blake3(fs.read_file(path)).hexdigest() != path.name:
                return False
        except FileNotFoundError:
            return False
        # whoever wrote it may have been killed before its name was durable
        fs.fsync_file(path)
        fs.fsync_dir(path.parent)
        return True
