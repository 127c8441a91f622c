"""Index of the content that a place holds, for deduplication of uploads."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from trainables.store.manifest import FileEntry

_SMALL = 4096
"""Up to so many bytes a file is sent again: asking for a copy costs as much."""


class ContentIndex:
    """Which content a place holds already, of all checkpoints of an experiment. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[tuple[str, int], dict[str, str]] = {}
        """(BLAKE3, size) -> key of a checkpoint -> name of a file in it; the checkpoint added last comes last."""
        self._held: dict[str, list[tuple[str, int]]] = {}

    def add(self, files: Iterable[FileEntry], key: str) -> None:
        """These files of a checkpoint are there, under its key."""
        with self._lock:
            self._forget(key)
            contents = {(entry.blake3, entry.size): entry.name for entry in files if entry.size > _SMALL}
            for content, name in contents.items():
                self._names.setdefault(content, {})[key] = name
            self._held[key] = list(contents)

    def forget(self, key: str) -> None:
        """The checkpoint of that key is, or will be, deleted. One that was never added is no error."""
        with self._lock:
            self._forget(key)

    def find(self, entry: FileEntry) -> str | None:
        """The key of a file with the same content, of the checkpoint that was added last; None when there is none."""
        with self._lock:
            names = self._names.get((entry.blake3, entry.size))
            if not names:
                return None
            key = next(reversed(names))
            return f"{key}/{names[key]}"

    def _forget(self, key: str) -> None:
        for content in self._held.pop(key, ()):
            names = self._names[content]
            del names[key]
            if not names:
                del self._names[content]
