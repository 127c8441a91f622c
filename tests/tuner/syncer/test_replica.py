"""The replica as the loop sees it: when it is to be called again, while nothing, little or everything works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from trainables.transfer import agent
from trainables.transfer.agent import AnyJob, Done, Failed
from trainables.transfer.base import Can
from trainables.wire import CheckpointRef, Uploaded
from tuner.clock import VirtualClock
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import CheckpointRecord, Trial
from tuner.syncer.replica import Pace, Replica
from tuner.syncer.trial_files import Artifacts
from tuner.syncer.uploader import Uploader


class Held(Uploader):
    """Ends a job when it is told to, and not before."""

    def __init__(self) -> None:
        self.can, self.uri = Can(), "held://"
        self.jobs: dict[int, AnyJob] = {}
        self.ended: list[Done | Failed] = []
        self._number = 0

    def submit(self, job: AnyJob) -> int:
        self._number += 1
        self.jobs[self._number] = job
        return self._number

    def answers(self) -> list[Done | Failed]:
        ended, self.ended = self.ended, []
        return ended

    def end(self, kind: type[agent.Job], *, failed: bool = False, transient: bool = False) -> None:
        """End every job of that kind."""
        for number in [number for number, job in self.jobs.items() if isinstance(job, kind)]:
            del self.jobs[number]
            answer = Failed(number, "TransferError", "no", transient) if failed else Done(number)
            self.ended.append(answer)


class Scene:
    """An experiment with trials, its journal, and a replica whose jobs end when the test says so."""

    def __init__(self, root: Path) -> None:
        self.clock, self.uploader = VirtualClock(), Held()
        self.clock.advance(10.0)
        self.paths = ExperimentPaths(root)
        self.journal = JournalWriter(self.paths, 1, next_seq=1, clock=self.clock, sync="inline")
        self.state = ExperimentState(root)
        self.replica = Replica(
            self.uploader,
            place="held://exp",
            paths=self.paths,
            journal=self.journal,
            generation=1,
            there=(),
            clock=self.clock,
            pace=Pace(),
            artifacts=Artifacts(),
            alone=True,
        )
        self.replica.start(self.state, {}, ())
        self.say(ev.GenerationStarted(1))

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
    assert any(isinstance(job, agent.Push) for job in scene.uploader.jobs.values())
    scene.say(ev.AttemptEnded(trial.trial_id, 1, "paused"))
    scene.rest()
    scene.clock.advance(0.02)
    scene.uploader.end(agent.Push)
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
        scene.uploader.end(agent.Job, failed=True, transient=True)
        assert scene.rest() == pytest.approx(pause)
        scene.clock.advance(pause)


def test_the_loop_sleeps_in_an_outage_that_outlasts_the_period(scene: Scene) -> None:
    scene.trial()
    scene.rest()
    scene.clock.advance(Pace().period_s)
    scene.uploader.end(agent.Job, failed=True, transient=True)
    scene.rest()


def test_the_loop_sleeps_while_all_lanes_are_taken_and_another_waits_for_its_time(scene: Scene) -> None:
    failing = scene.trial("failing")
    scene.save(failing, 1)
    scene.rest()
    scene.uploader.end(agent.Job, failed=True)
    scene.rest()
    for name in ("a", "b", "c"):
        scene.save(scene.trial(name), 1)
    scene.rest()
    scene.clock.advance(5.0)
    scene.rest()


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

    scene.replica.uploaded(trial, Uploaded(two, {"shard": "digest"}))
    scene.replica.finished()
    (job,) = payloads(scene)
    assert (Path(job.directory).name, job.sent) == (two.name, {"shard": "digest"})
    scene.uploader.end(agent.PushPayload, failed=True)
    scene.replica.finished()
    scene.clock.advance(60.0)
    scene.replica.finished()
    assert [job.sent for job in payloads(scene)] == [{"shard": "digest"}]  # not forgotten when it is tried again
    until_rest(scene)
    scene.replica.ended(trial)  # no process is left: the first is sent whole, and the third never came to be
    scene.replica.finished()

    done = until_rest(scene)
    assert [Path(job.directory).name for job in done if isinstance(job, agent.PushManifest)] == [one.name]
    assert [job.sent for job in done if isinstance(job, agent.PushPayload)] == [{}]
    assert [job.key for job in done if isinstance(job, agent.DeleteCheckpoint)] == [f"exp/{trial.dirname}/{three.name}"]


def payloads(scene: Scene) -> list[agent.PushPayload]:
    return [job for job in scene.uploader.jobs.values() if isinstance(job, agent.PushPayload)]


def until_rest(scene: Scene) -> list[AnyJob]:
    """End jobs until none runs; all that were ended."""
    done: list[AnyJob] = []
    while jobs := list(scene.uploader.jobs.values()):
        done += jobs
        scene.uploader.end(agent.Job)
        scene.replica.finished()
    return done
