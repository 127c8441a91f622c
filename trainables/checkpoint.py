"""What users hold of a checkpoint: a directory, or what will become one."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from trainables import pickling
from trainables.errors import CheckpointError, CheckpointNotFoundError, InvalidSettingError
from trainables.places import is_elsewhere
from trainables.store import fs, manifest, staging, tree, verify
from trainables.store.delete import pins
from trainables.store.fs import PathLike
from trainables.store.manifest import MANIFEST_NAME, Manifest

if TYPE_CHECKING:
    import tarfile  # and, like tempfile and cloudpickle, imported where it is used: a worker starts faster

    from trainables.transfer.cached import Elsewhere

__all__ = ["Checkpoint", "pinned_paths", "pins"]

DICT_FILE = "dict_checkpoint.pkl"
METADATA_FILE = ".metadata.json"
_PACKED = "fs_checkpoint"
"""Ray's key for a directory that became a dict: the bytes of `to_bytes()`."""
_BYTES = "bytes_data"
"""Ray's key for a pickle that is no dict."""


def pinned_paths() -> set[Path]:
    """Checkpoints of which an `as_directory()` is open in this process; these are not deleted."""
    return pins.paths()


class Checkpoint:
    """The saved state of a trial: a directory of files, here or elsewhere, or a dict or bytes until it is reported.

        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as d:
        ...     _ = open(os.path.join(d, "model.txt"), "w").write("weights")
        ...     with Checkpoint.from_directory(d).as_directory() as path:
        ...         sorted(os.listdir(path))
        ['model.txt']
        >>> Checkpoint.from_dict({"epoch": 3}).to_dict()
        {'epoch': 3}

    Args:
        path: directory that holds the files, or its URI ("s3://bucket/..."). It is not looked at before it is used.
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
        self._elsewhere: Elsewhere | None = _elsewhere(os.fspath(path)) if is_elsewhere(path) else None
        self._path: Path | None = _as_local_path(path) if self._elsewhere is None else None
        self._data: dict[str, Any] | None = None
        self._packed: bytes | None = None
        self._metadata: dict[str, Any] = {}
        self._move = False

    # ------------------------------------------------------------ made from

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
            checkpoint._packed = _checked("Checkpoint.from_dict()", data[_PACKED])
        else:
            checkpoint._data = dict(data)
        return checkpoint

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """A checkpoint from what `to_bytes()` returned, or from a pickle. Nothing is unpickled before `to_dict()`.

        Raises CheckpointError for other bytes, and for files of which some were cut off.
        """
        checkpoint = cls._in_memory()
        checkpoint._packed = _checked("Checkpoint.from_bytes()", data)
        return checkpoint

    @classmethod
    def from_uri(cls, uri: str, *, digest: str = "") -> Checkpoint:
        """A checkpoint at "s3://...", "gs://...", "host:/...", `file:///...` or at a plain path.

        Nothing is connected to before it is used; with `digest`, the BLAKE3 of its manifest, not even then if it is in
        the cache.
        """
        checkpoint = cls(uri)
        if digest and checkpoint._elsewhere is not None:
            checkpoint._elsewhere = _elsewhere(uri, digest)
        return checkpoint

    @classmethod
    def _in_memory(cls) -> Checkpoint:
        checkpoint = cls.__new__(cls)
        Checkpoint.__init__(checkpoint, os.curdir)
        checkpoint._path = None
        return checkpoint

    # ------------------------------------------------------------ made into

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
            target = _made(path)
            self._materialize(target)
            return str(target)
        with self.as_directory() as directory:
            found = _files(Path(directory))
            if path is not None:
                given = _as_local_path(path)
                if given.exists() and os.path.samefile(directory, given):
                    return str(given)
                _refuse_own_files(Path(directory), found, given)
            target = _made(path)
            for file in found.files:
                if fs.exists(target / file.name):
                    fs.unlink(target / file.name)
            found.directories = [name for name in found.directories if not fs.is_dir(target / name)]
            staging.copy_tree(found, target)
        return str(target)

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
        import tarfile

        with self.as_directory() as directory:
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
                found = tree.scan(Path(directory), follow=True)
                for name in found.directories:
                    tar.addfile(_tar_entry(name, 0, directory=True))
                for file in found.files:
                    if file.name != MANIFEST_NAME:
                        with open(file.source, "rb") as content:
                            tar.addfile(_tar_entry(file.name, os.fstat(content.fileno()).st_size), content)
            return buffer.getvalue()

    def to_uri(self, uri: str) -> str:
        """Copy the files to a URI, `file:///...` or a plain path; return it.

        Elsewhere it is a published checkpoint then, whole or not at all: its manifest goes there last, and one that is
        there already is never replaced (CheckpointError). Raises TransferError.
        """
        if not is_elsewhere(uri):
            return _as_local_path(self.to_directory(uri)).as_uri()
        from trainables.transfer.between import push_to

        with self.as_directory() as directory:
            return push_to(Path(directory), uri)

    def fetched(self) -> Checkpoint:
        """This checkpoint where its files are on this machine; itself unless it lies elsewhere."""
        return self if self._elsewhere is None else type(self)(self._elsewhere.fetch())

    # ------------------------------------------------------------ metadata

    def get_metadata(self) -> dict[str, Any]:
        """What `set_metadata` stored; {} when nothing was. Of a checkpoint elsewhere only that file is fetched."""
        if self.in_memory:
            return dict(self._metadata)
        try:
            content = self._read_metadata()
            data = {} if content is None else json.loads(content)
        except ValueError as error:
            raise CheckpointError(f"{self.path}/{METADATA_FILE} is no JSON: {error}") from error
        return data if isinstance(data, dict) else {}

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Store a dict of JSON values with the checkpoint, instead of what was stored. Do so before reporting it.

        Raises CheckpointError for a published checkpoint, which never changes, and TypeError for what is no JSON.
        """
        text = json.dumps(dict(metadata))
        if self._elsewhere is not None:
            raise CheckpointError(f"{self.path} is published and never changes: report a copy (to_directory())")
        if self._path is None:
            self._metadata = json.loads(text)
            return
        if fs.exists(self._path / MANIFEST_NAME):
            raise CheckpointError(
                f"{self._path} is published and never changes: set its metadata before it is reported, "
                "or report a copy (to_directory())"
            )
        if not self._path.is_dir():
            raise CheckpointNotFoundError(f"there is no checkpoint directory {self._path}")
        fs.replace_file(self._path / METADATA_FILE, text.encode())

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add to the metadata; raises as `set_metadata` does."""
        self.set_metadata({**self.get_metadata(), **metadata})

    # ------------------------------------------------------------ facts

    @property
    def path(self) -> str:
        """The directory, or the URI where it lies elsewhere; `fetched()` and `as_directory()` bring it here.

        Raises CheckpointError for a dict or bytes, which has none before it is reported.
        """
        if self._elsewhere is not None:
            return self._elsewhere.uri
        if self._path is None:
            raise CheckpointError("this checkpoint is in memory: use as_directory() or to_directory()")
        return str(self._path)

    @property
    def uri(self) -> str | None:
        """Where it lies: "s3://...", `file:///...` of a directory here; None for what is in memory."""
        if self._elsewhere is not None:
            return self._elsewhere.uri
        return None if self._path is None else self._path.as_uri()

    @property
    def filesystem(self) -> None:
        """None: the URI says it."""
        return None

    @property
    def manifest(self) -> Manifest | None:
        """What is known about a published checkpoint; None for others."""
        try:
            if self._elsewhere is not None:
                return self._elsewhere.look().manifest
            if self._path is None:
                return None
            return manifest.read(self._path).manifest
        except CheckpointNotFoundError:
            return None

    @property
    def iteration(self) -> int | None:
        """`training_iteration` of the result that it was reported with; None when it was not published."""
        found = self.manifest
        return None if found is None else found.iteration

    @property
    def metrics(self) -> dict[str, Any] | None:
        """The result that it was reported with; None when it was not published."""
        found = self.manifest
        if found is None:
            return None
        from trainables import tagged

        metrics = tagged.loads(bytes(found.metrics))
        return metrics if isinstance(metrics, dict) else None

    @property
    def in_memory(self) -> bool:
        """Whether it is a dict or bytes, to be written into a staging directory by `_materialize`."""
        return self._path is None and self._elsewhere is None

    @property
    def handed_over(self) -> bool:
        """Whether reporting it moves its files (`move=True`)."""
        return self._move

    # ------------------------------------------------------------ inside

    def _materialize(self, directory: Path) -> None:
        """Write what is in memory into `directory`. Raises CheckpointError naming the key that cannot be pickled."""
        if self._data is not None:
            pickling.write(self._data, directory / DICT_FILE)
        elif self._packed is None:
            raise CheckpointError(f"{self!r} has its own directory")
        elif _is_pickle(self._packed):
            fs.write_file(directory / DICT_FILE, self._packed, fsync=False)
        else:
            with _open_tar(self._packed) as tar:
                _extract(tar, directory)
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
            if _is_pickle(self._packed):
                yield io.BytesIO(self._packed)
                return
            with _open_tar(self._packed) as tar:
                yield tar.extractfile(DICT_FILE) if DICT_FILE in tar.getnames() else None
            return
        with self.as_directory() as directory, ExitStack() as opened:
            try:
                file = opened.enter_context(open(Path(directory) / DICT_FILE, "rb"))
            except FileNotFoundError:
                file = None
            yield file

    def _read_metadata(self) -> bytes | None:
        if self._elsewhere is not None:
            return self._elsewhere.read(METADATA_FILE)
        assert self._path is not None
        try:
            return fs.read_file(self._path / METADATA_FILE)
        except FileNotFoundError:
            return None

    @staticmethod
    def _look(path: Path) -> None:
        if fs.exists(path / MANIFEST_NAME):
            verify.quick(path)
        elif not path.is_dir():
            raise CheckpointNotFoundError(f"there is no checkpoint at {path}")

    def __repr__(self) -> str:
        if not self.in_memory:
            return f"{type(self).__name__}(path={self.path!r})"
        held = f"keys={sorted(map(str, self._data))}" if self._data is not None else f"bytes={len(self._packed or b'')}"
        return f"{type(self).__name__}({held})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checkpoint):
            return NotImplemented
        if self.in_memory or other.in_memory:
            return self is other
        return self.path == other.path

    def __hash__(self) -> int:
        return id(self) if self.in_memory else hash(self.path)


def _elsewhere(uri: str, digest: str = "") -> Elsewhere:
    from trainables.transfer.cached import Elsewhere

    return Elsewhere(uri, digest)


def _as_local_path(path: PathLike) -> Path:
    text = os.fspath(path)
    scheme, separator, rest = text.partition("://")
    if separator and scheme.lower() == "file":
        from urllib.parse import unquote

        text = unquote(rest[rest.find("/") :])
    return Path(os.path.abspath(os.path.expanduser(text)))


def _files(directory: Path) -> tree.Tree:
    """The user's files in a directory, without the manifest."""
    found = tree.scan(directory, follow=True)
    found.files = [file for file in found.files if file.name != MANIFEST_NAME]
    return found


