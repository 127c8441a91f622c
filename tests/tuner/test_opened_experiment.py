"""The words of `tune.open_experiment`: each is the order that its JSON would be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tuner as tune


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Any:
    def train(config: dict[str, Any]) -> None:
        tune.report({"loss": 1.0}, checkpoint=tune.Checkpoint.from_dict({}))

    storage = tmp_path_factory.mktemp("storage")
    tune.run(train, name="e", storage_path=storage, num_samples=4, executor="inline", verbose=0)
    opened = tune.open_experiment(storage / "e")
    opened.add({}, if_dead="wait")  # what waits may change what there is to be ordered about
    return opened


@pytest.mark.parametrize(
    ("said", "order"),
    [
        (lambda e: e.stop("all", if_dead="wait"), {"order": "stop", "trial": "all"}),
        (lambda e: e.pause(3, if_dead="wait"), {"order": "pause", "trial": "3"}),
        (lambda e: e.go("3", if_dead="wait"), {"order": "go", "trial": "3"}),
        (lambda e: e.save(e.trials[0], pin=True, if_dead="wait"), {"order": "save", "trial": "{0}", "pin": True}),
        (lambda e: e.add({"lr": 1}, if_dead="wait"), {"order": "add", "config": {"lr": 1}}),
        (
            lambda e: e.fork("1@1", {"lr": 2}, if_dead="wait"),
            {"order": "fork", "trial": "1", "iteration": 1, "config": {"lr": 2}},
        ),
        (lambda e: e.retry(0, if_dead="wait"), {"order": "retry", "trial": "0"}),
        (lambda e: e.order({"order": "go", "trial": "1"}, if_dead="wait"), {"order": "go", "trial": "1"}),
    ],
)
def test_a_word_is_the_order_that_its_json_is(experiment: Any, said: Callable[[Any], Any], order: Any) -> None:
    given = said(experiment)
    assert given.state == "waiting"
    file = Path(experiment.experiment_path) / "orders" / f"{given.id}.json"
    assert json.loads(file.read_text()) == {
        key: experiment.trials[0].trial_id if value == "{0}" else value for key, value in order.items()
    }
