"""The `filesystem` of results and checkpoints, as Ray has it: an object of pyarrow, made when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from trainables.errors import InvalidSettingError, MissingExtraError
from trainables.places import is_elsewhere

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def filesystem_of(place: str | None) -> FileSystem:
    """The filesystem that a path or URI lies on; the local one for what is in memory.

    Raises MissingExtraError without pyarrow, InvalidSettingError for a kind of place that pyarrow does not know.
    """
    try:
        arrow = importlib.import_module("pyarrow.fs")
    except ImportError as error:
        text = "a filesystem is an object of pyarrow, which is not installed: pip install pyarrow; or do without: "
        raise MissingExtraError(
            f"{text}path and uri say where it lies, and checkpoint.as_directory() gives its files"
        ) from error
    if place is None or not is_elsewhere(place):
        local: FileSystem = arrow.LocalFileSystem()
        return local
    try:
        found: FileSystem = arrow.FileSystem.from_uri(place)[0]
    except ValueError as error:
        text = f"pyarrow has no filesystem for {place!r} ({error})"
        raise InvalidSettingError(f"{text}: checkpoint.as_directory() gives the files of a checkpoint there") from error
    return found
