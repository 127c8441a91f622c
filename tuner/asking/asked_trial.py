"""A trial that a caller has asked for: its config, and where its results and checkpoints go."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointBudgetError, SessionError
from trainables.job import Job
from trainables.pickling import pickled
from trainables.runtime.attempt import Attempt
from trainables.runtime.reading import Reading
from trainables.runtime.saving_session import TrialExit
from trainables.runtime.seeding import trial_seed
from trainables.runtime.tracebacks import message_of
from trainables.store.delete import pins
from trainables.user_frames import from_the_call
from trainables.wire import AttemptErrored, Finished, Preempted
from tuner.asking.caller_link import CallerLink
from tuner.experiment import holding

_readings: set[Reading] = set()
"""Of all trials of this process: each tells its driver what is open, and keeps that from being deleted."""


def _opened_or_closed(path: Path, held: bool) -> None:
    for reading in list(_readings):
        reading.heard(path, held)


Verdict = Literal["continue", "stop", "pause"]


class AskedTrial:
    """One trial, from `session.ask()` to its end here. One thread uses it at a time.

    Example:
        >>> while (trial := session.ask()) is not None:  # doctest: +SKIP
        ...     for epoch in range(trial.iteration, 10):
        ...         if trial.report({"loss": train(trial.config)}) != "continue":
        ...             break
        ...     else:
        ...         trial.finish()
    """

    def __init__(self, job: Job, link: CallerLink, *, ended: Callable[[AskedTrial], None]) -> None:
        self._job, self._link, self._ended = job, link, ended
        self._attempt = Attempt(job, link, clock=time)
        self._held = holding.hold(job.directory)
        self._reading = Reading(link)
        self._attempt.saver.before_published = self._reading.before_published
        link.on_adopted = self._reading.tell_again
        _readings.add(self._reading)
        pins.on_change = _opened_or_closed
        self._over = ""
        """How it ended here; "": it has not."""

    @property
    def trial_id(self) -> str:
        """Its id, unique in its experiment."""
        return self._job.trial_id

    @property
    def config(self) -> dict[str, Any]:
        """What to train with."""
        return self._job.config

    @property
    def checkpoint(self) -> Checkpoint | None:
        """What to continue from; None: from nothing. It stays at least until this trial has a checkpoint of its own."""
        path = self._job.checkpoint_path
        return None if path is None else Checkpoint(str(path))

    @property
    def iteration(self) -> int:
        """How many results it had at that checkpoint."""
        return self._job.start_iteration

    @property
    def seed(self) -> int | None:
        """A seed of its own, the same whenever it starts from there, under the experiment's seed."""
        job = self._job
        return None if job.seed is None else trial_seed(job.seed, job.index, job.start_iteration)

    @property
    def directory(self) -> str:
        """Its directory: results and checkpoints lie there."""
        return str(self._job.directory)

    @property
    def should_save(self) -> bool:
        """Whether the next report is to have a checkpoint: the scheduler wants to pause it, or it pays to save."""
        return self._attempt.should_save()

    @from_the_call
    def report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> Verdict:
        """Report one result, and a checkpoint with it; returns when that is in the journal.

        Args:
            metrics: values by name.
            checkpoint: of the training as it stands; it is copied within this call (`Checkpoint.from_directory`; with
                `move=True` its files are moved), and published behind it.

        Returns:
            "continue": train on. "stop": the trial has ended. "pause": it waits, and goes on from its checkpoint, or
            from another trial's, with whoever asks for it. After both nothing more is to be done with this object.

        Raises:
            SessionError: the trial is over here, or a child process reports.
            PublishError: checkpoints in a row did not reach the disk.
        """
        self._check("report()")
        try:
            self._attempt.report(metrics, checkpoint)
        except TrialExit:
            return self._told()
        return "continue"

    @from_the_call
    def finish(self) -> None:
        """The training is complete; returns when its last checkpoint is published and its end in the journal.

        After "stop" or "pause" there is nothing left to say, and this does nothing. Raises SessionError after
        `finish()` or `fail()`.
        """
        if self._over in ("stop", "pause"):
            return
        self._check("finish()")
        self._attempt.saver.close()
        self._attempt.saver.raise_if_failing()
        self._end(Finished(), "finished")

    @from_the_call
    def fail(self, error: BaseException | str) -> None:
        """The training has failed: the trial ends so, or goes on from its newest checkpoint, as `max_failures` says.

        Args:
            error: what was raised, or what to say.
        """
        self._check("fail()")
        self._attempt.saver.close()
        if isinstance(error, str):
            message = AttemptErrored("Error", error, "")
        else:
            trace = "".join(traceback.format_exception(error))
            retry = not isinstance(error, CheckpointBudgetError)
            message = AttemptErrored(type(error).__name__, message_of(error), trace, pickled(error) or b"", retry)
        self._end(message, "failed")

    def _let_go(self) -> None:
        """In a child process: its parent has this trial."""
        self._link.let_go()
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, -1
        if held >= 0:
            os.close(held)

    def _leave(self) -> None:
        """Its session is closed: it is left unfinished, and goes on from its newest checkpoint."""
        if not self._over:
            self._attempt.saver.close()
            self._end(Preempted(), "left, for its session was closed")

    def _told(self) -> Verdict:
        """The driver has ended the attempt."""
        attempt, over = self._attempt, self._link.over
        attempt.saver.close()
        if over is not None:
            then: Verdict = over.then
            self._end(None, then)
        elif attempt.answer.then == "continue":
            then = "pause"
            self._end(Preempted(), then)
        else:
            then = attempt.answer.then
            self._end(Finished(), then)
        return then

    def _end(self, message: Finished | AttemptErrored | Preempted | None, how: str) -> None:
        self._over = how
        if message is not None:
            self._attempt.end(message)
        _readings.discard(self._reading)
        self._link.close()
        self._release()
        self._ended(self)

    def _check(self, what: str) -> None:
        if self._over:
            hint = "ask() for the next" if self._over in ("stop", "pause") else "nothing more is to be said of it"
            raise SessionError(f"{what} of trial {self.trial_id}, which is over here ({self._over}): {hint}")

    def __repr__(self) -> str:
        over = f", {self._over}" if self._over else ""
        return f"AskedTrial({self.trial_id}, iteration {self._attempt.keys.iteration}{over})"
