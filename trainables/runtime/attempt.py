"""One attempt of one trial, seen from inside: takes results and checkpoints, and knows what the driver wants."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from trainables import tagged
from trainables.automatic import AutomaticKeys, TimeSource
from trainables.checkpoint import Checkpoint
from trainables.context import TrainContext
from trainables.errors import CheckpointBudgetError, PublishError
from trainables.job import Job
from trainables.quick_dataclass import dataclass
from trainables.runtime.cadence import SaveCadence
from trainables.runtime.saving import Saver, Staged
from trainables.runtime.saving_session import SavingSession, TrialExit
from trainables.runtime.unanswered import Ahead
from trainables.wire import (
    Answer,
    AttemptErrored,
    DriverLink,
    Finished,
    Listening,
    Preempted,
    Report,
    SaveBehind,
    SaveUploaded,
)

_log = logging.getLogger(__name__)
_GO_ON = Answer()


@dataclass(frozen=True, slots=True)
class DeliveredResult:
    """A result that the driver has."""

    iteration: int
    metrics: msgspec.Raw


class Attempt(SavingSession):
    """What `report` and its relatives act on while a trial runs.

    Lives from the first line of an attempt to its last message. `report` may be called from any thread of the trial's
    process, one at a time.
    """

    def __init__(self, job: Job, link: DriverLink, *, clock: TimeSource) -> None:
        super().__init__()
        self.job = job
        self.clock = clock
        self.context = AttemptContext(self)
        self.saver = Saver(job, link, clock=clock)
        self.cadence = None if job.save_pace is None else SaveCadence(job.save_pace, clock)
        """When it pays to save; None: that is not asked."""
        self.keys = AutomaticKeys(
            clock=clock,
            trial_id=job.trial_id,
            experiment_tag=job.experiment_tag,
            iteration=job.start_iteration,
            time_total_s=job.start_time_total_s,
            earlier=lambda: {} if job.checkpoint_path is None else Checkpoint(job.checkpoint_path).metrics or {},
        )
        self.seed: int | None = None
        self.reported = False
        """At least one result was delivered."""
        self.answer = Answer()
        """The driver's decision on the last result."""
        self.preempted = False
        """The trial was told to leave and does: it ends unfinished."""
        self.notified = False
        """A signal told this process to leave."""
        self.on_leaving: Callable[[], None] = lambda: None
        """Called whenever the trial sees that it is to leave: the grace time runs from the first time on."""
        self.on_notice: Callable[[], None] = lambda: None
        """Called in the handler of a signal that tells this process to leave."""
        self.looked_at_stop = False
        self.looked_at_checkpoint = False
        self._link = link
        self._ahead = Ahead()
        self._ending = threading.Lock()
        self._said = False
        self._saved = job.checkpoint is not None
        self._warned = False
        self._raw = msgspec.Raw(b"{}")

    # ------------------------------------------------------------ results

    def _take(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None, pending: Staged | None) -> None:
        staged, lent, failure = pending, None, None
        if checkpoint is not None and not checkpoint.in_memory:
            lent = checkpoint.fetched()  # staged beside the driver's decision
        elif checkpoint is not None:
            try:
                staged = self.saver.stage(checkpoint)
            except PublishError as error:
                failure = error
        self._report(metrics, staged, lent, failure)

    def report_staged(
        self, metrics: Mapping[str, Any], staged: Staged | None, failure: PublishError | None = None
    ) -> None:
        """Like `report`, with a save that the processes of a group have staged (`Saver.adopt`), or why they could not.

        The save is this attempt's from now on, whatever is raised.
        """
        with self._reporting:
            self._report(metrics, staged, None, failure)

    def _hear_what_was_decided(self, staged: Staged | None) -> None:
        """Of results that did not wait. If the trial is over, the result that comes now does not count."""
        if not self._ahead.went or (decided := self._link.decided()) is None:
            return
        self.answer = decided.answer
        self._ahead.waits_next()
        if decided.answer.then != "continue":
            if staged is not None:
                self.saver.drop(staged)
            self._leave()

    def _report(
        self, metrics: Mapping[str, Any], staged: Staged | None, lent: Checkpoint | None, failure: PublishError | None
    ) -> None:
        self._hear_what_was_decided(staged)
        saves = staged is not None or lent is not None
        self._warn_if_deaf(saves=saves or failure is not None)
        if self.cadence is not None:
            self.cadence.step_done()
        self.deliver(self.keys.complete(metrics), staged, lent)
        if self.cadence is not None:
            self.cadence.reported(saved=saves)
        if failure is not None:
            self.saver.failed(self.saver.name(self.keys.iteration), failure)
        self.saver.raise_if_failing()
        if self.answer.then != "continue":
            self._leave()
        if self.leaving() and self._ends_here(saves):
            self.preempted = True
            self._leave()

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called, in some thread or handler, whenever `leaving()` may have become true."""
        self.on_notice = changed
        self._link.watch(changed)

    def deliver(
        self,
        result: Mapping[str, Any],
        staged: Staged | None = None,
        directory: Checkpoint | None = None,
        *,
        save_due: bool = False,
    ) -> Answer:
        """Send a complete result, wait for the answer if need be, and let what was staged with it be published.

        A `directory` of the user's is staged while the driver decides. `save_due`: it pays to save after this result.
        """
        iteration: int = self.keys.iteration
        raw = msgspec.Raw(tagged.dumps(result))
        failure: PublishError | None = None
        raised: Exception | None = None
        saving = found = None
        if staged is not None:
            saving = self.saver.describe(staged, iteration)
        elif directory is not None:
            saving, found = self.saver.announce(directory, iteration)

        def stage() -> None:
            nonlocal staged, failure, raised
            if directory is not None:
                try:
                    staged = self.saver.stage(directory, found)
                except PublishError as error:
                    failure = error
                except Exception as error:
                    raised = error

        took_s = 0.0 if self.cadence is None else self.cadence.take_measured()
        waits = bool(result.get("done")) or self._ahead.waits(iteration, len(raw))
        try:
            report = Report(iteration, raw, saving, save_due, took_s, waits)
            if waits:
                self.answer = answer = self._link.call(report, stage)
                self._ahead.answered(answer)
            else:
                self.answer = answer = _GO_ON
                stage()  # first: the driver that is woken may take this core
                self._link.tell(report)
        except ConnectionError as error:
            _log.debug("the driver is gone: %s", error)
            self._leave()
        if answer.then != "continue":
            self._over = True  # also for a function that catches what is raised below
        if raised is not None:
            if saving is not None:  # the driver counts on a save: it will not come
                self.saver.failed(saving.ref, raised, raised=True)
            raise raised
        if saving is not None:
            if answer.budget_error is not None:
                if staged is not None:
                    self.saver.drop(staged)
                raise CheckpointBudgetError(answer.budget_error)
            if staged is None:
                assert failure is not None
                self.saver.failed(saving.ref, failure)
                return answer
            self._saved = True
            self.saver.publish(staged, saving.ref, raw)
        self._raw, self.reported = raw, True
        return answer

    def save_behind(self, staged: Staged) -> None:
        """Publish a save that belongs to the result delivered last, whose answer asked for it."""
        self._saved = True
        iteration: int = self.keys.iteration
        self.saver.publish(staged, self.saver.name(iteration, staged.number), self._raw)
        if self.cadence is not None:
            self.cadence.saved()

    @property
    def last_result(self) -> DeliveredResult:
        """The result delivered last."""
        return DeliveredResult(self.keys.iteration, self._raw)

    def save_late(self, staged: Staged, result: DeliveredResult) -> None:
        """Publish a save that nobody asked for, and that belongs to a result that was delivered without it."""
        self._saved = True
        ref = self.saver.name(result.iteration, staged.number)
        try:
            self._link.post(SaveBehind(ref))
        except ConnectionError as error:
            _log.debug("the driver is gone: %s", error)
            self._leave()
        self.saver.publish(staged, ref, result.metrics)

    # ------------------------------------------------------------ checkpoints

    def _open(self, number: int | None) -> Staged:
        if self.cadence is not None:
            self.cadence.begins()
        return self.saver.open(number)

    def _drop(self, save: Staged) -> None:
        self.saver.drop(save)

    def get_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that this attempt published, else the one that it started from."""
        self.saver.wait()
        path = self.saver.published or self.job.checkpoint_path
        return None if path is None else Checkpoint(str(path))

    # ------------------------------------------------------------ leaving

    def leaving(self) -> bool:
        """True once a signal, a Halt, an answer, or the driver's death told the trial to go."""
        if not (self.notified or self.answer.should_stop or self._link.halted()):
            return False
        self.on_leaving()
        return True

    def listening(self, port: int) -> None:
        """The first process of a group on several nodes listens for the others."""
        self._link.post(Listening(port))

    def uploaded(self, message: SaveUploaded) -> None:
        """The processes of a group copy a save to the replica no more."""
        try:
            self._link.post(message)
        except ConnectionError as error:
            _log.debug("the driver is gone: %s", error)

    def notice(self) -> None:
        """A signal told this process to leave. Called in its handler."""
        self.notified = True
        self.on_notice()

    def end(self, message: Finished | AttemptErrored | Preempted) -> None:
        """Say how the trial ended, once: what comes later is not sent."""
        with self._ending:
            if self._said:
                return
            self._said = True
            try:
                self._link.send(message)
            except ConnectionError as error:
                _log.debug("the driver is gone: %s", error)

    def _leave(self) -> NoReturn:
        self._over = True
        raise TrialExit

    def _ends_here(self, saved_now: bool) -> bool:
        """Whether a function that was told to leave ends at this report.

        One that asks `should_stop()` returns by itself. One that does not ends with its latest checkpoint: now if that
        is this one or if it never saves, else at its next save, or when the grace time is over.
        """
        return not self.looked_at_stop and (saved_now or not self._saved)

    def should_save(self) -> bool:
        """Whether a function that asks now is to save: somebody wants it, or it pays."""
        self.looked_at_checkpoint = self._ahead.exact = True
        if self.answer.should_checkpoint and self.cadence is not None:
            self.cadence.begins()
        return self.answer.should_checkpoint or (self.cadence is not None and self.cadence.asked())

    def should_save_next(self) -> bool:
        """The same for the result after the one that was delivered: for processes that have to agree on it."""
        self._ahead.exact = True
        if self.answer.should_checkpoint and self.cadence is not None:
            self.cadence.begins()
        return self.answer.should_checkpoint or (self.cadence is not None and self.cadence.ahead())

    def _warn_if_deaf(self, saves: bool) -> None:
        wanted = self.answer.should_checkpoint or (self.job.save_pace is not None and self.job.save_pace.wanted)
        if wanted and not saves and not self.looked_at_checkpoint and not self._warned and self.reported:
            self._warned = True
            _log.warning(
                "a checkpoint was asked for (%s) and this function does not look: save when tune.should_save() is true",
                "should_checkpoint" if self.answer.should_checkpoint else 'checkpoint_frequency="auto"',
            )


class AttemptContext(TrainContext):
    """The context of a running trial."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt.job)
        self._attempt = attempt

    def get_seed(self) -> int | None:
        return self._attempt.seed

    def should_checkpoint(self) -> bool:
        return self._attempt.should_save()

    def should_stop(self) -> bool:
        attempt = self._attempt
        attempt.looked_at_stop = True
        if attempt.leaving():
            attempt.preempted = True  # a function that returns after this is to be continued
        return attempt.preempted
