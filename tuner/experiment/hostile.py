"""What is read may come from anywhere: a place that somebody gave away, a disk that was damaged, another program.

What cannot be understood is one problem with a name, here as a line: the rest is read all the same by those who only
look, and refused by those who go on from it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from trainables.errors import TrainablesError
from trainables.wire import CheckpointRef
from tuner.error import ExperimentDamagedError, TuneError

UNREADABLE = (
    TuneError,
    TrainablesError,
    ValueError,  # what JSON and msgspec raise, too
    LookupError,  # a trial that nothing has made
    TypeError,
    AttributeError,
    ArithmeticError,  # a number that no clock and no size has
    RecursionError,  # lists in lists in lists
    AssertionError,
    OSError,  # a directory in place of a file; a name that no disk takes
)
"""What comes of reading something that is not what it says it is."""


def said(error: BaseException) -> str:
    """What is wrong, in words."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError) and not isinstance(error, TuneError):
        return f"it names {error.args[0]!r}, which is not there"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


@contextlib.contextmanager
def noted(what: object, problems: list[str]) -> Iterator[None]:
    """Whatever of `what` cannot be understood is a line of `problems`, and not the end."""
    try:
        yield
    except UNREADABLE as error:
        problems.append(f"{what} cannot be read: {said(error)}")


def check_ref(ref: CheckpointRef | None) -> None:
    """As `check_name`, of a checkpoint's."""
    if ref is not None:
        check_name(ref.name)


def check_name(name: str) -> None:
    """A journal may come from a bucket, and a name in it from anybody: it stays in the directory it is joined to."""
    if "/" in name or name in ("", ".", "..") or "\0" in name or _no_disk_takes(name):
        raise ExperimentDamagedError(f"the journal names {name!r}, which is no name of a directory in an experiment")


def _no_disk_takes(name: str) -> bool:
    try:
        return len(name.encode()) > 255
    except UnicodeEncodeError:  # half a character
        return True
