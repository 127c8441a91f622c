"""`NevergradSearch`: searches with the optimizers of Nevergrad.

Nevergrad itself is imported when a searcher is made, not with this module.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from trainables.reporting import library
from trainables.validation import checked_names, unknown_name
from tuner.error import SettingError, refused, require
from tuner.search.dimensions import Dimension, DimensionSpace
from tuner.search.fitting import check_own_names, nested, value_at
from tuner.search.library import LibrarySearcher, SearchedSpace
from tuner.search.searcher import Metric

log = logging.getLogger(__name__)


@checked_names
class NevergradSearch(LibrarySearcher):
    """Proposes configs with an optimizer of Nevergrad: evolution, swarms, CMA and others. OptunaSearch is recommended.

    All domains are searched; values of a choice that hold domains are searched all the time, and have no effect where
    another value is chosen. A trial that failed is told as the worst result so far.

    A resume makes the optimizer anew, with the same seed, and asks and tells it what the first one was asked and told.
    With the same version of Nevergrad the search goes on as if nothing had been. An optimizer that draws from global
    random generators, as some that wrap other libraries do, may propose something else; what was tried stands.

    Args:
        optimizer: one of `nevergrad.optimizers`: a class, a configured one, its name, or an optimizer that was made of
            a parametrization, which is copied; None: "OnePlusOne".
        optimizer_kwargs: what it is made with: {"budget": 100}, which some need.
        space: a dict of domains; Nevergrad's own (`ng.p.Dict`, `ng.p.Instrumentation` with names); beside an optimizer
            that was made, the names of its array's values; None: the run's `config`.
        metric: what is optimised.
        mode: "min" or "max".
        points_to_evaluate: configs, whole or in part, that come first.
        evaluated_rewards: the results of `points_to_evaluate`, which are then learned from and not run.
        seed: None: the experiment's.

    Raises:
        SettingError: a space that Nevergrad cannot search; no optimizer; an unknown metric or mode.
        MissingExtraError: Nevergrad is not installed (`pip install "tuner[nevergrad]"`).

    Example:
        >>> searcher = NevergradSearch("CMA", space={"x": uniform(0, 1)}, metric="loss", mode="min")  # doctest: +SKIP

    Source: Bennet et al. 2021, "Nevergrad: black-box optimization platform".
    """

    def __init__(
        self,
        optimizer: Any = None,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        space: Any = None,
        metric: Metric = None,
        mode: Metric = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        evaluated_rewards: Sequence[float] | None = None,
        seed: int | None = None,
    ) -> None:
        library("nevergrad", extra="nevergrad")
        self._given_optimizer = _checked(optimizer)
        self._given_optimizer_kwargs = dict(optimizer_kwargs or {})
        if self._is_made:
            require(space is None or isinstance(space, list), "NevergradSearch: space", space, _WITH_MADE)
            require(not optimizer_kwargs, "optimizer_kwargs", optimizer_kwargs, "the optimizer was made already")
            space = _Parametrized(self._given_optimizer.parametrization, space)
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed)

    @property
    def _is_made(self) -> bool:
        from nevergrad.optimization import Optimizer

        return isinstance(self._given_optimizer, Optimizer)

    def _own(self, space: Any) -> SearchedSpace | None:
        from nevergrad.parametrization.core import Parameter

        return _Parametrized(space, None) if isinstance(space, Parameter) else space if self._is_made else None

    def _opened(self, space: Any) -> _Population:
        import numpy

        if self._is_made:
            optimizer = copy.deepcopy(self._given_optimizer)
        else:
            own = isinstance(space, _Parametrized)
            parametrization = copy.deepcopy(space.parametrization) if own else _parametrization(space)
            parametrization.random_state = numpy.random.RandomState(self._seed_of(0))
            optimizer = self._given_optimizer(parametrization, **self._given_optimizer_kwargs)
        optimizer.parametrization.random_state = numpy.random.RandomState(self._seed_of(0))
        return _Population(optimizer, space if isinstance(space, _Parametrized) else None)


_WITH_MADE = "beside an optimizer that was made it is None, or a list of names for the values of its array"


def _checked(optimizer: Any) -> Any:
    """What makes an optimizer, or one that was made. Raises SettingError."""
    import nevergrad
    from nevergrad.optimization import Optimizer
    from nevergrad.optimization.base import ConfiguredOptimizer

    known = nevergrad.optimizers.registry
    if optimizer is None or isinstance(optimizer, str):
        name = optimizer or "OnePlusOne"
        if name not in known:
            raise SettingError(unknown_name("optimizer", name, list(known)))
        return known[name]
    fits = isinstance(optimizer, (Optimizer, ConfiguredOptimizer))
    fits = fits or (isinstance(optimizer, type) and issubclass(optimizer, Optimizer))
    require(fits, "optimizer", optimizer, "it is one of nevergrad.optimizers, its name, or one that was made")
    return optimizer


class _Population:
    """An optimizer of Nevergrad, and which of its candidates is which point."""

    asks_move_it: ClassVar[bool] = True

    def __init__(self, optimizer: Any, own: _Parametrized | None) -> None:
        self._optimizer, self._own = optimizer, own
        self._candidates: dict[int, Any] = {}
        self._last: Any = None
        self._worst: float | None = None

    def ask(self, seed: int) -> Any:
        self._last = self._optimizer.ask()
        return self._last.value if self._own is None else self._own.of_candidate(self._last)

    def add(self, number: int, point: Any, asked: bool) -> None:
        if not asked:
            if self._own is not None:
                self._own.suggest(self._optimizer, point)
            else:
                self._optimizer.suggest({**self._optimizer.parametrization.value, **point})
            self._last = self._optimizer.ask()
        self._candidates[number] = self._last

    def tell(self, number: int, value: float | None) -> None:
        from nevergrad.common.errors import TellNotAskedNotSupportedError

        if value is not None:
            self._worst = value if self._worst is None else max(value, self._worst)
        if (told := self._worst if value is None else value) is None:
            return
        try:
            self._optimizer.tell(self._candidates[number], told)
        except TellNotAskedNotSupportedError:
            log.debug("%s learns from what it proposed only", self._optimizer.name)


def _parametrization(space: DimensionSpace) -> Any:
    from nevergrad import p

    def made(each: Dimension) -> Any:
        if each.kind == "choice":
            return p.Choice(list(range(each.size)))
        bounded = (p.Log if each.log else p.Scalar)(lower=each.low, upper=each.high)
        return bounded if each.kind == "float" else bounded.set_integer_casting()

    return p.Dict(**{name: made(each) for name, each in space.dimensions.items()})


class _Parametrized:
    """A space of Nevergrad's own. Points are its values by name.

    Args:
        parametrization: with names; or one array, for whose values there are `names`.
    """

    def __init__(self, parametrization: Any, names: Sequence[str] | None) -> None:
        from nevergrad import p

        self.parametrization = parametrization
        self._listed = names is not None
        self._instrumented = isinstance(parametrization, p.Instrumentation)
        if names is None:
            value = parametrization.kwargs if self._instrumented else parametrization.value
            named = isinstance(value, Mapping) and value and not (self._instrumented and parametrization.args)
            accepted = "it has names: ng.p.Dict(x=...), or ng.p.Instrumentation(x=...)"
            require(named, "NevergradSearch: space", parametrization, accepted)
            names = list(value)
        elif len(names) != parametrization.dimension:
            accepted = f"it names each of {parametrization.dimension} values"
            raise refused("NevergradSearch: space", names, accepted)
        self._names = list(names)

    def of_candidate(self, candidate: Any) -> dict[str, Any]:
        if self._listed:
            return dict(zip(self._names, map(float, candidate.args[0]), strict=True))
        return dict(candidate.kwargs or candidate.value)

    def suggest(self, optimizer: Any, point: Mapping[str, Any]) -> None:
        if self._listed:
            optimizer.suggest([point[name] for name in self._names])
        elif self._instrumented:
            optimizer.suggest(**point)
        else:
            optimizer.suggest(dict(point))

    def _value(self, point: Mapping[str, Any]) -> Any:
        return ((), dict(point)) if self._instrumented else dict(point)

    def config(self, point: Mapping[str, Any], key: str) -> dict[str, Any]:
        return nested(point)

    def point(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value_at(config, name) for name in self._names}

    def misfit(self, config: Mapping[str, Any]) -> str | None:
        lacking = [name for name, value in self.point(config).items() if value is None]
        return f"it has no {lacking[0]}" if lacking else None

    def given(self, point: Mapping[str, Any], what: str, *, whole: bool = False) -> dict[str, Any]:
        check_own_names(self._names, point, what)
        made = self.point(point)
        for value in made.values():
            require(value is not None, what, dict(point), f"it has a value for each of {', '.join(self._names)}")
        if not self._listed:
            try:
                self.parametrization.spawn_child(self._value(made))
            except Exception as error:  # Nevergrad's own: whatever a parameter says of a value that it cannot have
                raise SettingError(f"{what}: {dict(point)!r} is not accepted: {error}") from error
        return made
