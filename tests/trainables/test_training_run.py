"""The runs of `Trainer`: what they return, and results while they go on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import trainables as train
from tests.trainables.first_generation import STEPS, pairs, report_twice, trainer
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.errors import InvalidSettingError, SessionError, TrainingFailedError
from trainables.training_run import WholeConfigTrainable


def test_an_iterator_gives_what_every_worker_reported_and_then_what_they_returned(tmp_path: Path) -> None:
    iterator = trainer(tmp_path).run_iterator(report_twice)

    with pytest.raises(SessionError, match="force=True"):
        iterator.get_final_results()
    assert [pairs(results) for results in iterator] == STEPS
    assert iterator.is_finished()
    assert iterator.get_final_results() == ["done", "done"]


def test_an_iterator_that_is_given_up_ends_its_run(tmp_path: Path) -> None:
    def endless() -> None:
        while True:
            train.report(step=0, rank=0)

    iterator = trainer(tmp_path).run_iterator(endless)
    next(iterator)

    iterator.close()

    assert iterator.is_finished()


def test_what_was_not_seen_yet_is_passed_over_only_when_that_is_wanted(tmp_path: Path) -> None:
    iterator = trainer(tmp_path).run_iterator(report_twice)
    next(iterator)

    assert not iterator.is_finished()
    assert iterator.get_final_results(force=True) == ["done", "done"]
    assert iterator.is_finished() and list(iterator) == []


def test_a_failure_is_raised_once_and_then_the_run_is_over(tmp_path: Path) -> None:
    def fails() -> None:
        train.report(step=0)
        raise ValueError("of the user")

    iterator = trainer(tmp_path).run_iterator(fails)
    assert len(next(iterator)) == 2

    with pytest.raises(TrainingFailedError, match="of the user") as failed:
        next(iterator)
    assert "ValueError: of the user" in str(failed.value.__cause__)
    assert list(iterator) == [] and iterator.is_finished()


def test_links_to_checkpoints_are_those_of_the_run_and_move_with_it(tmp_path: Path) -> None:
    made = trainer(tmp_path / "here")
    made.run(report_twice)
    shown = made.latest_checkpoint_dir
    assert shown is not None
    names = sorted(path.name for path in shown.iterdir())
    assert names == ["checkpoint_000001", "checkpoint_000002"]
    assert all(path.is_symlink() and not os.path.isabs(os.readlink(path)) for path in shown.iterdir())

    (tmp_path / "here").rename(tmp_path / "there")

    moved = tmp_path / "there" / "run_001" / "checkpoints"
    assert [train.Checkpoint(moved / name).to_dict()["step"] for name in names] == [0, 1]


def test_a_run_that_was_refused_makes_nothing(tmp_path: Path) -> None:
    made = trainer(tmp_path / "here")

    with pytest.raises(InvalidSettingError):
        made.run(3)  # type: ignore[arg-type]
    assert not (tmp_path / "here" / "run_001").exists()


def test_the_whole_config_of_a_trial_is_the_functions() -> None:
    made = WholeConfigTrainable(DataParallelTrainer(lambda config: None))
    space = {"lr": 1, "scaling_config": {"num_workers": 3}}

    assert made.checked_space(space) == space
    assert made.resources_for(space) is None
