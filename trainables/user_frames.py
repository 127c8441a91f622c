"""Whose frames a traceback shows: an error that is the user's is raised from the user's call, without our frames.

What is raised on purpose says in its message what is wrong and what to do: frames of these packages, and of libraries
below them, say nothing more. So with what user's code raised that was called by ours. Our own faults keep all.
"""

from __future__ import annotations

import functools
import os
import re
import sysconfig
from collections.abc import Callable, Iterator
from enum import Enum
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ELSEWHERE = "_traceback_elsewhere"
"""Attribute of an exception that was raised in another process: its traceback there, as text."""
POINTER = "what helps: tuner explain "
"""How the note begins that points to what is told of an error: its cause and what helps."""
ALL_FRAMES = 3
"""The `verbose` that leaves all frames."""

_PACKAGES = ("trainables", "tuner")
_PATHS = sysconfig.get_paths()
_LIBRARIES = tuple(os.path.realpath(_PATHS[name]) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OWN = tuple(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), name, "") for name in _PACKAGES)
_INSTALLED = re.compile(r"^<frozen |/(site-packages|dist-packages)/|/lib(64)?/python3[.0-9]*/")


class OnPurposeError(Exception):
    """Base of everything that these packages raise on purpose. A note beside the message says where more is told.

    The root of a package's errors, which is there to be caught, has none; a class that is not of the root's own module
    has its parent's.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        kinds = type(self).__mro__
        root = next((kind for kind in kinds if OnPurposeError in kind.__bases__), None)
        told_of = next((kind for kind in kinds if root and kind.__module__ == root.__module__), None)
        if told_of is not root and told_of is not None:
            self.add_note(f"{POINTER}{told_of.__name__}")


def pointers_of(error: BaseException) -> list[str]:
    """The notes of an error that say where more is told of it: one, or none."""
    return [note for note in getattr(error, "__notes__", ()) if note.startswith(POINTER)]


def last_said(text: str) -> str:
    """The last line of an error's text that is not such a note; empty when there is none."""
    return next((line for line in reversed(text.splitlines()) if line.strip() and not line.startswith(POINTER)), "")


class Whose(Enum):
    """Who wrote the code of a frame."""

    OURS = "ours"
    LIBRARY = "library"
    """Python's, or an installed package's."""
    USER = "user"


def from_the_call(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator of what users call: their errors are raised from that call.

    With `verbose=3`, which is looked for in the arguments and in what they hold, all frames stay.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True  # pytest and IPython look at it
        try:
            return function(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            if not _wants_all(args, kwargs):
                cut(error)
            raise  # bare: this frame is not added to what was cut

    return call


def cut(error: BaseException) -> None:
    """Take out of an error's traceback, and of those behind it, what is not the user's, if the error is."""
    for each, on_purpose in _chain(error):
        frames = list(_walk(each.__traceback__))
        kinds = [whose(trace.tb_frame) for trace in frames]
        decisive = next((kind for kind in reversed(kinds) if kind is not Whose.LIBRARY), None)
        if on_purpose:
            kept = [trace for trace, kind in zip(frames, kinds, strict=True) if kind is Whose.USER]
        elif decisive is Whose.USER and Whose.OURS in kinds:
            first = kinds.index(Whose.USER)
            kept = [trace for trace, kind in zip(frames[first:], kinds[first:], strict=True) if kind is not Whose.OURS]
        else:
            continue  # a fault of ours, or of nobody here
        each.__traceback__ = _joined(kept)


def whose(frame: FrameType) -> Whose:
    """Who wrote that code. What a class decorator generates has the names of the class's module."""
    name = str(frame.f_globals.get("__name__", ""))
    if name.partition(".")[0] in _PACKAGES:
        return Whose.OURS
    file = frame.f_code.co_filename
    return Whose.LIBRARY if is_library(file) else Whose.USER


def is_library(file: str) -> bool:
    """Whether a file is Python's own, or of an installed package, here or, by its path, on another machine."""
    return _INSTALLED.search(file) is not None or os.path.realpath(file).startswith(_LIBRARIES)


def is_ours(file: str) -> bool:
    """Whether a file is of these packages."""
    return file.startswith(_OWN)


def _chain(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    """The error and those that it came from, and of each whether it, or what was made of it, was meant."""
    todo, seen = [(error, False)], set[int]()
    while todo:
        each, meant = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        meant = meant or isinstance(each, (OnPurposeError, KeyboardInterrupt)) or ELSEWHERE in each.__dict__
        yield each, meant
        if each.__cause__ is not None:
            todo.append((each.__cause__, meant))
        elif each.__context__ is not None and not each.__suppress_context__:
            todo.append((each.__context__, meant))


def _walk(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _joined(traces: list[TracebackType]) -> TracebackType | None:
    joined = None
    for trace in reversed(traces):
        joined = TracebackType(joined, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    return joined


def _wants_all(args: tuple[Any, ...], given: dict[str, Any]) -> bool:
    """Whether a call, its settings, or those of the object that it is a method of, say so."""
    held = getattr(args[0], "__dict__", {}) if args else {}
    settings = (given.get("run_config"), held.get("run_config"), held.get("_spec"))
    levels = [given.get("verbose"), *(getattr(each, "verbose", None) for each in settings if each is not None)]
    return any(type(level) is int and level >= ALL_FRAMES for level in levels)
