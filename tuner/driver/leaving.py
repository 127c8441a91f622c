"""How a run ends for the user: what is said of failed trials, and of what did not reach the replica."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import cloudpickle

from tuner.analysis import ExperimentAnalysis
from tuner.driver.endings import Endings
from tuner.error import TrialError, TrialProcessDiedError, TrialsFailedError, TrialTimeoutError
from tuner.experiment import events as ev
from tuner.progress import formatting as text
from tuner.progress import traceback_tail
from tuner.spec import Spec

SHOWN_MISSING = 20
_KINDS: dict[str, Callable[[str, str], TrialError]] = {
    "TrialTimeoutError": TrialTimeoutError,
    "TrialProcessDiedError": TrialProcessDiedError,
}


def raise_failures(spec: Spec, analysis: ExperimentAnalysis, endings: Endings) -> None:
    """Raise what the settings want raised where trials have failed."""
    if endings.failure is not None and spec.failure_config.fail_fast == "raise":
        raise _exception(endings.exceptions, *endings.failure)
    failed = [trial for trial in analysis.trials if trial.status == trial.ERROR]
    if failed and spec.raise_on_failed_trial:
        names = ", ".join(trial.name for trial in failed[:5])
        more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
        first = failed[0].error
        word = "AUTO" if all(trial.error and trial.error.disk for trial in failed) else "AUTO+ERRORED"
        shown = traceback_tail(first.traceback) or f"{first.type}: {first.message}" if first is not None else ""
        raise TrialsFailedError(
            f"{len(failed)} of {text.counted(len(analysis.trials), 'trial')} failed: {names}{more} "
            f'(see {failed[0].path}/error.txt; resume="{word}" continues them); the first:\n{shown}',
            analysis,
        )


def not_copied(uri: str, missing: list[str], trouble: str) -> str:
    """What did not reach the replica, and what is to be done."""
    shown = "".join(f"\n  {line}" for line in missing[:SHOWN_MISSING])
    more = f"\n  and {len(missing) - SHOWN_MISSING} more" if len(missing) > SHOWN_MISSING else ""
    return (
        f"{text.counted(len(missing), 'thing')} did not arrive at {uri}; everything is here, and "
        f"`tuner sync` or a resume copies the rest:{shown}{more}"
        + (f"\n  the last error: {trouble}" if trouble else "")
    )


def _exception(exceptions: Mapping[str, bytes], trial_id: str, error: ev.ErrorInfo) -> BaseException:
    """The trial's own exception where it could be shipped, else ours with its text."""
    if pickled := exceptions.get(trial_id):
        with contextlib.suppress(Exception):  # a class that is not importable here: its text is shown below
            original: BaseException = cloudpickle.loads(pickled)
            return original
    return _KINDS.get(error.type, TrialError)(f"{error.type}: {error.message}", error.traceback)
