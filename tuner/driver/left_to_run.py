"""What of a resumed experiment is left to run, and what is said where that is nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.driver.plugins import TrialSource
from tuner.experiment.continuing import resume_words
from tuner.experiment.resume import Errored, Resume
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.opening.apply import OwnedExperiment
from tuner.progress.formatting import counted


class LeftToRun:
    """Made when an experiment has been caught up; writes down what holds of it from now on."""

    def __init__(self, opened: OwnedExperiment, state: ExperimentState, source: TrialSource) -> None:
        self._opened, self._state = opened, state
        self._attempts = self._begun()
        if opened.contents is not None:
            errored = opened.spec.resume_choice.errored is not Errored.SHOW
            words = (Trial.PENDING, Trial.RUNNING, Trial.PAUSED, *((Trial.ERROR,) if errored else ()))
            some = any(state.counts[word] for word in words) or not source.all_created(state)
            opened.start.write_description(runs=some)

    def nothing(self) -> str | None:
        """After the run: that nothing was left, if so, and how to run anew."""
        if not self._attempts or self._attempts != self._begun():
            return None
        start = self._opened.start
        if start.code_changed:
            start.write_description(runs=False)  # a searcher may say only when it is asked that it has no more
        resume = resume_words(self._opened.paths.root, self._opened.starter, errored=True)
        name = self._opened.spec.trainable_name
        return nothing_left(self._state.trials, name, resume=resume, changed=start.code_changed)

    def _begun(self) -> int:
        return sum(trial.attempt for trial in self._state.trials)


def how_far(state: ExperimentState, total: int, resume: Resume) -> str:
    """What a resume finds: "8 of 20 trials had ended, 2 go on, 1 begins again, 9 are new"; "" where there is nothing.

    Args:
        total: how many trials there will be; -1: no end is known.
        resume: what becomes of errored trials, and whether only they run.
    """
    if not state.trials:
        return ""
    ended, on, again, waiting, held = 0, 0, 0, 0, 0
    for trial in state.trials:
        errored = trial.status == trial.ERROR and resume.errored is not Errored.SHOW
        if trial.is_finished() and not errored:
            ended += 1
        elif trial.held:
            held += 1
        elif errored and resume.errored is Errored.RESTART:
            again += 1
        elif resume.only_errored and not errored:
            waiting += 1
        elif trial.latest_checkpoint is not None:
            on += 1
        elif trial.attempt:
            again += 1
    count = len(state.trials)
    new = 0 if resume.only_errored else max(total, count) - ended - on - again - held
    said = [f"{ended} of {counted(max(total, count), 'trial')} had ended"]
    for number, one, several in (
        (on, "goes on", "go on"),
        (again, "begins again", "begin again"),
        (new, "is new", "are new"),
        (waiting, "stays as it is", "stay as they are"),
        (held, "waits for your `tuner go`", "wait for your `tuner go`"),
    ):
        said += [f"{number} {one if number == 1 else several}"] if number else []
    return ", ".join(said)


def nothing_left(trials: Sequence[Trial], trainable: str, *, resume: str, changed: bool) -> str:
    """What is said of a resume that had nothing to run.

    Args:
        resume: the words that continue failed trials too.
        changed: the trainable's code is another than that which the results are of.
    """
    failed = sum(trial.status == trial.ERROR for trial in trials)
    held = sum(trial.held and not trial.is_finished() for trial in trials)
    had = f"{counted(len(trials) - held, 'trial')} had ended before"
    had += f", {held} {'waits' if held == 1 else 'wait'} for your `tuner go`" if held else ""
    had += f" ({failed} failed: {resume} continues {'it' if failed == 1 else 'them'})" if failed else ""
    if changed:
        older = f"with the older code of {trainable!r}, so that these are its results"
        return f"nothing left to run: {had}, {older}; overwrite=True, or another name, runs anew"
    return f"nothing left to run: {had}; a larger num_samples adds trials, overwrite=True or another name runs anew"
