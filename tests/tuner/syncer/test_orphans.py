"""Which orphans may be removed from a replica: what an owner of this experiment began who is gone, and nothing else."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.tuner.syncer.submitted import Submitted
from trainables.config import SyncConfig
from trainables.net.failed import FailureKind
from trainables.transfer import transfer_jobs
from trainables.transfer.backend import Leftover
from trainables.transfer.transfer_jobs import AnyJob
from tuner.experiment import events as ev
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.syncer.inventory import Inventory
from tuner.syncer.streams.orphans import TRIES, Orphans
from tuner.syncer.streams.stream import Stream

GUARD = "e/generations/000003.json"


class Moving(Stream):
    """What this owner moves itself."""

    drained = False

    def start_jobs(self, now: float) -> bool:
        return False


class Scene:
    """An experiment `e` with a trial `t`, of which the second generation looks for orphans."""

    def __init__(self, tmp_path: Path, *, artifacts: bool = False) -> None:
        config = SyncConfig(upload_dir="there", sync_artifacts=artifacts)
        (tmp_path / "e" / "t").mkdir(parents=True, exist_ok=True)
        self.submitted, self.moving = Submitted(ExperimentPaths(tmp_path / "e"), generation=2, config=config), Moving()
        self.orphans = Orphans(self.submitted.context, [self.moving])
        state = ExperimentState(tmp_path / "e")
        state.apply(ev.TrialCreated("t", 0, msgspec.Raw(b"{}"), name="t", dirname="t"))
        self.orphans.take_up(state, Inventory(may_hold_orphans=True))

    def begins(self) -> AnyJob | None:
        """The job that begins now."""
        return self.submitted.jobs[0] if self.orphans.start_jobs(0.0) else None

    def looked(self, *found: Leftover) -> list[str]:
        """What is removed where that is found at the first look."""
        assert self.begins() == transfer_jobs.FindLeftovers(prefix="e") and self.orphans.holds
        self.submitted.end(msgspec.json.encode(found))
        assert not self.orphans.holds
        assert self.begins() is None, "nothing is touched before a trial runs"
        self.orphans.begun = True
        job = self.begins()
        if job is None:
            return []
        assert isinstance(job, transfer_jobs.RemoveLeftovers) and job.guard == GUARD
        self.submitted.end()
        return [leftover.key for leftover in job.leftovers]


def temporary(key: str) -> Leftover:
    """As a directory has them: what it was to become nobody knows."""
    return Leftover(key)


def unfinished(key: str) -> Leftover:
    """As a bucket has them, under the name that it was to get."""
    return Leftover(key, key, "token")


def hidden(directory: str, name: str) -> Leftover:
    """As rsync calls them."""
    return Leftover(f"{directory}/.{name}.a1B2c3", f"{directory}/{name}")


NOBODYS = [
    temporary("e/.transfer-0011223344556677"),
    temporary("e/journal/.transfer-0011223344556677"),
    temporary("e/t/.transfer-0011223344556677"),
    temporary("e/t/checkpoint_000003/deep/.transfer-0011223344556677"),
    temporary("e/t/deep/"),
    temporary("e/t/checkpoint_000003/"),
    unfinished("e/journal/snapshot-000001-00000010.json"),
    unfinished("e/blobs/" + 64 * "a"),
    unfinished("e/t/result.json"),
    unfinished("e/t/checkpoint_000003/weights"),
    unfinished("e/t/checkpoint_000003-1.2/weights"),
    hidden("e", "experiment.json"),
    hidden("e/t", "result.json"),
    hidden("e/t/checkpoint_000003", "weights"),
]
SOMEBODYS = {
    "a living owner's or its workers'": unfinished("e/t/checkpoint_000004-2.1/weights"),
    "a living owner's, just begun": temporary("e/t/checkpoint_000004-2.1/"),
    "a later owner's": temporary("e/t/checkpoint_000004-3.1/.transfer-0011223344556677"),
    "another experiment's below this one": temporary("e/x/.transfer-0011223344556677"),
    "another experiment's checkpoint": unfinished("e/x/checkpoint_000001/weights"),
    "a foreign directory": temporary("e/export/"),
    "a foreign program's, beside the trials": unfinished("e/export/model.bin"),
    "a foreign program's, in the experiment": unfinished("e/model.bin"),
    "a foreign program's, in a trial": unfinished("e/t/model.bin"),
    "a user's, who calls it so": hidden("e/t", "config"),
}


@pytest.mark.parametrize("leftover", NOBODYS, ids=lambda leftover: leftover.key)
def test_what_a_dead_owner_began_goes(leftover: Leftover, tmp_path: Path) -> None:
    assert Scene(tmp_path).looked(leftover) == [leftover.key]


@pytest.mark.parametrize("whose", SOMEBODYS)
def test_what_is_somebodys_stays(whose: str, tmp_path: Path) -> None:
    assert Scene(tmp_path).looked(SOMEBODYS[whose]) == []


def test_a_file_that_is_here_under_that_name_is_none_that_was_on_its_way(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (tmp_path / "e" / "t" / ".result.json.a1B2c3").touch()
    assert scene.looked(hidden("e/t", "result.json")) == []


def test_artifacts_are_ours_where_they_are_copied_and_are_here(tmp_path: Path) -> None:
    assert Scene(tmp_path, artifacts=True).looked(unfinished("e/t/model.bin")) == []
    (tmp_path / "e" / "t" / "model.bin").touch()
    assert Scene(tmp_path, artifacts=True).looked(unfinished("e/t/model.bin")) == ["e/t/model.bin"]


def test_after_a_push_of_its_own_was_cut_off_it_looks_again_when_nothing_is_under_way(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    orphans = scene.orphans
    assert scene.looked() == [] and orphans.drained
    orphans.begun = orphans.closing = True
    orphans.cut_off()
    assert not orphans.drained and scene.begins() is None
    scene.moving.drained = True
    assert scene.begins() == transfer_jobs.FindLeftovers(prefix="e")
    own = unfinished("e/t/checkpoint_000004-2.1/weights")
    scene.submitted.end(msgspec.json.encode([own]))
    assert scene.begins() == transfer_jobs.RemoveLeftovers(leftovers=[own], guard=GUARD)
    scene.submitted.end()
    assert orphans.drained


def test_a_place_that_cannot_be_looked_at_holds_nothing_for_long(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for _ in range(TRIES):
        assert scene.orphans.holds and scene.begins() is not None
        scene.submitted.end(failed=FailureKind.TRANSFER, transient=True)
    assert not scene.orphans.holds and scene.orphans.drained
