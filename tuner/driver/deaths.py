"""What is said of a trial whose process ended without a word: what it was, what is known of why, and where more is."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainables.user_frames import is_library, is_ours
from tuner.error import TrialProcessDiedError
from tuner.executors.base import Death, Exited, OutOfMemory
from tuner.experiment.events import ErrorInfo
from tuner.progress.formatting import size

_TAIL = 64 * 1024
_FATAL = "Fatal Python error: "
_STACK = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>.+)')
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)


def death_of(event: Exited, files: Sequence[Path]) -> ErrorInfo:
    """The error of an attempt whose process is gone, and had not said how it ended.

    Args:
        files: what it printed, and what it printed as errors.
    """
    death = event.death or Death()
    stack = _stack(files[-1]) if files and -event.status in _CRASHES else []
    first = f"the trial's process {_how(event.status)}{_why(event.status, death)}"
    memory = _memory(death) if -event.status == signal.SIGKILL else []
    lines = [first, *memory, *_printed(files)]
    kind = TrialProcessDiedError.__name__
    if not stack:
        return ErrorInfo(kind, "\n".join(lines))
    text = "\n".join(["Traceback (most recent call last):", *stack, f"{kind}: {lines[0]}", *lines[1:]])
    return ErrorInfo(kind, "\n".join(lines), f"{text}\n")


def _how(status: int) -> str:
    """
    >>> _how(-9), _how(-11), _how(7)
    ('was killed (SIGKILL)', 'crashed (SIGSEGV)', 'left with status 7, as os._exit(7) does')
    """
    if status >= 0:
        return f"left with status {status}, as os._exit({status}) does"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal
        name = f"signal {-status}"
    return f"{'crashed' if -status in _CRASHES else 'was killed'} ({name})"


def _why(status: int, death: Death) -> str:
    if -status != signal.SIGKILL:
        return ""
    if death.out_of_memory is OutOfMemory.KILLED:
        return ": out of memory"
    if death.out_of_memory is OutOfMemory.NOT_KILLED:
        return " by a person or a program, not by the kernel for want of memory"
    return ": perhaps out of memory"


def _memory(death: Death) -> list[str]:
    """Its memory, and how it is known who ended it."""
    peak = f"at its peak it had {size(death.peak_bytes)} of memory" if death.peak_bytes else ""
    if peak and death.limit_bytes is not None:
        peak += f", of {size(death.limit_bytes)} that its cgroup may have"
    known = ""
    if death.out_of_memory is OutOfMemory.KILLED:
        known = f"the kernel killed it: {death.evidence}"
    elif death.out_of_memory is OutOfMemory.NOT_KILLED:
        known = f"{death.evidence} counts no such kill"
    return ["; ".join(part for part in (peak, known) if part)] if peak or known else []


def _printed(files: Sequence[Path]) -> list[str]:
    """The file that has more: what it printed as errors, else what it printed at all."""
    for file in dict.fromkeys([*files[::-1]]):
        with suppress(OSError):
            if file.stat().st_size:
                return [f"what it printed last is in {file}"]
    return ["it printed nothing"] if files else []


def _stack(stderr: Path) -> list[str]:
    """The frames of the thread that crashed, as Python prints those of an error, if they are the last it wrote."""
    with suppress(OSError), open(stderr, "rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _TAIL))
        _, found, tail = file.read().decode("utf-8", "replace").rpartition(_FATAL)
        _, current, stack = tail.partition("Current thread ")
        if not found or not current:
            return []
        frames = []
        for line in stack.splitlines()[1:]:
            frame = _STACK.fullmatch(line)
            if frame is None:
                break  # what follows are the loaded extension modules
            if not is_ours(frame["file"]):
                frames.append(frame)
        while frames and (is_library(frames[-1]["file"]) or frames[-1]["file"] == "<string>"):
            frames.pop()  # whoever called the user's code: the fork server is a `python -c`
        return [f'  File "{each["file"]}", line {each["line"]}, in {each["name"]}' for each in reversed(frames)]
    return []
