"""The file system seam: every change that store and journal make to a disk goes through these functions.

Call them as `fs.rename(...)`, never imported by name: a test harness replaces the module's attributes, records
what happens and in which order, and rebuilds the disk as a crash would have left it. The functions under
"primitives" touch the disk themselves; those under "made of primitives" only call primitives (through the
module), so that who records the primitives sees everything.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat as stat_module
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Union

PathLike = Union[str, "os.PathLike[str]"]

_FICLONE = 0x40049409
_CHUNK = 64 * 1024 * 1024
"""Bytes per copy_file_range call: large, but a signal is still handled within a fraction of a second."""
_SMALL = 256 * 1024
_NO_KERNEL_COPY = {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF, errno.EPERM, errno.ETXTBSY}

# ---------------------------------------------------------------- primitives


def mkdir(path: PathLike, mode: int = 0o777) -> None:
    """Make one directory; its parent must be there and it must not."""
    os.mkdir(path, mode)


def chmod(path: PathLike, mode: int) -> None:
    os.chmod(path, mode)


def rename(source: PathLike, target: PathLike) -> None:
    """Rename atomically. A file replaces a file; a directory replaces nothing but an empty directory."""
    os.rename(source, target)


def link(source: PathLike, target: PathLike) -> None:
    """A second name for a file; FileExistsError when that name is taken: how a name is claimed with its content."""
    os.link(source, target)


def symlink(target: PathLike, path: PathLike) -> None:
    """A symlink `path` to `target`, which need not be there; FileExistsError when the name is taken."""
    os.symlink(target, path)


def unlink(path: PathLike) -> None:
    os.unlink(path)


def rmdir(path: PathLike) -> None:
    os.rmdir(path)


def open_append(path: PathLike) -> int:
    """A descriptor that appends to `path`, which is created when absent. Close it with `fs.close`."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)


def create(path: PathLike, *, exclusive: bool = False) -> int:
    """A descriptor that writes `path` from its start: emptied when there, or FileExistsError with `exclusive`."""
    flags = os.O_EXCL if exclusive else os.O_TRUNC
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o666)


