"""The journal that a replica has: what compaction removed goes there too, what is damaged is sent again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3

from tests.tuner.syncer.submitted import Submitted
from trainables.net.failed import FailureKind
from trainables.transfer import transfer_jobs
from tuner.clock import VirtualClock
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.syncer.inventory import Inventory
from tuner.syncer.queue import Queue
from tuner.syncer.streams.experiment_files import ExperimentFiles
from tuner.syncer.streams.journal_stream import JournalStream
from tuner.syncer.streams.journal_upkeep import JournalUpkeep
from tuner.syncer.streams.trial_files import TrialFiles

BLOB = blake3(b"whole").hexdigest()


class Scene:
    """A journal with a blob, both in the replica."""

    def __init__(self, root: Path) -> None:
        self.paths = ExperimentPaths(root)
        for directory in (self.paths.journal, self.paths.blobs):
            directory.mkdir(parents=True)
        self.paths.experiment_json.write_text("{}")
        (self.paths.blobs / BLOB).write_bytes(b"whole")
        self.writer = JournalWriter(self.paths, 1, next_seq=1, clock=VirtualClock(), sync="inline")
        self.submitted = Submitted(self.paths, journal=self.writer)
        context = self.submitted.context
        self.files = ExperimentFiles(context)
        trial_files = TrialFiles(context)
        self.journal = JournalStream(context, Queue(), trial_files, every_s=0.1, at_once=False)
        self.upkeep = JournalUpkeep(context, self.journal, self.files)
        held = Inventory(names=[f"blobs/{BLOB}", "journal/000000-000001.jsonl"])
        for stream in (self.journal, self.files):
            stream.take_up(ExperimentState(root), held)

    def pushed(self) -> None:
        """Something was said, and went there."""
        self.submitted.clock.advance(1.0)
        self.writer.append(ev.encode(ev.RunEnded("why", 0.0)))
        assert self.submitted.starts(self.journal)
        self.submitted.end()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "e")
    yield scene
    scene.writer.close()


def compared(scene: Scene, *differ: str) -> None:
    (job,) = scene.submitted.starts(scene.upkeep)
    assert isinstance(job, transfer_jobs.Compare) and job.names == [f"blobs/{BLOB}"]
    scene.submitted.end(msgspec.json.encode(differ))


def test_what_compaction_removed_goes_after_a_push_and_once(scene: Scene) -> None:
    compared(scene)
    assert not scene.submitted.starts(scene.upkeep)
    (scene.paths.blobs / BLOB).unlink()
    scene.pushed()
    (job,) = scene.submitted.starts(scene.upkeep)
    assert isinstance(job, transfer_jobs.Delete) and job.keys == ["e/journal/000000-000001.jsonl", f"e/blobs/{BLOB}"]
    assert not scene.upkeep.drained
    scene.submitted.end()
    scene.pushed()
    assert not scene.submitted.starts(scene.upkeep) and scene.upkeep.drained


def test_nothing_goes_while_the_history_of_it_is_not_there(scene: Scene) -> None:
    compared(scene)
    scene.pushed()
    (scene.paths.history).mkdir()
    (scene.paths.history / "000001-00000001-00000009.jsonl.gz").touch()
    scene.files.take_up(ExperimentState(scene.paths.root), Inventory())
    assert scene.files.is_behind and not scene.submitted.starts(scene.upkeep)
    scene.submitted.starts(scene.files)
    scene.submitted.end()
    assert len(scene.submitted.starts(scene.upkeep)) == 1


def test_a_blob_that_is_damaged_there_is_sent_again(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.pushed()
    scene.submitted.starts(scene.upkeep)
    scene.submitted.end()  # the removal of what is not here
    scene.submitted.end(msgspec.json.encode([f"blobs/{BLOB}"]))
    read = scene.submitted.end(b"half")
    assert isinstance(read, transfer_jobs.Read) and read.key == f"e/blobs/{BLOB}"
    assert f"blobs/{BLOB} is damaged: it is sent again" in caplog.text
    scene.submitted.clock.advance(60.0)
    (again,) = scene.submitted.starts(scene.journal)
    assert isinstance(again, transfer_jobs.Push) and [BLOB] in [names for _, _, names in again.groups]


def test_what_differs_and_may_be_right_there_is_left_alone(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    (scene.paths.blobs / BLOB).write_bytes(b"damaged here")
    compared(scene, f"blobs/{BLOB}")
    with caplog.at_level(logging.WARNING):
        scene.submitted.end(b"whole")
    assert "it is left alone" in caplog.text and f"blobs/{BLOB}" in scene.journal.there


def test_a_comparison_that_could_not_be_made_is_made_again(scene: Scene) -> None:
    scene.submitted.starts(scene.upkeep)
    scene.submitted.end(failed=FailureKind.TRANSFER, transient=True)
    assert scene.upkeep.drained
    compared(scene)
    assert not scene.submitted.starts(scene.upkeep)
