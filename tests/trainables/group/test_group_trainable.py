"""What a trial of a data-parallel trainer runs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trainables as train
from trainables import ScalingConfig, Trainable
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.errors import InvalidSettingError, SessionError
from trainables.group.group_trainable import GroupTrainable, check_train_loop, laid_open
from trainables.testing import run_trial
from trainables.wire import Finished


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


def group(function: Any = lambda: None, **scaling: Any) -> GroupTrainable:
    return DataParallelTrainer(
        function, train_loop_config={"lr": 1, "deep": {"a": 1}}, scaling_config=ScalingConfig(**scaling)
    ).as_trainable()


WORKERS = st.integers(1, 12)
AMOUNTS = st.sampled_from([0.25, 0.5, 1, 2, 3])


@given(WORKERS, AMOUNTS, st.sampled_from([None, {"CPU": 1}, {"CPU": 0.5, "x": 2}]), st.booleans())
def test_bundles_add_up_to_what_the_trial_asks_for(
    workers: int, cpu: float, own: dict[str, float] | None, gpu: bool
) -> None:
    made = group(
        num_workers=workers, use_gpu=gpu, trainer_resources=own, resources_per_worker={"CPU": cpu, "disk": 0.5}
    )
    names = {"CPU": "cpu", "GPU": "gpu"}
    asked = {names.get(n, n): float(a) for n, a in made.trainer.scaling_config.total_resources.items()}

    bundles = made.bundles(asked)

    assert bundles is not None and len(bundles) == workers
    for name, amount in asked.items():
        assert sum(bundle.get(name, 0.0) for bundle in bundles) == pytest.approx(amount)
    assert all(bundle == bundles[1] for bundle in bundles[1:])


def test_what_does_not_divide_is_nobodys_bundles_and_one_node_has_none() -> None:
    made = group(num_workers=2, resources_per_worker={"CPU": 2})

    assert made.bundles({"cpu": 5.0}) is None
    assert made.bundles({}) is None
    assert made.bundles({"cpu": 4.0, "gpu": 1.0}) is None
    assert group(num_workers=2, placement_strategy="STRICT_PACK").bundles({"cpu": 2.0}) is None


def test_a_space_is_laid_over_the_trainers_own_config() -> None:
    made = group(num_workers=2)

    assert made.checked_space({}) == {"train_loop_config": {"lr": 1, "deep": {"a": 1}}}
    assert made.checked_space({"train_loop_config": {"lr": 2, "new": 3}}) == {
        "train_loop_config": {"lr": 2, "deep": {"a": 1}, "new": 3}
    }
    whole = {"grid_search": [{"lr": 1}, {"lr": 2}]}
    assert made.checked_space({"train_loop_config": whole})["train_loop_config"] == whole
    laid = made.checked_space({"scaling_config": ScalingConfig(num_workers=3)})["scaling_config"]
    assert (laid["num_workers"], laid["use_gpu"]) == (3, False) and "placement_strategy" not in laid


@pytest.mark.parametrize("space", [{"lr": 1}, {"train_loop_config": None}, {"train_loop_config": [1]}, {3: 1}])
def test_what_no_worker_gets_is_refused(space: Any) -> None:
    with pytest.raises(InvalidSettingError, match="train_loop_config"):
        group().checked_space(space)


def test_a_trials_scaling_is_laid_over_the_trainers() -> None:
    made = group(num_workers=2, resources_per_worker={"CPU": 2}, placement_strategy="SPREAD")

    assert made.scaling_of({}) == made.trainer.scaling_config
    assert made.resources_for({}) is None
    over = made.scaling_of({"scaling_config": {"num_workers": 5}})
    assert (over.num_workers, over.placement_strategy, over.resources_per_worker) == (5, "SPREAD", {"CPU": 2})
    assert made.resources_for({"scaling_config": {"num_workers": 5}}) == {"CPU": 10}
    own = ScalingConfig(num_workers=1)
    assert made.scaling_of({"scaling_config": own}) is own
    for wrong in (3, {"num_workers": 0}, {"num_worker": 1}, ScalingConfig(num_workers=0)):
        with pytest.raises(InvalidSettingError):
            made.scaling_of({"scaling_config": wrong})


@given(st.integers(0, 5), st.booleans(), st.sampled_from([None, {"CPU": 2}]), st.sampled_from(["PACK", "SPREAD"]))
def test_a_scaling_that_was_laid_open_is_made_again(workers: int, gpu: bool, each: Any, how: str) -> None:
    scaling = ScalingConfig(num_workers=workers, use_gpu=gpu, resources_per_worker=each, placement_strategy=how)

    assert ScalingConfig(**laid_open(scaling)) == scaling


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (lambda: None, False),
        (lambda config: None, True),
        (lambda config=1: None, True),
        (lambda *all: None, True),
        (lambda **all: None, False),
        (functools.partial(lambda a, config: None, 1), True),
        (print, True),
    ],
)
def test_a_function_says_whether_it_takes_a_config(function: Any, takes: bool) -> None:
    assert check_train_loop("Trainer", function) is takes


def test_outside_of_a_trial_it_does_not_run_and_says_what_runs_it() -> None:
    with pytest.raises(SessionError, match="has to be run by fit"):
        group()({"train_loop_config": {}})


def test_what_comes_before_and_the_config_reach_every_rank(tmp_path: Path) -> None:
    def train_func(config: dict[str, Any]) -> None:
        assert Path(tmp_path, f"before-{train.world_rank()}").exists()
        train.report({"got": config})

    trainer = DataParallelTrainer(
        train_func, train_loop_config={"lr": 1, "b": 2}, scaling_config=ScalingConfig(num_workers=2)
    )
    trainer.before = lambda: Path(tmp_path, f"before-{train.world_rank()}").touch()

    link = run_trial(trainer.as_trainable(), tmp_path, config={"train_loop_config": {"lr": 5}})

    assert link.end == Finished()
    assert link.results[0]["got"] == {"lr": 5, "b": 2}
