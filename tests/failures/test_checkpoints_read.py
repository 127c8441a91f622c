"""A checkpoint that a trial reads is not deleted under it, whatever it publishes meanwhile (R3)."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import directories, facts, restored, run, save

import trainables as train
import tuner as tune
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.store import verify
from trainables.wire import CheckpointClosed, CheckpointOpened


def reads_on(config):
    """Its first attempt saves once; the second keeps that open over three saves of its own, then lets go and saves."""
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        save(1)
        tune.report(count=1)
        tune.get_checkpoint()
        raise RuntimeError("the first attempt")
    with checkpoint.as_directory() as directory:
        for count in (2, 3, 4):
            save(count)
            tune.report(count=count)
            tune.get_checkpoint()  # waits until it is published
        tune.report(count=5)  # answered after all of that was heard
        verify.check(Path(directory))
        there = sorted(name for name in os.listdir(Path(directory).parent) if name.startswith("checkpoint"))
    tune.report(count=6, there=there)
    save(7)
    tune.report(count=7, there=there)


def test_d06_what_a_trial_keeps_open_stays_over_its_own_saves_and_goes_afterwards(tmp_path):
    (trial,) = run(reads_on, tmp_path, max_failures=1, keep_checkpoints_num=1).trials
    assert trial.status == "TERMINATED"
    assert "checkpoint_000001" in trial.last_result["there"]
    assert len(directories(trial)) == 1, directories(trial)
    forgotten = [fact["ref"]["name"] for fact in facts(tmp_path / "e", "forgotten")]
    assert forgotten.index("checkpoint_000001") == 2  # after the second and the third


def test_d06_what_is_open_when_the_trial_dies_goes_with_it(tmp_path):
    def dies(config):
        checkpoint = tune.get_checkpoint()
        if checkpoint is None:
            save(1)
            tune.report(count=1)
            tune.get_checkpoint()
            raise RuntimeError("the first attempt")
        if checkpoint.iteration == 1:
            with checkpoint.as_directory():
                for count in (2, 3):
                    save(count)
                    tune.report(count=count)
                    tune.get_checkpoint()
                os._exit(3)
        tune.report(count=4)

    (trial,) = run(dies, tmp_path, max_failures=2, keep_checkpoints_num=1).trials
    assert trial.status == "TERMINATED"
    assert len(directories(trial)) == 1, directories(trial)


def reads_a_copy_too(config):
    """As `reads_on`; meanwhile it reads a copy of that checkpoint, as one of a copied experiment, and closes that."""
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        save(1)
        tune.report(count=1)
        tune.get_checkpoint()
        raise RuntimeError("the first attempt")
    copy = train.Checkpoint(shutil.copytree(checkpoint.path, Path(config["copies"], "copy")))
    with checkpoint.as_directory() as directory:
        for count in (2, 3, 4):
            save(count)
            tune.report(count=count)
            tune.get_checkpoint()
            with copy.as_directory():
                pass
        tune.report(count=5)
        verify.check(Path(directory))


def test_d06_what_a_trial_keeps_open_stays_when_it_closes_a_copy_of_it_elsewhere(tmp_path):
    config = {"copies": str(tmp_path)}
    (trial,) = run(reads_a_copy_too, tmp_path, config=config, max_failures=1, keep_checkpoints_num=1).trials
    assert trial.status == "TERMINATED"
    forgotten = [fact["ref"]["name"] for fact in facts(tmp_path / "e", "forgotten")]
    assert forgotten.index("checkpoint_000001") == 2  # after the second and the third


def learns_from_files(config):
    for count in range(1, 4):
        save(count)
        tune.report(count=count)
        tune.get_checkpoint()  # waits until it is published: from here on what is opened is told
        with train.Checkpoint(config["teacher"]).as_directory() as directory:
            tune.report(taught=Path(directory, "count").read_text())


def learns_from_a_dict(config):
    for count in range(1, 4):
        tune.report({"count": count}, checkpoint=train.Checkpoint.from_dict({"count": count}))
        tune.get_checkpoint()
        tune.report(taught=str(train.Checkpoint(config["teacher"]).to_dict()["count"]))


def learns_from_its_start(config):
    with tune.get_checkpoint().as_directory() as directory:
        for count in range(1, 4):
            save(count)
            tune.report(count=count)
            tune.get_checkpoint()
            tune.report(taught=Path(directory, "count").read_text())


def teaches_files(config):
    save(7)
    tune.report(count=7)


def teaches_a_dict(config):
    tune.report({"count": 7}, checkpoint=train.Checkpoint.from_dict({"count": 7}))


@pytest.mark.parametrize(
    ("teaches", "learns"),
    [
        (teaches_files, learns_from_files),
        (teaches_a_dict, learns_from_a_dict),
        (teaches_files, learns_from_its_start),
    ],
    ids=lambda function: function.__name__,
)
def test_a_trial_reads_the_checkpoint_of_another_experiment(tmp_path, teaches, learns):
    (teacher,) = run(teaches, tmp_path, name="teacher").trials
    path = teacher.checkpoint.path
    settings = {"restore": path} if learns is learns_from_its_start else {}
    (trial,) = run(learns, tmp_path, config={"teacher": path}, keep_checkpoints_num=1, **settings).trials
    assert (trial.status, trial.last_result["taught"]) == ("TERMINATED", "7")
    assert len(directories(trial)) == 1, directories(trial)
    assert directories(teacher) == ["checkpoint_000001"]  # retention here is not asked about it


def test_a_trial_that_dies_over_the_checkpoint_of_another_experiment_goes_on_after_a_resume(tmp_path):
    def dies(config):
        start = restored()
        with train.Checkpoint(config["teacher"]).as_directory():
            for count in (start + 1, start + 2):
                save(count)
                tune.report(count=count)
                tune.get_checkpoint()
            if not start:
                os._exit(3)

    (teacher,) = run(teaches_files, tmp_path, name="teacher").trials
    settings = {"config": {"teacher": teacher.checkpoint.path}, "keep_checkpoints_num": 1}
    (trial,) = run(dies, tmp_path, raise_on_failed_trial=False, **settings).trials
    assert (trial.status, trial.error.type) == ("ERROR", "TrialProcessDiedError")
    (trial,) = run(dies, tmp_path, resume="AUTO+ERRORED", **settings).trials
    assert (trial.status, trial.last_result["count"]) == ("TERMINATED", 4)


def test_the_workers_of_a_trainer_read_the_checkpoint_of_another_experiment(tmp_path):
    (teacher,) = run(teaches_a_dict, tmp_path, name="teacher").trials
    trainer = DataParallelTrainer(
        learns_from_a_dict,
        train_loop_config={"teacher": teacher.checkpoint.path},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
    )
    (trial,) = run(trainer, tmp_path).trials
    assert (trial.status, trial.last_result["taught"]) == ("TERMINATED", "7")


def test_a_trial_that_reads_its_checkpoint_and_goes_on_says_nothing_of_it(tmp_path, monkeypatch):
    heard = []
    from tuner.driver.results import ResultHandler

    real = ResultHandler.on_message

    def listening(self, run, body):
        heard.append(body)
        real(self, run, body)

    monkeypatch.setattr(ResultHandler, "on_message", listening)

    def usual(config):
        checkpoint = tune.get_checkpoint()
        start = 0
        if checkpoint is not None:
            with checkpoint.as_directory() as directory:
                start = int(Path(directory, "count").read_text())
        for count in range(start + 1, 4):
            save(count)
            tune.report(count=count)
            tune.get_checkpoint()
            if start == 0 and count == 2:
                raise RuntimeError("the first attempt")

    run(usual, tmp_path, max_failures=1, keep_checkpoints_num=1)
    assert heard and not [body for body in heard if isinstance(body, (CheckpointOpened, CheckpointClosed))]
