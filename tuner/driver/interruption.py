"""After Ctrl-C: what the user is told, and how a script ends that does not catch it."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from functools import partial
from types import TracebackType
from typing import Any

from tuner.analysis import ExperimentAnalysis
from tuner.analysis.grid import ResultGrid
from tuner.driver.endings import HaltCause
from tuner.error import Interrupted
from tuner.experiment.trial import Trial
from tuner.progress import formatting


def stopping(cause: HaltCause, running: int, grace_s: float, *, inline: bool = False) -> str:
    """What is said at once when a run is told to end.

    Args:
        cause: why.
        running: how many trials.
        grace_s: seconds that they have.
        inline: whether they run in this process, where nothing ends them between two reports.
    """
    if inline and running:
        if cause is HaltCause.INTERRUPTED:
            return "stopping at the trial's next report; Ctrl-C again stops now"
        return f"ending early ({cause.value}) at the trial's next report"
    saving = f"{formatting.counted(running, 'trial')} {'saves what it' if running == 1 else 'save what they'} can"
    if cause is HaltCause.INTERRUPTED:
        return f"stopping: {saving} (at most {grace_s:g} s, TUNE_STOP_GRACE_S); Ctrl-C again stops now"
    seconds = f"at most {grace_s:g} s, {'TUNE_STOP_GRACE_S' if cause.exit_status is None else 'TUNE_GRACE_S'}"
    return f"ending early ({cause.value}): {saving} ({seconds})"


def interrupted(analysis: ExperimentAnalysis, *, how: str, total: int = 0, back: bool = False) -> Interrupted:
    """The error for the user, which leaves no frames behind where nobody catches it.

    Args:
        how: the call that continues the experiment.
        total: how many trials there were to be; 0: nobody knows.
        back: nothing had begun, and the experiment that it was to replace is back.
    """
    counts = [trial.status for trial in analysis.trials]
    ended = sum(status in (Trial.TERMINATED, Trial.ERROR) for status in counts)
    lines = [f"stopped by Ctrl-C: {ended} of {formatting.counted(max(total, len(counts)), 'trial')} had ended"]
    if not back:
        lines.append(f"to continue: {how}")
    lines.append("results so far: `except tune.Interrupted as stopped: stopped.analysis`")
    _end_quietly()
    return Interrupted("\n".join(lines), analysis, ResultGrid(analysis))


def _end_quietly() -> None:
    """Have a script that does not catch it end with its message, and in the way of one that Ctrl-C has ended."""
    if not isinstance(sys.excepthook, partial) or sys.excepthook.func is not _hook:
        sys.excepthook = partial(_hook, sys.excepthook)


def _hook(before: Any, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, Interrupted):
        before(kind, error, trace)
        return
    if sys.stderr is not None:
        sys.stderr.write(f"{error}\n")
    if not (sys.flags.interactive or hasattr(sys, "ps1")):  # at a prompt the user goes on
        _die_of_sigint()


def _die_of_sigint() -> None:
    """End as Python does of a KeyboardInterrupt: in order, and then by the signal, so that a shell's loop ends too.

    It does so for that very class only, and not for one that is derived from it.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
