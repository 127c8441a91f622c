"""A replica of a running experiment, as the loop sees it: told of what happens, it keeps the copy in step.

Everything here returns at once; the bytes are moved by an agent (`trainables.transfer.client`). What goes there are
streams (`tuner.syncer.streams`), which `Replica` ties together; facts come back through `finished`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from pathlib import Path

from trainables.config import SyncConfig
from trainables.net.failed import FailureKind
from trainables.transfer.client import TransferClient
from trainables.transfer.transfer_jobs import Done
from trainables.wire import CheckpointRef, SaveUploaded
from tuner import knobs
from tuner.clock import Clock
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter
from tuner.experiment.leftovers import remove_views
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.syncer.agent_jobs import AgentJobs
from tuner.syncer.inventory import Inventory
from tuner.syncer.lease import RemoteLease
from tuner.syncer.queue import Queue
from tuner.syncer.sink import ReplicaBacklog, ReplicaSink, Then
from tuner.syncer.streams.checkpoint_stream import CheckpointStream
from tuner.syncer.streams.experiment_files import ExperimentFiles
from tuner.syncer.streams.fetches import CheckpointFetches
from tuner.syncer.streams.journal_stream import JournalStream
from tuner.syncer.streams.journal_upkeep import JournalUpkeep
from tuner.syncer.streams.ordered import OrderedStreams, SyncPeriod
from tuner.syncer.streams.orphans import Orphans
from tuner.syncer.streams.replaced_keys import ReplacedKeys
from tuner.syncer.streams.stream import Answer, ReplicaContext
from tuner.syncer.streams.trial_files import TrialFiles

log = logging.getLogger(__name__)


class Replica(ReplicaSink):
    """One replica of a running experiment.

    Args:
        uri: the replica's address, as facts and messages name it.
        config: what is copied, and how often.
        paths, journal: the experiment here.
        clock: its monotonic time paces everything.
        journal_only: nothing else goes there, or comes from there.
    """

    def __init__(
        self,
        uploader: TransferClient,
        uri: str,
        config: SyncConfig,
        *,
        paths: ExperimentPaths,
        journal: JournalWriter,
        generation: int,
        clock: Clock,
        journal_only: bool = False,
    ) -> None:
        self._uploader, self._clock = uploader, clock
        self._jobs = AgentJobs(uploader, uri=uri, clock=clock, timeout_s=config.sync_timeout)
        context = ReplicaContext(uri, config, paths, journal, generation, uploader.can, clock, self._jobs.submit)
        self._context, self._lease = context, RemoteLease(context, uploader)
        self._queue = Queue(removes=uploader.can.delete)
        self.checkpoints = CheckpointStream(context, self._queue)
        self._fetches = CheckpointFetches(context)
        self._files = TrialFiles(context)
        journal_stream = JournalStream(
            context, self._queue, self._files, every_s=knobs.journal_push_s(), at_once=not uploader.beside
        )
        beside = ExperimentFiles(context)
        replaced, upkeep = ReplacedKeys(context), JournalUpkeep(context, journal_stream, beside)
        moving = (replaced, self.checkpoints, journal_stream, beside, upkeep, self._files)
        self._orphans = Orphans(context, moving)
        period = SyncPeriod(moving, period_s=config.sync_period, now=clock.monotonic())
        streams = (self._fetches, self._orphans, replaced, period, *moving[1:])
        self._streams = OrderedStreams((journal_stream,) if journal_only else streams)
        self._quiet_until = 0.0
        """Nothing would be done before, unless something is told or ends."""

    def start(self, state: ExperimentState, held: Inventory) -> None:
        """Take up an experiment: what is kept here and not there goes there, what is there and not kept goes."""
        self._streams.take_up(state, held)

    # --- what the loop tells ----------------------------------------------------------------------------

    def started(self, trial: Trial) -> None:
        self.begin()
        self.checkpoints.started(trial)
        self._files.started(trial)

    def uploading(self, trial: Trial, ref: CheckpointRef) -> None:
        self._orphans.cut_off()
        self.checkpoints.uploading(ref)

    def uploaded(self, trial: Trial, message: SaveUploaded) -> None:
        self._quiet_until = 0.0
        self.checkpoints.uploaded(trial, message)

    def published(self, trial: Trial, record: CheckpointRecord, seq: int) -> None:
        self._quiet_until = 0.0
        self.checkpoints.published(trial, record, seq)
        self._files.saved(trial)

    def forgotten(self, trial: Trial, ref: CheckpointRef, seq: int) -> None:
        self._quiet_until = 0.0
        self.checkpoints.forget(trial, ref, seq)

    def ended(self, trial: Trial) -> None:
        self.begin()
        self.checkpoints.attempt_ended(trial)
        self._files.ended(trial)

    def touched(self, trials: Iterable[Trial]) -> None:
        self._quiet_until = 0.0
        self._files.owe(trials)

    def heartbeat(self) -> None:
        self._lease.heartbeat()

    def begin(self) -> None:
        """From now on things may be touched in the replica."""
        self._quiet_until = 0.0
        self._streams.begin()

    def closing(self) -> None:
        self._quiet_until = 0.0
        self._streams.close()
        self._jobs.moved()

    # --- what the loop asks -----------------------------------------------------------------------------

    @property
    def place(self) -> str:
        return self._context.uri

    @property
    def trouble(self) -> str:
        return self._jobs.trouble

    def finished(self) -> list[ev.CheckpointCopied]:
        while True:
            answers, now = self._uploader.answers(), self._clock.monotonic()
            if not answers and now < self._quiet_until:
                break  # asked several times per result: it costs next to nothing
            for answer in answers:
                self._take(answer)
            self._lease.check()
            self._jobs.look_for_silence(now)
            going = not self._queue.blocked(now) and self._streams.start_jobs(now)
            due, looks = self.due(), [] if self._queue.blocked(now) else self._streams.look_at(now)
            self._quiet_until = min(self._jobs.silence_at, math.inf if due is None else due, *looks)
            if not going and not answers:
                break
        facts, self.checkpoints.facts = self.checkpoints.facts, []
        return facts

    def due(self) -> float | None:
        now = self._clock.monotonic()
        times = self._jobs.due_at(now)
        if not self._queue.blocked(now):
            times += self._streams.due_at(now)
        elif (gate := self._queue.due(now)) is not None:
            times.append(gate)
        return min(times, default=None)

    def holds(self, trial: Trial, record: CheckpointRecord) -> bool:
        return self._queue.holds(record.ref) or self.place in record.copies

    def reads(self, path: Path) -> bool:
        return path in self.checkpoints.reading

    def fetch(self, trial: Trial, record: CheckpointRecord, then: Then) -> None:
        self._quiet_until, now = 0.0, self._clock.monotonic()
        self._fetches.ask(trial, record, then)
        if not self._queue.blocked(now):
            self._fetches.start_jobs(now)

    def behind(self, trial: Trial) -> bool:
        if not self._uploader.beside:
            return False
        size, age = self._queue.backlog(trial.trial_id, self._clock.monotonic())
        return size > self._context.config.backlog_bytes or age > self._context.config.max_backlog_s

    @property
    def backlog(self) -> ReplicaBacklog:
        return ReplicaBacklog(self._queue.backlog_count, self._queue.backlog_bytes, self._queue.error)

    def _take(self, answer: Answer) -> None:
        if isinstance(answer, Done):
            self._queue.succeeded()
        elif answer.kind is FailureKind.OWNER_TAKEN:
            self._lease.taken_over(answer.message)
        else:
            if answer.transient:
                self._queue.unreachable(self._clock.monotonic())
            if not self._fetches.gives_up(answer):
                self._jobs.complain(answer)
            self._orphans.cut_off()
        self._jobs.ended(answer)

    # --- the end ----------------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        return self._streams.drained

    @property
    def given_up(self) -> bool:
        return self.stalled or self._streams.refused

    @property
    def stalled(self) -> bool:
        """For so long nothing has moved that it is not waited for."""
        return self._jobs.stalled

    def wait(self, until: float | None) -> None:
        left = 1.0 if until is None else min(1.0, until - self._clock.monotonic())
        self._uploader.wait(max(0.01, left))

    @property
    def missing(self) -> list[str]:
        return self._streams.missing()

    def release(self) -> None:
        if (left := self.checkpoints.undeleted) and self._lease.taken is None:
            log.warning("%s: could not delete %s; the next start tries again", self.place, left)
        try:
            if not self._queue.blocked(self._clock.monotonic()):
                self._lease.release()
        finally:
            self._uploader.close()
            if self._uploader.lost:
                remove_views(self._context.paths.root)
