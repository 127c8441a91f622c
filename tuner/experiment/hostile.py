"""What is read may come from anywhere: a place that somebody gave away, a disk that was damaged, another program.

What cannot be understood is one problem with a name, here as a line: the rest is read all the same by those who only
look, and refused by those who go on from it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from trainables.errors import TrainablesError
from tuner.error import TuneError

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
