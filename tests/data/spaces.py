"""Search spaces and searchers of the stored samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tuner as tune
from tests.data import values
from tests.data.experiment import Settings


def optuna_of(sampler: str, **arguments: Any) -> Any:
    import optuna

    from tuner.search.optuna import OptunaSearch

    options: dict[str, Any] = {"seed": 1}
    options |= arguments.pop("options", {})
    return OptunaSearch(sampler=getattr(optuna.samplers, sampler)(**options), **arguments)


def searching(search: Callable[[], Any], pruner: Callable[[], Any] | None = None, samples: int = 7) -> Settings:
    """One trial at a time, so that what learns is told in one order."""

    def settings(place: Path) -> dict[str, Any]:
        made: dict[str, Any] = {"search_alg": search(), "num_samples": samples, "max_concurrent_trials": 1}
        if pruner is not None:
            made["scheduler"] = pruner()
        return made

    return settings


def tpe(**arguments: Any) -> Any:
    return optuna_of("TPESampler", options={"n_startup_trials": 3}, **arguments)


def domains() -> dict[str, Any]:
    """Every kind of domain, with branches, and a grid."""
    return {
        "uniform": tune.uniform(-1, 1), "quniform": tune.quniform(-0.9, 0.9, 0.3),
        "loguniform": tune.loguniform(1e-4, 1e-1), "qloguniform": tune.qloguniform(0.1, 0.5, 0.1),
        "randn": tune.randn(1, 2), "qrandn": tune.qrandn(0, 1, 0.25), "randint": tune.randint(0, 9),
        "qrandint": tune.qrandint(4, 20, 4), "lograndint": tune.lograndint(1, 100),
        "qlograndint": tune.qlograndint(8, 32, 8),
        "choice": tune.choice(["a", 2, None, (3, 4), values.Kind.FAST, values.double]),
        "branch": tune.choice(
            [{"kind": "sgd", "momentum": tune.uniform(0.5, 0.9)}, {"kind": "adam", "b": [tune.randint(0, 3)]}]
        ),
        "nothing": tune.sample_from(values.no_argument), "of_config": tune.sample_from(values.of_config),
        "of_spec": tune.sample_from(values.of_spec), "deep": {"er": [tune.uniform(0, 1), {"x": tune.randint(0, 5)}]},
        "grid": tune.grid_search(["left", "right"]), "x": tune.uniform(0, 1),
    }  # fmt: skip


def searchable() -> dict[str, Any]:
    """Every kind of domain that Optuna searches."""
    left = ("grid", "randn", "qrandn", "nothing", "of_config", "of_spec")
    return {key: domain for key, domain in domains().items() if key not in left}


def odd() -> dict[str, Any]:
    return {**values.odd_values(), "x": tune.uniform(0, 1)}


def numbers() -> dict[str, Any]:
    return {"x": tune.uniform(-1, 1), "n": tune.randint(0, 50)}


def choices() -> dict[str, Any]:
    return {"x": tune.choice([-2, -1, 0, 1, 2]), "n": tune.choice([1, 2])}
