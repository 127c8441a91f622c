"""Checkpoints as bytes: a tar archive of their files, or the pickle of a dict."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from trainables.errors import CheckpointError
from trainables.store import file_tree, fs, manifest
from trainables.store.manifest import MANIFEST_NAME

if TYPE_CHECKING:
    import tarfile  # imported where it is used: a worker starts faster


def is_pickle(data: bytes) -> bool:
    """Whether bytes are a pickle and no archive."""
    return data[:1] == b"\x80"  # every pickle since protocol 2; no file name in a tar begins so


def checked(caller: str, given: Any) -> bytes:
    """The bytes, if they are a pickle or all of what `to_bytes()` made of files."""
    import tarfile

    data = bytes(given)
    if is_pickle(data):
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


def packed(directory: Path) -> bytes:
    """An archive of the user's files in a directory."""
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        found = file_tree.scan(directory, follow=True)
        for name in found.directories:
            tar.addfile(_tar_entry(name, 0, directory=True))
        for file in found.files:
            if file.name != MANIFEST_NAME:
                with open(file.source, "rb") as content:
                    tar.addfile(_tar_entry(file.name, os.fstat(content.fileno()).st_size), content)
    return buffer.getvalue()


@contextmanager
def one_file(data: bytes, name: str) -> Iterator[IO[bytes] | None]:
    """A file in an archive, to be read; None when there is none of that name."""
    with _open_tar(data) as tar:
        yield tar.extractfile(name) if name in tar.getnames() else None


def unpack(data: bytes, directory: Path) -> None:
    """Unpack an archive into a directory; every name stays inside."""
    with _open_tar(data) as tar:
        for entry in tar:
            _extract(tar, entry, directory)


def _extract(tar: tarfile.TarFile, entry: tarfile.TarInfo, directory: Path) -> None:
    if not manifest.stays_inside(entry.name) or not (entry.isdir() or entry.isfile()):
        raise CheckpointError(f"the bytes of a checkpoint hold {entry.name!r}, which is no file inside it")
    target = directory / entry.name
    if entry.isdir():
        fs.make_dirs(target)
        return
    fs.make_dirs(target.parent)
    content = tar.extractfile(entry)
    assert content is not None
    fd = fs.create(target)
    try:
        while block := content.read(1 << 20):
            fs.write(fd, block)
    finally:
        fs.close(fd)


def _open_tar(data: bytes) -> tarfile.TarFile:
    import tarfile

    return tarfile.open(fileobj=io.BytesIO(data), mode="r:")


def _tar_entry(name: str, size: int, *, directory: bool = False) -> tarfile.TarInfo:
    import tarfile

    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.type, entry.mode = (tarfile.DIRTYPE, 0o755) if directory else (tarfile.REGTYPE, 0o644)
    return entry
