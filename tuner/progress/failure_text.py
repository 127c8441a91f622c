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
from tuner.progress.formatting import counted

LINE = 500
"""Characters of a line that are shown; `error.txt` has all."""
_MESSAGE_LINES = 6
_CALLERS = 2
_HEADING = "Traceback (most recent call last):"
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
    return "\n".join(line if len(line) <= LINE else line[: LINE - 3] + "..." for line in _brief(error, said))


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


def headline(error: ErrorInfo) -> str:
    """The first line of what it says, with its type."""
    said = error.message.strip().splitlines()
    return f"{error.type}: {said[0]}" if said else error.type


def _brief(error: ErrorInfo, with_message: bool) -> Iterator[str]:
    frames, said = _parsed(error)
    said = said if with_message else []
    users = [place for place, frame in enumerate(frames) if frame.users]
    if users:
        yield from frames[users[-1]].lines
        if users[-1] + 1 < len(frames):
            yield f"  which called {frames[-1].lines[0].strip()}"
    yield from said[:_MESSAGE_LINES]
    if len(said) > _MESSAGE_LINES:
        yield f"... {counted(len(said) - _MESSAGE_LINES, 'line')} more"
    callers = users[-2::-1]
    for number, place in enumerate(callers[:_CALLERS]):
        first, *rest = frames[place].lines
        yield f"{'called from' if not number else 'and that from'} {first.strip()}"
        yield from rest[:1]
    if len(callers) > _CALLERS:
        yield f"... {counted(len(callers) - _CALLERS, 'caller')} more"


def _parsed(error: ErrorInfo) -> tuple[list[_Frame], list[str]]:
    """The frames of the exception that got out, and what it said."""
    lines = with_source(error.traceback.rstrip()).splitlines()
    starts = [number for number, line in enumerate(lines) if line == _HEADING]
    if not starts or (starts[0] and not any(line in _CHAINS for line in lines)):
        return [], lines or f"{error.type}: {error.message}".splitlines()
    frames: list[_Frame] = []
    for number, line in enumerate(lines[starts[-1] + 1 :], starts[-1] + 1):
        found = _FRAME.match(line)
        if found is not None:
            frames.append(_Frame(found["file"], [line]))
        elif line[:1].isspace() and frames:
            frames[-1] = _Frame(frames[-1].file, [*frames[-1].lines, line])
        else:
            return frames, [*lines[number:], *_cause(lines, starts)]
    return frames, [f"{error.type}: {error.message}"]


def _cause(lines: Sequence[str], starts: Sequence[int]) -> list[str]:
    """What the error came from, where there is something: the first of the chain."""
    first = lines[: next((number for number, line in enumerate(lines) if line in _CHAINS), 0)]
    said = [line for line in first if line.strip() and not line[:1].isspace() and line != _HEADING]
    return [f"(it came from {said[0]})"] if said else []
