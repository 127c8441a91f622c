"""Every stopper goes on from its state, and ends a run where it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import tuner as tune
from tests.tuner.stopper.harness import results_until_stop
from tuner.stopper import (
    CombinedStopper,
    CostStopper,
    DictStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    MaximumResultsStopper,
    NoopStopper,
    Stopper,
    TrialPlateauStopper,
    as_stopper,
    at_least,
    at_most,
)


@pytest.mark.parametrize("count", [1, 2, 10])
@pytest.mark.parametrize("make", [lambda n: {"training_iteration": n}, MaximumIterationStopper])
def test_d26_n_iterations_are_exactly_n_results(make: Callable[[int], Any], count: int) -> None:
    stopper = as_stopper(make(count))
    assert stopper is not None
    assert results_until_stop(stopper) == count


def trials_of(path: Path, **settings: Any) -> list[int]:
    """How many results each trial of a run had, one trial after another."""

    def train(config: dict[str, Any]) -> None:
        for step in range(1, 11):
            tune.report({"loss": 1 / step, "acc": step / 10, "cost": 2.0})

    results = tune.run(
        train,
        num_samples=3,
        max_concurrent_trials=1,
        storage_path=str(path),
        executor="inline",
        verbose=0,
        **settings,
    )
    return [trial.iteration for trial in results.trials]


@pytest.mark.parametrize(
    ("stop", "counts"),
    [
        ({"loss": at_most(0.25), "acc": 0.9}, [4, 4, 4]),
        ({"loss": at_most(0.01), "acc": at_least(0.7)}, [7, 7, 7]),
        ([{"acc": 0.5}, MaximumIterationStopper(8), lambda trial_id, result: result["loss"] < 0.3], [4, 4, 4]),
        (CostStopper(6.0, per="trial"), [3, 3, 3]),
        (CostStopper(26.0), [10, 3]),
        (MaximumResultsStopper(12), [10, 2]),
        ([MaximumResultsStopper(1000), NoopStopper()], [10, 10, 10]),
    ],
    ids=["at most", "at least", "a list", "cost of each", "cost", "results", "not reached"],
)
def test_d26_a_run_has_exactly_the_results_that_stop_says(tmp_path: Path, stop: Any, counts: list[int]) -> None:
    assert trials_of(tmp_path, stop=stop) == counts


STATEFUL: dict[str, Callable[[], Stopper]] = {
    "maximum": lambda: MaximumIterationStopper(7),
    "trial plateau": lambda: TrialPlateauStopper("loss", std=0.5, num_results=3),
    "experiment plateau": lambda: ExperimentPlateauStopper("loss", std=0.3, top=3, patience=2),
    "results": lambda: MaximumResultsStopper(17),
    "cost": lambda: CostStopper(9.0, "loss"),
    "cost of each": lambda: CostStopper(3.0, "loss", cumulative=True, per="trial"),
    "dict": lambda: DictStopper({"loss": at_most(0.3), "training_iteration": 9}),
    "function": lambda: FunctionStopper(lambda trial_id, result: result["loss"] < 0.2),
    "combined": lambda: CombinedStopper(MaximumIterationStopper(6), TrialPlateauStopper("loss", std=0.1)),
}


@pytest.mark.parametrize("make", STATEFUL.values(), ids=STATEFUL)
def test_it_goes_on_from_its_state(make: Callable[[], Stopper]) -> None:
    story = [(f"t{i % 3}", {"training_iteration": i // 3 + 1, "loss": 5 / (i + 1)}) for i in range(30)]
    whole = make()
    expected = [(whole(*step), whole.stop_all()) for step in story]
    assert any(stop for stop, _ in expected)
    for cut in range(0, 30, 4):
        first, second = make(), make()
        got = [(first(*step), first.stop_all()) for step in story[:cut]]
        second.set_state(cloudpickle.loads(cloudpickle.dumps(first.get_state())))
        assert got + [(second(*step), second.stop_all()) for step in story[cut:]] == expected


class Own(Stopper):
    """A stopper of a user's, with something in it that cannot be pickled."""

    def __init__(self) -> None:
        self.seen = 0
        self.lock = __import__("threading").Lock()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.seen += 1
        return self.seen == 3

    def stop_all(self) -> bool:
        return False


def test_a_stopper_of_ones_own_keeps_its_attributes() -> None:
    first, second = Own(), Own()
    first("t", {})
    state = cloudpickle.loads(cloudpickle.dumps(first.get_state()))
    assert state == {"seen": 1}
    second.set_state(state)
    assert [bool(second("t", {})), bool(second("t", {}))] == [False, True]
