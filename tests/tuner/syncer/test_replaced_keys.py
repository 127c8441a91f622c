"""What is void in a replica: marked, and deleted before anything comes."""

from __future__ import annotations

from pathlib import Path

from tests.tuner.syncer.submitted import Submitted
from trainables.net.failed import FailureKind
from trainables.transfer import transfer_jobs
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.syncer.inventory import Inventory
from tuner.syncer.streams.replaced_keys import ReplacedKeys


def test_a_whole_experiment_is_marked_first_and_the_mark_goes_last(tmp_path: Path) -> None:
    submitted = Submitted(ExperimentPaths(tmp_path / "e"))
    stream = ReplacedKeys(submitted.context)
    assert not stream.holds
    names = ["experiment.json", ".replaced", "blobs/a"]
    stream.take_up(ExperimentState(tmp_path / "e"), Inventory(replaced=names, replaced_whole=True))

    (mark,) = submitted.starts(stream)
    assert (
        isinstance(mark, transfer_jobs.Put) and mark.key == "e/.replaced" and mark.guard == "e/generations/000002.json"
    )
    assert stream.holds and not submitted.starts(stream)
    submitted.end(failed=FailureKind.TRANSFER)
    due = stream.due_at(submitted.clock.monotonic())
    assert due is not None and not submitted.starts(stream)
    submitted.clock.advance(due - submitted.clock.monotonic())
    submitted.starts(stream)
    submitted.end()

    for failed in ("TransferError", ""):
        (job,) = submitted.starts(stream)
        assert isinstance(job, transfer_jobs.Delete) and job.keys == ["e/experiment.json", "e/blobs/a", "e/.replaced"]
        submitted.end(failed=failed)
        assert stream.holds == bool(failed)
        submitted.clock.advance(60.0)
    assert stream.drained
