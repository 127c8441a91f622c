"""`DataParallelTrainer`, without a framework, run by the real driver: what is asked of trainers, and of groups."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import trainables as train
import tuner as tune
from tests.listings import SCRIPTS, environment
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from trainables import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, SyncConfig
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.errors import InvalidSettingError, TrainingFailedError
from trainables.group.framework import Framework
from trainables.store import verify
from tuner.error import ExperimentNotFoundError, ResourceError
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import read_settings

TWO = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})


def settings(root: Path, **more: Any) -> RunConfig:
    return RunConfig(name="run", storage_path=str(root), verbose=0, **more)


def count(config: dict[str, Any]) -> None:
    """Counts epochs, from its checkpoint on; a file of `faults` says what happens in an epoch, once."""
    context = train.get_context()
    found = train.get_checkpoint()
    start = 0 if found is None else found.to_dict()["epoch"] + 1
    for epoch in range(start, config["epochs"]):
        fault = Path(config["faults"], f"{epoch}_{context.get_world_rank()}")
        if fault.exists():
            what = fault.read_text()
            fault.unlink()
            if what == "leave":
                os.kill(os.getpid(), signal.SIGTERM)
                while not context.should_stop():
                    os.sched_yield()
                return
            os.kill(os.getpid(), signal.Signals[what])
        train.report({"epoch": epoch, "started_at": start}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))


def counter(root: Path, epochs: int = 4, **more: Any) -> DataParallelTrainer:
    return DataParallelTrainer(
        count, train_loop_config={"epochs": epochs, "faults": str(root)}, scaling_config=TWO, **more
    )


def test_fit_returns_the_result_of_its_one_trial(tmp_path: Path) -> None:
    config = settings(tmp_path, checkpoint_config=CheckpointConfig(num_to_keep=2))

    result = counter(tmp_path, run_config=config).fit()

    assert result.metrics is not None
    assert (result.metrics["epoch"], result.metrics["training_iteration"]) == (3, 4)
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict()["epoch"] == 3
    assert [made.to_dict()["epoch"] for made, _ in result.best_checkpoints] == [2, 3]
    assert result.config == {"train_loop_config": {"epochs": 4, "faults": str(tmp_path)}}


def test_spreading_has_no_effect_on_one_machine_and_that_is_said(tmp_path: Path) -> None:
    scaling = ScalingConfig(num_workers=1, placement_strategy="SPREAD")
    trainer = DataParallelTrainer(lambda: train.report({"x": 1}), scaling_config=scaling, run_config=settings(tmp_path))

    with pytest.warns(UserWarning, match=r"placement_strategy='SPREAD'\) has no effect: trials run on this machine"):
        trainer.fit()


def test_a_worker_that_dies_restarts_the_group_from_the_last_checkpoint(tmp_path: Path) -> None:
    Path(tmp_path, "2_1").write_text("SIGKILL")
    config = settings(tmp_path, failure_config=FailureConfig(max_failures=1))

    result = counter(tmp_path, run_config=config).fit()

    assert result.metrics is not None
    assert (result.metrics["epoch"], result.metrics["started_at"]) == (3, 2)
    assert result.metrics_dataframe is not None
    assert list(result.metrics_dataframe["epoch"]) == [0, 1, 2, 3]


class Impatient(Framework):
    timeout_s = 4.0


def test_a_worker_that_hangs_restarts_the_group_from_the_last_checkpoint(tmp_path: Path) -> None:
    Path(tmp_path, "2_1").write_text("SIGSTOP")
    config = settings(tmp_path, failure_config=FailureConfig(max_failures=-1))  # a slow machine may need one more

    result = counter(tmp_path, backend_config=Impatient(), run_config=config).fit()

    assert result.metrics is not None
    assert (result.metrics["epoch"], result.metrics["started_at"]) >= (3, 2)
    assert result.metrics_dataframe is not None
    assert list(result.metrics_dataframe["epoch"]) == [0, 1, 2, 3]
    assert "did not come to report() number" in Path(result.path or "", "error_recovered.txt").read_text()


def test_a_failure_beyond_max_failures_is_raised_and_restore_goes_on(tmp_path: Path) -> None:
    Path(tmp_path, "2_1").write_text("SIGKILL")

    with pytest.raises(TrainingFailedError, match=r"rank 1 .* was killed by signal 9") as failed:
        counter(tmp_path, run_config=settings(tmp_path)).fit()

    assert f"DataParallelTrainer.restore({str(tmp_path / 'run')!r}" in str(failed.value)
    assert DataParallelTrainer.can_restore(tmp_path / "run")
    assert read_settings(ExperimentPaths(tmp_path / "run"))["started_by"] == "DataParallelTrainer", "hints name it"
    again = DataParallelTrainer.restore(
        tmp_path / "run", count, train_loop_config={"epochs": 4, "faults": str(tmp_path)}, scaling_config=TWO
    )
    result = again.fit()
    assert result.metrics is not None
    assert (result.metrics["epoch"], result.metrics["started_at"]) == (3, 2)


def test_a_notice_to_one_worker_is_one_to_the_group_which_is_continued(tmp_path: Path) -> None:
    for rank in (0, 1):
        Path(tmp_path, f"2_{rank}").write_text("leave")

    result = counter(tmp_path, run_config=settings(tmp_path)).fit()

    assert result.metrics is not None
    assert (result.metrics["epoch"], result.metrics["started_at"]) == (3, 2)


def test_a_tuner_runs_a_trainer_with_the_config_laid_over_its_own(tmp_path: Path) -> None:
    trainer = counter(tmp_path, run_config=settings(tmp_path))

    grid = tune.Tuner(trainer, param_space={"train_loop_config": {"epochs": tune.grid_search([1, 2])}}).fit()

    assert not grid.errors
    assert [result.metrics["epoch"] for result in grid] == [0, 1]
    assert grid.experiment_path == str(tmp_path / "run")  # the trainer's own settings hold


def test_run_takes_over_a_trainers_own_settings_but_for_those_that_are_given(tmp_path: Path) -> None:
    Path(tmp_path, "2_1").write_text("SIGKILL")
    seen: list[int] = []

    class Seen(tune.Callback):
        def on_trial_result(self, *, result: dict[str, Any], **info: Any) -> None:
            seen.append(result["epoch"])

    own = settings(
        tmp_path / "own",
        checkpoint_config=CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="epoch"),
        failure_config=FailureConfig(max_failures=1),
        callbacks=[Seen()],
        stop={"epoch": 3},
        seed=7,
    )

    analysis = tune.run(counter(tmp_path, epochs=9, run_config=own), name="other", keep_checkpoints_num=2)

    (trial,) = analysis.trials
    assert trial.directory.parent == tmp_path / "own" / "other"
    assert seen == [0, 1, 2, 3]
    assert sorted(Checkpoint(path).to_dict()["epoch"] for path in trial.directory.glob("checkpoint_*")) == [2, 3]
    assert json.loads((tmp_path / "own" / "other" / "experiment.json").read_bytes())["seed"] == 7


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"lr": 0.1}, r'got lr in its config: what its workers get is under "train_loop_config"'),
        ({"train_loop_config": 3}, "train_loop_config=3 is not accepted; accepted: a dict"),
    ],
)
def test_a_config_that_no_worker_gets_is_refused_before_anything_is_made(
    space: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        tune.run(counter(tmp_path), config=space, name="run", storage_path=tmp_path, verbose=0)

    assert not list(tmp_path.iterdir())


def test_the_number_of_workers_can_be_searched_and_the_resources_of_a_trial_follow(tmp_path: Path) -> None:
    def sizes(config: dict[str, Any]) -> None:
        train.report({"size": train.world_size(), "cpu": train.get_context().get_trial_resources()["cpu"]})

    scaling = ScalingConfig(num_workers=tune.grid_search([1, 3]), resources_per_worker={"CPU": 0.25})
    trainer = DataParallelTrainer(sizes, scaling_config=TWO, run_config=settings(tmp_path))
    space = {"scaling_config": scaling, "train_loop_config": {"lr": tune.grid_search([0.1])}}

    grid = tune.Tuner(trainer, param_space=space).fit()

    assert not grid.errors
    assert [(result.metrics["size"], result.metrics["cpu"]) for result in grid] == [(1, 0.25), (3, 0.75)]
    assert [result.config["scaling_config"]["num_workers"] for result in grid] == [1, 3]
    with pytest.raises(ResourceError, match="asks for 1000 cpu"):
        tune.run(
            trainer,
            config={"scaling_config": {"num_workers": 4000, "resources_per_worker": {"CPU": 0.25}}},
            name="more",
        )


def test_resume_from_checkpoint_is_where_it_begins_also_from_memory(tmp_path: Path) -> None:
    trainer = counter(
        tmp_path, run_config=settings(tmp_path), resume_from_checkpoint=Checkpoint.from_dict({"epoch": 1})
    )

    result = trainer.fit()

    assert result.metrics is not None
    assert (result.metrics["epoch"], result.metrics["started_at"]) == (3, 2)


def test_keep_all_ranks_of_the_settings_reaches_the_group(tmp_path: Path) -> None:
    def save(config: dict[str, Any]) -> None:
        with train.checkpoint_dir() as directory:
            Path(directory, "shard").write_text(str(train.world_rank()))
        train.report({})

    config = settings(tmp_path, checkpoint_config=CheckpointConfig(_checkpoint_keep_all_ranks=True))
    result = DataParallelTrainer(save, scaling_config=TWO, run_config=config).fit()

    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        assert [Path(directory, f"rank_{rank}", "shard").read_text() for rank in (0, 1)] == ["0", "1"]


@pytest.mark.parametrize("by_workers", [False, True])
def test_what_every_worker_saved_is_copied_elsewhere_as_one_checkpoint(tmp_path: Path, by_workers: bool) -> None:
    def save(config: dict[str, Any]) -> None:
        with train.checkpoint_dir() as directory:
            Path(directory, f"shard_{train.world_rank()}").write_text(str(train.world_rank()))
        train.report({})

    checkpointing = CheckpointConfig(_checkpoint_keep_all_ranks=True, _checkpoint_upload_from_workers=by_workers)
    elsewhere = tmp_path / "elsewhere"
    config = settings(
        tmp_path / "here", checkpoint_config=checkpointing, sync_config=SyncConfig(upload_dir=str(elsewhere))
    )
    DataParallelTrainer(save, scaling_config=TWO, run_config=config).fit()

    (copied,) = elsewhere.glob("run/*/checkpoint_*")
    assert [Path(copied, f"rank_{rank}", f"shard_{rank}").read_text() for rank in (0, 1)] == ["0", "1"]
    verify.check(copied)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server() as port:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
            monkeypatch.setenv(name, value)
        yield f"s3://{make_bucket(port, 'trainings')}/runs"


def kept_at(place: str) -> list[int]:
    (result,) = tune.ResultGrid(f"{place}/run")
    best = [checkpoint for checkpoint, _ in result.best_checkpoints]
    return sorted({checkpoint.to_dict()["epoch"] for checkpoint in [*best, result.checkpoint] if checkpoint})


FIRST_IS_BEST = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="epoch", checkpoint_score_order="min")


@pytest.mark.torch
@pytest.mark.timeout(400)
def test_a_torch_training_is_kept_in_a_bucket_and_goes_on_from_there_alone(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from trainables.torch import TorchTrainer

    monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / "cache"))
    Path(tmp_path, "3_1").write_text("SIGKILL")
    how = {"train_loop_config": {"epochs": 5, "faults": str(tmp_path)}, "scaling_config": TWO}
    by_workers = replace(FIRST_IS_BEST, _checkpoint_upload_from_workers=True)
    config = RunConfig(name="run", storage_path=bucket, checkpoint_config=by_workers, verbose=0)
    with pytest.raises(TrainingFailedError, match="was killed by signal 9") as failed:
        TorchTrainer(count, run_config=config, **how).fit()
    assert f"TorchTrainer.restore('{bucket}/run'" in str(failed.value)
    assert kept_at(bucket) == [0, 2]
    shutil.rmtree(tmp_path / "cache")

    result = TorchTrainer.restore(f"{bucket}/run", count, **how).fit()

    assert result.metrics is not None
    assert (result.metrics["epoch"], result.metrics["started_at"]) == (4, 3)
    shutil.rmtree(tmp_path / "cache")
    assert kept_at(bucket) == [0, 4]


def test_a_training_whose_disk_is_lost_goes_on_from_its_copy_in_a_directory(tmp_path: Path) -> None:
    Path(tmp_path, "3_1").write_text("SIGKILL")
    copies = tmp_path / "copies"
    config = settings(
        tmp_path / "here", checkpoint_config=FIRST_IS_BEST, sync_config=SyncConfig(upload_dir=str(copies))
    )
    with pytest.raises(TrainingFailedError, match="was killed by signal 9"):
        counter(tmp_path, epochs=5, run_config=config).fit()
    assert kept_at(str(copies)) == [0, 2]
    shutil.rmtree(tmp_path / "here")

    analysis = tune.run(counter(tmp_path, epochs=5, run_config=config), resume="AUTO+ERRORED")

    assert [(trial.last_result["epoch"], trial.last_result["started_at"]) for trial in analysis.trials] == [(4, 3)]
    assert kept_at(str(tmp_path / "here")) == kept_at(str(copies)) == [0, 4]


_SCRIPT = SCRIPTS / "group_that_waits.py"


def test_t05_a_killed_driver_takes_its_group_along_and_the_same_script_continues(tmp_path: Path) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    command = [sys.executable, str(_SCRIPT), str(tmp_path / "results"), str(told)]
    with subprocess.Popen([*command, "wait"], env=environment(tmp_path), cwd=tmp_path) as first:
        try:
            with open(told) as line:
                published, *pids = line.read().split()
            group = [psutil.Process(int(pid)) for pid in pids]
        finally:
            first.kill()
    assert published.endswith("checkpoint_000003")
    assert psutil.wait_procs(group, timeout=60)[1] == [], "a worker outlives its driver"

    done = subprocess.run(
        command, env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "5 3 [0, 1, 2, 3, 4, 5]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"scaling_config": ScalingConfig(num_workers=0)}, r"num_workers\)=0 is not accepted.*>= 1"),
        ({"scaling_config": 2}, "scaling_config=2 is not accepted"),
        ({"run_config": {"name": "x"}}, "run_config=.* is not accepted"),
        ({"resume_from_checkpoint": "/tmp/checkpoint"}, "resume_from_checkpoint=.*Checkpoint"),
        ({"train_loop_config": [1]}, r"train_loop_config=\[1\] is not accepted"),
        ({"backend_config": "torch"}, "backend_config='torch' is not accepted"),
        ({"datasets": {"train": [1]}}, "prepare_data_loader"),
        ({"metadata": 3}, "metadata=3 is not accepted"),
        ({"num_workers": 2}, "unknown argument of DataParallelTrainer 'num_workers'"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        DataParallelTrainer(count, **arguments)


def test_more_workers_than_there_is_room_for_is_an_error_that_names_both(tmp_path: Path) -> None:
    trainer = DataParallelTrainer(count, scaling_config=ScalingConfig(num_workers=1000), run_config=settings(tmp_path))

    with pytest.raises(ResourceError, match="asks for 1000 cpu, available are"):
        trainer.fit()

    assert not (tmp_path / "run").exists()


def test_restore_of_nothing_is_an_error(tmp_path: Path) -> None:
    assert not DataParallelTrainer.can_restore(tmp_path / "none")
    with pytest.raises(ExperimentNotFoundError):
        DataParallelTrainer.restore(tmp_path / "none", count, scaling_config=TWO).fit()


def test_resources_given_to_a_trainer_are_refused_with_what_says_them() -> None:
    with pytest.raises(ValueError, match=r"with_resources\(DataParallelTrainer.*ScalingConfig"):
        tune.with_resources(DataParallelTrainer(lambda: None), {"cpu": 2})
