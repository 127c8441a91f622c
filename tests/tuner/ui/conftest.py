"""Experiments to look at: each is run once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import tuner as tune
from tests.tuner.ui.served import client, serving
from tuner.executors import InlineExecutor
from tuner.schedulers import ASHAScheduler
from tuner.ui.ui_server import UiServer


@pytest.fixture(scope="session", autouse=True)
def a_state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


def _train(config: dict[str, Any]) -> None:
    for step in range(1, 5):
        if config["x"] == 3 and step == 2:
            raise ValueError("<b>no</b> convergence\nat x = 3")
        saved = tune.Checkpoint.from_dict({"step": step})
        tune.report({"loss": config["x"] / step, "nested": {"auc": step / 10}, "note": "<i>"}, checkpoint=saved)


@pytest.fixture(scope="session")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six trials of four results: one failed, some stopped by ASHA, each with two checkpoints."""
    storage = tmp_path_factory.mktemp("ui")
    tune.run(
        _train,
        name="first",
        storage_path=storage,
        metric="loss",
        mode="min",
        config={"x": tune.grid_search([1, 2, 3, 4, 5, 6]), "deep": {"rate": tune.uniform(0, 1)}},
        scheduler=ASHAScheduler(max_t=4, grace_period=2, reduction_factor=2),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
        raise_on_failed_trial=False,
        max_concurrent_trials=1,
        log_to_file=True,
        verbose=0,
        executor=InlineExecutor(),
    )
    return storage / "first"


@pytest.fixture(scope="session")
def server(experiment: Path) -> Iterator[UiServer]:
    with serving([experiment]) as running:
        yield running


@pytest.fixture
def pages(server: UiServer) -> Iterator[httpx.Client]:
    with client(server) as made:
        yield made
