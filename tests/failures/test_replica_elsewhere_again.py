"""What somebody from outside did with replicas: moved them, lost a part, ran `restore=` on another machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.failures.checkpoint_faults import Crash, in_child
from tuner.cli import main
from tuner.error import ExperimentDamagedError, ResumeError, SettingError


def count(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    step = int(checkpoint.to_dict()["step"]) if checkpoint is not None else 0
    while step < 5:
        step += 1
        tune.report({"step": step}, checkpoint=tune.Checkpoint.from_dict({"step": step}))


def run(storage: Path, place: Path | None, **settings: Any) -> Any:
    config = tune.SyncConfig() if place is None else tune.SyncConfig(upload_dir=place)
    chosen = {
        "name": "e", "executor": "inline", "verbose": 0, "num_samples": 3, "keep_checkpoints_num": 2, "resume": "AUTO",
        "sync_config": config, "max_concurrent_trials": 1, **settings,
    }  # fmt: skip
    return tune.run(count, storage_path=storage, **chosen)


def killed(storage: Path, place: Path, at: int) -> None:
    status = in_child(lambda: run(storage, place, callbacks=[Crash(at, trials=2)]))
    assert os.WIFSIGNALED(status)


def test_f13_a_replica_that_was_moved_is_what_results_are_read_from(tmp_path: Path) -> None:
    killed(tmp_path / "a", tmp_path / "old", 3)
    shutil.rmtree(tmp_path / "a")
    os.rename(tmp_path / "old", tmp_path / "new")
    analysis = run(tmp_path / "b", tmp_path / "new")
    shutil.rmtree(tmp_path / "b")

    again = run(tmp_path / "c", tmp_path / "new")
    for found in (analysis, again):
        assert [trial.checkpoint.to_dict()["step"] for trial in found.trials] == [5, 5, 5]


def test_r5_a_replica_without_its_description_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path / "a", tmp_path / "place")
    os.unlink(tmp_path / "place" / "e" / "experiment.json")
    before = sorted(str(file) for file in (tmp_path / "place").rglob("*") if "generations" not in str(file))

    with pytest.raises(ExperimentDamagedError, match="holds checkpoints but no experiment.json"):
        run(tmp_path / "b", tmp_path / "place")
    assert before == sorted(str(file) for file in (tmp_path / "place").rglob("*") if "generations" not in str(file))


def test_r4_a_restored_experiment_goes_on_from_its_own_replica_on_another_machine(tmp_path: Path) -> None:
    run(tmp_path / "a", tmp_path / "first", num_samples=1)
    restored = {"name": "n", "restore": f"file://{tmp_path}/first/e", "num_samples": 3}
    first = run(tmp_path / "b", tmp_path / "second", **restored)
    shutil.rmtree(tmp_path / "b")

    again = run(tmp_path / "c", tmp_path / "second", **restored)
    assert [trial.trial_id for trial in again.trials] == [trial.trial_id for trial in first.trials]
    assert [trial.attempt for trial in again.trials] == [trial.attempt for trial in first.trials], "nothing ran again"


def test_r5_resume_local_does_not_look_elsewhere(tmp_path: Path) -> None:
    run(tmp_path / "a", tmp_path / "place")
    with pytest.raises(ResumeError, match="there is no experiment at"):
        run(tmp_path / "b", tmp_path / "place", resume="LOCAL")


def test_a_place_within_the_experiment_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    for place in ("e", "e/copies"):
        with pytest.raises(SettingError, match="lies within the experiment's own directory"):
            run(tmp_path / "a", tmp_path / "a" / place)
    assert not (tmp_path / "a").exists()


def test_verify_does_not_count_what_is_only_elsewhere_as_missing(tmp_path: Path, capsys: Any) -> None:
    run(tmp_path / "a", tmp_path / "place")
    shutil.rmtree(tmp_path / "a")
    run(tmp_path / "b", tmp_path / "place")
    assert main(["verify", str(tmp_path / "b" / "e")]) == 0
    assert "only elsewhere" in capsys.readouterr().out
