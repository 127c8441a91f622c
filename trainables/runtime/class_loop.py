"""How a class trainable runs in a trial: step, report, save where the driver says so."""

from __future__ import annotations

from trainables.errors import PublishError
from trainables.runtime.attempt import Attempt
from trainables.runtime.reuse import Reuse, clean_up
from trainables.runtime.saving import Staged
from trainables.runtime.saving_session import TrialExit
from trainables.trainable import Trainable, load_save, make, saves, write_save


def run_class(attempt: Attempt, kind: type[Trainable], reuse: Reuse | None = None) -> None:
    """Run a class trainable to its end, whoever ends it; `attempt` knows afterwards how that was.

    With `reuse` its object may be one that has run others, and may stay for the next.
    """
    trainable = make(kind, attempt.job, attempt.keys) if reuse is None else reuse.trainable(attempt, kind)
    stays = False
    try:
        if attempt.job.checkpoint_path is not None:
            load_save(trainable, attempt.job.checkpoint_path)
        _loop(attempt, trainable)
        stays = reuse is not None and not attempt.leaving()
    except TrialExit:
        return  # the driver is gone
    finally:
        if reuse is not None and stays:
            reuse.keep(trainable)
        else:
            clean_up(trainable)


def _loop(attempt: Attempt, trainable: Trainable) -> None:
    can_save, cadence = saves(type(trainable)), attempt.cadence
    due = unsaved = False
    while True:
        if attempt.leaving() and not (unsaved and can_save):
            attempt.preempted = True
            return
        result = trainable.train()
        # Told to leave during the step: the save goes with this very result, so that nothing is lost.
        staged = _save(attempt, trainable) if can_save and attempt.leaving() else None
        if cadence is not None:
            cadence.step_done()
            due = cadence.due()
        answer = attempt.deliver(result, staged, save_due=due)
        unsaved = staged is None
        if cadence is not None:
            cadence.reported(saved=not unsaved)
        if answer.save and staged is None and (can_save or not attempt.leaving()):
            behind = _save(attempt, trainable)
            if behind is not None:
                attempt.save_behind(behind)
                unsaved = False
        attempt.saver.raise_if_failing()
        if answer.then != "continue" or result.get("done"):
            if answer.then != "pause" and attempt.job.export_formats:
                trainable.export_model(attempt.job.export_formats)
            return


def _save(attempt: Attempt, trainable: Trainable) -> Staged | None:
    """What the trainable saved, staged; None when the disk did not take it, which is counted and told."""
    saver = attempt.saver
    try:
        with saver.writing(saver.open()) as staged:
            staged.extra = write_save(trainable, staged.path)
        return staged
    except PublishError as error:
        saver.failed(saver.name(trainable.iteration), error)
        return None
