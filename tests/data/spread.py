"""Samples that every format after the first stores: each kind of file, and each plug-in with its state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tuner as tune
from tests.data import lives, own, schedulers, searchers, trained, values
from tests.data.experiment import Experiment, fixed
from tests.data.schedulers import scheduled
from tuner import logger
from tuner import schedulers as sched
from tuner.schedulers.resource_changing_scheduler import DistributeResourcesToTopJob

_PLUGINS = [*searchers.EXPERIMENTS, *schedulers.EXPERIMENTS]
_ALIKE = {
    "odd_values", "points", "killed_before_manifest", "killed_after_rename", "compacted_finished", "processes",
    "errors", "best", "gp", "nsgaiii", "qmc", "random", "grid", "brute_force", "partial_fixed", "rewards", "stop_dict",
    "stop_function",
}  # fmt: skip
"""What lies on the disk of these is of the same kind as of others: the first format's samples are enough."""
_PACKED = {"asha", "asha_promotion_finished", "own_plugins", "pbt", "tpe"}

NEW = [
    Experiment(
        "large_values",
        "values of a config that lie beside the journal: JSON and arrays",
        fixed(num_samples=3),
        trained.checks_its_large_config,
        lambda: {**values.large_values(), "x": tune.uniform(0, 1)},
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "reasons",
        "reasons that a user's own scheduler and stopper give",
        lambda place: {
            "num_samples": 5,
            "scheduler": own.Explains(),
            "stop": own.Limits(),
            "callbacks": [own.Hears(), own.Hears()],
            "max_concurrent_trials": 1,
        },
        killed=(0.6,),
        compacts=True,
        packs=True,
    ),
    Experiment(
        "continues",
        "one that continues another one, under its own name",
        lambda place: {"num_samples": 8, "keep_checkpoints_num": 1, "restore": values.earlier(place)},
        killed=(0.6,),
        compacts=True,
        packs=True,
    ),
    Experiment(
        "top_job",
        "resources that go to the best",
        scheduled(
            lambda place: sched.ResourceChangingScheduler(
                sched.FIFOScheduler(),
                DistributeResourcesToTopJob(increase_by={"cpu": 0.25}, metric="score", mode="max"),
            ),
            4,
        ),
        trained.Walker,
        killed=(0.5,),
        alike=False,
        compacts=True,
    ),
    Experiment(
        "settings",
        "every setting that is stored, taken over by a restore; classes of the package by name",
        lambda place: {
            "num_samples": 4,
            "max_concurrent_trials": 1,
            "search_alg": tune.BasicVariantGenerator(points_to_evaluate=[{"x": 0.5}]),
            "scheduler": sched.AsyncHyperBandScheduler(max_t=4, reduction_factor=2),
            "stop": {"training_iteration": 3},
            "time_budget_s": 1e6,
            "trial_timeout_s": 1e5,
            "trial_name_creator": values.trial_name,
            "trial_dirname_creator": values.directory_name,
            "checkpoint_config": _policy(),
            "checkpoint_budget": tune.Budget(bytes=1_000_000, top_k=1),
            "max_failures": 1,
            "log_to_file": ("out.txt", "err.txt"),
            "callbacks": [own.Names(), logger.JsonLoggerCallback(), logger.CSVLoggerCallback(), own.Hears()],
        },
        killed=(0.5,),
        restores=True,
    ),
]


def _policy() -> Any:
    from trainables.store.retention import AnyOf, Best, Earliest, Latest

    return tune.CheckpointConfig(keep=AnyOf([Latest(2), Best(1, "score"), Earliest(1)]))


EXPERIMENTS = [
    *(experiment for experiment in lives.EXPERIMENTS if experiment.name not in _ALIKE),
    *(
        replace(experiment, compacts=True, packs=experiment.name in _PACKED)
        for experiment in _PLUGINS
        if experiment.name not in _ALIKE
    ),
    *NEW,
]
