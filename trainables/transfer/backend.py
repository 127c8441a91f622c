"""The storage back end interface: a remote place that holds files under keys, and what it is capable of.

A key is a relative path with `/` below the back end's URI. Back ends move bytes and nothing else: what a checkpoint is
lies in `transfer.remote_checkpoints`, order and retries over whole jobs in the driver's queue.
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import NamedTuple, Self

from trainables.errors import ObjectNotFoundError, TransferError
from trainables.places import child_of
from trainables.quick_dataclass import dataclass
from trainables.store.manifest import stays_inside

Progress = Callable[[int], None]
"""Told of bytes that have just moved; from any thread. What raises in it ends the operation."""
Names = Sequence[str] | None
"""Files under a prefix; None: all of them."""
Receipts = MutableMapping[str, str]
"""What a place gave for each file, by its name."""


def unwatched(moved: int) -> None:
    """The progress of what nobody watches."""


@dataclass(frozen=True, slots=True)
class Can:
    """What a back end can do beyond copying a tree there and back (design.md section 8)."""

    ordered: bool = True
    """What `push` has returned from is there before what is pushed next: a manifest after its payload."""
    list: bool = True
    delete: bool = True
    verify: bool = True
    """Size and checksum are compared after a push with what the place says it holds."""
    exclusive: bool = True
    """`exclusive=True` creates a file only where there is none, of two that try one fails."""
    reuse: bool = True
    """`same=` is honoured: content that is there already is not sent again."""
    copy: bool = True
    """`copy` moves nothing through this machine."""
    rename: bool = False
    """`rename_tree` gives a whole tree another name in one step."""


class Entry(NamedTuple):
    """One file that a place holds."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that a push which was killed, or is still under way, has begun at the place."""

    key: str
    """Under which it lies; with a `/` at its end it is a directory with nothing in it."""
    target: str = ""
    """Of the file that it was to become; "" where nothing tells."""
    token: str = ""
    """What else the back end needs to remove it."""


@dataclass(frozen=True, slots=True)
class PushRequest:
    """The arguments of one `Backend.push`."""

    source: Path
    prefix: str
    names: Sequence[str]
    same: Mapping[str, str] = field(default_factory=dict)
    exclusive: bool = False
    receipts: Receipts = field(default_factory=dict)
    progress: Progress = unwatched

    def keys(self) -> dict[str, str]:
        """name -> its key. Raises TransferError for a name that leads out of the place."""
        return {name: joined(self.prefix, name) for name in self.names}


