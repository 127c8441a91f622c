"""The replica of an experiment that a driver owns: whose history stands, what is void, and who copies what there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import tuner as tune
from tests.tuner.opening.harness import Opening, ran, train
from trainables import ScalingConfig
from trainables.torch import TorchTrainer
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state
from tuner.opening.apply import OwnedExperiment
from tuner.opening.attach import OwnedReplica, find_origins, place_for_workers
from tuner.spec import Spec


def thrice(config: dict[str, Any]) -> None:
    for n in range(3):
        tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))


def started(results: Path, place: Path | None, **settings: Any) -> OwnedExperiment:
    owned = Opening(results, place, **settings).start()
    assert owned is not None
    return owned


def replica_of(owned: OwnedExperiment) -> OwnedReplica:
    assert owned.replica is not None
    return owned.replica


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "there"


# --- whose history stands ---------------------------------------------------------------------------------------


def test_a_replica_in_step_is_settled(tmp_path: Path, place: Path) -> None:
    ran(tmp_path, place)
    replica = replica_of(started(tmp_path, place, resume="AUTO"))
    assert not replica.unsettled and not replica.fetched
    assert (replica.let_go, list(replica.void), list(replica.notes)) == (frozenset(), [], [])


def test_what_a_killed_driver_had_not_cleared_away_is_known_to_the_next_one(tmp_path: Path, place: Path) -> None:
    ran(tmp_path, place)
    paths = ExperimentPaths(tmp_path / "e")
    paths.taking_over.write_text(json.dumps([["ab_00000", "checkpoint_000001"]]))
    replica = replica_of(started(tmp_path, place, resume="AUTO"))
    assert replica.unsettled and replica.let_go == {("ab_00000", "checkpoint_000001")}


def test_a_longer_history_is_taken_over_with_what_its_driver_could_see_here(tmp_path: Path, place: Path) -> None:
    ran(tmp_path, place)
    replica, paths = replica_of(started(tmp_path, place, resume="AUTO")), ExperimentPaths(tmp_path / "e")
    (trial,) = load_state(paths).trials
    (record,) = trial.checkpoints
    assert record.copies, "whoever goes on elsewhere sees it"
    taken = replica.continuing(paths)
    assert taken.unsettled and taken.let_go == {(trial.trial_id, record.ref.name)}
    assert json.loads(paths.taking_over.read_text()) == [[trial.trial_id, record.ref.name]]
    assert taken.notes[-1] == f"{replica.remote.uri} continues what is at {paths.root}, and is taken over from there"
    assert replica.let_go == frozenset(), "a value of its own"


def test_what_was_never_copied_is_not_what_the_other_driver_let_go_of(tmp_path: Path, place: Path) -> None:
    ran(tmp_path, place)
    ran(tmp_path, num_samples=2, resume=True)  # without copies
    replica, paths = replica_of(started(tmp_path, place, resume="LOCAL")), ExperimentPaths(tmp_path / "e")
    first, second = load_state(paths).trials
    assert second.checkpoints and {trial_id for trial_id, _ in replica.continuing(paths).let_go} == {first.trial_id}


def test_a_history_that_was_not_chosen_is_void_and_its_journal_kept(tmp_path: Path, place: Path) -> None:
    ran(tmp_path, place)
    shutil.copytree(tmp_path / "e", tmp_path / "kept")
    ran(tmp_path, place, num_samples=2, resume=True)
    shutil.rmtree(tmp_path / "e")
    (tmp_path / "kept").rename(tmp_path / "e")
    ran(tmp_path, num_samples=3, resume=True)
    owned = started(tmp_path, place, resume="LOCAL")
    replica = replica_of(owned)
    assert {key.split("/")[0] for key in replica.void if not key.split("/")[0].startswith("train_")} == {
        "journal",
        "generations",
    }
    assert not any(key.startswith("journal/") or key.endswith("/result.json") for key in replica.remote.keys)
    (note,) = [note for note in replica.notes if 'is void by resume="LOCAL"' in note]
    kept = Path(note.rpartition("its journal: ")[2])
    assert list((kept / "journal").glob("*.jsonl")), "a person may look at it, and bring it back"
    assert list(replica.kept_longer()(load_state(owned.paths).trials[0])) == []


# --- what a resume asks --------------------------------------------------------------------------------------------


def test_a_checkpoint_is_elsewhere_where_it_is_complete_there_or_its_origin_is_known(
    tmp_path: Path, place: Path
) -> None:
    ran(tmp_path, place, trainable=thrice, keep_checkpoints_num=3)
    replica = replica_of(started(tmp_path, place, trainable=thrice, resume="AUTO"))
    (trial,) = load_state(ExperimentPaths(tmp_path / "e")).trials
    first, second, third = (record.ref for record in trial.checkpoints)
    there = place / "e" / trial.dirname
    (there / second.name / ".manifest.json").unlink()
    shutil.rmtree(there / third.name)
    replica.remote.look()
    elsewhere = replica.elsewhere(None)
    assert [elsewhere(trial, ref) for ref in (first, second, third)] == [True, False, False]
    origins: Any = {(trial.dirname, third.name): "known"}
    assert replica.elsewhere(origins)(trial, third)


# --- a restored experiment -----------------------------------------------------------------------------------------


def test_checkpoints_of_a_restored_experiment_are_found_where_they_were_copied_to(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    ran(tmp_path / "old", first)
    owned = started(tmp_path / "new", second, name="n", restore=tmp_path / "old" / "e")
    state = load_state(owned.paths)
    (trial,) = state.trials
    (record,) = trial.checkpoints
    shutil.rmtree(trial.directory / record.ref.name, ignore_errors=True)
    found = find_origins(replica_of(owned), owned.description, state)
    assert found is not None
    origin = found[trial.dirname, record.ref.name]
    assert (Path(str(origin.place).removeprefix("file://")), origin.key) == (
        first,
        f"e/{trial.dirname}/{record.ref.name}",
    )


def test_an_experiment_that_continues_no_other_has_its_checkpoints_nowhere_else(tmp_path: Path, place: Path) -> None:
    ran(tmp_path, place)
    owned = started(tmp_path, place, resume="AUTO")
    assert find_origins(replica_of(owned), owned.description, load_state(owned.paths)) is None


def test_checkpoints_that_are_gone_with_their_place_are_said_and_not_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    ran(tmp_path / "old", first)
    owned = started(tmp_path / "new", second, name="n", restore=tmp_path / "old" / "e")
    state = load_state(owned.paths)
    (trial,) = state.trials
    shutil.rmtree(trial.directory / trial.checkpoints[0].ref.name, ignore_errors=True)
    shutil.rmtree(first)
    assert find_origins(replica_of(owned), owned.description, state) == {}


# --- workers that copy what they save themselves ----------------------------------------------------------------------


def workers(config: dict[str, Any]) -> None:
    tune.report({"n": 1})


CONFIG = tune.CheckpointConfig(_checkpoint_upload_from_workers=True)
TRAINER = TorchTrainer(workers, scaling_config=ScalingConfig(num_workers=2))


def told(results: Path, place: Path | None, spec: Spec, **copies: Any) -> tuple[Any, OwnedExperiment]:
    """What workers are told of the place, by a driver with an agent."""
    ran(results, place)
    more = {"sync_config": tune.SyncConfig(upload_dir=str(place), **copies)} if place is not None else {}
    owned = started(results, place, resume="AUTO", inline=False, **more)
    try:
        return place_for_workers(owned.replica, spec, owned.ownership), owned
    finally:
        if owned.replica is not None:
            owned.replica.connection.uploader.close()


def spec_of(trainable: Any, config: Any = CONFIG) -> Spec:
    return Spec(trainable=trainable, name="e", checkpoint_config=config)


def test_workers_of_a_trainer_are_told_the_place_its_owner_and_how_to_notice_the_next_one(
    tmp_path: Path, place: Path
) -> None:
    replicated, owned = told(tmp_path, place, spec_of(TRAINER))
    assert replicated.directory == "e"
    assert replicated.witness == ("e/generations/000002.json", owned.ownership.id)
    assert replicated.guard == "e/generations/000003.json"
    assert Path(cloudpickle.loads(replicated.arguments)["place"]) == place
    witness, text = replicated.witness
    assert text in (place / witness).read_text() and not (place / replicated.guard).exists()


@pytest.mark.parametrize(
    ("trainable", "copied", "copies", "why"),
    [
        (train, True, {}, "only the workers of a trainer"),
        (TRAINER, False, {}, "nothing is copied anywhere"),
        (
            TRAINER,
            True,
            {"sync_on_checkpoint": False},
            "with sync_on_checkpoint=False only what is there",
        ),
    ],
)
def test_where_they_cannot_the_log_says_why(
    trainable: Any,
    copied: bool,
    copies: dict[str, Any],
    why: str,
    tmp_path: Path,
    place: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    replicated, _ = told(tmp_path, place if copied else None, spec_of(trainable), **copies)
    assert replicated is None
    assert "_checkpoint_upload_from_workers=True) has no effect: " + why in caplog.text


def test_nobody_is_told_what_nobody_asked_for(tmp_path: Path, place: Path, caplog: pytest.LogCaptureFixture) -> None:
    replicated, _ = told(tmp_path, place, spec_of(TRAINER, tune.CheckpointConfig()))
    assert replicated is None and "_checkpoint_upload_from_workers" not in caplog.text
