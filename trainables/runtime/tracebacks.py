"""A trial's failure as text: its traceback, cut to what its user wrote and called, and its message.

Whatever a user's exception does when it is asked for its text, there is one: it fits into the journal, and every file
and terminal takes it.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator

from trainables.errors import TrainablesError
from trainables.masking import masked
from trainables.user_frames import ELSEWHERE

LIMIT = 64 * 1024
"""Characters that are kept of a message, and of a traceback."""

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_traceback(error: BaseException) -> str:
    """The traceback of `error` without the frames of this package around the user's.

    Frames of the package before the user's first are cut, in every exception of the chain. Those after the user's
    last are cut when the package raised on purpose: then the user's own line is what is wrong, and the last one.
    An error that has no frame of the user's is shown whole. One that comes from another process of the trial brings its
    text with it.
    """
    if isinstance(text := error.__dict__.get(ELSEWHERE), str):
        return text
    shown = traceback.TracebackException.from_exception(error)
    for part, original in _chain(shown, error):
        _cut(part.stack, below=isinstance(original, TrainablesError))
    try:
        text = "".join(shown.format())
    except Exception:  # a SyntaxError whose parts are of other types
        text = "".join(["Traceback (most recent call last):\n", *shown.stack.format()])
        text += f"{type(error).__qualname__}: {message_of(error)}\n"
    return writable(text)


def message_of(error: BaseException) -> str:
    """What an exception says; its name when it says nothing, or cannot."""
    try:
        text = str(error)
    except (Exception, SystemExit) as broken:
        text = f"{type(error).__name__} (its __str__ raised {type(broken).__name__})"
    return writable(text or type(error).__name__)


def writable(text: str) -> str:
    """`text` with halves of characters escaped and secrets masked; of what is longer than `LIMIT` head and tail."""
    text = text.encode("utf-8", "backslashreplace").decode()
    beyond = max(len(text) - 4 * LIMIT, 0)
    if beyond:  # to mask it takes seconds per megabyte; what is shown is masked with more than enough around it
        text = text[: 2 * LIMIT] + text[-2 * LIMIT :]
    text = masked(text)
    left_out = len(text) - LIMIT
    if left_out <= 0:
        return text
    half = LIMIT // 2
    return f"{text[:half]}\n... {left_out + beyond} characters left out ...\n{text[-half:]}"


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
        todo += [(part.__cause__, original.__cause__), (part.__context__, original.__context__)]


def _cut(stack: traceback.StackSummary, *, below: bool) -> None:
    theirs = [place for place, frame in enumerate(stack) if not os.path.abspath(frame.filename).startswith(_OURS)]
    if not theirs:
        return
    if below:
        del stack[theirs[-1] + 1 :]
    del stack[: theirs[0]]
