"""How a trial stands and why it ended, in words: the same in the live view, `tuner show`, frames and the report."""

from __future__ import annotations

from collections.abc import Sequence

from trainables.printable import one_line
from tuner.experiment.events import ErrorInfo
from tuner.experiment.trial import Trial

TRACEBACK = "Traceback (most recent call last):"
"""End of a traceback's first line. torch writes "Original Traceback ..." into the message of a worker's error."""
_FRAME_OF_GROUP = " |+-"
"""Characters that Python draws around the tracebacks of an exception group."""

WORDS = {
    Trial.RUNNING: "running",
    Trial.PENDING: "waiting",
    Trial.PAUSED: "paused",
    Trial.TERMINATED: "done",
    Trial.ERROR: "failed",
}
ENDS = {
    "finished": "finished",
    "interrupted": "stopped by you",
    "preempted": "stopped by SIGTERM",
    "hung_up": "stopped by SIGHUP (terminal or ssh connection closed)",
    "budget": "time budget spent",
    "fail_fast": "stopped by fail_fast",
    "deserted": "left by its last caller",
    "failed": "the driver failed",
    "killed": "the driver was killed",
    "forked": "forked, and not begun yet",
}
"""What a journal says of the end of a run, as it is shown."""


def word(trial: Trial) -> str:
    """Its state as people say it."""
    return WORDS.get(trial.status, trial.status.lower())


def outcome(trial: Trial, note: str = "", *, brief: bool = True) -> str:
    """How a trial stands, and why: "running", "failed (3 of 3 tries): OSError: no", "stopped by ASHA at 3: 4th of 5".

    Args:
        note: what is said of it besides its state.
        brief: without the value of the metric, which stands beside it.
    """
    if trial.status == Trial.ERROR:
        return f"failed{tries(trial)}: {failure(trial)}"
    if trial.held and not trial.is_finished():
        return "pausing" if trial.status == Trial.RUNNING else "paused by you"
    if trial.status == Trial.PAUSED and trial.told_reason is not None and not trial.is_paused_by_order:
        return trial.told_reason.sentence(paused=True, brief=brief)
    if trial.status == Trial.TERMINATED and trial.end_reason is not None:
        return trial.end_reason.sentence(brief=brief)
    if not note and trial.error is not None and trial.error.tries:
        note = f"failed{tries(trial)}: {failure(trial)}"  # it is tried again
    note = note or left_by(trial) or ""
    return f"{word(trial)}: {note}" if note else word(trial)


def ended_because(trial: Trial) -> str | None:
    """Why a trial has ended, on one line: "returned", "stop: loss 0.1 <= 0.2"; None if none knows.

    Of one that has not ended it is what ended the run before it: "stopped by you"; None: nothing yet.
    """
    if not trial.is_finished():
        return left_by(trial)
    if trial.status == Trial.TERMINATED and trial.end_reason is None:
        return None
    return one_line(outcome(trial, brief=False))


def left_by(trial: Trial) -> str | None:
    """What ended the run while this trial had not ended: "stopped by you", "time budget spent"; None: nothing."""
    why: str | None = None if trial.is_finished() else vars(trial).get("left")  # the state says it
    return None if why is None or why == "finished" else one_line(ENDS.get(why, why))


def failure(trial: Trial) -> str:
    """Type and first line of what it failed with."""
    if trial.error is None:
        return "" if trial.end_reason is None else str(trial.end_reason)
    return headline(trial.error)


def headline(error: ErrorInfo) -> str:
    """Return the type of an error and the first line of its message, or the cause if the message has a traceback."""
    message = error.message.strip().splitlines()
    place = cause_in(message)
    if place is None:
        return f"{error.type}: {message[0]}" if message else error.type
    cause = message[place].strip(_FRAME_OF_GROUP)
    return cause if cause.startswith(f"{error.type}:") or cause == error.type else f"{error.type}: {cause}"


def cause_in(lines: Sequence[str]) -> int | None:
    """Return the place of the line that names the error of the last traceback in a text; None: it has no traceback."""
    starts = [place for place, line in enumerate(lines) if line.rstrip().endswith(TRACEBACK)]
    if not starts:
        return None
    margin = _margin(lines[starts[-1]])
    for place in range(starts[-1] + 1, len(lines)):
        if lines[place].strip(_FRAME_OF_GROUP) and _margin(lines[place]) <= margin:
            return place
    return len(lines) - 1  # it is cut


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip(_FRAME_OF_GROUP))


def tries(trial: Trial) -> str:
    """How often it was tried, of how often it may be: " (2 of 3 tries)"; "" where a trial is tried once."""
    error = trial.error
    if error is None or not error.tries:
        return ""
    return f" ({error.tries} of {error.of} tries)" if error.of else f" (tries: {error.tries})"
