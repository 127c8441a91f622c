"""Samples of every scheduler and every stopper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tuner as tune
from tests.data import own, trained, values
from tests.data.experiment import Experiment, Settings, fixed
from tests.data.spaces import tpe
from tuner import schedulers as sched
from tuner import stopper
from tuner.schedulers.resource_changing_scheduler import DistributeResources

BY_ITERATION: dict[str, Any] = {"time_attr": "training_iteration", "perturbation_interval": 2}
MUTATED: dict[str, Any] = {**BY_ITERATION, "hyperparam_mutations": {"x": tune.uniform(0, 1)}}


def scheduled(make: Callable[[Path], Any], samples: int = 8, search: Callable[[], Any] | None = None) -> Settings:
    def settings(place: Path) -> dict[str, Any]:
        return {
            "scheduler": make(place), "search_alg": search() if search else None, "num_samples": samples,
            "max_concurrent_trials": 1, "resources_per_trial": {"cpu": 0.25}, "checkpoint_freq": 2,
            "stop": {"training_iteration": 8},
        }  # fmt: skip

    return settings


def _stoppers() -> Any:
    return stopper.CombinedStopper(
        stopper.MaximumIterationStopper(4),
        stopper.TrialPlateauStopper("score", std=1e-9),
        stopper.TrialTimeoutStopper(1e6),
        stopper.TimeoutStopper(1e6),
        stopper.CostStopper(40.0, cost_attr="steps", per="trial"),
        stopper.FunctionStopper(values.third),
        stopper.NoopStopper(),
        stopper.DictStopper({"score": stopper.at_least(2.4), "steps": 6}),
    )


EXPERIMENTS = [
    # --- stoppers
    Experiment(
        "stop_combined",
        "every stopper of a trial",
        lambda place: {"num_samples": 4, "checkpoint_freq": 1, "stop": _stoppers(), "max_concurrent_trials": 1},
        trained.Walker,
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "stop_results",
        "so many results in all",
        lambda place: {"num_samples": 5, "stop": stopper.MaximumResultsStopper(13), "max_concurrent_trials": 1},
        killed=(0.5,),
    ),
    Experiment(
        "stop_plateau",
        "an experiment that does not get better",
        lambda place: {
            "num_samples": 8,
            "stop": stopper.ExperimentPlateauStopper("score", std=0.2, top=3, mode="max", patience=2),
            "max_concurrent_trials": 1,
        },
        killed=(0.4,),
        compacts=True,
    ),
    Experiment(
        "stop_cost",
        "so much cost in all",
        lambda place: {
            "num_samples": 5,
            "checkpoint_freq": 1,
            "stop": [stopper.CostStopper(30.0, cost_attr="steps"), stopper.MaximumIterationStopper(4)],
            "max_concurrent_trials": 1,
        },
        trained.Walker,
        killed=(0.5,),
    ),
    Experiment(
        "stop_dict",
        "criteria with a direction",
        fixed(num_samples=4, stop={"score": stopper.at_most(0.15), "training_iteration": 3}),
        killed=(0.5,),
    ),
    Experiment("stop_function", "a function", fixed(num_samples=4, stop=values.third), killed=(0.5,)),
    Experiment(
        "own_plugins",
        "a user's own searcher, scheduler, stopper and callback",
        lambda place: {
            "num_samples": 7,
            "search_alg": own.Ladder(),
            "scheduler": own.Every(),
            "stop": own.Enough(),
            "callbacks": [own.Hears()],
            "max_concurrent_trials": 1,
        },
        config=dict,
        killed=(0.5,),
        compacts=True,
    ),
    # --- schedulers
    Experiment(
        "asha",
        "ASHA, stopping, in brackets",
        scheduled(lambda place: sched.ASHAScheduler(max_t=8, reduction_factor=2, brackets=2)),
        trained.Walker,
        killed=(0.5,),
    ),
    Experiment(
        "asha_promotion",
        "ASHA, promotion",
        scheduled(lambda place: sched.ASHAScheduler(max_t=8, reduction_factor=2, type="promotion")),
        trained.Walker,
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "asha_promotion_finished",
        "ASHA, promotion, all have ended",
        scheduled(lambda place: sched.ASHAScheduler(max_t=8, reduction_factor=2, type="promotion")),
        trained.Walker,
    ),
    Experiment(
        "hyperband",
        "HyperBand",
        scheduled(lambda place: sched.HyperBandScheduler(max_t=4, reduction_factor=2)),
        trained.Walker,
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "bohb",
        "BOHB: HyperBandForBOHB with TPE",
        scheduled(lambda place: sched.HyperBandForBOHB(max_t=4, reduction_factor=2), search=tpe),
        trained.Walker,
        killed=(0.5,),
    ),
    Experiment(
        "median",
        "median stopping",
        scheduled(lambda place: sched.MedianStoppingRule("training_iteration", grace_period=2)),
        trained.Walker,
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "median_soft",
        "median stopping that pauses",
        scheduled(lambda place: sched.MedianStoppingRule("training_iteration", grace_period=2, hard_stop=False), 6),
        trained.Walker,
        killed=(0.5,),
    ),
    Experiment(
        "pbt",
        "PBT",
        scheduled(lambda place: sched.PopulationBasedTraining(**MUTATED), 4),
        trained.Walker,
        killed=(0.6,),
        alike=False,
    ),
    Experiment(
        "pbt_synch",
        "PBT, synchronous",
        scheduled(lambda place: sched.PopulationBasedTraining(**MUTATED, synch=True), 4),
        trained.Walker,
        killed=(0.6,),
        compacts=True,
    ),
    Experiment(
        "pbt_replay",
        "a replay of PBT's",
        scheduled(lambda place: sched.PopulationBasedTrainingReplay(values.policy(place)), 1),
        trained.Walker,
        killed=(0.6,),
    ),
    Experiment(
        "pb2",
        "PB2",
        scheduled(lambda place: sched.PB2(**BY_ITERATION, hyperparam_bounds={"x": [0, 1]}), 4),
        trained.Walker,
        killed=(0.6,),
        alike=False,
        compacts=True,
    ),
    Experiment(
        "resources",
        "resources that change, over ASHA",
        scheduled(
            lambda place: sched.ResourceChangingScheduler(
                sched.ASHAScheduler(max_t=8, reduction_factor=2), DistributeResources(increase_by={"cpu": 0.25})
            ),
            6,
        ),
        trained.Walker,
        killed=(0.5,),
        alike=False,
    ),
    Experiment(
        "resources_function",
        "resources that a function gives",
        scheduled(lambda place: sched.ResourceChangingScheduler(None, values.cores), 4),
        trained.Walker,
        killed=(0.5,),
        compacts=True,
    ),
]
