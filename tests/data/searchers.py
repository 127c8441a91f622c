"""Samples of every searcher, with each of Optuna's samplers and pruners."""

from __future__ import annotations

from typing import Any

from tests.data import trained, values
from tests.data.experiment import Experiment
from tests.data.spaces import choices, numbers, optuna_of, searching, tpe
from tuner import schedulers as sched
from tuner.search import ConcurrencyLimiter, Repeater


def pruned(pruner: str, *given: Any, **options: Any) -> Any:
    import optuna

    return sched.OptunaPruner(getattr(optuna.pruners, pruner)(*given, **options))


def _partial_fixed() -> Any:
    import optuna

    from tuner.search.optuna import OptunaSearch

    inner = optuna.samplers.TPESampler(seed=1, n_startup_trials=3)
    return OptunaSearch(sampler=optuna.samplers.PartialFixedSampler({"n": 7}, inner))


EXPERIMENTS = [
    Experiment(
        "tpe",
        "TPESampler, HyperbandPruner",
        searching(tpe, lambda: pruned("HyperbandPruner", max_resource=4)),
        config=numbers,
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "tpe_ahead",
        "TPESampler that is asked ahead, MedianPruner",
        searching(lambda: tpe(ask_ahead=True), lambda: pruned("MedianPruner", n_startup_trials=2)),
        config=numbers,
        killed=(0.5,),
    ),
    Experiment(
        "cmaes",
        "CmaEsSampler, PercentilePruner",
        searching(
            lambda: optuna_of("CmaEsSampler", options={"n_startup_trials": 3}),
            lambda: pruned("PercentilePruner", 50.0, n_startup_trials=2),
        ),
        config=numbers,
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "gp",
        "GPSampler, NopPruner",
        searching(lambda: optuna_of("GPSampler", options={"n_startup_trials": 5}), lambda: pruned("NopPruner")),
        config=numbers,
        killed=(0.6,),
    ),
    Experiment(
        "nsgaii",
        "NSGAIISampler, two objectives",
        lambda place: {
            "metric": ["score", "loss"],
            "mode": ["max", "min"],
            "search_alg": optuna_of("NSGAIISampler", options={"population_size": 3}),
            "num_samples": 7,
            "max_concurrent_trials": 1,
        },
        trained.walk_files,
        numbers,
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "nsgaiii",
        "NSGAIIISampler, SuccessiveHalvingPruner",
        searching(
            lambda: optuna_of("NSGAIIISampler", options={"population_size": 3}),
            lambda: pruned("SuccessiveHalvingPruner", reduction_factor=2),
        ),
        config=numbers,
        killed=(0.5,),
    ),
    Experiment(
        "qmc",
        "QMCSampler, ThresholdPruner",
        searching(
            lambda: optuna_of("QMCSampler", options={"warn_asynchronous_seeding": False}),
            lambda: pruned("ThresholdPruner", lower=0.2),
        ),
        config=numbers,
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "random",
        "RandomSampler, PatientPruner",
        searching(lambda: optuna_of("RandomSampler"), lambda: pruned("PatientPruner", None, patience=1)),
        config=numbers,
        killed=(0.5,),
    ),
    Experiment(
        "grid",
        "GridSampler, WilcoxonPruner",
        searching(
            lambda: optuna_of("GridSampler", options={"search_space": {"x": [-2, -1, 0, 1, 2], "n": [1, 2]}}),
            lambda: pruned("WilcoxonPruner"),
        ),
        config=choices,
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "brute_force",
        "BruteForceSampler",
        searching(lambda: optuna_of("BruteForceSampler"), samples=-1),
        config=choices,
        killed=(0.5,),
    ),
    Experiment(
        "partial_fixed",
        "PartialFixedSampler",
        searching(lambda: _partial_fixed()),
        config=numbers,
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "by_run", "a define-by-run space", searching(lambda: tpe(space=values.by_run)), config=dict, killed=(0.5,)
    ),
    Experiment(
        "rewards",
        "points and their rewards",
        searching(
            lambda: tpe(points_to_evaluate=[{"x": 0.5, "n": 1}, {"x": 0.25, "n": 3}], evaluated_rewards=[0.4, 0.3])
        ),
        config=numbers,
        killed=(0.5,),
    ),
    Experiment(
        "constraints",
        "constraints, and a limit",
        lambda place: {"num_samples": 6, "search_alg": ConcurrencyLimiter(tpe(constraints=["loss"]), 1)},
        trained.walk_files,
        numbers,
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "batches",
        "a limit in batches around repeats",
        lambda place: {"num_samples": 6, "search_alg": ConcurrencyLimiter(Repeater(tpe(), 2), 3, batch=True)},
        config=numbers,
        killed=(0.5,),
        alike=False,
    ),
    Experiment(
        "sqlite",
        "a study in a database",
        lambda place: {
            "num_samples": 6,
            "search_alg": tpe(storage=f"sqlite:///{place}/study.db", study_name="mine"),
            "max_concurrent_trials": 1,
        },
        config=numbers,
        killed=(0.5,),
        alike=False,
    ),
]
