"""Copying of checkpoints between two places, manifest last."""

from __future__ import annotations

import filecmp
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from trainables.errors import CheckpointError, CheckpointNotFoundError, InvalidSettingError, ObjectNotFoundError
from trainables.places import parent_and_name, split_query, trim_slash
from trainables.store import file_tree, manifest, publish, staging
from trainables.store.manifest import Manifest
from trainables.transfer import remote_checkpoints
from trainables.transfer.backend import Backend, Progress, unwatched
from trainables.transfer.local import LocalBackend
from trainables.transfer.open import EXTRAS, check_scheme, open_backend, shown
from trainables.wire import CheckpointRef

_BUCKETS = {*EXTRAS, "memory"}
_AT_ONCE = 16
"""Files that are fetched at once to be compared."""


def copy(source: Backend, key: str, target: Backend, to: str, *, progress: Progress = unwatched) -> Manifest:
    """Copy the checkpoint `key` of one place to the key `to` of another. The same one there already is no error.

    Raises CheckpointNotFoundError, CheckpointCorruptError, CheckpointError when there is another one, TransferError.
    """
    content = remote_checkpoints.read_manifest(source, key)
    if _is_there(target, to, content.manifest):
        return content.manifest
    if isinstance(target, LocalBackend):
        return remote_checkpoints.fetch(
            source, key, target.root / to, digest=content.digest, progress=progress
        ).manifest
    index = remote_checkpoints.ContentIndex()
    remote_checkpoints.copy_payload(source, key, target, to, digest=content.digest, index=index, progress=progress)
    remote_checkpoints.copy_manifest(source, key, target, to, digest=content.digest)
    return content.manifest


def common(one: str, other: str) -> str | None:
    """The URI that two places of one bucket lie under; None when they are not in one.

    >>> common("s3://bucket/runs/old", "s3://bucket/runs"), common("s3://bucket/runs", "gs://bucket/runs")
    ('s3://bucket/runs', None)
    """
    if one == other:
        return one
    (mine, query), (its, other_query) = split_query(one), split_query(other)
    scheme, _, path = mine.partition("://")
    if scheme not in _BUCKETS or not its.startswith(f"{scheme}://") or query != other_query:
        return None
    shared = os.path.commonprefix([path.split("/"), its.partition("://")[2].split("/")])
    return f"{scheme}://{'/'.join(shared)}{query}" if shared else None


def differing(
    directory: Path, place: Backend, prefix: str, names: Sequence[str], progress: Progress = unwatched
) -> list[str]:
    """Those of the files under a local directory that are not the same at `prefix/name`.

    What is not here, or not there, any more is left out. Raises TransferError.
    """
    found = []
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        with tempfile.TemporaryDirectory(prefix="compare-") as beside:
            try:
                place.fetch(prefix, Path(beside), some, progress=progress)
            except ObjectNotFoundError:
                for name in some if len(some) > 1 else ():
                    with suppress(ObjectNotFoundError):
                        place.fetch(prefix, Path(beside), [name], progress=progress)
            for name in some:
                with suppress(FileNotFoundError):
                    mine, its = directory / name, Path(beside, name)
                    if its.is_file() and not filecmp.cmp(mine, its, shallow=False):
                        found.append(name)
    return found


def push(directory: Path, target: Backend, to: str) -> Manifest:
    """Copy a published checkpoint. Raises as `copy` does."""
    content = manifest.read(directory).manifest
    if not _is_there(target, to, content):
        remote_checkpoints.push_payload(target, directory, to, index=remote_checkpoints.ContentIndex())
        remote_checkpoints.push_manifest(target, directory, to)
    return content


def push_to(directory: Path, uri: str) -> str:
    """Copy any directory of files to a URI, where it is a published checkpoint then. Returns the URI as it is shown."""
    check_scheme(uri)
    place, name = parent_and_name(uri)
    if not name:
        raise InvalidSettingError(f"{shown(uri)!r} names no checkpoint: scheme://bucket/path or host:/path is expected")
    with open_backend(place) as backend:
        if manifest.is_published(directory):
            push(directory, backend, name)
        else:
            with tempfile.TemporaryDirectory(prefix="copy-") as beside:
                push(_published(directory, Path(beside), name), backend, name)
    return trim_slash(shown(uri))


def _published(directory: Path, beside: Path, name: str) -> Path:
    """Files that were never reported, with a manifest: of no trial, and as old as the newest of them."""
    staged = staging.lend(directory, beside, "copy")
    newest = max((os.stat(file.source).st_mtime for file in file_tree.scan(directory, follow=True).files), default=0.0)
    ref = CheckpointRef("", name, 1, 1, 1, 0)
    return publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b"{}"), created=newest).staged


def _is_there(target: Backend, key: str, content: Manifest) -> bool:
    """Whether the same checkpoint is there whole. Raises CheckpointError when it is another: none is ever replaced."""
    try:
        there = remote_checkpoints.read_manifest(target, key).manifest
    except CheckpointNotFoundError:
        return False
    if _files(there) != _files(content) or there.directories != content.directories or there.ref != content.ref:
        raise CheckpointError(f"there is another checkpoint at {target.url(key)}, and none is ever replaced: remove it")
    sizes = {entry.key[len(key) + 1 :]: entry.size for entry in target.list(key)} if target.can.list else None
    if sizes is not None and any(sizes.get(entry.name) != entry.size for entry in there.files):
        raise CheckpointError(f"{target.url(key)} is not complete: remove it first")
    return True


def _files(content: Manifest) -> list[tuple[str, int, str]]:
    return sorted((entry.name, entry.size, entry.blake3) for entry in content.files)
