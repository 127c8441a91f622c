"""A run without a loop, whose results are in files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.lab import Lab
from tuner.executors import SimulatedExecutor
from tuner.logger import JsonLoggerCallback


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    lab = Lab(tmp_path / "experiment", JsonLoggerCallback())
    yield lab
    lab.callbacks.on_experiment_end(lab.state.trials)  # files of trials that have not ended are open until then


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> tune.ExperimentAnalysis:
    """300 simulated trials of eight parameters: a higher lr is better, the next best is m, the others do nothing."""

    def model(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, float]]]:
        for step in range(1, 6):
            yield 60.0, {"acc": math.log10(config["lr"]) + 0.5 * config["m"] - 1 / step}

    space: dict[str, Any] = {f"p{number}": tune.uniform(0, 1) for number in range(4)}
    space |= {"lr": tune.loguniform(1e-5, 1e-1), "m": tune.uniform(0.5, 1), "width": tune.choice([64, 128, 256])}
    space |= {"opt": tune.choice(["sgd", "adam"])}
    return tune.run(
        lambda config: None, config=space, num_samples=300, metric="acc", mode="max", seed=1, verbose=0, name="many",
        executor=SimulatedExecutor(model, slots=50), storage_path=tmp_path_factory.mktemp("many"),
    )  # fmt: skip
