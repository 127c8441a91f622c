"""Staging: the files of a save are cloned or moved into a hidden directory beside the published checkpoints.

*Handed over* files are moved, no byte copied; *lent* ones are cloned and stay where they are. Whatever the
caller does after the call, what is staged does not change. Never a hard link: writing into one name of it would
change the other.
"""

from __future__ import annotations

import errno
import os
import secrets
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
        fs.make_dirs(trial_dir)
        while True:
            path = trial_dir / f"{PREFIX}{label}-{secrets.token_hex(4)}"
            try:
                fs.mkdir(path)
            except FileExistsError:
                continue  # never reuse one: what a failed save left in it would be published
            return path


def lend(source: Path, trial_dir: Path, label: str) -> Path:
    """Clone `source`, which stays as it is, and return the staged directory.

    Symlinks are copied as what they point to. The manifest of a published checkpoint is not copied.
    Raises CheckpointNotFoundError when there is no `source`, CheckpointError for what cannot be copied (sockets,
    dangling symlinks), PublishError when the disk does not take it. Nothing is left behind then.
    """
    _refuse_own_directory(source, trial_dir)
    with disk_errors(source):
        found = file_tree.scan(source, follow=True)
        _without_manifest(found, source)
    staged = new_directory(trial_dir, label)
    with disk_errors(staged, remove=staged):
        copy_tree(found, staged)
    return staged


def hand_over(source: Path, trial_dir: Path, label: str) -> Path:
    """Move the contents of `source` into a staged directory and return it; `source` stays, empty.

    Across filesystems the contents are copied, then removed. Raises as `lend` does, and CheckpointError for a
    published checkpoint, which is never emptied; `source` keeps its files then.
    """
    _refuse_own_directory(source, trial_dir)
    if manifest.is_published(source):
        raise CheckpointError(f"{source} is a published checkpoint and is never emptied: report it without move=True")
    _without_manifest(settle(source), source)
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
    if source.is_symlink() or Path.cwd().is_relative_to(source.absolute()):
        return None
    staged = trial_dir / f"{PREFIX}{label}-{secrets.token_hex(4)}"
    mode = source.stat().st_mode & 0o7777
    try:
        fs.rename(source, staged)
    except OSError:
        return None  # a mount point, another filesystem, a trial directory that is not there yet
    try:
        fs.chmod(staged, _published_mode())
        fs.mkdir(source)
        fs.chmod(source, mode)
    except OSError:
        fs.remove_quietly(source)
        fs.rename(staged, source)
        return None
    return staged


def _published_mode() -> int:
    """The mode that `mkdir` gives in this process, read without changing the umask that all threads share."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("Umask:"):
                return 0o777 & ~int(line.split()[1], 8)
    return 0o755


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


def _refuse_own_directory(source: Path, trial_dir: Path) -> None:
    inner, outer = os.path.realpath(trial_dir), os.path.realpath(source)
    if os.path.commonpath((inner, outer)) == outer:
        raise CheckpointError(
            f"{source} contains the directory of the trial, with all its checkpoints: "
            "put what is to be saved into a directory of its own"
        )


def _replace_link(link: Path) -> None:
    beside = link.with_name(f"{PREFIX}{secrets.token_hex(4)}")
    if link.is_dir():
        fs.mkdir(beside)
        copy_tree(file_tree.scan(link, follow=True), beside)
        fs.unlink(link)  # a directory cannot be renamed over a symlink
    else:
        fs.copy_file(link, beside)
    fs.rename(beside, link)