def write(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write all bytes of `data`. After an OSError a part of it may be in the file."""
    written = os.write(fd, data)
    view = memoryview(data)
    if written < view.nbytes:
        flat = view.cast("B")  # its items may be larger than a byte
        while written < len(flat):
            written += os.write(fd, flat[written:])


def close(fd: int) -> None:
    os.close(fd)


def fsync(fd: int) -> None:
    os.fsync(fd)


def fdatasync(fd: int) -> None:
    """Like `fsync` without the times: the size is still made durable."""
    os.fdatasync(fd)


def fsync_file(path: PathLike) -> None:
    """Make the content of a file durable that somebody else wrote."""
    _fsync_path(path, 0)


def fsync_dir(path: PathLike) -> None:
    """Make names durable: what was created, renamed or removed in that directory."""
    _fsync_path(path, os.O_DIRECTORY)


def truncate(path: PathLike, size: int) -> None:
    os.truncate(path, size)


def copy_file(source: PathLike, target: PathLike) -> int:
    """Copy the content of a file into a new one; return its size.

    A reflink where the filesystem can, else a copy inside the kernel, else one through memory. Never a hard link.
    """
    source_fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(source_fd)
        target_fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, status.st_mode & 0o777 | 0o200)
        try:
            return _copy_content(source_fd, target_fd, status.st_size)
        finally:
            os.close(target_fd)
    finally:
        os.close(source_fd)


# ---------------------------------------------------------------- made of primitives


def write_file(path: PathLike, data: bytes, *, fsync: bool, exclusive: bool = False) -> None:
    """Write a whole file; with `fsync` its content is durable on return (its name is after `fsync_dir`)."""
    fd = create(path, exclusive=exclusive)
    try:
        write(fd, data)
        if fsync:
            _fsync_now(fd)
    finally:
        close(fd)


def replace_file(path: PathLike, data: bytes) -> None:
    """Replace a file atomically and durably: readers see the old content or the new, also after a power cut."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        write_file(temporary, data, fsync=True)
        rename(temporary, target)
    except OSError:
        remove_quietly(temporary)
        raise
    fsync_dir(target.parent)


def make_dirs(path: PathLike) -> None:
    """Make a directory and the parents that it lacks; one that is there is no error."""
    directory = Path(path)
    try:
        try:
            mkdir(directory)
        except FileNotFoundError:
            if not directory.parent.is_dir():  # it may be there by now: somebody was faster
                make_dirs(directory.parent)
            mkdir(directory)  # again: what takes no directories, as /proc, refuses this one too
    except FileExistsError:
        if not directory.is_dir():
            raise


def rmtree(path: PathLike) -> None:
    """Remove a directory with all that is in it. What vanishes meanwhile is no error; symlinks are not followed."""
    try:
        mode = os.lstat(path).st_mode
        if stat_module.S_ISLNK(mode):  # in a directory that all may write to it may be anybody's, and lead anywhere
            unlink(path)
            return
        if mode & 0o700 != 0o700:
            chmod(path, 0o700)  # what came from a read-only folder could not be removed
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            rmtree(entry.path)
        else:
            with suppress(FileNotFoundError):  # somebody was faster
                unlink(entry.path)
    with suppress(FileNotFoundError):  # the same
        rmdir(path)


def remove_quietly(path: PathLike) -> None:
    """Remove a file or a tree as far as possible: for what is left over, when an error is on its way already."""
    try:
        if is_dir(path) and not os.path.islink(path):
            rmtree(path)
        else:
            unlink(path)
    except OSError:
        pass  # the next start removes leftovers


# ---------------------------------------------------------------- reading


def listdir(path: PathLike) -> list[str]:
    """Names in a directory, sorted."""
    return sorted(os.listdir(path))


def open_file(path: PathLike) -> FileIO:
    """A plain file, or a link to one, to be read. Raises OSError, for everything else too: a device may never end, and
    nobody may ever write into a named pipe."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    kind = stat_module.S_IFMT(os.fstat(fd).st_mode)
    if kind == stat_module.S_IFREG:
        return FileIO(fd, "rb")
    os.close(fd)
    if kind == stat_module.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise OSError(errno.EINVAL, "it is no plain file", os.fspath(path))


def read_file(path: PathLike) -> bytes:
    with open_file(path) as file:
        return file.read()


def exists(path: PathLike) -> bool:
    """True also for a dangling symlink: the name is taken."""
    return os.path.lexists(path)


def is_dir(path: PathLike) -> bool:
    """True for a directory itself, not for a symlink to one."""
    try:
        return stat_module.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def size(path: PathLike) -> int:
    return os.stat(path).st_size


def free_bytes(path: PathLike) -> int | None:
    """Bytes that an ordinary user can still write at `path` or its nearest parent; None when nobody can say."""
    place = Path(path)
    for candidate in (place, *place.parents):
        try:
            status = os.statvfs(candidate)
        except OSError:
            continue  # not there (any more): its parent is on the same disk
        return status.f_bavail * status.f_frsize
    return None


# ---------------------------------------------------------------- inside


def _fsync_now(fd: int) -> None:
    fsync(fd)  # the module's attribute, where an argument has the same name


def _fsync_path(path: PathLike, flags: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _copy_content(source_fd: int, target_fd: int, size: int) -> int:
    if size > _SMALL and _reflink(source_fd, target_fd):
        return os.fstat(target_fd).st_size
    in_kernel = size > _SMALL  # a small file is read and written in less time than the kernel takes to set up
    copied = 0
    while copied < size:  # never beyond what was there at the call, though somebody may be appending
        if in_kernel:
            try:
                count = os.copy_file_range(source_fd, target_fd, min(size - copied, _CHUNK))
            except OSError as error:
                if error.errno not in _NO_KERNEL_COPY:
                    raise
                count = 0
            if count == 0:
                in_kernel = False  # refused, or answered with 0 as some filesystems do: read on from here
                continue
        else:
            data = os.read(source_fd, min(size - copied, 1 << 20))
            count = len(data)
            if count == 0:
                break  # shortened meanwhile
            write(target_fd, data)
        copied += count
    return copied


def _reflink(source_fd: int, target_fd: int) -> bool:
    try:
        fcntl.ioctl(target_fd, _FICLONE, source_fd)
    except OSError:
        return False  # not on this filesystem, or not for this pair: the copy says what is really wrong
    return True
