"""Verification of a fetched checkpoint: bounded size, and exactly the files that its manifest names."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from trainables.errors import CheckpointCorruptError, CheckpointError
from trainables.places import child_of
from trainables.store import file_tree, fs, publish
from trainables.store.manifest import Manifest
from trainables.transfer.backend import Progress

_REPEATED, _SLACK = 2, 64 << 20
"""So often the bytes of a checkpoint may come, and so many more: parts of a file are asked for again."""


def bounded(progress: Progress, size: int, url: str) -> Progress:
    """Ends a fetch of far more bytes than the manifest names, before they fill this disk."""
    left, counting = _REPEATED * size + _SLACK, threading.Lock()

    def moved(count: int) -> None:
        nonlocal left
        with counting:
            left -= count
            if left < 0:
                raise CheckpointCorruptError(f"{url} is not what was published: it has more than {size} bytes")
        progress(count)

    return moved


def check_and_seal(staged: Path, content: Manifest, url: str) -> None:
    """Only what the manifest names stays; it is hashed and made durable, with the times that it was published with."""
    named = {entry.name: entry for entry in content.files}
    try:
        found = file_tree.scan(staged, follow=False)
    except CheckpointError as error:
        raise CheckpointCorruptError(f"{url}: {error}") from error
    for name in (*found.links, *(file.name for file in found.files if file.name not in named)):
        fs.unlink(staged / name)
    found.files = [file for file in found.files if file.name in named]
    missing = sorted(set(named) - {file.name for file in found.files})
    if missing:
        raise CheckpointCorruptError(f"{url} is not complete: {missing[0]!r} is missing")
    for file in found.files:
        mtime = named[file.name].mtime_ns
        os.utime(staged / file.name, ns=(mtime, mtime))  # so that nobody need hash it again before it is used
    for name in content.directories:
        try:
            fs.make_dirs(staged / name)
        except (FileExistsError, NotADirectoryError) as error:
            raise CheckpointCorruptError(f"the manifest of {url} names {name!r} as file and directory") from error
    found.directories = file_tree.scan(staged, follow=False).directories
    for entry in publish.seal(found, staged):
        expected = named[entry.name]
        if (entry.blake3, entry.size) != (expected.blake3, expected.size):
            raise CheckpointCorruptError(
                f"{child_of(url, entry.name)} is not what was published: its BLAKE3 hash differs"
            )
