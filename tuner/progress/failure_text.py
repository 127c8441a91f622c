"""A trial's failure on few lines: the line of the user's that is wrong first, what it raised, and who called it."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from trainables.quick_dataclass import dataclass
from trainables.user_frames import is_library, is_ours
from tuner.experiment.events import ErrorInfo
from tuner.experiment.outcome import TRACEBACK, cause_in
from tuner.progress.formatting import counted

LINE = 500
"""Characters of a line that are shown; `error.txt` has all."""
_MESSAGE_LINES = 6
_FRAME_LINES = 3
"""Lines shown of the frame that raised an error which a message quotes."""
_CALLERS = 2
_FRAME = re.compile(r'\s+File "(?P<file>.+)", line (?P<line>\d+)')
_CHAINS = tuple(
    text.strip()
    for text in (traceback._cause_message, traceback._context_message)  # type: ignore[attr-defined]
)


@dataclass(frozen=True, slots=True)
class _Frame:
    file: str
    lines: Sequence[str]

    @property
    def users(self) -> bool:
        return not is_ours(self.file) and not is_library(self.file)


def failure_text(error: ErrorInfo, *, whole: bool = False, said: bool = True) -> str:
    """Why a trial failed, for people.

    Args:
        whole: all frames, the outermost first, as Python prints them; else about 15 lines at most.
        said: with what the error says.
    """
    if whole and error.traceback:
        return with_source(error.traceback.rstrip())
    return "\n".join(map(_cut, _brief(error, said)))


def with_source(text: str) -> str:
    """A traceback with the lines of code that its process had not: of a notebook's cell only the kernel has them."""
    lines = text.splitlines()
    full: list[str] = []
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        full.append(line)
        found = _FRAME.match(line)
        if found is not None and (_FRAME.match(following) or not following[:1].isspace()):
            source = linecache.getline(found["file"], int(found["line"])).strip()
            full += [f"    {source}"] if source else []
    return "\n".join(full)


def _cut(line: str) -> str:
    """Return a line that is not too long: its end if it has a traceback on one line, else its beginning."""
    if len(line) <= LINE:
        return line
    return "..." + line[3 - LINE :] if TRACEBACK in line else line[: LINE - 3] + "..."


def _brief(error: ErrorInfo, with_message: bool) -> Iterator[str]:
    frames, message, notes = _parsed(error)
    users = [place for place, frame in enumerate(frames) if frame.users]
    if users:
        yield from frames[users[-1]].lines
        if users[-1] + 1 < len(frames):
            yield f"  which called {frames[-1].lines[0].strip()}"
    if with_message:
        yield from _shortened(message, notes)
    callers = users[-2::-1]
    for number, place in enumerate(callers[:_CALLERS]):
        first, *rest = frames[place].lines
        yield f"{'called from' if not number else 'and that from'} {first.strip()}"
        yield from rest[:1]
    if len(callers) > _CALLERS:
        yield f"... {counted(len(callers) - _CALLERS, 'caller')} more"


def _shortened(message: Sequence[str], notes: Sequence[str]) -> Iterator[str]:
    """The first lines of a message and its notes, or the cause at the end if the message has a traceback."""
    cause = cause_in(message)
    if cause is None or len(message) <= _MESSAGE_LINES:
        lines = [*message, *notes]
        yield from lines[:_MESSAGE_LINES]
        if len(lines) > _MESSAGE_LINES:
            yield f"... {counted(len(lines) - _MESSAGE_LINES, 'line')} more"
        return
    shown = [*_frame_above(message, cause), message[cause]]
    yield message[0]
    yield f"... {counted(len(message) - 1 - len(shown), 'line')} more"
    yield from shown
    yield from notes[-1:]


def _frame_above(message: Sequence[str], cause: int) -> Sequence[str]:
    """The lines of the last frame of the user's above a cause, else of the last frame."""
    frames = {place: found["file"] for place in range(1, cause) if (found := _FRAME.match(message[place]))}
    users = [place for place, file in frames.items() if _Frame(file, ()).users]
    places = [*frames, cause]
    first = (users or places[:-1] or [max(1, cause - _FRAME_LINES)])[-1]
    following = next((place for place in places if place > first), cause)
    return message[first : min(first + _FRAME_LINES, following)]


def _parsed(error: ErrorInfo) -> tuple[list[_Frame], list[str], list[str]]:
    """The frames of the exception that got out, its type and message, and the notes below them."""
    lines = with_source(error.traceback.rstrip()).splitlines()
    size = max(1, len(with_source(error.message).splitlines()))
    starts = [
        number
        for number, line in enumerate(lines)
        if line == TRACEBACK and (number == 0 or lines[max(0, number - 2)] in _CHAINS)  # else a message has it
    ]
    if not starts and lines and lines[0].endswith(TRACEBACK):  # of an exception group
        return [], [*f"{error.type}: {error.message}".splitlines()[:1], *lines], []
    if not starts:
        lines = lines or f"{error.type}: {error.message}".splitlines()
        return [], lines[:size], lines[size:]
    frames: list[_Frame] = []
    for number, line in enumerate(lines[starts[-1] + 1 :], starts[-1] + 1):
        found = _FRAME.match(line)
        if found is not None:
            frames.append(_Frame(found["file"], [line]))
        elif line[:1].isspace() and frames:
            frames[-1] = _Frame(frames[-1].file, [*frames[-1].lines, line])
        else:
            return frames, lines[number : number + size], [*lines[number + size :], *_cause(lines)]
    return frames, [f"{error.type}: {error.message}"], []


def _cause(lines: Sequence[str]) -> list[str]:
    """What the error came from, where there is something: the first of the chain."""
    first = lines[: next((number for number, line in enumerate(lines) if line in _CHAINS), 0)]
    place = cause_in(first)
    said = [line for line in first if line.strip()][:1] if place is None else [first[place]]
    return [f"(it came from {said[0]})"] if said else []
