"""The replica as the loop sees it: when it is to be called again, while nothing, little or everything works."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.tuner.driver.harness import plugin_set
from trainables.checkpoint_config import CheckpointConfig
from trainables.config import SyncConfig
from trainables.errors import (
    AccessRefusedError,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    ObjectNotFoundError,
    PublishError,
    StoreMissingError,
    TransferCorruptError,
    TransferError,
)
from trainables.net.failed import FailureKind
from trainables.transfer import transfer_jobs
from trainables.transfer.backend import Can
from trainables.transfer.client import TransferClient
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed
from trainables.wire import CheckpointRef, SaveUploaded
from tuner.clock import VirtualClock
from tuner.driver.checkpoints import TrialCheckpoints
from tuner.driver.fact_log import FactLog
from tuner.driver.plugins import FactApplier
from tuner.experiment import events as ev
from tuner.experiment.generations import read_record
from tuner.experiment.journal import JournalWriter
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.retention import Checker, Deleter, Retention, RetentionPlanner
from tuner.syncer.inventory import Inventory
from tuner.syncer.replica import Replica
from tuner.syncer.sink import Problem


class Held(TransferClient):
    """Ends a job when it is told to, and not before."""

    def __init__(self) -> None:
        self.can, self.uri = Can(), "held://"
        self.jobs: dict[int, AnyJob] = {}
        self.ended: list[Done | JobFailed] = []
        self._number = 0

    def submit(self, job: AnyJob) -> int:
        self._number += 1
        self.jobs[self._number] = job
        return self._number

    def do(self, job: AnyJob, *, timeout_s: float) -> Done | JobFailed:
        raise NotImplementedError

    def answers(self) -> list[Done | JobFailed]:
        ended, self.ended = self.ended, []
        return ended

    def end(self, kind: type[transfer_jobs.TransferJob], *, failed: bool = False, transient: bool = False) -> None:
        """End every job of that kind."""
        for number in [number for number, job in self.jobs.items() if isinstance(job, kind)]:
            del self.jobs[number]
            answer = JobFailed(FailureKind.TRANSFER, "no", transient, id=number) if failed else Done(number)
            self.ended.append(answer)


class Scene:
    """An experiment with trials, its journal, and a replica whose jobs end when the test says so."""

    def __init__(self, root: Path) -> None:
        self.clock = VirtualClock()
        self.uploader: Held = Held()
        self.clock.advance(10.0)
        self.paths = ExperimentPaths(root)
        self.journal = JournalWriter(self.paths, 1, next_seq=1, clock=self.clock, sync="inline")
        self.state = ExperimentState(root)
        self.replica = self.copies()
        self.say(ev.GenerationStarted(1))

    def copies(self, *, alone: bool = True, at_once: bool = True, replaced: Sequence[str] = ()) -> Replica:
        """A replica that has nothing yet."""
        self.uploader.can = Can(list=not alone)
        replica = Replica(
            self.uploader,
            "held://exp",
            SyncConfig(upload_dir="there", sync_on_checkpoint=at_once),
            paths=self.paths,
            journal=self.journal,
            generation=1,
            clock=self.clock,
        )
        replica.start(self.state, Inventory(replaced=replaced))
        return replica

    def say(self, fact: ev.AnyFact) -> int:
        self.state.apply(fact)
        seq = self.journal.append(ev.encode(fact))
        self.journal.flush()
        return seq

    def trial(self, name: str = "t") -> Trial:
        """A trial that runs."""
        self.say(ev.TrialCreated(name, len(self.state.trials), msgspec.Raw(b"{}"), name=name, dirname=name))
        trial = self.state.trials[-1]
        trial.directory.mkdir()
        self.say(ev.AttemptStarted(name, 1, 1, self.clock.time(), None, 0))
        self.replica.started(trial)
        return trial

    def save(self, trial: Trial, number: int) -> CheckpointRecord:
        ref = CheckpointRef(trial.trial_id, f"checkpoint_{number:06d}", 1, 1, number, number)
        (trial.directory / ref.name).mkdir()
        seq = self.say(ev.CheckpointPublished(ref, 1000, "", self.clock.time()))
        self.replica.published(trial, trial.checkpoints[-1], seq)
        return trial.checkpoints[-1]

    def rest(self) -> float:
        """Let the replica go on; seconds until it wants to be called although nothing happens: never at once."""
        self.replica.finished()
        due = self.replica.due()
        assert due is not None
        assert due > self.clock.monotonic(), "the loop would turn without anything to do"
        return due - self.clock.monotonic()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "exp")
    yield scene
    scene.journal.close()


def test_nothing_is_due_before_the_first_trial_runs(scene: Scene) -> None:
    scene.replica.finished()
    assert scene.replica.due() is None and not scene.uploader.jobs


def test_the_loop_sleeps_between_two_pushes_although_the_journal_goes_on(scene: Scene) -> None:
    trial = scene.trial()
    scene.rest()
    assert any(isinstance(job, transfer_jobs.Push) for job in scene.uploader.jobs.values())
    scene.say(ev.AttemptEnded(trial.trial_id, 1, "paused"))
    scene.rest()
    scene.clock.advance(0.02)
    scene.uploader.end(transfer_jobs.Push)
    assert 1.0 < scene.rest() < 2.0, "a twentieth of the time, and no more than once a second"
    assert not scene.uploader.jobs
    scene.clock.advance(scene.rest())
    scene.rest()
    assert len(scene.uploader.jobs) == 1


def test_the_loop_sleeps_while_the_replica_does_not_answer(scene: Scene) -> None:
    trial = scene.trial()
    scene.save(trial, 1)
    for pause in (0.5, 1.0, 2.0, 4.0):
        scene.rest()
        scene.uploader.end(transfer_jobs.TransferJob, failed=True, transient=True)
        assert scene.rest() == pytest.approx(pause)
        scene.clock.advance(pause)


def test_the_loop_sleeps_in_an_outage_that_outlasts_the_period(scene: Scene) -> None:
    scene.trial()
    scene.rest()
    scene.clock.advance(SyncConfig().sync_period)
    scene.uploader.end(transfer_jobs.TransferJob, failed=True, transient=True)
    scene.rest()


def test_the_loop_sleeps_while_all_lanes_are_taken_and_another_waits_for_its_time(scene: Scene) -> None:
    failing = scene.trial("failing")
    scene.save(failing, 1)
    scene.rest()
    scene.uploader.end(transfer_jobs.TransferJob, failed=True)
    scene.rest()
    for name in ("a", "b", "c"):
        scene.save(scene.trial(name), 1)
    scene.rest()
    scene.clock.advance(5.0)
    scene.rest()


def refused(scene: Scene, group: str) -> int:
    """Refuse every push that brings something there, as long as one comes at this instant; how many did."""
    count = 0
    while found := [
        number
        for number, job in scene.uploader.jobs.items()
        if isinstance(job, transfer_jobs.Push) and any(prefix == group for _, prefix, _ in job.groups)
    ]:
        count += len(found)
        assert count < 100, "the loop would turn without anything to do"
        for number in found:
            del scene.uploader.jobs[number]
            scene.uploader.ended.append(JobFailed(FailureKind.ACCESS_REFUSED, "no", id=number))
        scene.replica.finished()
    return count


@pytest.mark.parametrize(("group", "at_once"), [("exp/t", 0), ("exp/journal", 1)])
def test_a_file_that_is_refused_is_sent_again_after_a_pause_longer_each_time(
    scene: Scene, group: str, at_once: int
) -> None:
    trial = scene.trial()
    (trial.directory / "result.json").write_text("{}\n")
    scene.replica.touched([trial])
    scene.replica.closing()
    scene.replica.finished()
    for number, pause in enumerate((0.5, 1.0, 2.0, 4.0)[at_once:]):
        assert refused(scene, group) == (1 if number else 1 + at_once)
        scene.clock.advance(pause * 0.9)
        scene.replica.finished()
        assert refused(scene, group) == 0
        scene.clock.advance(pause * 0.1)
        scene.rest()


def test_what_is_replaced_and_cannot_be_deleted_is_tried_again_after_a_pause(scene: Scene) -> None:
    scene.replica = scene.copies(replaced=["old"])
    scene.trial()
    for pause in (0.5, 1.0, 2.0):
        scene.replica.finished()
        assert [job.keys for job in scene.uploader.jobs.values() if isinstance(job, transfer_jobs.Delete)] == [
            ["exp/old"]
        ]
        scene.uploader.end(transfer_jobs.Delete, failed=True)
        assert scene.rest() == pytest.approx(pause)
        assert not scene.uploader.jobs
        scene.clock.advance(pause)
    scene.replica.finished()
    scene.uploader.end(transfer_jobs.Delete)
    scene.replica.finished()
    assert any(isinstance(job, transfer_jobs.Push) for job in scene.uploader.jobs.values())


def test_a_trial_whose_files_are_refused_keeps_no_other_trials_files_from_arriving(scene: Scene) -> None:
    trials = [scene.trial(name) for name in "abc"]
    for trial in trials:
        (trial.directory / "result.json").write_text("{}\n")
    scene.replica.touched(trials)
    scene.replica.closing()
    arrived = set()
    for _ in range(20):
        scene.replica.finished()
        for number, job in list(scene.uploader.jobs.items()):
            there = {prefix for _, prefix, _ in job.groups} if isinstance(job, transfer_jobs.Push) else set()
            del scene.uploader.jobs[number]
            well = "exp/b" not in there
            refused = JobFailed(FailureKind.ACCESS_REFUSED, "no", id=number)
            scene.uploader.ended.append(Done(number) if well else refused)
            arrived |= there if well else set()
        scene.clock.advance(60.0)
    assert {"exp/a", "exp/c"} <= arrived
    assert scene.replica.missing == ["result files of b"]


def fetches(scene: Scene) -> list[transfer_jobs.FetchCheckpoint]:
    return [job for job in scene.uploader.jobs.values() if isinstance(job, transfer_jobs.FetchCheckpoint)]


def fails(scene: Scene, error: type[Exception], message: str = "no", *, transient: bool = False) -> None:
    """End every fetch with that error."""
    jobs = scene.uploader.jobs
    for number in [number for number, job in jobs.items() if isinstance(job, transfer_jobs.FetchCheckpoint)]:
        del scene.uploader.jobs[number]
        raised = error(message)
        if message == FULL:
            raised.__cause__ = OSError(errno.ENOSPC, "No space left on device")
        failed: JobFailed = JobFailed.of(raised, id=number)
        scene.uploader.ended.append(msgspec.structs.replace(failed, transient=transient))
    scene.replica.finished()


@pytest.mark.parametrize("begun", [False, True])
def test_a_fetch_that_may_pass_is_tried_again_after_a_pause_longer_each_time(scene: Scene, begun: bool) -> None:
    """Before the first trial runs too, and when other things succeed meanwhile."""
    trial = scene.trial()
    record = scene.save(trial, 1)
    if not begun:
        scene.uploader.jobs.clear()
        scene.replica = scene.copies()
    told: list[Problem] = []
    scene.replica.fetch(trial, record, told.append)
    for pause in (0.5, 1.0, 2.0, 4.0):
        assert len(fetches(scene)) == 1
        fails(scene, TransferError, transient=True)
        assert scene.rest() <= pause
        scene.clock.advance(pause * 0.9)
        until_rest(scene)
        assert not fetches(scene)
        scene.clock.advance(pause * 0.1)
        scene.replica.finished()
    scene.uploader.end(transfer_jobs.FetchCheckpoint)
    scene.replica.finished()
    assert told == [None]


def test_a_checkpoint_that_several_ask_for_is_fetched_once_and_all_are_told(scene: Scene) -> None:
    trial = scene.trial()
    record = scene.save(trial, 1)
    told: list[tuple[str, Problem]] = []
    scene.replica.fetch(trial, record, lambda problem: told.append(("first", problem)))
    scene.replica.fetch(trial, record, lambda problem: told.append(("second", problem)))
    fails(scene, TransferError, transient=True)
    scene.replica.fetch(trial, record, lambda problem: told.append(("third", problem)))
    assert not fetches(scene)
    scene.clock.advance(0.5)
    scene.replica.finished()
    (job,) = fetches(scene)
    assert job.target == str(trial.directory / record.ref.name) and not told
    scene.uploader.end(transfer_jobs.FetchCheckpoint)
    scene.replica.finished()
    assert told == [("first", None), ("second", None), ("third", None)]
    scene.replica.fetch(trial, record, lambda problem: told.append(("later", problem)))
    assert len(fetches(scene)) == 1


FULL = "/disk/.fetch-1: No space left on device; 0 bytes are free there"


@pytest.mark.parametrize(
    ("error", "message", "problem"),
    [
        (CheckpointCorruptError, "no", "no"),
        (CheckpointNotFoundError, "no", "no"),
        (ObjectNotFoundError, "no", "no"),
        (TransferCorruptError, "no", "no"),
        (CheckpointError, "no", ev.ErrorInfo("CheckpointError", "no")),
        (StoreMissingError, "no", ev.ErrorInfo("StoreMissingError", "no")),
        (TransferError, FULL, ev.ErrorInfo("TransferError", FULL, disk=True)),
        (OSError, FULL, ev.ErrorInfo("OSError", FULL, disk=True)),
        (PublishError, "no", ev.ErrorInfo("PublishError", "no", disk=True)),
        (ZeroDivisionError, "no", ev.ErrorInfo("ZeroDivisionError", "no")),
    ],
)
def test_only_what_is_missing_or_damaged_over_there_is_called_so(
    scene: Scene, caplog: pytest.LogCaptureFixture, error: type[Exception], message: str, problem: Problem
) -> None:
    trial = scene.trial()
    record = scene.save(trial, 1)
    told: list[Problem] = []
    scene.replica.fetch(trial, record, told.append)
    fails(scene, error, message)
    assert told == [problem] and not fetches(scene)
    assert "tried again" not in caplog.text


def test_a_fetch_that_is_refused_is_tried_once_more_with_credentials_that_were_read_anew(scene: Scene) -> None:
    trial = scene.trial()
    record = scene.save(trial, 1)
    told: list[Problem] = []
    scene.replica.fetch(trial, record, told.append)
    fails(scene, AccessRefusedError)
    assert not told and not fetches(scene)
    scene.clock.advance(0.5)
    scene.replica.finished()
    fails(scene, AccessRefusedError)
    assert told == [ev.ErrorInfo("AccessRefusedError", "no")]


def test_the_loop_sleeps_until_the_journal_is_durable_and_goes_on_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.trial()
    durable = False
    monkeypatch.setattr(scene.journal, "ready_to_seal", lambda: durable)
    scene.rest()
    assert not scene.uploader.jobs
    durable = True  # and the loop is woken
    scene.rest()
    assert len(scene.uploader.jobs) == 1


def test_what_workers_bring_themselves_is_waited_for_and_left_out(scene: Scene) -> None:
    trial = scene.trial()
    one, two, three = (
        CheckpointRef(trial.trial_id, f"checkpoint_{number:06d}", 1, 1, number, number) for number in (1, 2, 3)
    )
    for ref in (one, two, three):
        scene.replica.uploading(trial, ref)
    scene.save(trial, 1)
    scene.save(trial, 2)
    scene.replica.finished()
    assert not payloads(scene)

    scene.replica.uploaded(trial, SaveUploaded(two, {"shard": "digest"}))
    scene.replica.finished()
    (job,) = payloads(scene)
    assert (Path(job.directory).name, job.sent) == (two.name, {"shard": "digest"})
    scene.uploader.end(transfer_jobs.PushPayload, failed=True)
    scene.replica.finished()
    scene.clock.advance(60.0)
    scene.replica.finished()
    assert [job.sent for job in payloads(scene)] == [{"shard": "digest"}]  # not forgotten when it is tried again
    until_rest(scene)
    scene.replica.ended(trial)  # no process is left: the first is sent whole, and the third never came to be
    scene.replica.finished()

    done = until_rest(scene)
    assert [Path(job.directory).name for job in done if isinstance(job, transfer_jobs.PushManifest)] == [one.name]
    assert [job.sent for job in done if isinstance(job, transfer_jobs.PushPayload)] == [{}]
    deleted = [job.key for job in done if isinstance(job, transfer_jobs.DeleteCheckpoint)]
    assert deleted == [f"exp/{trial.dirname}/{three.name}"]


def test_a_checkpoint_is_read_from_its_first_byte_until_it_is_complete(scene: Scene) -> None:
    trial = scene.trial()
    path = trial.directory / scene.save(trial, 1).ref.name
    assert not scene.replica.reads(path)
    scene.replica.finished()
    assert scene.replica.reads(path)
    scene.uploader.end(transfer_jobs.PushPayload)
    scene.replica.finished()
    assert scene.replica.reads(path)  # the manifest is still to be read
    until_rest(scene)
    assert not scene.replica.reads(path)


@pytest.mark.parametrize("forgotten", ["before the end", "after the end"])
def test_r2_at_the_end_of_a_trial_the_copy_that_waits_for_the_period_goes_there_before_the_older_one_goes(
    scene: Scene, forgotten: str
) -> None:
    scene.replica = scene.copies(at_once=False)
    trial = scene.trial()
    one = scene.save(trial, 1)
    scene.clock.advance(SyncConfig().sync_period)
    scene.replica.finished()
    until_rest(scene)
    two = scene.save(trial, 2)
    if forgotten == "before the end":
        scene.replica.forgotten(trial, one.ref, scene.say(ev.CheckpointForgotten(one.ref)))
    scene.say(ev.TrialEnded(trial.trial_id, "TERMINATED", scene.clock.time()))
    scene.replica.ended(trial)
    if forgotten == "after the end":
        scene.replica.forgotten(trial, one.ref, scene.say(ev.CheckpointForgotten(one.ref)))

    done: list[AnyJob] = []
    for _ in range(60):
        scene.clock.advance(1.0)
        scene.replica.finished()
        done += until_rest(scene)

    steps = [job for job in done if isinstance(job, (transfer_jobs.PushManifest, transfer_jobs.DeleteCheckpoint))]
    assert [(type(job), Path(job.key).name) for job in steps] == [
        (transfer_jobs.PushManifest, two.ref.name),
        (transfer_jobs.DeleteCheckpoint, one.ref.name),
    ]


class Beaten(Held):
    """Ends signs of life, each second that it is waited for, and nothing else."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock, self.beats = clock, 0

    def wait(self, timeout_s: float | None) -> None:
        self.clock.advance(1.0)
        self.beats += sum(isinstance(job, transfer_jobs.Put) for job in self.jobs.values())
        self.end(transfer_jobs.Put)

    def do(self, job: AnyJob, *, timeout_s: float) -> Done | JobFailed:
        self.beats += 1
        return Done(0)


