"""Exporting the files of a checkpoint directory into another directory."""

from __future__ import annotations

import os
from pathlib import Path

from trainables.errors import CheckpointError
from trainables.store import file_tree, fs, staging
from trainables.store.fs import PathLike
from trainables.store.manifest import MANIFEST_NAME


def as_local_path(path: PathLike) -> Path:
    """A path as people write it, `file://` and `~` too, made absolute."""
    text = os.fspath(path)
    scheme, separator, rest = text.partition("://")
    if separator and scheme.lower() == "file":
        from urllib.parse import unquote

        text = unquote(rest[rest.find("/") :])
    return Path(os.path.abspath(os.path.expanduser(text)))


def copied(directory: Path, path: PathLike | None) -> Path:
    """Copy a checkpoint's files to a path, or to a new temporary directory; returns where they are.

    Raises CheckpointError, and touches nothing, where that would write into the checkpoint.
    """
    found = _files(directory)
    if path is not None:
        given = as_local_path(path)
        if given.exists() and os.path.samefile(directory, given):
            return given
        _refuse_own_files(directory, found, given)
    target = made(path)
    for file in found.files:
        if fs.exists(target / file.name):
            fs.unlink(target / file.name)
    found.directories = [name for name in found.directories if not fs.is_dir(target / name)]
    staging.copy_tree(found, target)
    return target


def made(path: PathLike | None) -> Path:
    """The directory, or a new temporary one."""
    if path is None:
        import tempfile

        return Path(tempfile.mkdtemp(prefix="checkpoint_"))
    target = as_local_path(path)
    fs.make_dirs(target)
    return target


def _files(directory: Path) -> file_tree.Tree:
    """The user's files in a directory, without the manifest."""
    found = file_tree.scan(directory, follow=True)
    found.files = [file for file in found.files if file.name != MANIFEST_NAME]
    return found


def _refuse_own_files(directory: Path, found: file_tree.Tree, target: Path) -> None:
    """Refuse a target that lies in the directory, or has, where a file would go, one that is to be copied."""
    outer, inner = os.path.realpath(directory), os.path.realpath(target)
    own = {os.path.realpath(file.source) for file in found.files}
    places = (os.path.join(os.path.realpath((target / file.name).parent), Path(file.name).name) for file in found.files)
    if os.path.commonpath((outer, inner)) == outer or not own.isdisjoint(places):
        raise CheckpointError(
            f"{directory} cannot be copied to {target}: that would write into the checkpoint itself; "
            "give another directory"
        )
