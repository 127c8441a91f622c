"""A trial's traceback, cut to what its user wrote and called."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator

from trainables.errors import TrainablesError

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def user_traceback(error: BaseException) -> str:
    """The traceback of `error` without the frames of this package around the user's.

    Frames of the package before the user's first are cut, in every exception of the chain. Those after the user's
    last are cut when the package raised on purpose: then the user's own line is what is wrong, and the last one.
    An error that has no frame of the user's is shown whole.
    """
    shown = traceback.TracebackException.from_exception(error)
    for part, original in _chain(shown, error):
        _cut(part.stack, below=isinstance(original, TrainablesError))
    return "".join(shown.format())


def _chain(
    shown: traceback.TracebackException, error: BaseException
) -> Iterator[tuple[traceback.TracebackException, BaseException]]:
    seen: set[int] = set()
    todo: list[tuple[traceback.TracebackException | None, BaseException | None]] = [(shown, error)]
    while todo:
        part, original = todo.pop()
        if part is None or original is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part, original
        todo.append((part.__cause__, original.__cause__))
        todo.append((part.__context__, original.__context__))


def _cut(stack: traceback.StackSummary, *, below: bool) -> None:
    theirs = [place for place, frame in enumerate(stack) if not os.path.abspath(frame.filename).startswith(_OURS)]
    if not theirs:
        return
    if below:
        del stack[theirs[-1] + 1 :]
    del stack[: theirs[0]]
