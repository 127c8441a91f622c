"""`Checkpoint`: the user's handle of saved state: a local directory, a URI, or a dict in memory."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from trainables import pickling
from trainables.addresses import address_in
from trainables.arrow_filesystem import filesystem_of
from trainables.checkpoint_bytes import checked, is_pickle, one_file, packed, unpack
from trainables.checkpoint_facts import METADATA_FILE, CheckpointFacts, place_of
from trainables.checkpoint_files import as_local_path, copied, made
from trainables.checkpoint_older import OlderCheckpoint
from trainables.errors import CheckpointError, CheckpointNotFoundError, InvalidSettingError
from trainables.places import is_elsewhere
from trainables.store import fs, verify
from trainables.store.delete import pins
from trainables.store.fs import PathLike
from trainables.store.manifest import MANIFEST_NAME

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

DICT_FILE = "dict_checkpoint.pkl"
_PACKED = "fs_checkpoint"
"""Ray's key for a directory that became a dict: the bytes of `to_bytes()`."""
_BYTES = "bytes_data"
"""Ray's key for a pickle that is no dict."""


class Checkpoint(OlderCheckpoint, CheckpointFacts):
    """The saved state of a trial: a directory of files, here or elsewhere, or a dict or bytes until it is reported.

        >>> import os, tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as d:
        ...     _ = Path(d, "model.txt").write_text("weights")
        ...     with Checkpoint.from_directory(d).as_directory() as path:
        ...         sorted(os.listdir(path))
        ['model.txt']
        >>> Checkpoint.from_dict({"epoch": 3}).to_dict()
        {'epoch': 3}

    Args:
        path: directory that holds the files, or its URI ("s3://bucket/..."), or an address in an experiment:
            "first@best" is what was tagged so, "first@3@40" that of trial 3 and iteration 40; the experiment is a path,
            a name, or a URI. A path that exists is one, also with an @. It is not looked at before it is used.
            What lies elsewhere is fetched then, hashed, and kept in `~/.cache/tuner/checkpoints` (TUNE_CACHE_DIR says
            where else), where it may be removed at any time; credentials and endpoints come from the environment.
        filesystem: must be None; a URI says it.

    Two checkpoints are equal when they are the same directory. Pickled, one keeps its path, not its files.
    """

    def __init__(self, path: PathLike, filesystem: None = None) -> None:
        if filesystem is not None:
            raise InvalidSettingError(
                f"Checkpoint({os.fspath(path)!r}, filesystem={filesystem!r}) is not accepted: a URI says it all"
            )
        self._address = address_in(path)
        if self._address is None:
            self._path, self._elsewhere = place_of(os.fspath(path))
        elif is_elsewhere(path):
            place_of(os.fspath(path))  # raises for a place where there cannot be one
        self._data: dict[str, Any] | None = None
        self._packed: bytes | None = None
        self._metadata: dict[str, Any] = {}
        self._move = False

    @classmethod
    def from_directory(cls, path: PathLike, *, move: bool = False) -> Checkpoint:
        """A checkpoint of the files in `path`.

        Reporting clones them, and `path` stays as it is. With `move=True` they are moved, no byte is copied, and
        `path` is empty afterwards.
        """
        if is_elsewhere(path):
            raise InvalidSettingError(f"{os.fspath(path)!r} is no directory of this machine: use Checkpoint.from_uri()")
        checkpoint = cls(path)
        checkpoint._move = move
        return checkpoint

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Checkpoint:
        """A checkpoint of a dict; its values are pickled when it is reported."""
        if not isinstance(data, Mapping):
            raise TypeError(f"Checkpoint.from_dict() takes a dict, got {type(data).__name__}")
        checkpoint = cls._in_memory()
        if set(data) == {_PACKED}:  # what to_dict() makes of a directory
            checkpoint._packed = checked("Checkpoint.from_dict()", data[_PACKED])
        else:
            checkpoint._data = dict(data)
        return checkpoint

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """A checkpoint from what `to_bytes()` returned, or from a pickle. Nothing is unpickled before `to_dict()`.

        Raises CheckpointError for other bytes, and for files of which some were cut off.
        """
        checkpoint = cls._in_memory()
        checkpoint._packed = checked("Checkpoint.from_bytes()", data)
        return checkpoint

    @classmethod
    def from_uri(cls, uri: str, *, digest: str = "") -> Checkpoint:
        """A checkpoint at "s3://...", "gs://...", "host:/...", `file:///...` or at a plain path.

        Nothing is connected to before it is used; with `digest`, the BLAKE3 of its manifest, not even then if it is in
        the cache.
        """
        checkpoint = cls(uri)
        if digest and is_elsewhere(uri):
            checkpoint._path, checkpoint._elsewhere = place_of(uri, digest)
        return checkpoint

    @classmethod
    def _in_memory(cls) -> Checkpoint:
        checkpoint = cls.__new__(cls)
        Checkpoint.__init__(checkpoint, os.curdir)
        checkpoint._path = None
        return checkpoint

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """The files, as a path to read from.

        The directory itself where there is one: nothing is copied, do not write into it; it is not deleted while it
        is open. What lies elsewhere is fetched into the cache first. What is in memory is written to a temporary
        directory that is removed at the end. Raises CheckpointNotFoundError, CheckpointCorruptError when a published
        file is not what it was, and TransferError.
        """
        if self._elsewhere is not None:
            yield str(self._elsewhere.fetch())
            return
        if self._path is None:
            import tempfile

            with tempfile.TemporaryDirectory(prefix="checkpoint_") as directory:
                self._materialize(Path(directory))
                yield directory
            return
        with pins.hold(self._path):  # held before it is looked at, so that it cannot go in between
            self._look(self._path)
            yield str(self._path)

    def to_directory(self, path: PathLike | None = None) -> str:
        """Copy the files into `path`, made when absent, or into a new temporary directory; return its path.

        Its own directory is left as it is. Raises CheckpointError, and touches nothing, where `path` lies inside the
        checkpoint or the copy would replace a file of it.
        """
        if self.in_memory:
            target = made(path)
            self._materialize(target)
            return str(target)
        with self.as_directory() as directory:
            return str(copied(Path(directory), path))

    def to_dict(self) -> dict[str, Any]:
        """The dict it was made from: this unpickles. Of a directory that was made from none, the packed files.

        The packed files are under one key, `"fs_checkpoint"`; `from_dict` makes the directory of them again.
        """
        if self._data is not None:
            return dict(self._data)
        with self._pickle() as file:
            value = None if file is None else pickling.read(file, repr(self))
            if file is None:
                return {_PACKED: self.to_bytes()}
        return value if isinstance(value, dict) else {_BYTES: value}

    def to_bytes(self) -> bytes:
        """All files, or the dict, as bytes for `from_bytes`."""
        if self._packed is not None:
            return self._packed
        with self.as_directory() as directory:
            return packed(Path(directory))

    def to_uri(self, uri: str) -> str:
        """Copy the files to a URI, `file:///...` or a plain path; return it.

        Elsewhere it is a published checkpoint then, whole or not at all: its manifest goes there last, and one that is
        there already is never replaced (CheckpointError). Raises TransferError.
        """
        if not is_elsewhere(uri):
            return as_local_path(self.to_directory(uri)).as_uri()
        from trainables.transfer.between import push_to

        with self.as_directory() as directory:
            return push_to(Path(directory), uri)

    def fetched(self) -> Checkpoint:
        """This checkpoint where its files are on this machine; itself unless it lies elsewhere."""
        return self if self._elsewhere is None else type(self)(self._elsewhere.fetch())

    @property
    def uri(self) -> str | None:
        """Where it lies: "s3://...", `file:///...` of a directory here; None for what is in memory."""
        if self._elsewhere is not None:
            return self._elsewhere.uri
        return None if self._path is None else self._path.as_uri()

    @property
    def filesystem(self) -> FileSystem:
        """What it lies on, as an object of pyarrow, whose `from_uri(checkpoint.uri)` gives its path on that too.

        Raises MissingExtraError without pyarrow, InvalidSettingError for a place that pyarrow does not know.
        """
        return filesystem_of(self.uri)

    @property
    def handed_over(self) -> bool:
        """Whether reporting it moves its files (`move=True`)."""
        return self._move

    def _materialize(self, directory: Path) -> None:
        """Write what is in memory into `directory`. Raises CheckpointError naming the key that cannot be pickled."""
        if self._data is not None:
            pickling.write(self._data, directory / DICT_FILE)
        elif self._packed is None:
            raise CheckpointError(f"{self!r} has its own directory")
        elif is_pickle(self._packed):
            fs.write_file(directory / DICT_FILE, self._packed, fsync=False)
        else:
            unpack(self._packed, directory)
        if self._metadata:
            fs.write_file(directory / METADATA_FILE, json.dumps(self._metadata).encode(), fsync=False)

    def in_memory_dict(self) -> dict[str, Any] | None:
        """The dict that it is until it is reported; None for everything else. Unpickles nothing."""
        return self._data

    def with_dict(self, data: Mapping[str, Any]) -> Checkpoint:
        """The same checkpoint in memory, its metadata too, of another dict."""
        made = type(self).from_dict(data)
        made._metadata = dict(self._metadata)
        return made

    @contextmanager
    def _pickle(self) -> Iterator[IO[bytes] | None]:
        """The pickled dict, to be read; None where there is none."""
        if self._packed is not None:
            if is_pickle(self._packed):
                yield io.BytesIO(self._packed)
                return
            with one_file(self._packed, DICT_FILE) as file:
                yield file
            return
        with self.as_directory() as directory, ExitStack() as opened:
            try:
                file = opened.enter_context(open(Path(directory) / DICT_FILE, "rb"))
            except FileNotFoundError:
                file = None
            yield file

    @staticmethod
    def _look(path: Path) -> None:
        if fs.exists(path / MANIFEST_NAME):
            verify.quick(path)
        elif not path.is_dir():
            raise CheckpointNotFoundError(f"there is no checkpoint at {path}")

    def __fspath__(self) -> str:
        """Its local directory: `os.path.join(checkpoint, "model.pt")` is how scripts for Ray 1 read one.

        What lies elsewhere is fetched first. Raises CheckpointError for what is in memory.
        """
        if self.in_memory:
            raise CheckpointError(f"{self!r} has no directory before it is reported; to_directory() writes one")
        return self.fetched().path

    def __repr__(self) -> str:
        if self.unread_address:
            return f"{type(self).__name__}(path={self.unread_address!r})"
        if not self.in_memory:
            return f"{type(self).__name__}(path={self.path!r})"
        held = f"keys={sorted(map(str, self._data))}" if self._data is not None else f"bytes={len(self._packed or b'')}"
        return f"{type(self).__name__}({held})"

    def _repr_html_(self) -> str:
        """For a notebook. What lies elsewhere is not connected to."""
        from trainables import html_tables

        found: dict[str, Any] = {}
        if self.unread_address:
            found = {"at": self.unread_address}
        elif self._path is not None:
            found = {"path": self.path, **self._published()}
        elif self._elsewhere is not None:
            found = {"at": self.path}
        else:
            found = {"in memory": ", ".join(sorted(map(str, self._data or {}))) or f"{len(self._packed or b'')} bytes"}
        return html_tables.facts(type(self).__name__, found)

    def _published(self) -> dict[str, Any]:
        from trainables import html_tables

        try:
            known = self.manifest
            if known is None:
                return {}
            size = f"{known.bytes:,} bytes in {len(known.files)} files"
            metrics = html_tables.told(self.metrics)
        except CheckpointError as error:
            return {"unusable": str(error)}
        return {"iteration": known.iteration, "size": size, "metrics": metrics}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checkpoint):
            return NotImplemented
        if self.in_memory or other.in_memory:
            return self is other
        return self.path == other.path

    def __hash__(self) -> int:
        return id(self) if self.in_memory else hash(self.path)


class TrainingResult(str):
    """What `Trainable.save()` returns: the directory, as Ray 1.13 to 2.6 have it, with the attributes of later ones."""

    metrics: dict[str, Any]
    """The last result before the save; {} without one."""

    def __new__(cls, directory: str, metrics: Mapping[str, Any] | None = None) -> TrainingResult:
        made = super().__new__(cls, directory)
        made.metrics = dict(metrics or {})
        return made

    @property
    def checkpoint(self) -> Checkpoint:
        """The directory as a checkpoint."""
        return Checkpoint(str(self))
