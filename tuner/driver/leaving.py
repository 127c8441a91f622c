"""How a run ends for the user: what is said of failed trials, and of what did not reach the replica."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import cloudpickle

from trainables.user_frames import ALL_FRAMES, ELSEWHERE
from tuner.analysis import ExperimentAnalysis
from tuner.driver.endings import Endings, HaltCause
from tuner.error import TrialError, TrialProcessDiedError, TrialsFailedError, TrialTimeoutError
from tuner.experiment import events as ev
from tuner.experiment.continuing import resume_words
from tuner.experiment.outcome import headline
from tuner.experiment.trial import Trial
from tuner.progress import formatting as text
from tuner.progress.failure_text import failure_text
from tuner.spec import Spec

SHOWN_MISSING = 20
_KINDS: dict[str, Callable[[str, str], TrialError]] = {
    "TrialTimeoutError": TrialTimeoutError,
    "TrialProcessDiedError": TrialProcessDiedError,
}


def raises_failures(spec: Spec, endings: Endings) -> bool:
    """Whether failed trials end this run with an error."""
    if endings.halted in (HaltCause.INTERRUPTED, HaltCause.PREEMPTED, HaltCause.HUNG_UP):
        return False
    return spec.raise_on_failed_trial or (endings.failure is not None and spec.failure_config.fail_fast == "raise")


def raise_failures(spec: Spec, analysis: ExperimentAnalysis, endings: Endings, *, starter: str, folded: bool) -> None:
    """Raise what the settings want raised where trials have failed.

    Args:
        starter: what started the run: the message says how to continue in its form.
        folded: the first one's traceback has been shown where it can be opened.
    """
    whole = spec.verbose == ALL_FRAMES
    if endings.failure is not None and spec.failure_config.fail_fast == "raise":
        raise _exception(endings.exceptions, *endings.failure, whole=whole)
    failed = [trial for trial in analysis.trials if trial.status == trial.ERROR]
    if failed and spec.raise_on_failed_trial:
        error = failed[0].error or ev.ErrorInfo("Error", "nothing is known of it")
        shown = headline(error) if folded else failure_text(error, whole=whole)
        raise TrialsFailedError(_failures(failed, analysis, shown, starter), analysis)


def _failures(failed: list[Trial], analysis: ExperimentAnalysis, shown: str, starter: str) -> str:
    """How many trials failed, and what is shown of the first of them."""
    names = ", ".join(trial.name for trial in failed[:5])
    more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
    first, them = ("; the first:", "them") if len(failed) > 1 else ("", "it")
    errored = not all(trial.error and trial.error.disk for trial in failed)
    words = resume_words(analysis.experiment_path, starter, errored=errored)
    return (
        f"{len(failed)} of {text.counted(len(analysis.trials), 'trial')} failed: {names}{more}{first}\n{shown}\n"
        f"all of it: {failed[0].path}/error.txt\n{words} continues {them}"
    )


def still_copied(checkpoints: int, size: int) -> str:
    """The line on checkpoints that the run waits for at its end."""
    return (
        f"waiting for {text.counted(checkpoints, 'checkpoint')} to be copied ({text.size(size)}); Ctrl-C does not wait"
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


def _exception(exceptions: Mapping[str, bytes], trial_id: str, error: ev.ErrorInfo, *, whole: bool) -> BaseException:
    """The trial's own exception where it could be shipped, else ours with its text."""
    if pickled := exceptions.get(trial_id):
        with contextlib.suppress(Exception):  # a class that is not importable here: its text is shown below
            original: BaseException = cloudpickle.loads(pickled)
            original.__dict__[ELSEWHERE] = error.traceback
            original.add_note(f"in trial {trial_id}:\n{failure_text(error, whole=whole, said=whole)}")
            return original
    told = failure_text(error, whole=whole, said=whole)
    return _KINDS.get(error.type, TrialError)(f"{error.type}: {error.message}\n{told}".rstrip(), error.traceback)
