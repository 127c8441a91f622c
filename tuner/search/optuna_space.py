"""Search spaces for Optuna: domains as its distributions, configs as its parameters, and back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tuner.error import SettingError
from tuner.search.domains import Categorical, Domain, Float, Integer, NormalFloat, describe, same
from tuner.search.fitting import nested, searched
from tuner.search.resolve import HashDraw
from tuner.search.space_tree import Branches, Computed, GridValues, Leaf, Node, flat, walk

_TAIL = 1e-9
_PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True)
class Given(Domain):
    """One of Optuna's own distributions in a search space."""

    distribution: Any

    def at(self, u: float) -> Any:
        raise SettingError(f"{self.distribution!r} is one of Optuna's distributions: only OptunaSearch draws from it")

    def is_valid(self, value: Any) -> bool:
        return bool(self.distribution._contains(self.distribution.to_internal_repr(value)))

    def describe(self) -> str:
        return repr(self.distribution)


def wrapped(space: Any) -> Any:
    """A space with Optuna's distributions as domains."""
    from optuna.distributions import BaseDistribution

    if isinstance(space, BaseDistribution):
        return Given(space)
    if isinstance(space, Categorical):
        return Categorical(tuple(map(wrapped, space.categories)))
    if isinstance(space, Mapping):
        return {key: wrapped(value) for key, value in space.items()}
    if type(space) in (list, tuple):
        return type(space)(map(wrapped, space))
    return space


def check_searchable(root: Node) -> None:
    """Raise SettingError for a grid, as a sampler does not run through all values, and for unknown kinds of domains."""
    for path, node in walk(root):
        if isinstance(node, GridValues):
            raise SettingError(f"OptunaSearch cannot search the grid_search at {path!r}; make it a choice([...])")
        if isinstance(node, Leaf):
            distribution_of(node.domain, path)


def first_function(root: Node) -> str | None:
    """Where the first `sample_from` of a space is; None: it has none."""
    return next((path for path, node in walk(root) if isinstance(node, Computed)), None)


def distributions_of(root: Node) -> dict[str, Any]:
    """Name -> distribution of everything that a space searches."""
    return {path: distribution_of(node.domain, path) for path, node in walk(root) if isinstance(node, Leaf | Branches)}


class AskDraw:
    """Values that an Optuna trial suggests."""

    def __init__(self, trial: Any, key: str) -> None:
        self._trial, self._hash = trial, HashDraw(key)

    def value(self, name: str, domain: Domain) -> Any:
        asked = self._ask(name, domain)
        if isinstance(domain, NormalFloat):
            return domain.at(asked)
        return domain.quantize(asked) if isinstance(domain, (Float, Integer)) else asked

    def index(self, name: str, domain: Categorical) -> int:
        label = self._ask(name, domain)
        return next(index for index, own in enumerate(_labels(domain)) if same(own, label))

    def _ask(self, name: str, domain: Domain) -> Any:
        from optuna.distributions import CategoricalDistribution, FloatDistribution

        asked, trial = distribution_of(domain, name), self._trial
        try:
            if isinstance(asked, CategoricalDistribution):
                return trial.suggest_categorical(name, asked.choices)
            suggest = trial.suggest_float if isinstance(asked, FloatDistribution) else trial.suggest_int
            return suggest(name, asked.low, asked.high, step=asked.step, log=asked.log)
        except ValueError as error:
            sampler = type(self._trial.study.sampler).__name__
            raise SettingError(f"{sampler} cannot search {name!r}, {domain.describe()}: {error}") from error

    def seed(self, name: str) -> int:
        return self._hash.seed(name)


