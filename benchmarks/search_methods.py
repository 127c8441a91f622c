"""The methods that `search.py` measures: combinations of searcher and scheduler that a user would pick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lcbench import EPOCHS, Surrogate
from search_runs import Searched, same_configs, search

from tuner import schedulers
from tuner.executors import SimulatedSave
from tuner.search import AutoSearch, BasicVariantGenerator
from tuner.search.optuna import OptunaSearch

REDUCTION = 3
"""Of ASHA and HyperBand, here and in Syne Tune, whose default it is; ours is 4: `asha-4`."""

SLOW = ("tpe-asha", "syne-bohb", "syne-cqr", "syne-asha-cqr", "syne-asha-bore")
"""Methods of which a search takes many times as long as of the others: `make bench-search` gives them one seed of six
data sets.
"""
NAMED_ONLY = ("syne-asha-cqr", "syne-asha-bore")
"""Those of which a search takes many minutes, with a new model for each of hundreds of trials: they run where they are
named.
"""

VERSIONS: dict[str, int] = {"auto": 2}
"""Of the code of a method, 1 where it has none here: raise it by one when a method would find something else than
before, and `search.py` measures it anew.
"""

Run = Callable[[Surrogate, str, int, int], Searched]
"""(surrogate, data set, seed, workers) -> what was found."""


def asha(**settings: Any) -> schedulers.ASHAScheduler:
    return schedulers.ASHAScheduler(max_t=EPOCHS, **{"reduction_factor": REDUCTION, **settings})


def freeze_thaw() -> schedulers.FreezeThawScheduler:
    return schedulers.FreezeThawScheduler(max_t=EPOCHS, grace_period=3)


def _multivariate(seed: int) -> OptunaSearch:
    import optuna

    return OptunaSearch(sampler=optuna.samplers.TPESampler(multivariate=True, constant_liar=True, seed=seed))


def _hyperband(kind: type[schedulers.HyperBandScheduler]) -> dict[str, Any]:
    return {"scheduler": kind(max_t=EPOCHS, reduction_factor=REDUCTION), **_free_saves()}


def _auto() -> dict[str, Any]:
    return {"search_alg": AutoSearch(max_t=EPOCHS)}


def _free_saves() -> dict[str, Any]:
    """A trial that pauses loses nothing by it: the schedulers are compared, not what a checkpoint costs."""
    return {"save": lambda config: SimulatedSave()}


PLUGINS: dict[str, Callable[[int], Mapping[str, Any]]] = {
    "random": lambda seed: {},
    "auto": lambda seed: _auto(),
    "median-stopping": lambda seed: {"scheduler": schedulers.MedianStoppingRule(grace_period=5)},
    "asha": lambda seed: {"scheduler": asha()},
    "asha-4": lambda seed: {"scheduler": asha(reduction_factor=4)},
    "freeze-thaw": lambda seed: {"scheduler": freeze_thaw(), **_free_saves()},
    "auto-freeze-thaw": lambda seed: {**_auto(), "scheduler": freeze_thaw(), **_free_saves()},
    "tpe": lambda seed: {"search_alg": OptunaSearch()},
    "tpe-multivariate": lambda seed: {"search_alg": _multivariate(seed)},
    "tpe-asha": lambda seed: {"search_alg": OptunaSearch(), "scheduler": asha()},
    "asha-promotion": lambda seed: {"scheduler": asha(type="promotion"), **_free_saves()},
    "hyperband": lambda seed: _hyperband(schedulers.HyperBandScheduler),
    "bohb": lambda seed: {**_hyperband(schedulers.HyperBandForBOHB), "search_alg": OptunaSearch()},
}
"""From a seed to `search_alg`, `scheduler` and the rest that `search` takes."""


def ours(name: str) -> Run:
    """The run of a method of ours."""

    def run(surrogate: Surrogate, dataset: str, seed: int, workers: int) -> Searched:
        return search(surrogate, dataset, PLUGINS[name](seed), seed=seed, workers=workers)

    return run


def _same(make: Callable[[int], Mapping[str, Any]]) -> Run:
    """With the configs that Syne Tune's methods of that name get as well."""

    def run(surrogate: Surrogate, dataset: str, seed: int, workers: int) -> Searched:
        points = BasicVariantGenerator(points_to_evaluate=same_configs(surrogate, seed))
        return search(surrogate, dataset, {"search_alg": points, **make(seed)}, seed=seed, workers=workers)

    return run


OURS: dict[str, Run] = {
    **{name: ours(name) for name in PLUGINS},
    **{f"{name}-same": _same(PLUGINS[name]) for name in ("random", "asha")},
}