def _made(path: PathLike | None) -> Path:
    """The directory, or a new temporary one."""
    if path is None:
        import tempfile

        return Path(tempfile.mkdtemp(prefix="checkpoint_"))
    target = _as_local_path(path)
    fs.make_dirs(target)
    return target


def _refuse_own_files(directory: Path, found: tree.Tree, target: Path) -> None:
    """Refuse a target that lies in the directory, or has, where a file would go, one that is to be copied."""
    outer, inner = os.path.realpath(directory), os.path.realpath(target)
    own = {os.path.realpath(file.source) for file in found.files}
    places = (os.path.join(os.path.realpath((target / file.name).parent), Path(file.name).name) for file in found.files)
    if os.path.commonpath((outer, inner)) == outer or not own.isdisjoint(places):
        raise CheckpointError(
            f"{directory} cannot be copied to {target}: that would write into the checkpoint itself; "
            "give another directory"
        )


def _is_pickle(data: bytes) -> bool:
    return data[:1] == b"\x80"  # every pickle since protocol 2; no file name in a tar begins so


def _checked(caller: str, given: Any) -> bytes:
    """The bytes, if they are a pickle or all of what `to_bytes()` made of files."""
    import tarfile

    data = bytes(given)
    if _is_pickle(data):
        return data
    try:
        with _open_tar(data) as tar:
            tar.getmembers()
            end = tar.offset
    except tarfile.TarError as error:
        raise CheckpointError(
            f"{caller} got {len(data)} bytes that to_bytes() did not make, or that were cut short ({error})"
        ) from error
    if data[end : end + tarfile.BLOCKSIZE] != bytes(tarfile.BLOCKSIZE):  # what closes an archive
        raise CheckpointError(f"{caller} got {len(data)} bytes that were cut short or damaged after byte {end}")
    return data


def _open_tar(data: bytes) -> tarfile.TarFile:
    import tarfile

    return tarfile.open(fileobj=io.BytesIO(data), mode="r:")


def _tar_entry(name: str, size: int, *, directory: bool = False) -> tarfile.TarInfo:
    import tarfile

    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.type, entry.mode = (tarfile.DIRTYPE, 0o755) if directory else (tarfile.REGTYPE, 0o644)
    return entry


def _extract(tar: tarfile.TarFile, directory: Path) -> None:
    """Unpack files and directories; every name stays inside."""
    for entry in tar:
        if not manifest.stays_inside(entry.name) or not (entry.isdir() or entry.isfile()):
            raise CheckpointError(f"the bytes of a checkpoint hold {entry.name!r}, which is no file inside it")
        target = directory / entry.name
        if entry.isdir():
            fs.make_dirs(target)
            continue
        fs.make_dirs(target.parent)
        content = tar.extractfile(entry)
        assert content is not None
        fd = fs.create(target)
        try:
            while block := content.read(1 << 20):
                fs.write(fd, block)
        finally:
            fs.close(fd)
