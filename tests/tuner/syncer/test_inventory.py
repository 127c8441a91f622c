"""What a replica holds, held against what is kept."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from trainables.transfer.client import InlineClient
from trainables.wire import CheckpointRef
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.syncer.inventory import Inventory, take_inventory
from tuner.syncer.remote_experiment import RemoteExperiment


class Scene:
    """A trial that runs, `a`, and one that has ended, `b`, each with the checkpoint 2; what is there says the test."""

    def __init__(self, place: Path) -> None:
        self.place, self.state = place, ExperimentState(place / "here" / "e")
        (place / "there").mkdir()
        for index, name in enumerate("ab"):
            self.state.apply(ev.TrialCreated(name, index, msgspec.Raw(b"{}"), name=name, dirname=name))
            self.state.apply(ev.AttemptStarted(name, 1, 1, 0.0, None, 0))
            ref = CheckpointRef(name, "checkpoint_000002", 1, 1, 2, 2)
            self.state.apply(ev.CheckpointPublished(ref, 10, "digest", 0.0))
        self.state.apply(ev.TrialEnded("b", "TERMINATED", 0.0))

    def there(self, *names: str) -> None:
        for name in names:
            path = self.place / "there" / "e" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def taken(self, *, new: bool = False, void: tuple[str, ...] = (), touched: tuple[str, ...] = ()) -> Inventory:
        uploader = InlineClient({"place": str(self.place / "there")})
        try:
            remote = RemoteExperiment(uploader, uploader.uri, "e", timeout_s=10.0)
            return take_inventory(remote, self.state, new=new, void=void, touched=touched)
        finally:
            uploader.close()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_complete_and_partial_checkpoints_are_told_apart(scene: Scene) -> None:
    scene.there("a/checkpoint_000002/.manifest.json", "b/checkpoint_000002/weights", "c/checkpoint_000001/weights")
    held = scene.taken()
    assert held.complete == {"a": {"checkpoint_000002"}, "b": set(), "c": set()}
    assert held.partial == {"a": set(), "b": {"checkpoint_000002"}, "c": {"checkpoint_000001"}}
    assert held.unknown == {"c": ["checkpoint_000001"]}, "its trial is not in the journal yet"


def test_what_is_not_kept_is_forgotten(scene: Scene) -> None:
    scene.there("a/checkpoint_000001/weights")
    ((trial, ref, whole),) = scene.taken().forgotten
    assert (trial.trial_id, ref.name, whole) == ("a", "checkpoint_000001", False)


def test_of_a_new_experiment_everything_is_void_its_description_first(scene: Scene) -> None:
    scene.there("blobs/x", "experiment.json", "generations/000001.json", "old/result.json")
    held = scene.taken(new=True)
    assert held.replaced[0] == "experiment.json" and sorted(held.replaced[1:]) == ["blobs/x", "old/result.json"]
    assert held.replaced_whole and "old" in held.replaced_directories and not held.names and not held.files


@pytest.mark.parametrize(
    ("void", "expected"), [((), ([".replaced"], False)), (("x", ".replaced"), (["x", ".replaced"], True))]
)
def test_a_mark_of_a_replacement_goes_too(scene: Scene, void: tuple[str, ...], expected: object) -> None:
    scene.there(".replaced", "x")
    held = scene.taken(void=void)
    assert (list(held.replaced), held.replaced_whole) == expected


def test_small_files_of_ended_trials_that_are_not_here_are_lacking(scene: Scene) -> None:
    scene.there("a/result.json", "b/result.json", "b/error.txt", "b/error_recovered.txt", "journal/000001-000001.jsonl")
    (scene.place / "here" / "e" / "b").mkdir(parents=True)
    held = scene.taken()
    assert set(held.names) == {"a/result.json", "b/result.json", "journal/000001-000001.jsonl"}
    assert list(held.files["a"].known) == ["result.json"] and not held.files["a"].lacking
    assert set(held.files["b"].lacking) == {"result.json", "error_recovered.txt"}
    assert list(held.files["b"].void) == ["error.txt"], "it has another name by now"
