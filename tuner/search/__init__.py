"""Search spaces, and the searchers that propose configs of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from trainables.validation import unknown_name
from tuner.error import SettingError, refused
from tuner.search.ahead import with_ask_ahead
from tuner.search.arguments import class_hint, require_goal
from tuner.search.auto import AutoSearch
from tuner.search.limiter import ConcurrencyLimiter, SampleLimit, tell_properties
from tuner.search.repeater import Repeater
from tuner.search.sample import grid_search
from tuner.search.search_algorithm import AlgorithmSearcher, SearchAlgorithm
from tuner.search.search_generator import SearchGenerator
from tuner.search.searcher import Metric, Searcher, names_of
from tuner.search.space import searched_paths
from tuner.search.variants import BasicVariantGenerator

__all__ = [
    "AutoSearch",
    "BasicVariantGenerator",
    "ConcurrencyLimiter",
    "Repeater",
    "SearchAlgorithm",
    "SearchGenerator",
    "Searcher",
    "as_searcher",
    "create_searcher",
    "grid_search",
]

_OTHERS = ("hebo", "vizier", "zoopt")


def _optuna() -> type[Searcher]:
    from tuner.search.optuna import OptunaSearch

    return OptunaSearch


def _hyperopt() -> type[Searcher]:
    from tuner.search.hyperopt import HyperOptSearch

    return HyperOptSearch


def _ax() -> type[Searcher]:
    from tuner.search.ax import AxSearch

    return AxSearch


def _bayesopt() -> type[Searcher]:
    from tuner.search.bayesopt import BayesOptSearch

    return BayesOptSearch


def _nevergrad() -> type[Searcher]:
    from tuner.search.nevergrad import NevergradSearch

    return NevergradSearch


def _smac() -> type[Searcher]:
    from tuner.search.smac import SMACSearch

    return SMACSearch


_SEARCHERS: dict[str, Callable[[], type[Searcher]]] = {
    "auto": lambda: AutoSearch,
    "ax": _ax,
    "bayesopt": _bayesopt,
    "hyperopt": _hyperopt,
    "nevergrad": _nevergrad,
    "optuna": _optuna,
    "random": lambda: BasicVariantGenerator,
    "smac": _smac,
    "variant_generator": lambda: BasicVariantGenerator,
}
SEARCHER_NAMES = tuple(_SEARCHERS)
"""What a config file and `create_searcher` call them."""


def create_searcher(search_alg: str, **kwargs: Any) -> Searcher:
    """The searcher of that name.

    Args:
        search_alg: "auto", "random" (or "variant_generator"), "optuna", "hyperopt", "bayesopt", "nevergrad", "smac" or
            "ax".
        kwargs: arguments of its constructor. Those that only another one of these has are passed over, so that
            searchers can be exchanged; but for `cost_attr`.

    Raises:
        SettingError: an unknown name or argument; the message has the nearest known one. Or a `cost_attr` for a
            searcher that cannot weigh costs.

    Example:
        >>> create_searcher("random", metric="loss", mode="min", max_concurrent=2).max_concurrent
        2
    """
    name = search_alg.lower() if isinstance(search_alg, str) else search_alg
    if name == "bohb":
        raise SettingError(
            "search_alg='bohb' is not shipped; search_alg='optuna' with scheduler='hb_bohb' is the same "
            "idea with Optuna's TPE as the model"
        )
    if name in _OTHERS:
        raise SettingError(
            f"search_alg={search_alg!r} is not shipped; write a tuner.search.Searcher around that library and pass it"
        )
    if name not in _SEARCHERS:
        raise SettingError(unknown_name("search_alg", str(search_alg), _SEARCHERS))
    chosen = _SEARCHERS[name]()
    if kwargs.get("cost_attr") is not None and "cost_attr" not in inspect.signature(chosen).parameters:
        raise SettingError(
            f"cost_attr={kwargs['cost_attr']!r} is not accepted for search_alg={name!r}, which cannot weigh what "
            "configs cost; 'auto' can. stop=CostStopper(...) bounds what a run costs, whatever searches"
        )
    return chosen(**fitting_arguments(name, chosen, [make() for make in _SEARCHERS.values()], kwargs))


def fitting_arguments(name: str, chosen: type, all_of_them: list[type], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `kwargs` that `chosen` has. Raises SettingError for one that none of the classes has."""
    known = {other: list(inspect.signature(other).parameters) for other in all_of_them}
    anywhere = {parameter for names in known.values() for parameter in names}
    for given in kwargs:
        if given not in anywhere:
            raise SettingError(unknown_name(f"argument of {name!r}", given, known[chosen]))
    return {given: value for given, value in kwargs.items() if given in known[chosen]}


def as_searcher(
    search_alg: Any,
    param_space: Any,
    *,
    num_samples: int = 1,
    metric: Metric = None,
    mode: Metric = None,
    seed: int | None = None,
    trainable_name: str = "",
    stop: Any = None,
    scheduled: bool = False,
) -> Searcher:
    """What proposes the configs of an experiment, ready to be asked.

    Args:
        search_alg: a `Searcher`, a `SearchAlgorithm`, a name for `create_searcher`, or None: grid and random search;
            Optuna's for a define-by-run function.
        param_space: the search space, or a define-by-run function.
        num_samples: how many suggestions there are (times the grid); -1: without end.
        metric, mode: for searchers that were not given their own.
        seed: the experiment's, for searchers that were not given their own.
        trainable_name: for search algorithms, which make trials.
        stop, scheduled: the run's stop, and whether it was given a scheduler.

    Raises:
        SettingError: they do not fit together; the message says what does.
    """
    if search_alg is None:
        searcher: Searcher = _optuna()() if callable(param_space) else BasicVariantGenerator()
    elif isinstance(search_alg, str):
        searcher = create_searcher(search_alg)
    elif isinstance(search_alg, Searcher):
        searcher = search_alg
    elif isinstance(search_alg, SearchAlgorithm):
        searcher = AlgorithmSearcher(search_alg, trainable_name)
    else:
        hint = class_hint(search_alg, Searcher)
        raise refused("search_alg", search_alg, f"accepted are a Searcher, 'auto', 'random', 'optuna' and None{hint}")
    label = type(getattr(searcher, "unwrapped", searcher)).__name__
    for what, own, given in (("metric", searcher.metric, metric), ("mode", searcher.mode, mode)):
        if own is not None and given is not None and names_of(own) != names_of(given):
            raise SettingError(f"{what}={given!r} was given, but {label} has {what}={own!r}; give it in one place")
    spec = {"num_samples": num_samples, "seed": seed, "stop": stop, "scheduled": scheduled}
    taken = tell_properties(searcher, metric, mode, param_space, **spec)
    if not taken and isinstance(param_space, Mapping) and (left := searched_paths(param_space)):
        raise SettingError(
            f"{label} has a search space of its own, so config cannot hold domains, but does: {', '.join(left)}; "
            "put all of them into one of the two places"
        )
    if searcher.needs_metric:
        require_goal(label, searcher.metric, searcher.mode)
    searcher = with_ask_ahead(searcher)
    return searcher if searcher.counts_samples else SampleLimit(searcher, num_samples)
