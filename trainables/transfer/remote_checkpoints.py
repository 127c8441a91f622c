"""Remote checkpoints, by the same rule as on disk: one exists when its manifest is there.

The payload goes there before the manifest and is removed after it. What is fetched is hashed, made durable and renamed
into place, so that no reader ever sees a part of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from trainables import errors
from trainables.places import child_of
from trainables.quick_dataclass import dataclass
from trainables.store import file_tree, fs, manifest, publish, staging, verify
from trainables.store.manifest import MANIFEST_NAME, Manifest, Published, SealedCheckpoint
from trainables.threads import Threads
from trainables.transfer.backend import Backend, Progress, Receipts, unwatched
from trainables.transfer.content_index import ContentIndex as ContentIndex
from trainables.transfer.fetched import bounded, check_and_seal
from trainables.transfer.local import LocalBackend

_THREADS = 8


@dataclass(frozen=True, slots=True)
class RemoteCheckpoint(SealedCheckpoint):
    """A checkpoint that has its manifest at a place."""

    key: str


RemoteListing = verify.Listing[RemoteCheckpoint, str]


def push_payload(
    backend: Backend,
    directory: Path,
    key: str,
    *,
    index: ContentIndex,
    sent: Mapping[str, str] = MappingProxyType({}),
    receipts: Receipts | None = None,
    progress: Progress = unwatched,
) -> Manifest:
    """Copy a published checkpoint without its manifest: nobody sees it yet.

    Args:
        index: what it holds already is copied remotely and not sent; the checkpoint is added to it.
        sent: name -> BLAKE3 of what others have put under that key (`push_part`); what is as it was published is left
            out.
        receipts: of an earlier try, whose files are left out; filled as they arrive.

    Raises TransferError, CheckpointNotFoundError when the directory is gone, CheckpointCorruptError when somebody
    wrote into it after it was published.
    """
    content = verify.quick(directory)
    receipts = {} if receipts is None else receipts
    index.forget(key)  # what an earlier push left under this very key is about to be replaced
    for entry in content.files:
        if sent.get(entry.name) == entry.blake3:
            receipts.setdefault(entry.name, "")
    wanted = {entry.name: entry for entry in content.files if entry.name not in receipts}
    if wanted:
        same = {name: known for name, entry in wanted.items() if (known := index.find(entry)) is not None}
        backend.push(directory, key, list(wanted), same=same, receipts=receipts, progress=progress)
    index.add(content.files, key)
    return content


def push_part(
    backend: Backend,
    directory: Path,
    key: str,
    names: Sequence[str],
    *,
    index: ContentIndex,
    progress: Progress = unwatched,
) -> dict[str, str]:
    """Copy files of a checkpoint of which others copy the rest, before it is published; returns `sent` for that.

    They are hashed first, and `progress` is told of those bytes too: who takes silence for standstill waits for both.

    Nobody sees them before the manifest is there: a file of its name is refused. Raises TransferError, CheckpointError
    when somebody writes into one of them.
    """
    if MANIFEST_NAME in names:
        raise errors.CheckpointError(f"{directory / MANIFEST_NAME}: that name is reserved in a checkpoint")
    entries = [file_tree.fingerprint(directory / name, name, progress=progress) for name in names]
    same = {entry.name: known for entry in entries if (known := index.find(entry)) is not None}
    backend.push(directory, key, names, same=same, progress=progress)
    index.add(entries, key)
    return {entry.name: entry.blake3 for entry in entries}


def push_manifest(backend: Backend, directory: Path, key: str) -> None:
    """Copy the manifest of a checkpoint whose payload is there: from this instant on it exists.

    One with the same bytes that is there already is no error. Raises ObjectExistsError when it is another's: names are
    unique, so somebody else owns the experiment.
    """
    backend.tidy(key)
    with _unless_same(backend, key, lambda: fs.read_file(directory / MANIFEST_NAME)):
        backend.push(directory, key, [MANIFEST_NAME], exclusive=backend.can.exclusive)


def copy_payload(
    source: Backend,
    known: str,
    backend: Backend,
    key: str,
    *,
    digest: str = "",
    index: ContentIndex,
    receipts: Receipts | None = None,
    progress: Progress = unwatched,
) -> Manifest:
    """Copy the checkpoint `known` of a place to the key `key` of the same or another one, without its manifest.

    Within one place it is copied remotely; between two it comes through this machine, and is hashed on its way. The
    rest as in `push_payload`; `digest` as in `fetch`.

    Raises CheckpointNotFoundError, CheckpointCorruptError, TransferError.
    """
    if isinstance(source, LocalBackend):
        _expected(known, _manifest_of(source, known), source.url(known), digest or None)
    if isinstance(source, LocalBackend) and source is not backend:
        return push_payload(backend, source.root / known, key, index=index, receipts=receipts, progress=progress)
    if source is not backend:
        with tempfile.TemporaryDirectory(prefix="copy-") as directory:
            brought = fetch(source, known, Path(directory) / "checkpoint", digest=digest or None, progress=progress)
            return push_payload(backend, brought.path, key, index=index, receipts=receipts, progress=progress)
    content = _expected(known, _manifest_of(source, known), source.url(known), digest or None).manifest
    sizes = {entry.key[len(known) + 1 :]: entry.size for entry in source.list(known)}
    for entry in content.files:
        if sizes.get(entry.name) != entry.size:
            raise errors.CheckpointCorruptError(
                f"{source.url(known)} is not complete: {entry.name!r} is not as it was published"
            )
    receipts = {} if receipts is None else receipts
    index.forget(key)
    wanted = [entry.name for entry in content.files if entry.name not in receipts]
    if wanted:
        with _absent_is(errors.CheckpointCorruptError, f"{source.url(known)} is not complete"):
            backend.copy(known, key, wanted, receipts=receipts, progress=progress)
    index.add(content.files, key)
    return content


def copy_manifest(source: Backend, known: str, backend: Backend, key: str, *, digest: str = "") -> None:
    """Copy the manifest of a checkpoint whose payload `copy_payload` has copied. Raises as `push_manifest` does."""
    data = _manifest_of(source, known)
    _expected(known, data, source.url(known), digest or None)
    backend.tidy(key)
    with _unless_same(backend, key, lambda: data):
        backend.put(_manifest_key(key), data, exclusive=backend.can.exclusive)


def delete(backend: Backend, key: str) -> None:
    """Delete a checkpoint: its manifest first, so that what is half deleted is none. Nothing there is no error."""
    backend.delete([_manifest_key(key)])
    backend.delete_tree(key)


def read_manifest(backend: Backend, key: str) -> RemoteCheckpoint:
    """The manifest of the checkpoint at `key`; its files are not looked at.

    Raises CheckpointNotFoundError when there is none, CheckpointCorruptError when it cannot be read,
    CheckpointError when a newer version of this library wrote it, TransferError.
    """
    data = _manifest_of(backend, key)
    return RemoteCheckpoint(manifest.decode(data, backend.url(key)), manifest.digest(data), key)


def listed(backend: Backend, prefix: str) -> RemoteListing:
    """Look at every checkpoint directly under the prefix, a trial's. Nothing is hashed and nothing changed.

    Raises CheckpointError when a newer version of this library wrote one of them, TransferError.
    """
    sizes: dict[str, dict[str, int]] = {}
    skip = len(prefix) + 1 if prefix else 0
    for entry in backend.list(prefix):
        directory, slash, name = entry.key[skip:].partition("/")
        if slash and not directory.startswith("."):
            sizes.setdefault(f"{prefix}/{directory}" if prefix else directory, {})[name] = entry.size
    listing = RemoteListing([], [], [key for key, files in sizes.items() if MANIFEST_NAME not in files])
    having = [key for key in sizes if MANIFEST_NAME in sizes[key]]
    if not having:
        return listing
    with Threads(min(_THREADS, len(having)), thread_name_prefix="listed") as pool:
        for found in pool.map(lambda key: _read_or_broken(backend, key), having):
            if isinstance(found, verify.Broken):
                listing.broken.append(found)
            elif found is not None:
                _sort_in(listing, found, sizes[found.key])
    listing.complete.sort(key=lambda remote: remote.ref.order)
    return listing


def _read_or_broken(backend: Backend, key: str) -> RemoteCheckpoint | verify.Broken[str] | None:
    try:
        return read_manifest(backend, key)
    except errors.CheckpointNotFoundError:
        return None  # deleted meanwhile
    except errors.CheckpointCorruptError as error:
        return verify.Broken(key, str(error))


def _sort_in(listing: RemoteListing, remote: RemoteCheckpoint, sizes: dict[str, int]) -> None:
    if remote.manifest.name != remote.key.rpartition("/")[2]:
        listing.unknown.append(remote.key)  # somebody's copy: the one that it was copied from counts
        return
    for entry in remote.manifest.files:
        found = sizes.get(entry.name)
        if found != entry.size:
            there = "is missing" if found is None else f"has {found} bytes, published were {entry.size}"
            listing.broken.append(verify.Broken(remote.key, f"{remote.key}/{entry.name} {there}"))
            return
    listing.complete.append(remote)


def fetch(
    backend: Backend, key: str, target: Path, *, digest: str | None = None, progress: Progress = unwatched
) -> Published:
    """Bring a checkpoint to the directory `target`, which must not be there: whole and hashed, or not at all.

    Args:
        digest: BLAKE3 of its manifest, where the journal knows it.

    Raises CheckpointNotFoundError when there is no manifest, CheckpointCorruptError when a file is missing or is not
    what the manifest says, PublishError when this host's disk does not take it, TransferError.
    """
    staged = staging.new_directory(target.parent, target.name)
    try:
        remote, data = _fetch_files(backend, key, staged, digest, progress)
        with staging.disk_errors(staged):
            check_and_seal(staged, remote.manifest, backend.url(key))
            # Last: readers believe nothing without it, so everything that it names must be durable before.
            fs.write_file(staged / MANIFEST_NAME, data, fsync=True, exclusive=True)
            fs.fsync_dir(staged)
    except BaseException:
        fs.remove_quietly(staged)
        raise
    return publish.commit(publish.PreparedCheckpoint(remote.manifest, remote.digest, staged), target)


def _fetch_files(
    backend: Backend, key: str, staged: Path, digest: str | None, progress: Progress
) -> tuple[RemoteCheckpoint, bytes]:
    """Fetch what the manifest names, and return it with its bytes; it is not in `staged` afterwards."""
    url = backend.url(key)
    if backend.can.list:
        data = _manifest_of(backend, key)
        remote = _expected(key, data, url, digest)
        names = [entry.name for entry in remote.manifest.files]
        if names:
            with _absent_is(errors.CheckpointCorruptError, f"{url} is not complete"):
                backend.fetch(key, staged, names, progress=bounded(progress, remote.manifest.bytes, url))
        return remote, data
    # A command copies a whole tree each time it is called.
    with _absent_is(errors.CheckpointNotFoundError, f"there is no complete checkpoint at {url}"):
        backend.fetch(key, staged, progress=progress)
        found = staged / MANIFEST_NAME
        if not found.is_file() or found.is_symlink():
            raise errors.ObjectNotFoundError(f"there is no {child_of(url, MANIFEST_NAME)}")
        data = fs.read_file(found)
        fs.unlink(found)
    return _expected(key, data, url, digest), data


def _expected(key: str, data: bytes, url: str, digest: str | None) -> RemoteCheckpoint:
    found = manifest.digest(data)
    if digest is not None and digest != found:
        raise errors.CheckpointCorruptError(f"{child_of(url, MANIFEST_NAME)} is not the one that was published")
    content = manifest.decode(data, url)
    if any(entry.name == MANIFEST_NAME for entry in content.files):
        raise errors.CheckpointCorruptError(f"the manifest of {url} names itself")
    return RemoteCheckpoint(content, found, key)


def _manifest_of(backend: Backend, key: str) -> bytes:
    with _absent_is(errors.CheckpointNotFoundError, f"there is no complete checkpoint at {backend.url(key)}"):
        return backend.read(_manifest_key(key))


@contextmanager
def _unless_same(backend: Backend, key: str, content: Callable[[], bytes]) -> Iterator[None]:
    """A manifest that is there already, with this content, is no error."""
    try:
        yield
    except errors.ObjectExistsError:
        if backend.read(_manifest_key(key)) != content():
            raise


@contextmanager
def _absent_is(kind: type[errors.CheckpointError], text: str) -> Iterator[None]:
    """A file that is not there means that about the checkpoint."""
    try:
        yield
    except errors.ObjectNotFoundError as error:
        raise kind(f"{text}: {error}") from error


def _manifest_key(key: str) -> str:
    return f"{key}/{MANIFEST_NAME}"