@pytest.mark.parametrize("waits", [100.0, 1e9])
def test_who_waits_for_copies_at_the_end_gives_signs_of_life_and_waits_no_longer_for_them(
    scene: Scene, waits: float
) -> None:
    uploader = scene.uploader = Beaten(scene.clock)
    scene.replica = scene.copies(alone=False)
    trial = scene.trial()
    scene.save(trial, 1)
    ownership = claim(scene.paths, clock=scene.clock)
    checkpoints = TrialCheckpoints(
        FactLog(FactApplier(scene.state, plugin_set()), scene.journal, clock=scene.clock),
        Retention(RetentionPlanner(CheckpointConfig()), Checker(inline=True), Deleter(inline=True)),
        scene.replica,
        ownership=ownership,
        running={},
        keep_local=None,
        class_api=False,
    )
    begun = scene.clock.monotonic()

    missing = checkpoints.copy_rest(scene.clock, lambda: scene.clock.monotonic() >= begun + waits, lambda: False)

    waited = scene.clock.monotonic() - begun
    record = read_record(scene.paths.generation(ownership.generation))
    ownership.release()
    assert missing and missing[0] == "checkpoint t/checkpoint_000001"
    assert waited < 1.1 * min(waits, SyncConfig().sync_timeout)
    assert record is not None and record.heartbeat >= waited // 11 > 0
    assert uploader.beats >= waited // 11


def payloads(scene: Scene) -> list[transfer_jobs.PushPayload]:
    return [job for job in scene.uploader.jobs.values() if isinstance(job, transfer_jobs.PushPayload)]


def until_rest(scene: Scene) -> list[AnyJob]:
    """End jobs until none runs; all that were ended."""
    done: list[AnyJob] = []
    while jobs := list(scene.uploader.jobs.values()):
        done += jobs
        scene.uploader.end(transfer_jobs.TransferJob)
        scene.replica.finished()
    return done