class Backend(ABC):
    """A place that holds files under keys. Safe to use from several threads.

    Every method raises TransferError; its `transient` says whether trying again may help.
    """

    can: Can = Can()

    def __init__(self, uri: str) -> None:
        self.uri = uri
        """Where keys start, without a slash at its end."""

    def url(self, key: str) -> str:
        """The whole address of a key, as people write it."""
        return child_of(self.uri, key) if key else self.uri

    @abstractmethod
    def check(self, timeout_s: float = 10.0) -> None:
        """Look once whether the place can be written to, before anything depends on it.

        Raises TransferError with the cause and the remedy, within about `timeout_s` seconds also when nobody answers.
        """

    def push(
        self,
        source: Path,
        prefix: str,
        names: Sequence[str],
        *,
        same: Mapping[str, str] | None = None,
        exclusive: bool = False,
        receipts: Receipts | None = None,
        progress: Progress = unwatched,
    ) -> None:
        """Copy the files `names` under the directory `source` to `prefix/name`; what is there is replaced.

        Args:
            same: name -> key that holds the same content already; where the back end can, it is copied remotely.
                A key that has gone meanwhile is no error: the file is sent.
            exclusive: raise ObjectExistsError where there is one of that name, and leave it.
            receipts: filled with name -> checksum that the place computed ("" where it has none), file by file as they
                arrive, so that a second try can leave out what is there.
        """
        kept: Receipts = {} if receipts is None else receipts
        self._push(PushRequest(source, prefix, names, same or {}, exclusive, kept, progress))

    @abstractmethod
    def _push(self, request: PushRequest) -> None:
        """Do what `push` says."""

    def tidy(self, prefix: str) -> None:
        """Remove what a killed push under that prefix left half done; nothing else is being pushed there.

        Only where that would be seen by somebody who looks past the back end.
        """

    def leftovers(self, prefix: str) -> Sequence[Leftover]:
        """What pushes under that prefix have begun and not brought to an end: killed ones, and those under way.

        Of a place that forgets such things itself, nothing.
        """
        return []

    def remove_leftovers(self, leftovers: Sequence[Leftover]) -> None:
        """Remove those. What has gone meanwhile is no error."""
        self.delete([leftover.key for leftover in leftovers])

    @abstractmethod
    def fetch(self, prefix: str, target: Path, names: Names = None, *, progress: Progress = unwatched) -> None:
        """Copy `prefix/name` to `target/name`; without `names` everything under `prefix`.

        A name that would leave `target` is refused, and so is one that is a link there. Raises
        ObjectNotFoundError when there is nothing of that name.
        """

    def copy(
        self,
        source: str,
        prefix: str,
        names: Sequence[str],
        *,
        receipts: Receipts | None = None,
        progress: Progress = unwatched,
    ) -> None:
        """Copy `source/name` to `prefix/name`, both at the place; what is there is replaced. `receipts` as in `push`.

        Where the back end cannot do that by itself, the files come through this machine. Raises ObjectNotFoundError
        when there is nothing of one of the names.
        """
        if self.can.copy:
            keys = {name: (joined(source, name), joined(prefix, name)) for name in names}
            self._copy_all(keys, {} if receipts is None else receipts, progress)
            return
        with tempfile.TemporaryDirectory(prefix="transfer-") as directory:
            self.fetch(source, Path(directory), names, progress=progress)
            self.push(Path(directory), prefix, names, receipts=receipts, progress=progress)

    def _copy_all(self, keys: Mapping[str, tuple[str, str]], receipts: Receipts, progress: Progress) -> None:
        """Do what `copy` says: name -> (its key, the key of the copy)."""
        raise NotImplementedError

    def rename_tree(self, prefix: str, target: str) -> None:
        """Give everything under `prefix` the prefix `target` instead, in one step; doing it again is no error.

        Raises ObjectExistsError where there is something under `target`, ObjectNotFoundError where there is nothing
        under either.
        """
        self._rename_tree(checked_key(prefix), checked_key(target))

    def _rename_tree(self, prefix: str, target: str) -> None:
        raise TransferError(f"{self.uri}: nothing can be renamed there")

    def put(self, key: str, data: bytes, *, exclusive: bool = False) -> None:
        """Write a small file. Raises ObjectExistsError, with `exclusive`, where there is one."""
        prefix, _, name = checked_key(key).rpartition("/")
        with tempfile.TemporaryDirectory(prefix="transfer-") as directory:
            (Path(directory) / name).write_bytes(data)
            self.push(Path(directory), prefix, [name], exclusive=exclusive)

    def read(self, key: str) -> bytes:
        """The content of a small file. Raises ObjectNotFoundError."""
        prefix, _, name = checked_key(key).rpartition("/")
        with tempfile.TemporaryDirectory(prefix="transfer-") as directory:
            self.fetch(prefix, Path(directory), [name])
            return (Path(directory) / name).read_bytes()

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every file under `prefix`, at any depth; nothing when there is none."""
        raise TransferError(f"{self.uri}: what is there cannot be listed")

    def children(self, prefix: str = "") -> Sequence[str]:
        """The names directly under `prefix`, sorted; those of directories end in `/`."""
        skip = len(prefix) + 1 if prefix else 0
        found = set()
        for entry in self.list(prefix):
            name, slash, _ = entry.key[skip:].partition("/")
            found.add(name + slash)
        return sorted(found)

    def exists(self, key: str) -> bool:
        """Whether there is a file of that key."""
        try:
            self.read(key)
        except ObjectNotFoundError:
            return False
        return True

    def delete(self, keys: Sequence[str]) -> None:
        """Remove files, in the order given as far as others can see. What is not there is no error."""
        raise TransferError(f"{self.uri}: nothing can be deleted there")

    def delete_tree(self, prefix: str) -> None:
        """Remove everything under `prefix`, which may not be empty. Nothing there is no error."""
        if not prefix:
            raise ValueError("an empty prefix is the whole place")
        self._delete_tree(checked_key(prefix))

    def _delete_tree(self, prefix: str) -> None:
        self.delete([entry.key for entry in self.list(prefix)])

    def renew(self) -> None:
        """Build connections and credentials anew: the old ones were refused, or have expired."""

    def close(self) -> None:
        """Let go of connections. Nothing else may be called after it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def check_name() -> str:
    """The file that `check` writes and removes: always the same for a user of a host, whose next look removes it too
    where this one was killed.
    """
    return f".check-{hashlib.sha256(f'{socket.gethostname()} {os.getuid()}'.encode()).hexdigest()[:16]}"


def checked_key(key: str) -> str:
    """The key, if it stays below the place; whoever may write there may have chosen it."""
    if not stays_inside(key):
        raise TransferError(f"{key!r} is refused: names are relative, without empty parts, '.' and '..'")
    return key


def joined(prefix: str, name: str) -> str:
    """The key of a name under a prefix; refuses what leads out."""
    checked_key(name)
    return f"{checked_key(prefix)}/{name}" if prefix else name