def distribution_of(domain: Domain, name: str = "") -> Any:
    """How Optuna searches a domain; `name` is where it is, for the error of a kind that it does not know."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(domain, Given):
        return domain.distribution
    if domain.own_sampler is not None:
        raise SettingError(
            f"OptunaSearch cannot search {name!r}: its samplers draw, and not the one of {domain}; give it a domain "
            "without one, or leave search_alg out, which draws with yours"
        )
    if isinstance(domain, NormalFloat):
        return FloatDistribution(_TAIL, 1 - _TAIL)  # the quantile: uniform ones are normal values
    if isinstance(domain, Float):
        # Optuna has no steps on a log scale: it searches without, and the value is rounded.
        return FloatDistribution(domain.lower, domain.upper, log=domain.log, step=None if domain.log else domain.q)
    if isinstance(domain, Integer):
        step = 1 if domain.log else domain.q or 1
        return IntDistribution(domain.least, domain.greatest, log=domain.log, step=step)
    if isinstance(domain, Categorical):
        return CategoricalDistribution(_labels(domain))
    raise SettingError(
        f"OptunaSearch cannot search {name!r}: {describe(domain)} is a domain of a kind it does not know"
    )


def _labels(domain: Categorical) -> tuple[Any, ...]:
    """The categories as Optuna knows them: themselves where it can hold them, else their numbers."""
    values = tuple(domain.categories)
    plain = all(type(value) in _PLAIN and value == value for value in values)
    return values if plain and len(set(values)) == len(values) else tuple(range(len(values)))


def read(root: Node, config: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Name -> (Optuna's value, distribution) of the searched values that a config has."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, domain, value in searched(root, config):
        if isinstance(domain, NormalFloat):
            value = min(max(domain.quantile(value), _TAIL), 1 - _TAIL)
        elif isinstance(domain, Categorical):
            value = _labels(domain)[value]
        found[name] = (value, distribution_of(domain, name))
    return found


def plain_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a study can hold of a result: numbers, text and booleans, flat."""
    return {name: value for name, value in flat(result).items() if isinstance(value, _PLAIN) and name != "config"}


def config_of_function(
    function: Callable[[Any], Mapping[str, Any] | None], trial: Any, point: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """What a define-by-run function asks the trial for, with what it returns beside it.

    Raises SettingError for a value of `point`, flat, that the function does not take.
    """
    try:
        with warnings.catch_warnings():
            if point:  # Optuna warns of a value that is out of range, and uses it
                warnings.filterwarnings("ignore", "Fixed parameter", UserWarning)
            returned = function(trial)
    except ValueError as error:
        if name := next((name for name, value in point.items() if repr(value) in str(error)), None):
            raise SettingError(f"points_to_evaluate: {name}={point[name]!r} is not accepted: {error}") from error
        raise
    if returned is not None and not (isinstance(returned, Mapping) and all(isinstance(key, str) for key in returned)):
        raise SettingError(
            f"the define-by-run function returned {returned!r}; it returns a dict with names as keys, or None"
        )
    made = {**trial.params, **(returned or {})}
    _check_taken(point, made, trial.distributions)
    return nested(made)


def _check_taken(point: Mapping[str, Any], made: Mapping[str, Any], distributions: Mapping[str, Any]) -> None:
    config = flat(made)
    for name, value in point.items():
        asked = distributions.get(name)
        if asked is not None and not asked._contains(asked.to_internal_repr(value)):
            raise SettingError(f"points_to_evaluate: {name}={value!r} is not a value of {asked!r}")
        if name not in config or not (same(config[name], value) or config[name] == value):
            took = ", ".join(f"{key}={item!r}" for key, item in config.items()) or "nothing"
            raise SettingError(
                f"points_to_evaluate: {name}={value!r} is not taken by the define-by-run function, whose config is: "
                f"{took}; it takes what it asks for with trial.suggest_...({name!r}, ...)"
            )


def params_of_function(
    function: Callable[[Any], Any], config: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a define-by-run function would have asked for, had it been answered with this config."""
    import optuna

    fixed = optuna.trial.FixedTrial(flat(config))
    try:
        function(fixed)
    except (ValueError, KeyError, AttributeError, TypeError):
        return {}, {}  # it asks for what the config does not have: nothing is learned from that trial
    names = fixed.distributions
    return {name: fixed.params[name] for name in names}, dict(names)
