"""Schedulers by name: every one of Ray Tune's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest

from tuner import schedulers
from tuner.error import SettingError
from tuner.schedulers import create_scheduler
from tuner.schedulers.pb2 import PB2

NAMES: dict[str, tuple[type, dict[str, Any]]] = {
    "fifo": (schedulers.FIFOScheduler, {}),
    "freeze_thaw": (schedulers.FreezeThawScheduler, {"max_paused": 5}),
    "async_hyperband": (schedulers.AsyncHyperBandScheduler, {}),
    "asynchyperband": (schedulers.ASHAScheduler, {}),
    "asha": (schedulers.ASHAScheduler, {}),
    "median_stopping_rule": (schedulers.MedianStoppingRule, {}),
    "medianstopping": (schedulers.MedianStoppingRule, {}),
    "hyperband": (schedulers.HyperBandScheduler, {}),
    "hb_bohb": (schedulers.HyperBandForBOHB, {}),
    "pbt": (schedulers.PopulationBasedTraining, {"hyperparam_mutations": {"lr": [1, 2]}}),
    "pb2": (PB2, {"hyperparam_bounds": {"lr": [0, 1]}}),
    "resource_changing": (schedulers.ResourceChangingScheduler, {}),
    "optuna_pruner": (schedulers.OptunaPruner, {"pruner": optuna.pruners.NopPruner()}),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_rays_and_ours(name: str) -> None:
    kind, arguments = NAMES[name]
    assert type(create_scheduler(name, **arguments)) is kind
    made = create_scheduler(name.upper(), metric="loss", mode="min", max_t=9, quantile_fraction=0.5, **arguments)
    assert made.metric == (None if name in ("fifo", "resource_changing") else "loss")


def test_a_replay_by_name(tmp_path: Path) -> None:
    file = tmp_path / "pbt_policy_a.txt"
    file.write_text(json.dumps(["a", "b", 1, 1, {}, {}]))
    made = create_scheduler("pbt_replay", policy_file=str(file))
    assert isinstance(made, schedulers.PopulationBasedTrainingReplay)


def test_a_mistyped_argument_gets_the_nearest() -> None:
    with pytest.raises(SettingError, match="did you mean 'hyperparam_mutations'"):
        create_scheduler("pbt", hyperparam_mutation={})
    with pytest.raises(SettingError, match="did you mean 'pbt_replay'"):
        create_scheduler("pbt_reply")
