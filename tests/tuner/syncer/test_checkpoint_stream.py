"""Checkpoints on their way to a replica: from here, from where they were inherited, and again where damaged."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.tuner.syncer.submitted import Submitted
from trainables.net.failed import FailureKind
from trainables.transfer import transfer_jobs
from trainables.wire import CheckpointRef
from tuner.experiment import events as ev
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.syncer.inventory import CheckpointOrigin, Inventory
from tuner.syncer.queue import REFUSALS, Queue
from tuner.syncer.streams.checkpoint_stream import STEPS, CheckpointStream


class Scene:
    """Trials with two checkpoints each, the second of which lies here."""

    def __init__(self, root: Path, *, trials: int = 1) -> None:
        self.submitted, self.queue = Submitted(ExperimentPaths(root)), Queue()
        self.stream = CheckpointStream(self.submitted.context, self.queue)
        self.state = ExperimentState(root)
        for index in range(trials):
            name = f"t{index}"
            self.state.apply(ev.TrialCreated(name, index, msgspec.Raw(b"{}"), name=name, dirname=name))
            self.state.apply(ev.AttemptStarted(name, 1, 1, 0.0, None, 0))
            for number in (1, 2):
                ref = CheckpointRef(name, f"checkpoint_{number:06d}", 1, 1, number, number)
                self.state.apply(ev.CheckpointPublished(ref, 10, "digest", 0.0))
            (root / name / "checkpoint_000002").mkdir(parents=True)

    @property
    def trial(self) -> Trial:
        return self.state.trials[0]


def test_a_checkpoint_of_here_goes_with_its_manifest_after_the_journal(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "e")
    scene.stream.take_up(scene.state, Inventory())
    (payload,) = scene.submitted.starts(scene.stream)
    assert isinstance(payload, transfer_jobs.PushPayload) and payload.key == "e/t0/checkpoint_000002"
    scene.submitted.end()
    assert not scene.submitted.starts(scene.stream) and scene.stream.missing() == ["checkpoint t0/checkpoint_000002"]
    scene.queue.journal_at(9)
    (manifest,) = scene.submitted.starts(scene.stream)
    assert isinstance(manifest, transfer_jobs.PushManifest) and not scene.stream.drained
    scene.submitted.end()
    assert [fact.ref.name for fact in scene.stream.facts] == ["checkpoint_000002"] and scene.stream.drained


def test_so_many_steps_run_at_once_and_no_more(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "e", trials=STEPS + 1)
    scene.stream.take_up(scene.state, Inventory())
    assert len(scene.submitted.starts(scene.stream)) == STEPS
    scene.submitted.end()
    assert len(scene.submitted.starts(scene.stream)) == 1


def test_what_is_inherited_is_copied_from_where_it_lies_and_lost_where_it_is_damaged(tmp_path: Path) -> None:
    origins = {("t0", "checkpoint_000001"): CheckpointOrigin("old://", "other/t0/checkpoint_000001")}
    scene = Scene(tmp_path / "e")
    scene.stream.take_up(scene.state, Inventory(complete={"t0": ["checkpoint_000002"]}, origins=origins))
    learned = scene.submitted.end()
    assert isinstance(learned, transfer_jobs.Learn) and learned.key == "e/t0/checkpoint_000002"
    (copied,) = scene.submitted.starts(scene.stream)
    assert isinstance(copied, transfer_jobs.CopyPayload) and (copied.place, copied.source) == (
        "old://",
        "other/t0/checkpoint_000001",
    )
    assert scene.stream.inherited == 1
    scene.submitted.end(failed=FailureKind.CHECKPOINT_CORRUPT)
    assert [fact.ref.name for fact in scene.stream.lost] == ["checkpoint_000001"]
    assert scene.stream.inherited == 0 and scene.stream.refusal is None and not scene.stream.missing()


def test_what_may_not_be_copied_from_there_is_said_once_trying_again_will_not_help(tmp_path: Path) -> None:
    origins = {("t0", "checkpoint_000001"): CheckpointOrigin("old://", "key")}
    scene = Scene(tmp_path / "e")
    scene.stream.take_up(scene.state, Inventory(complete={"t0": ["checkpoint_000002"]}, origins=origins))
    scene.submitted.end()
    for _ in range(REFUSALS):
        assert scene.stream.refusal is None
        scene.submitted.clock.advance(60.0)
        assert len(scene.submitted.starts(scene.stream)) == 1
        scene.submitted.end(failed=FailureKind.ACCESS_REFUSED)
    assert scene.stream.refusal == "no answer" and scene.stream.inherited == 1


def test_one_that_nobody_can_use_there_is_sent_again_once_its_manifest_is_gone(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "e")
    scene.stream.take_up(scene.state, Inventory(complete={"t0": ["checkpoint_000002"]}))
    assert scene.queue.holds(scene.trial.checkpoints[1].ref)
    scene.submitted.end(failed=FailureKind.CHECKPOINT_CORRUPT)
    broken = scene.submitted.end()
    assert isinstance(broken, transfer_jobs.Delete) and broken.keys == ["e/t0/checkpoint_000002/.manifest.json"]
    (again,) = scene.submitted.starts(scene.stream)
    assert isinstance(again, transfer_jobs.PushPayload) and not scene.queue.holds(scene.trial.checkpoints[1].ref)


def test_what_is_there_and_not_kept_goes_and_what_is_of_no_trial_yet_once_it_has_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "e")
    whole = ["checkpoint_000001", "checkpoint_000002"]
    old = CheckpointRef("t0", "checkpoint_000000", 1, 1, 0, 0)
    unknown = {"t0": ["checkpoint_000009"]}
    scene.stream.take_up(
        scene.state, Inventory(complete={"t0": whole}, forgotten=[(scene.trial, old, True)], unknown=unknown)
    )
    scene.queue.journal_at(9)
    gone = []
    for _ in range(2):
        scene.stream.started(scene.trial)
        gone += [
            job.key for job in scene.submitted.starts(scene.stream) if isinstance(job, transfer_jobs.DeleteCheckpoint)
        ]
        while scene.submitted.jobs:
            scene.submitted.end()
    assert sorted(gone) == ["e/t0/checkpoint_000000", "e/t0/checkpoint_000009"]
