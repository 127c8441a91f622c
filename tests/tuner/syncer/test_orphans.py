"""What may be swept out of a replica: what an owner of this experiment began who is gone, and nothing else."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from trainables.transfer import agent
from trainables.transfer.agent import Done, Failed
from trainables.transfer.backend import Leftover
from tuner.syncer.orphans import TRIES, Orphans


def sweep_of(tmp_path: Path, *, generation: int = 2, artifacts: bool = False) -> Orphans:
    (tmp_path / "e" / "t").mkdir(parents=True, exist_ok=True)
    return Orphans(
        place="there/e",
        root=tmp_path / "e",
        generation=generation,
        guard="guard",
        ours=lambda name: name == "t",
        artifacts=artifacts,
    )


def looked(sweep: Orphans, *found: Leftover) -> list[str]:
    """What is removed where that is found at the first look."""
    look = sweep.begin(at_rest=False, touch=False)
    assert look == agent.FindLeftovers(prefix="e") and sweep.holds
    sweep.ended(Done(1, msgspec.json.encode(found)))
    assert not sweep.holds
    assert sweep.begin(at_rest=False, touch=False) is None, "nothing is touched before a trial runs"
    job = sweep.begin(at_rest=False, touch=True)
    if job is None:
        return []
    assert isinstance(job, agent.RemoveLeftovers) and job.guard == "guard"
    sweep.ended(Done(2))
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
    assert looked(sweep_of(tmp_path), leftover) == [leftover.key]


@pytest.mark.parametrize("whose", SOMEBODYS)
def test_what_is_somebodys_stays(whose: str, tmp_path: Path) -> None:
    assert looked(sweep_of(tmp_path), SOMEBODYS[whose]) == []


def test_a_file_that_is_here_under_that_name_is_none_that_was_on_its_way(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    (tmp_path / "e" / "t" / ".result.json.a1B2c3").touch()
    assert looked(sweep, hidden("e/t", "result.json")) == []


def test_artifacts_are_ours_where_they_are_copied_and_are_here(tmp_path: Path) -> None:
    assert looked(sweep_of(tmp_path, artifacts=True), unfinished("e/t/model.bin")) == []
    (tmp_path / "e" / "t" / "model.bin").touch()
    assert looked(sweep_of(tmp_path, artifacts=True), unfinished("e/t/model.bin")) == ["e/t/model.bin"]


def test_after_a_push_of_its_own_was_cut_off_it_looks_again_when_nothing_is_under_way(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    assert looked(sweep) == [] and not sweep.left
    sweep.cut_off()
    assert sweep.left and sweep.begin(at_rest=False, touch=True) is None
    assert sweep.begin(at_rest=True, touch=True) == agent.FindLeftovers(prefix="e")
    own = unfinished("e/t/checkpoint_000004-2.1/weights")
    sweep.ended(Done(3, msgspec.json.encode([own])))
    assert sweep.begin(at_rest=True, touch=True) == agent.RemoveLeftovers(leftovers=[own], guard="guard")
    sweep.ended(Done(4))
    assert not sweep.left


def test_a_place_that_cannot_be_looked_at_holds_nothing_for_long(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    for number in range(TRIES):
        assert sweep.holds and sweep.begin(at_rest=False, touch=True) is not None
        sweep.ended(Failed(number, "TransferError", "no answer", transient=True))
    assert not sweep.holds and not sweep.left
