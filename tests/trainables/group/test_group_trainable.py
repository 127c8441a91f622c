"""What a trial of a data-parallel trainer runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import trainables as train
from trainables import ScalingConfig, Trainable
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.errors import InvalidSettingError


def test_a_group_says_what_each_of_its_bundles_needs() -> None:
    scaling = ScalingConfig(num_workers=3, trainer_resources={"CPU": 1}, resources_per_worker={"CPU": 2, "x": 0.5})
    group = DataParallelTrainer(lambda: None, scaling_config=scaling).as_trainable()

    assert group.bundles({"cpu": 7.0, "x": 1.5}) == [{"cpu": 3, "x": 0.5}, {"cpu": 2, "x": 0.5}, {"cpu": 2, "x": 0.5}]
    assert group.bundles({"cpu": 5.0, "x": 1.0}) == [{"cpu": 3, "x": 0.5}, {"cpu": 2, "x": 0.5}]
    assert group.bundles({"cpu": 7.0}) is None


class OfAClass(Trainable):
    pass


@pytest.mark.parametrize("function", [None, "train", lambda config, second: None, OfAClass, lambda *, key: None])
def test_a_function_that_cannot_be_called_is_refused(function: Any) -> None:
    with pytest.raises(InvalidSettingError, match=r"train_loop_per_worker=.*def train_func\(config\)"):
        DataParallelTrainer(function)


def yields(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"loss": 1}


async def awaits(config: dict[str, Any]) -> None:
    train.report({"loss": 1})


@pytest.mark.parametrize("function", [yields, awaits])
def test_a_function_of_which_nothing_would_run_is_refused(function: Any) -> None:
    with pytest.raises(InvalidSettingError, match=r"train_loop_per_worker=.*that calls report\(\)"):
        DataParallelTrainer(function)


@pytest.mark.parametrize("function", [lambda: None, lambda config: None, lambda config, second=1: None])
def test_functions_with_a_config_or_none_are_accepted(function: Any) -> None:
    DataParallelTrainer(function)
