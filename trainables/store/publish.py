"""Publishing: from a staged directory to a checkpoint, in one atomic step.

Two calls, so that who publishes may wait in between for the journal: `prepare` makes every byte durable and
writes the manifest, `commit` renames.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trainables.errors import CheckpointError, PublishError
from trainables.quick_dataclass import dataclass
from trainables.store import file_tree, fs, manifest, staging
from trainables.store.manifest import MANIFEST_NAME, FileEntry, Manifest, Published, SealedCheckpoint
from trainables.wire import CheckpointRef

_INLINE_FILES = 2
_INLINE_BYTES = 1024 * 1024
"""Up to these, a save is synced file by file; beyond, in threads, while it is being hashed."""
_THREADS = 4


@dataclass(frozen=True, slots=True)
class PreparedCheckpoint(SealedCheckpoint):
    """A staged directory that is durable and has its manifest; nobody sees it yet."""

    staged: Path


def checkpoint_name(iteration: int, generation: int, attempt: int, taken: int = 0) -> str:
    """The directory name of a save, unique in its trial without looking.

    `taken` is how many saves this attempt already made of that number.

        >>> checkpoint_name(10, 1, 1), checkpoint_name(10, 1, 1, taken=1)
        ('checkpoint_000010', 'checkpoint_000010.2')
        >>> checkpoint_name(10, 3, 2), checkpoint_name(10, 3, 2, taken=1)
        ('checkpoint_000010-3.2', 'checkpoint_000010-3.2.2')
    """
    name = f"checkpoint_{iteration:06d}"
    if (generation, attempt) != (1, 1):
        name += f"-{generation}.{attempt}"
    return f"{name}.{taken + 1}" if taken else name


def prepare(
    staged: Path, *, ref: CheckpointRef, metrics: msgspec.Raw, created: float, extra: Mapping[str, Any] | None = None
) -> PreparedCheckpoint:
    """Hash everything in `staged`, make it durable, write the manifest.

    `created` is in seconds since the epoch; `extra` is plain JSON for the manifest. Raises PublishError when the
    disk does not take it; `staged` is removed then.
    """
    with staging.disk_errors(staged, remove=staged):
        found = staging.settle(staged)
        if any(file.name == MANIFEST_NAME for file in found.files):
            raise CheckpointError(f"{staged / MANIFEST_NAME}: that name is reserved in a checkpoint; use another one")
        entries = seal(found, staged)
        content = Manifest(
            **msgspec.structs.asdict(ref),
            created=created,
            files=entries,
            directories=found.empty_directories(),
            metrics=metrics,
            extra=dict(extra or {}),
        )
        data = msgspec.json.encode(content)
        # Last: readers believe nothing without it, so everything that it names must be durable before.
        fs.write_file(staged / MANIFEST_NAME, data, fsync=True, exclusive=True)
        fs.fsync_dir(staged)
        return PreparedCheckpoint(content, manifest.digest(data), staged)


def commit(prepared: PreparedCheckpoint, final: Path) -> Published:
    """Give a prepared checkpoint its final name, beside where it was staged. It exists from then on.

    Raises PublishError when the name is taken, or the disk does not take it; nothing is visible then.
    """
    with staging.disk_errors(final, remove=prepared.staged):
        if fs.exists(final):
            raise PublishError(errno.EEXIST, f"could not publish {final}: there is something of that name already")
        fs.rename(prepared.staged, final)  # the checkpoint exists from this instant on
        try:
            fs.fsync_dir(final.parent)  # and from here on also after a power cut
        except OSError:
            fs.rename(final, prepared.staged)  # nobody may believe what may be gone tomorrow
            raise
    return Published(prepared.manifest, prepared.digest, final)


def seal(found: file_tree.Tree, staged: Path) -> list[FileEntry]:
    """Make files and directories durable, and hash meanwhile; the directory's own names are left to the caller."""
    directories = [staged / name for name in reversed(found.directories)]
    if len(found.files) <= _INLINE_FILES and found.bytes <= _INLINE_BYTES:
        entries = []
        for file in found.files:
            entries.append(file_tree.fingerprint(file.source, file.name))
            fs.fsync_file(file.source)
        for directory in directories:
            fs.fsync_dir(directory)
        return entries
    from trainables.threads import Threads  # rarely needed, and slow to import

    with Threads(min(_THREADS, len(found.files)), thread_name_prefix="publish") as pool:
        syncs = [pool.submit(fs.fsync_file, file.source) for file in found.files]
        syncs += [pool.submit(fs.fsync_dir, directory) for directory in directories]
        entries = [file_tree.fingerprint(file.source, file.name) for file in found.files]
        for sync in syncs:
            sync.result()
    return entries
