"""Staging: the files of a save are cloned or moved into a hidden directory beside the published checkpoints.

*Handed over* files are moved, no byte copied; *lent* ones are cloned and stay where they are. Whatever the
caller does after the call, what is staged does not change. Never a hard link: writing into one name of it would
change the other.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainables.errors import CheckpointError, PublishError
from trainables.store import file_tree, fs, manifest

PREFIX = ".staging-"
VIEW_PREFIX = ".staging-view-"
"""Of what is laid out to be copied elsewhere by a command."""
_LARGE = 1024 * 1024
"""From this size on a thread pays for itself."""
_THREADS = 4


def new_directory(trial_dir: Path, label: str) -> Path:
    """A fresh, empty, hidden directory in `trial_dir`, for one save. `label` only helps people who look.

    Raises PublishError when it cannot be made.
    """
    with disk_errors(trial_dir):
        while True:
            path = trial_dir / f"{PREFIX}{label}-{secrets.token_hex(4)}"
            try:
                fs.mkdir(path)
            except FileExistsError:
                continue  # never reuse one: what a failed save left in it would be published
            except FileNotFoundError:
                fs.make_dirs(trial_dir)
                continue
            return path


def lend(source: Path, trial_dir: Path, label: str, found: file_tree.Tree | None = None) -> Path:
    """Clone `source`, which stays as it is, and return the staged directory.

    `found` is what a scan that followed symlinks has just found there; None: it is looked for. Symlinks are copied as
    what they point to. The manifest of a published checkpoint is not copied.
    Raises CheckpointNotFoundError when there is no `source`, CheckpointError for what cannot be copied (sockets,
    dangling symlinks), PublishError when the disk does not take it. Nothing is left behind then.
    """
    if not _outside_of(source, trial_dir):
        found = None
    with disk_errors(source):
        found = found or file_tree.scan(source, follow=True)
        _without_manifest(found, source)
    staged = new_directory(trial_dir, label)
    with disk_errors(staged, remove=staged):
        copy_tree(found, staged)
    return staged


def hand_over(source: Path, trial_dir: Path, label: str, found: file_tree.Tree | None = None) -> Path:
    """Move the contents of `source` into a staged directory and return it; `source` stays, empty.

    `found` as for `lend`. Across filesystems the contents are copied, then removed. Raises as `lend` does, and
    CheckpointError for a published checkpoint, which is never emptied; `source` keeps its files then.
    """
    if not _outside_of(source, trial_dir):
        found = None
    if manifest.is_published(source):
        raise CheckpointError(f"{source} is a published checkpoint and is never emptied: report it without move=True")
    _without_manifest(settle(source) if found is None or found.links else found, source)
    if (moved := _move_whole(source, trial_dir, label)) is not None:
        return moved
    staged = new_directory(trial_dir, label)
    if _move_contents(source, staged):
        return staged
    staged = lend(source, trial_dir, label)
    for name in fs.listdir(source):
        fs.remove_quietly(source / name)  # what stays costs room; the save has it all
    return staged


def settle(directory: Path) -> file_tree.Tree:
    """Make a directory that we own fit to be published: symlinks become what they point to.

    Returns what lies in it. Raises as `lend` does.
    """
    with disk_errors(directory):
        found = file_tree.scan(directory, follow=False)
        if not found.links:
            return found
        file_tree.scan(directory, follow=True)  # refuses what cannot be followed before anything is changed
        for name in found.links:
            _replace_link(directory / name)
        return file_tree.scan(directory, follow=False)


@contextmanager
def disk_errors(path: Path, *, remove: Path | None = None) -> Iterator[None]:
    """Turn what the disk says about `path` into a PublishError; after any error nothing of `remove` is left."""
    try:
        yield
    except BaseException as error:
        text = _told(error, path) if isinstance(error, OSError) else ""  # counts free bytes, so before removing
        if remove is not None:
            fs.remove_quietly(remove)
        if isinstance(error, OSError) and not isinstance(error, CheckpointError):
            raise PublishError(error.errno, text) from error
        raise


def copy_tree(found: file_tree.Tree, target: Path) -> None:
    """Copy what was scanned into `target`, which has none of it; several large files at once."""
    for name in found.directories:
        fs.mkdir(target / name)
    large = sorted((file for file in found.files if file.size >= _LARGE), key=lambda file: -file.size)
    threads = min(_THREADS, len(large), len(os.sched_getaffinity(0)))
    if threads < 2:
        for file in found.files:
            fs.copy_file(file.source, target / file.name)
        return
    from trainables.threads import Threads  # rarely needed, and slow to import

    with Threads(threads, thread_name_prefix="lend") as pool:
        copies = [pool.submit(fs.copy_file, file.source, target / file.name) for file in large]
        for file in found.files:
            if file.size < _LARGE:
                fs.copy_file(file.source, target / file.name)
        for copy in copies:
            copy.result()


def _told(error: OSError, path: Path) -> str:
    text = f"could not save a checkpoint at {path}: {error.strerror or error}"
    if error.filename is not None and os.fspath(path) not in str(error.filename):
        text += f" ({error.filename})"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        text += f"; {fs.free_bytes(path)} bytes are free there"
    return text


def _move_whole(source: Path, trial_dir: Path, label: str) -> Path | None:
    """Rename the directory itself and make an empty one in its place; None where that cannot be, nothing is changed."""
    mode, here = source.lstat().st_mode, os.getcwd()
    if stat.S_ISLNK(mode):
        return None
    if here != str(trial_dir) and f"{here}/".startswith(f"{os.path.realpath(source)}/"):  # the former is not in it
        return None
    staged = trial_dir / f"{PREFIX}{label}-{secrets.token_hex(4)}"
    try:
        fs.rename(source, staged)
    except OSError:
        return None  # a mount point, another filesystem, a trial directory that is not there yet
    try:
        fs.mkdir(source)
        fs.chmod(staged, source.stat().st_mode & 0o777)  # what `mkdir` gives, without a look at the umask
        fs.chmod(source, stat.S_IMODE(mode))
    except OSError:
        fs.remove_quietly(source)
        fs.rename(staged, source)
        return None
    return staged


def _move_contents(source: Path, staged: Path) -> bool:
    """Rename everything; False, with everything where it was, when `staged` is on another filesystem."""
    moved: list[str] = []
    with disk_errors(staged):
        try:
            for name in fs.listdir(source):
                fs.rename(source / name, staged / name)
                moved.append(name)
        except OSError as error:
            for name in moved:  # back first: the files are the user's until the save is staged
                fs.rename(staged / name, source / name)
            fs.remove_quietly(staged)
            if error.errno != errno.EXDEV:
                raise
            return False
    return True


def _without_manifest(found: file_tree.Tree, source: Path) -> None:
    """A manifest belongs to the checkpoint it was written for; the save gets one of its own."""
    for file in found.files:
        if file.name == manifest.MANIFEST_NAME:
            if not manifest.is_published(source):
                raise CheckpointError(f"{source / file.name}: that name is reserved in a checkpoint; rename the file")
            found.files.remove(file)
            return


def _outside_of(source: Path, trial_dir: Path) -> bool:
    """Raises CheckpointError if the trial's directory lies in `source`, or is it. False: `source` is not there."""
    status = _stat(source)
    if status is None:
        return False  # who scans it says why
    if (status.st_dev, status.st_ino) in _around(trial_dir):
        raise CheckpointError(
            f"{source} contains the directory of the trial, with all its checkpoints: "
            "put what is to be saved into a directory of its own"
        )
    return True


_last_around: tuple[Path, frozenset[tuple[int, int]]] | None = None


def _around(trial_dir: Path) -> frozenset[tuple[int, int]]:
    """(device, inode) of a trial's directory and all above it: looked up once, since a trial saves often."""
    global _last_around
    if _last_around is not None and _last_around[0] == trial_dir:
        return _last_around[1]
    real = Path(os.path.realpath(trial_dir))
    found = {(status.st_dev, status.st_ino) for path in (real, *real.parents) if (status := _stat(path)) is not None}
    if _stat(real) is not None:  # else it is made later, and looked up then
        _last_around = trial_dir, frozenset(found)
    return frozenset(found)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _replace_link(link: Path) -> None:
    beside = link.with_name(f"{PREFIX}{secrets.token_hex(4)}")
    if link.is_dir():
        fs.mkdir(beside)
        copy_tree(file_tree.scan(link, follow=True), beside)
        fs.unlink(link)  # a directory cannot be renamed over a symlink
    else:
        fs.copy_file(link, beside)
    fs.rename(beside, link)
