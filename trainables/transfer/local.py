"""Back end for a local or shared directory: `upload_dir="/mnt/share"` and `file://`.

It asks of a filesystem what NFS gives: fsync, rename, link. A file appears under its name whole or not at all.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import blake3

from trainables import errors
from trainables.store import fs
from trainables.transfer.backend import Can, Entry, Leftover, checked_key
from trainables.transfer.local_files import Sink, Source
from trainables.transfer.objects import ObjectBackend

PREFIX = ".transfer-"
"""Of files that are still being written. No key, and in no listing."""
_PARTIAL = re.compile(re.escape(PREFIX) + "[0-9a-f]{16}")
_BLOCK = 4 * 1024 * 1024
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_BUSY = 100
"""So often a directory may vanish, because its last file was deleted, before a new file is in it."""


class LocalBackend(ObjectBackend):
    """Files under a directory, which is made when it is missing.

    Args:
        root: an absolute path.
        uri: how people write it, for messages.
    """

    can = Can(rename=True)
    threads = 4

    def __init__(self, root: Path, uri: str | None = None) -> None:
        super().__init__((uri or os.fspath(root)).rstrip("/"))
        self.root = Path(os.path.abspath(root))

    def _delete_tree(self, prefix: str) -> None:
        directory = self._path(prefix)
        if not fs.is_dir(directory):
            return
        with self._saying(prefix):
            fs.rmtree(directory)  # with what a push that was cut off left there
            self._forgotten(directory.parent)

    def _rename_tree(self, prefix: str, target: str) -> None:
        source, to = self._path(prefix), self._path(target)
        with self._saying(prefix):
            if fs.is_dir(source):
                self._make_dirs(to.parent)
                try:
                    fs.rename(source, to)  # onto an empty directory too
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    raise errors.ObjectExistsError(f"there is something at {self.url(target)}") from error
            elif not fs.is_dir(to):
                raise errors.ObjectNotFoundError(f"there is nothing at {self.url(prefix)}")
            for directory in {source.parent, to.parent}:
                fs.fsync_dir(directory)

    def leftovers(self, prefix: str) -> Sequence[Leftover]:
        found = []
        with self._saying(prefix):
            for directory, inner, names in os.walk(self._path(checked_key(prefix))):
                below = Path(directory).relative_to(self.root).as_posix()
                found += [Leftover(f"{below}/{name}") for name in names if _PARTIAL.fullmatch(name)]
                found += [] if inner or names or below == prefix else [Leftover(f"{below}/")]
        return found

    def remove_leftovers(self, leftovers: Sequence[Leftover]) -> None:
        for leftover in leftovers:
            with self._saying(leftover.key):
                if leftover.key.endswith("/"):
                    self._forgotten(self._path(checked_key(leftover.key.rstrip("/"))))
                else:
                    self._remove(checked_key(leftover.key))

    def tidy(self, prefix: str) -> None:
        with self._saying(prefix):
            for directory, _, names in os.walk(self._path(checked_key(prefix))):
                for name in names:
                    if name.startswith(PREFIX):
                        fs.remove_quietly(os.path.join(directory, name))

    def _send(self, source: Source, key: str, *, exclusive: bool) -> str:
        def fill(part: Path) -> str:
            source.seek(0)  # it was read to its end where the directory went meanwhile
            sent = _write(part, source)
            if _content_hash(part) != sent:
                raise errors.TransferCorruptError(f"{self.url(key)}: what was read back is not what was written")
            return f"blake3:{sent}"

        return self._place(fill, key, exclusive=exclusive)

    def _copy(self, known: str, key: str, *, exclusive: bool) -> str:
        def fill(part: Path) -> str:
            size = self._size(known)
            if size is None:
                raise errors.ObjectNotFoundError(f"there is no {self.url(known)}")
            if fs.copy_file(self._path(known), part) != size:
                raise errors.TransferCorruptError(f"{self.url(known)} was shortened while it was copied")
            fs.fsync_file(part)
            return ""

        return self._place(fill, key, exclusive=exclusive)

    def _receive(self, key: str, sink: Sink) -> None:
        fd = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise errors.ObjectNotFoundError(f"{self.url(key)} is no file")
            while data := os.read(fd, _BLOCK):
                sink.write(data)
        finally:
            os.close(fd)

    def _size(self, key: str) -> int | None:
        try:
            status = os.lstat(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def _remove(self, key: str) -> None:
        path = self._path(key, last=False)
        try:
            fs.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        self._forgotten(path.parent)

    def _walk(self, prefix: str) -> Iterator[Entry]:
        yield from self._entries(self._path(prefix.rstrip("/")), prefix, links=[])

    def _names(self, prefix: str) -> Sequence[str]:
        links: list[str] = []
        with self._saying(prefix):
            inner = [entry.key for entry in self._entries(self._path(prefix), "", links)]
        if links:
            raise errors.TransferError(
                f"{self.url(prefix)}/{links[0]} is a symlink, which nobody put there: it is not followed"
            )
        return inner or super()._names(prefix)

    def _settle(self, keys: Sequence[str]) -> None:
        directories = {self.root}
        for key in keys:
            directories.update(parent for parent in self._path(key).parents if parent.is_relative_to(self.root))
        for directory in directories:
            with suppress(FileNotFoundError):  # deleted again, by somebody else
                fs.fsync_dir(directory)

    def _failure(self, error: Exception, url: str) -> errors.TransferError | None:
        if not isinstance(error, OSError):
            return None
        text = f"{url}: {error.strerror or error}"
        match error:
            case FileNotFoundError() | NotADirectoryError():
                return errors.ObjectNotFoundError(f"there is no {url}")
            case FileExistsError():
                return errors.ObjectExistsError(f"{url} is there already")
            case PermissionError():
                return errors.AccessRefusedError(f"{text}; may this user write there?")
            case OSError(errno=errno.ENAMETOOLONG | errno.ELOOP | errno.EISDIR):
                return errors.TransferError(text)  # it will be no other the next time
        free = fs.free_bytes(self.root)
        return errors.TransferError(f"{text}; {free} bytes are free there", transient=True)

    def _path(self, key: str, *, last: bool = True) -> Path:
        """Where a key lies. No link below the root is followed: it may lead anywhere (`last`: the last part counts)."""
        path = self.root
        parts = key.split("/") if key else []
        for index, part in enumerate(parts):
            path = path / part
            if (last or index + 1 < len(parts)) and path.is_symlink():
                raise errors.TransferCorruptError(f"{path} is a symlink, which nobody put there: it is not followed")
        return path

    def _place(self, fill: Callable[[Path], str], key: str, *, exclusive: bool) -> str:
        """Write a file beside where it belongs, then give it its name."""
        path = self._path(key)
        for _ in range(_BUSY):
            part = path.with_name(f"{PREFIX}{secrets.token_hex(8)}")
            try:
                self._make_dirs(path.parent)
                receipt = fill(part)
                self._name(part, path, exclusive=exclusive)
                return receipt
            except FileNotFoundError as error:
                if isinstance(error, errors.TransferError):
                    raise
                # the directory went before the file was in it: who deletes the last file removes it
            except BaseException:
                fs.remove_quietly(part)
                raise
        raise errors.TransferError(f"{path.parent} vanishes whenever it is made", transient=True)

    def _make_dirs(self, directory: Path) -> None:
        if directory == self.root and not self.root.parent.is_dir():
            above = next(parent for parent in self.root.parents if parent.exists())
            if not os.access(above, os.W_OK):
                raise errors.StoreMissingError(
                    f"{self.uri} is not there and cannot be made below {above}: is it mounted?"
                )
        try:
            fs.make_dirs(directory)
        except (FileExistsError, NotADirectoryError) as error:
            raise errors.TransferError(f"{directory} cannot be made: there is a file of that name") from error

    def _name(self, part: Path, path: Path, *, exclusive: bool) -> None:
        """The file appears, whole, from this instant on."""
        if path.is_dir():
            raise errors.TransferError(f"{path} is a directory: there can be no file of that name")
        if not exclusive:
            fs.rename(part, path)
            return
        try:
            fs.link(part, path)
        except FileExistsError:
            if os.stat(part).st_nlink < 2:  # else it was ours: NFS lost the answer, and asked again
                raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            fs.close(fs.create(path, exclusive=True))  # the name is claimed, empty, then filled
            fs.rename(part, path)
            return
        fs.unlink(part)

    def _forgotten(self, directory: Path) -> None:
        """Something in there was removed: make that durable, and remove directories that have become empty."""
        try:
            fs.fsync_dir(directory)  # the order of deletions must hold through a power cut
        except FileNotFoundError:
            return  # somebody else removed it
        while directory != self.root:
            try:
                fs.rmdir(directory)
            except OSError:
                return  # not empty, gone already, or not ours to remove
            directory = directory.parent

    def _entries(self, directory: Path, prefix: str, links: list[str]) -> Iterator[Entry]:
        try:
            with os.scandir(directory) as listing:
                found = sorted(listing, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in found:
            name = prefix + entry.name
            if entry.is_symlink():
                links.append(name)
            elif entry.is_dir(follow_symlinks=False):
                yield from self._entries(directory / entry.name, name + "/", links)
            elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(PREFIX):
                try:
                    yield Entry(name, entry.stat(follow_symlinks=False).st_size)
                except FileNotFoundError:
                    continue  # deleted meanwhile


def _write(part: Path, source: Source) -> str:
    """Copy durably, and return the hash of what was written."""
    hasher = blake3.blake3()
    fd = fs.create(part)
    try:
        while data := source.read(_BLOCK):
            hasher.update(data)
            fs.write(fd, data)
        fs.fsync(fd)
        # What is read back then comes from the disk or the server, as far as the kernel lets go of it.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        fs.close(fd)
    return hasher.hexdigest()


def _content_hash(path: Path) -> str:
    """Of what is read back: a shared disk may tell another size or time for a while, and that is no other content."""
    hasher = blake3.blake3()
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_BLOCK):
            hasher.update(data)
    return hasher.hexdigest()
