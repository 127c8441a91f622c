"""A replica of the experiment, as the loop sees it: told of what happens, it keeps the copy elsewhere in step.

Everything here returns at once; the bytes are moved by the agent (`tuner.syncer.uploader`). Three streams go there: the
journal (`journal_stream`), checkpoints (`checkpoint_stream`) in the order that `queue` gives, and the small files of
trials (`trial_files`). Facts come back through `finished`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import msgspec

from trainables.errors import CheckpointCorruptError, CheckpointNotFoundError, TransferError
from trainables.store import fs
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import agent
from trainables.transfer.agent import AnyJob, Done, Failed
from trainables.wire import CheckpointRef, SaveUploaded
from tuner.clock import Clock
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter
from tuner.experiment.leftovers import remove_views
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.syncer.claim import RemoteLease, heartbeat_name
from tuner.syncer.orphans import Orphans
from tuner.syncer.queue import Patience, Queue
from tuner.syncer.remote_experiment import REPLACED
from tuner.syncer.sink import ReplicaBacklog, ReplicaSink, Then
from tuner.syncer.streams.checkpoint_stream import CheckpointOrigin, CheckpointStream
from tuner.syncer.streams.experiment_files import ExperimentFiles
from tuner.syncer.streams.fetches import CheckpointFetches
from tuner.syncer.streams.journal_stream import JournalStream
from tuner.syncer.streams.trial_files import AT_ONCE, Artifacts, TrialFiles
from tuner.syncer.uploader import Uploader

log = logging.getLogger(__name__)

SILENT_S = 30.0
"""An operation of which nothing was heard for so long is spoken of."""
TELL_AGAIN_S = 60.0
UNUSABLE = (CheckpointCorruptError.__name__, CheckpointNotFoundError.__name__)
"""What is said of a checkpoint whose manifest cannot be read, or is not there."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How far and how often things go to the replica.

    Args:
        journal_s: seconds between two pushes of the journal; None: as often as costs a twentieth of the time.
        period_s: seconds between two pushes of the small files of running trials.
        at_once: checkpoints are copied when they are published, and not only every `period_s`.
        timeout_s: seconds without progress after which an operation is given up and tried again.
        backlog_bytes, backlog_s: of what is to come of one trial; beyond, its next report waits.
    """

    journal_s: float | None = None
    period_s: float = 300.0
    at_once: bool = True
    timeout_s: float = 1800.0
    backlog_bytes: int = 10 * 1000**3
    backlog_s: float = 86400.0


class Replica(ReplicaSink):
    """One replica of a running experiment.

    Args:
        uploader: does the jobs.
        place: the experiment's address over there, as facts and messages name it.
        paths: the experiment here.
        journal: its facts go there too.
        there: names of journal, blobs and result files (`journal/000001-000001.jsonl`) that the replica has already.
        clock: its monotonic time paces everything.
        alone: nobody else can write there, and no sign of life is needed.
    """

    def __init__(
        self,
        uploader: Uploader,
        *,
        place: str,
        paths: ExperimentPaths,
        journal: JournalWriter,
        generation: int,
        there: Collection[str],
        clock: Clock,
        pace: Pace,
        artifacts: Artifacts,
        alone: bool = False,
    ) -> None:
        self.place = place
        self._uploader, self._journal, self._clock, self._pace = uploader, journal, clock, pace
        self._name = paths.root.name
        self._there = there
        self.generation = generation
        self.guard = f"{self._name}/generations/{paths.generation(generation + 1).name}"
        beats = f"{self._name}/generations/{heartbeat_name(generation)}"
        self._hold = RemoteLease(uploader, place=place, key=beats, guard=self.guard, clock=clock, alone=alone)
        self._queue = Queue(removes=uploader.can.delete)
        self._checkpoints = CheckpointStream(self._queue, place=place, name=self._name, guard=self.guard, clock=clock)
        self._files = TrialFiles(self._name, artifacts, self.guard)
        self._books = JournalStream(
            paths,
            journal,
            name=self._name,
            guard=self.guard,
            there=there,
            every_s=pace.journal_s,
            removes=uploader.can.delete,
            at_once=not uploader.beside,
        )
        self._beside = ExperimentFiles(
            paths, name=self._name, guard=self.guard, there=there, removes=uploader.can.delete
        )
        self._packed = journal.packed
        self._under: dict[int, Callable[[Done | Failed], None]] = {}
        """What is to be done with the answer of each job that is under way."""
        self._replaced: list[str] = []
        self._unmarked = False
        """What is void is not yet said to be."""
        self._root = paths.root
        self.wanted: dict[str, list[str]] = {}
        """Directory of an ended trial -> its small files that are there and not here; they come beside the run."""
        self._fetching: dict[str, list[str]] = {}
        self._fetches = CheckpointFetches()
        self.sweep: Orphans | None = None
        """Removes what killed uploads left; None: nothing can be looked for there."""
        self.halves: dict[str, list[str]] = {}
        """Directory of a trial that is not in the journal yet -> what a killed driver copied of its checkpoints."""
        self._told_unsent: set[str] = set()
        """Trials that run, of which was said that their workers cannot bring there what they save."""
        self._clear_again = Patience()
        self._clearing = self._begun = self._closing = False
        self._looking = 0
        """Looks over there under way, and what follows from them."""
        self._period_at = clock.monotonic() + pace.period_s
        self._moved_at = clock.monotonic()
        self._told: tuple[str, float] = ("", 0.0)
        self._spoken_of = 0
        self._look_at = self._quiet_until = 0.0

    # --- what the loop tells ----------------------------------------------------------------------------

    def replace(self, keys: Iterable[str], *, whole: bool = False) -> None:
        """These are void, in that order; they go when the first trial starts.

        `whole`: they are an experiment, and a mark says so over there as long as some of them are left.
        """
        self._replaced = list(keys)
        if whole and self._replaced:
            mark = self._key(REPLACED)
            self._replaced = [*(key for key in self._replaced if key != mark), mark]
            self._unmarked = True

    def start(
        self,
        state: ExperimentState,
        present: Mapping[str, Collection[str]] | None,
        touched: Collection[str],
        origins: Mapping[tuple[str, str], CheckpointOrigin] = MappingProxyType({}),
        begun: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        """Take up an experiment: what is kept here and not there goes there, what is there and not kept goes.

        `present`: trial directory -> names of its complete checkpoints there; None: nothing is known but the facts.
        `begun`: the same of those of which a part is there.
        `touched`: ids of trials whose files may hold more here than there.
        `origins`: (trial directory, name) -> from where it is copied, of what is not here either.
        """
        behind = self._books.lacks_snapshot
        for trial in state.trials:
            names = present.get(trial.dirname, ()) if present is not None else ()
            parts = begun.get(trial.dirname, ())
            for record in trial.checkpoints:
                tried = present is None or record.ref.name in parts
                if record.ref.name in names if present is not None else self.place in record.copies:
                    self._queue.known(trial.trial_id, [record.order])
                    if self.place not in record.copies:  # a driver was killed before it could say so
                        self._checkpoints.facts.append(ev.CheckpointCopied(record.ref, self.place))
                    if trial.status != Trial.TERMINATED and self._uploader.can.reuse:
                        learn = agent.Learn(key=self._key(trial.dirname, record.ref.name))
                        self._looking += 1
                        self._submit(learn, partial(self._learned, trial, record))
                elif fs.is_dir(trial.directory / record.ref.name):
                    self._checkpoints.add(trial, record, self._journal.last_seq, tried=tried)
                elif (origin := origins.get((trial.dirname, record.ref.name))) is not None:
                    self._checkpoints.inherit(trial, record, origin, self._journal.last_seq, tried=tried)
            for ref in trial.forgotten if present is None else ():
                self.forgotten(trial, ref, self._journal.last_seq)
            if trial.status == Trial.TERMINATED:
                self._queue.end(trial.trial_id)
            if behind and trial.attempt:
                self._files.owe([trial])
            elif trial.trial_id in touched or (trial.attempt and f"{trial.dirname}/result.json" not in self._there):
                self._files.changed(trial)

    def has_files(self, trial: Trial, names: Collection[str], *, void: Iterable[str]) -> None:
        """What the loggers wrote for a trial that is there; its directory here is as its last owner left it.

        `void`: what is not any more what it was.
        """
        self._files.known(trial.dirname, names)
        for name in void:
            self._files.void(trial.directory / name)

    def _learned(self, trial: Trial, record: CheckpointRecord, answer: Done | Failed) -> None:
        """What nobody could use over there is sent again, if it is here."""
        self._looking -= 1
        unusable = isinstance(answer, Failed) and answer.type in UNUSABLE
        if not unusable or not self._uploader.can.delete or not fs.is_dir(trial.directory / record.ref.name):
            return
        # A manifest is only laid where there is none: first the one goes that cannot be read.
        broken = agent.Delete(keys=[self._key(trial.dirname, record.ref.name, MANIFEST_NAME)], guard=self.guard)
        self._looking += 1
        self._submit(broken, partial(self._send_again, trial, record))

    def _send_again(self, trial: Trial, record: CheckpointRecord, answer: Done | Failed) -> None:
        self._looking -= 1
        if isinstance(answer, Done) and any(kept is record for kept in trial.checkpoints):
            self._queue.unknown(record.ref)
            self._checkpoints.add(trial, record, self._journal.last_seq, tried=True)

    def inherit(self) -> int:
        """How many checkpoints are still to be copied from elsewhere; it begins although no trial runs yet.

        Raises TransferError when they cannot be.
        """
        self._begun = True
        self._quiet_until = 0.0
        left = self._checkpoints.inherited
        if (refusal := self._checkpoints.refusal) is not None:
            raise TransferError(f"{left} checkpoints could not be copied: {refusal}")
        return left

    @property
    def lost(self) -> list[ev.CheckpointSetAside]:
        """Inherited checkpoints that were missing or damaged where they were to come from; the caller empties it."""
        return self._checkpoints.lost

    @property
    def beside(self) -> bool:
        """It copies while its caller waits."""
        return self._uploader.beside

    @property
    def heard_at(self) -> float:
        """Monotonic time at which bytes were last heard to move."""
        return self._uploader.heard_at

    def stray(self, trial: Trial, ref: CheckpointRef, *, whole: bool) -> None:
        """A checkpoint is there, `whole` or in part, that the trial has not any more: it goes as what is forgotten."""
        if whole:
            self._queue.known(trial.trial_id, [ref.order])
        self.forgotten(trial, ref, self._journal.last_seq)

    def started(self, trial: Trial) -> None:
        self._quiet_until = 0.0
        for number, name in enumerate(self.halves.pop(trial.dirname, ()), start=1):
            self.stray(trial, CheckpointRef(trial.trial_id, name, 0, 0, -number, 0), whole=False)
        self._begun = True
        self._files.started(trial)

    def uploading(self, trial: Trial, ref: CheckpointRef) -> None:
        self._cut_off()
        self._checkpoints.uploading(ref)

    def uploaded(self, trial: Trial, message: SaveUploaded) -> None:
        self._quiet_until = 0.0
        self._checkpoints.uploaded(trial, message.ref, message.sent)
        if message.problem and trial.trial_id not in self._told_unsent:
            self._told_unsent.add(trial.trial_id)
            log.warning(
                "%s: workers of %s could not bring there what they saved, and it is sent with the rest: %s",
                self.place,
                trial.name,
                message.problem,
            )

    def published(self, trial: Trial, record: CheckpointRecord, seq: int) -> None:
        self._quiet_until = 0.0
        if self._pace.at_once:
            self._checkpoints.add(trial, record, seq)
        else:
            self._checkpoints.add_later(trial, record, seq)
        self._files.saved(trial)

    def forgotten(self, trial: Trial, ref: CheckpointRef, seq: int) -> None:
        self._quiet_until = 0.0
        self._checkpoints.forget(trial, ref, seq)

    def ended(self, trial: Trial) -> None:
        self._quiet_until = 0.0
        self._begun = True
        self._checkpoints.attempt_ended(trial)
        self._told_unsent.discard(trial.trial_id)
        if trial.status == Trial.TERMINATED:
            self._queue.end(trial.trial_id)
        self._files.ended(trial)

    def touched(self, trials: Iterable[Trial]) -> None:
        self._quiet_until = 0.0
        self._files.owe(trials)

    def heartbeat(self) -> None:
        """A sign of life over there, and a look whether somebody has taken over. Raises OwnedElsewhereError."""
        if (beat := self._hold.beat()) is not None:
            self._submit(beat, self._beaten)

    def closing(self) -> None:
        self._quiet_until = 0.0
        self._closing = self._begun = True
        self._books.close()
        self._moved_at = self._clock.monotonic()

    # --- what the loop asks -----------------------------------------------------------------------------

    def finished(self) -> list[ev.CheckpointCopied]:
        while True:
            answers = self._uploader.answers()
            if not answers and self._clock.monotonic() < self._quiet_until:
                break  # asked several times per result: it costs next to nothing
            for answer in answers:
                self._take(answer)
            self._hold.check()
            going = self._go_on()
            self._quiet_until = self._next_look()
            if not going and not answers:
                break
        facts, self._checkpoints.facts = self._checkpoints.facts, []
        return facts

    def due(self) -> float | None:
        now = self._clock.monotonic()
        times = [now + SILENT_S / 2 if self._under else None]
        if not self._queue.blocked(now):
            times.append(self._fetches.due_at)
        if self._queue.blocked(now):
            times.append(self._queue.due(now))
        elif self.sweep is not None and self.sweep.holds:
            pass  # its answer is waited for
        elif self._begun and self._replaced:
            times.append(self._clear_again.until)
        elif self._begun and not self._clearing:
            times.append(None if self._closing else self._period_at)
            times.append(self._files.due_at)
            times.append(self._beside.due_at)
            times.append(self._books.due_at(waited_for=self._queue.wants_journal, closing=self._closing))
            times.append(self._queue.due(now) if self._checkpoints.room else None)
        return min((time for time in times if time is not None), default=None)

    def _next_look(self) -> float:
        """Until then `_go_on` would do nothing unless something is told or ends; of new facts nobody tells."""
        due = self.due()
        push = self._books.earliest(waited_for=self._queue.wants_journal, closing=self._closing)
        return min(self._look_at, math.inf if due is None else due, math.inf if push is None else push)

    def holds(self, trial: Trial, record: CheckpointRecord) -> bool:
        return self._queue.holds(record.ref) or self.place in record.copies

    def reads(self, path: Path) -> bool:
        return path in self._checkpoints.reading

    def fetch(self, trial: Trial, record: CheckpointRecord, then: Then) -> None:
        job = agent.FetchCheckpoint(
            key=self._key(trial.dirname, record.ref.name),
            target=str(trial.directory / record.ref.name),
            digest=record.digest,
        )

        self._fetches.ask(job, then)
        self._quiet_until = 0.0
        self._start_fetches(self._clock.monotonic())

    def behind(self, trial: Trial) -> bool:
        if not self._uploader.beside:
            return False
        size, age = self._queue.backlog(trial.trial_id, self._clock.monotonic())
        return size > self._pace.backlog_bytes or age > self._pace.backlog_s

    @property
    def backlog(self) -> ReplicaBacklog:
        return ReplicaBacklog(self._queue.backlog_count, self._queue.backlog_bytes, self._queue.error)

    # --- what comes back ----------------------------------------------------------------------------------

    def _submit(self, job: AnyJob, then: Callable[[Done | Failed], None]) -> int:
        number = self._uploader.submit(job)
        self._under[number] = then
        return number

    def _take(self, answer: Done | Failed) -> None:
        now = self._clock.monotonic()
        if isinstance(answer, Done):
            if self._under.get(answer.id) != self._beaten:  # with a sign of life nothing arrives
                self._moved_at = now
            self._queue.succeeded()
        elif answer.type == agent.TAKEN:
            self._hold.taken_over(answer.message)
        else:
            if answer.transient:
                self._queue.unreachable(now)
            self._complain(answer, now)
            self._cut_off()
        then = self._under.pop(answer.id, None)
        if then is not None:
            then(answer)

    def _cut_off(self) -> None:
        if self.sweep is not None:
            self.sweep.cut_off()

    def _complain(self, answer: Failed, now: float) -> None:
        """Say what is wrong once, and again when it is something else or lasts."""
        if self._fetches.gives_up(answer):
            return
        self.trouble = answer.message
        if answer.id in self._under and (self._told[0] != answer.message or now - self._told[1] >= TELL_AGAIN_S):
            self._told = (answer.message, now)
            again = "" if answer.type in UNUSABLE else "; tried again"
            log.warning("%s: %s%s", self.place, answer.message, again)

    def _beaten(self, answer: Done | Failed) -> None:
        self._hold.beaten()

    def _books_arrived(self, answer: Done | Failed) -> None:
        self._books.arrived(self._clock.monotonic(), whole=isinstance(answer, Done))
        self._queue.journal_at(self._books.pushed)

    def _files_arrived(self, answer: Done | Failed) -> None:
        self._files.arrived(self._clock.monotonic(), whole=isinstance(answer, Done))

    def _beside_arrived(self, answer: Done | Failed) -> None:
        self._beside.arrived(self._clock.monotonic(), whole=isinstance(answer, Done))

    def _beside_fetched(self, answer: Done | Failed) -> None:
        again = isinstance(answer, Failed) and answer.transient
        self._beside.fetched(self._clock.monotonic(), again=again)

    def _files_removed(self, answer: Done | Failed) -> None:
        self._looking -= 1
        self._files.removed(again=isinstance(answer, Failed) and answer.transient)

    def _brought(self, answer: Done | Failed) -> None:
        """Small files of ended trials are here."""
        fetching, self._fetching = self._fetching, {}
        if isinstance(answer, Failed) and answer.transient:
            self.wanted.update(fetching)
        elif isinstance(answer, Failed):
            log.warning("%s: result files of %s were not fetched: %s", self.place, ", ".join(fetching), answer.message)

    def _compared(self, answer: Done | Failed) -> None:
        self._looking -= 1
        if isinstance(answer, Failed):
            if answer.transient:
                self._books.compare_again()
            return
        for name in msgspec.json.decode(answer.data, type=list[str]):
            self._looking += 1
            self._submit(agent.Read(key=self._key(name)), lambda answer, name=name: self._differs(name, answer))  # type: ignore[misc]

    def _differs(self, name: str, answer: Done | Failed) -> None:
        self._looking -= 1
        if isinstance(answer, Done) and (said := self._books.differs(name, answer.data)):
            log.warning("%s: %s", self.place, said)
        elif isinstance(answer, Failed) and answer.transient:
            self._books.compare_again()

    def _cleared(self, keys: list[str], answer: Done | Failed) -> None:
        self._clearing = False
        self._clear_again.ended(self._clock.monotonic(), well=isinstance(answer, Done))
        if isinstance(answer, Failed):
            self._replaced = keys

    def _marked(self, answer: Done | Failed) -> None:
        self._clearing, self._unmarked = False, isinstance(answer, Failed)
        self._clear_again.ended(self._clock.monotonic(), well=isinstance(answer, Done))

    # --- what goes out --------------------------------------------------------------------------------------

    def _go_on(self) -> bool:
        """Start what can be started; True if that was anything."""
        now = self._clock.monotonic()
        self._look_for_silence(now)
        started = self._start_fetches(now) | self._start_sweep(now)
        held = self.sweep is not None and self.sweep.holds
        if not self._begun or self._clearing or held or self._queue.blocked(now):
            return started
        if self._replaced:
            if now < self._clear_again.until:
                return started
            if self._unmarked:
                self._clearing = True
                self._submit(agent.Put(key=self._key(REPLACED), data=b"", guard=self.guard), self._marked)
                return True
            keys, self._replaced, self._clearing = self._replaced, [], True
            self._submit(agent.Delete(keys=keys, guard=self.guard), lambda answer: self._cleared(keys, answer))
            return True
        if now >= self._period_at or self._closing:
            self._period_at = now + self._pace.period_s
            if not self._closing:
                self._files.period()
            self._beside.period()
            self._checkpoints.period()
        started |= self._start_steps(now)
        job: AnyJob | None = self._books.push(
            now, waited_for=self._queue.wants_journal, closing=self._closing, snapshots=not self._files.owed
        )
        if job is not None:
            self._submit(job, self._books_arrived)
            started = True
        started |= self._start_beside(now)
        if not self._beside.is_behind and (job := self._books.removal(packed=self._is_packed)) is not None:
            self._submit(job, lambda answer: self._books.removed(whole=isinstance(answer, Done)))
            started = True
        if (job := self._books.comparison()) is not None:
            for name in self._books.missed():
                log.warning("%s: %s is missing: it is sent again from here", self.place, name)
            self._looking += 1
            self._submit(job, self._compared)
            started = True
        if self.wanted and not self._fetching:
            self._fetching = {dirname: self.wanted.pop(dirname) for dirname in list(self.wanted)[:AT_ONCE]}
            wanted = [f"{dirname}/{name}" for dirname, names in self._fetching.items() for name in names]
            self._submit(agent.FetchFiles(prefix=self._name, target=str(self._root), names=wanted), self._brought)
            started = True
        if (job := self._files.push(now)) is not None:
            self._submit(job, self._files_arrived)
            started = True
        if self._uploader.can.delete and (job := self._files.removal()) is not None:
            self._looking += 1
            self._submit(job, self._files_removed)
            started = True
        return started

    def _start_fetches(self, now: float) -> bool:
        def submit(job: agent.FetchCheckpoint) -> int:
            return self._submit(job, lambda answer: self._fetches.ended(job.target, answer, self._clock.monotonic()))

        return not self._queue.blocked(now) and self._fetches.start(now, submit)

    def _start_sweep(self, now: float) -> bool:
        if self.sweep is None or self._queue.blocked(now):
            return False
        at_rest = self._closing and self._at_rest and self._queue.empty
        job = self.sweep.begin(at_rest=at_rest, touch=self._begun)
        if job is not None:
            self._submit(job, self.sweep.ended)
        return job is not None

    def _start_steps(self, now: float) -> bool:
        started = False
        for step, job in self._checkpoints.begin(now):
            self._submit(job, lambda answer, step=step: self._checkpoints.ended(step, answer))  # type: ignore[misc]
            started = True
        return started

    def _is_packed(self) -> bool:
        """All of the history that is here now is there too."""
        return not self._beside.is_behind and self._packed == self._journal.packed

    def _start_beside(self, now: float) -> bool:
        """Send and fetch what nobody waits for."""
        if self._packed != self._journal.packed:
            self._packed = self._journal.packed
            self._beside.look()
        jobs: list[tuple[AnyJob, Callable[[Done | Failed], None]]] = []
        if (push := self._beside.push(now, closing=self._closing)) is not None:
            jobs.append((push, self._beside_arrived))
        if (removal := self._beside.removal()) is not None:
            jobs.append((removal, lambda answer: self._beside.removed(whole=isinstance(answer, Done))))
        if not self._closing and (fetch := self._beside.fetch(now)) is not None:
            jobs.append((fetch, self._beside_fetched))
        for job, then in jobs:
            self._submit(job, then)
        return bool(jobs)

    def _key(self, *names: str) -> str:
        return "/".join((self._name, *names))

    def _look_for_silence(self, now: float) -> None:
        if now < self._look_at:
            return
        self._look_at = now + 1.0
        silent = self._uploader.silence(now)
        if silent is None:
            return
        job, seconds = silent
        if seconds > self._pace.timeout_s:
            self._uploader.restart(f"{self.place}: {_what(job)} made no progress for {seconds:.0f} s")
        elif seconds > SILENT_S and self._spoken_of != job.id:
            self._spoken_of = job.id
            log.warning("%s: %s has made no progress for %.0f s", self.place, _what(job), seconds)

    # --- the end ----------------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        return self._at_rest and self._queue.empty and (self.sweep is None or not self.sweep.left)

    @property
    def _at_rest(self) -> bool:
        """But for the queue nothing is to be done."""
        moving = self._checkpoints.moving or self._looking or self._fetching or self._clearing or self._books.busy
        left = self.wanted or self._replaced or self._files.waiting or self._books.behind or self._beside.lacking
        void = self._files.has_void and self._uploader.can.delete
        return not (moving or left or void)

    @property
    def given_up(self) -> bool:
        heard = max(self._moved_at, self._uploader.heard_at)
        if not self._uploader.beside or self._clock.monotonic() - heard >= self._pace.timeout_s:
            return True
        return self._at_rest and not self._queue.empty and self._queue.only_refused

    def wait(self, until: float | None) -> None:
        left = 1.0 if until is None else min(1.0, until - self._clock.monotonic())
        self._uploader.wait(max(0.01, left))

    def missing(self) -> list[str]:
        lines = self._checkpoints.missing()
        if self._journal.last_seq > self._books.pushed:
            lines.append(f"the journal from fact {self._books.pushed + 1} to {self._journal.last_seq}")
        lines += [f"result files of {dirname}, which are not here" for dirname in (*self._fetching, *self.wanted)]
        lines += [f"result files of {trial.dirname}" for trial in self._files.waiting]
        return lines + self._beside.lacking

    def release(self) -> None:
        left = [f"{ref.trial_id}/{ref.name}" for ref in self._queue.removals()]
        if left and self._hold.taken is None:
            names = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
            log.warning("%s: could not delete %s; the next start tries again", self.place, names)
        try:
            if not self._queue.blocked(self._clock.monotonic()):
                self._hold.release()
        except OSError as error:
            log.warning("%s: not released: %s", self.place, error)
        finally:
            self._uploader.close()
            if self._uploader.lost:
                remove_views(self._root)


def _what(job: AnyJob) -> str:
    match job:
        case agent.PushPayload() | agent.PushManifest():
            return f"copying {job.directory}"
        case agent.CopyPayload() | agent.CopyManifest():
            return f"copying {job.place}/{job.source}"
        case agent.FetchCheckpoint():
            return f"fetching {job.key}"
        case agent.DeleteCheckpoint():
            return f"deleting {job.key}"
        case agent.Push():
            return f"copying {', '.join(prefix for _, prefix, _ in job.groups[:3]) or 'the journal'}"
        case agent.Put():
            return f"writing {job.key}"
        case _:
            return "an operation"
