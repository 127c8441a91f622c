"""`AxSearch`: searches with Ax's Bayesian optimization.

Ax itself is imported when a searcher is made, not with this module.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from trainables.reporting import library
from trainables.validation import checked_names
from tuner.error import SettingError, refused, require
from tuner.search.arguments import whole_number
from tuner.search.choices import Categorical
from tuner.search.dimensions import Dimension, DimensionSpace, Point
from tuner.search.domains import Float, Integer, NormalFloat
from tuner.search.fitting import nested
from tuner.search.library import LibrarySearcher, SearchedSpace
from tuner.search.searcher import Metric


@checked_names
class AxSearch(LibrarySearcher):
    """Proposes configs with Ax: Sobol points, then a Gaussian process of BoTorch's. OptunaSearch is recommended.

    All domains are searched but those inside a choice. A client of Ax is made for each suggestion, and told of all
    trials: those that run are pending to it, those that failed are not proposed again. Where all points of a finite
    space were tried, the search ends.

    Importing Ax takes seconds, in the driver. On one core, which it is limited to, an initial point takes 0.05 s, a
    suggestion of the model 1 s after ten trials and 2 to 4 s after a hundred; with constraints it takes several
    seconds, of whole numbers tens of seconds.

    With the same seed and the same results the suggestions are the same, in any process on the same kind of processor;
    a resume goes on with the suggestion that would have come. Another version of Ax, BoTorch or torch, or another kind
    of processor, may suggest something else; what was tried stands.

    Args:
        space: a dict of domains; or Ax's own, `[{"name": "lr", "type": "range", "bounds": [0.001, 0.1]}]`; None: the
            run's `config`.
        metric: what is optimised.
        mode: "min" or "max".
        points_to_evaluate: configs, whole or in part, that come first; with constraints whole, and they meet them.
        parameter_constraints: "x1 + x2 <= 2", linear inequalities of `uniform` and `randint` values by their paths,
            "model/x <= n".
        outcome_constraints: Ray's; not accepted: `OptunaSearch(constraints=)` has them.
        ax_client: Ray's; not accepted: a client is made for each suggestion.
        n_initial_points: how many points there are before the model proposes any, half of them with results.
        seed, random_seed: None: the experiment's.
        evaluated_rewards: the results of `points_to_evaluate`, which are then learned from and not run.

    Raises:
        SettingError: a space that Ax cannot search; an unknown metric or mode.
        MissingExtraError: Ax is not installed (`pip install "tuner[ax]"`).

    Example:
        >>> searcher = AxSearch({"lr": loguniform(1e-4, 1e-1)}, metric="loss", mode="min")  # doctest: +SKIP

    Source: Balandat et al. 2020, "BoTorch: A Framework for Efficient Monte-Carlo Bayesian Optimization".
    """

    def __init__(
        self,
        space: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        metric: Metric = None,
        mode: Metric = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        parameter_constraints: Sequence[str] | None = None,
        outcome_constraints: Sequence[str] | None = None,
        ax_client: Any = None,
        n_initial_points: int = 5,
        seed: int | None = None,
        random_seed: int | None = None,
        evaluated_rewards: Sequence[float] | None = None,
    ) -> None:
        library("ax", extra="ax")
        elsewhere = "give the constraints to OptunaSearch(constraints=), which has them"
        require(not outcome_constraints, "outcome_constraints", outcome_constraints, elsewhere)
        give = "give space, metric and mode: a client is made for each suggestion, so that a resume can go on"
        require(ax_client is None, "ax_client", ax_client, give)
        self._n_initial_points = whole_number("n_initial_points", n_initial_points, least=1)
        self._constraints = list(parameter_constraints or ())
        super().__init__(
            space, metric, mode, points_to_evaluate, evaluated_rewards, random_seed if seed is None else seed
        )

    def _own(self, space: Any) -> SearchedSpace | None:
        if isinstance(space, (list, tuple)):
            space = nested(dict(map(_of_parameter, space)))
        return _LinearSpace(space, self._constraints) if isinstance(space, Mapping) else None

    def _opened(self, space: Any) -> _ToldAnew:
        return _ToldAnew(space, self._n_initial_points, self._seed_of(0))


class _LinearSpace(DimensionSpace):
    """A space of independent dimensions, some of which meet linear constraints."""

    def __init__(self, config: Mapping[str, Any], constraints: Sequence[str]) -> None:
        super().__init__(config, "AxSearch")
        for each in self.dimensions.values():
            if each.parent is not None:
                raise SettingError(
                    f"AxSearch cannot search {each.name!r}, {each.domain.describe()}: it has an effect only with one "
                    f"value of the choice at {each.parent[0]!r}. Put it beside that choice, or search with OptunaSearch"
                )
        self._names = {name: f"x{index}" for index, name in enumerate(self.dimensions)}
        self._given_constraints = list(constraints)
        self._constraints = [self._renamed(constraint) for constraint in constraints]
        for given, constraint in zip(self._given_constraints, self._constraints, strict=True):
            self._check_constraint(given, constraint)

    @property
    def size(self) -> float:
        """How many points there are."""
        return math.prod(math.inf if each.kind == "float" else each.size for each in self.dimensions.values())

    def client(self, seed: int) -> Any:
        """A new client of Ax's, of this space."""
        return self._client(seed, self._constraints)

    def values(self, point: Point) -> dict[str, Any]:
        """A point as Ax has it."""
        return {own: point[name] + _offset(self.dimensions[name]) for name, own in self._names.items()}

    def point_of(self, values: Mapping[str, Any]) -> Point:
        """A point from what Ax has."""
        return {name: values[own] - _offset(self.dimensions[name]) for name, own in self._names.items()}

    def given(self, point: Mapping[str, Any], what: str, *, whole: bool = False) -> Point:
        made = super().given(point, what, whole=whole or bool(self._constraints))
        if problem := self.unmet(made):
            raise SettingError(f"{what}: {dict(point)!r} {problem}")
        return made

    def misfit(self, config: Mapping[str, Any]) -> str | None:
        return super().misfit(config) or self.unmet(self.point(config))

    def unmet(self, point: Point) -> str | None:
        """Why a whole point is not accepted; None: it meets the constraints."""
        if not self._constraints:
            return None
        try:
            with _quiet():
                self.client(0).attach_trial(self.values(point))
        except ValueError:
            return f"does not meet the parameter_constraints {self._given_constraints}"
        return None

    def _client(self, seed: int, constraints: Sequence[str]) -> Any:
        from ax.api.client import Client

        client = Client(random_seed=seed)
        parameters = [_parameter(own, self.dimensions[name]) for name, own in self._names.items()]
        client.configure_experiment(parameters, parameter_constraints=constraints or None)
        client.configure_optimization("-objective")  # the least is the best
        return client

    def _renamed(self, constraint: str) -> str:
        """A constraint with Ax's names."""
        require(isinstance(constraint, str), "parameter_constraints", constraint, 'each is a str, "x1 + x2 <= 2"')
        linear = [name for name, each in self.dimensions.items() if _is_itself(each)]

        def renamed(found: re.Match[str]) -> str:
            accepted = f"they are of what has a linear scale and no multiples: {', '.join(linear) or 'nothing here'}"
            require(found.group() in linear, "parameter_constraints", found.group(), accepted)
            return self._names[found.group()]

        known = "|".join(map(re.escape, sorted(self.dimensions, key=len, reverse=True)))
        return re.sub(rf"(?<![\w./])(?:(?:{known})(?![\w/])|[A-Za-z_][\w./]*)", renamed, constraint)

    def _check_constraint(self, given: str, constraint: str) -> None:
        from ax.exceptions.core import UserInputError

        try:
            with _quiet():
                self._client(0, [constraint])
        except (UserInputError, ValueError) as error:
            accepted = 'it is a linear inequality, "x1 + 2*x2 <= 2"'
            raise refused("parameter_constraints", given, accepted) from error


class _ToldAnew:
    """What was tried; a client of Ax is made anew for each suggestion, and told of it."""

    asks_move_it: ClassVar[bool] = False

    def __init__(self, space: _LinearSpace, initial: int, initial_seed: int) -> None:
        self._space, self._initial, self._initial_seed = space, initial, initial_seed
        self._points: dict[int, Point] = {}
        self._values: dict[int, float | None] = {}

    def ask(self, seed: int) -> Point | None:
        from ax.exceptions.core import DataRequiredError, SearchSpaceExhausted
        from threadpoolctl import threadpool_limits

        if len({tuple(point.values()) for point in self._points.values()}) >= self._space.size:
            return None
        known = sum(self._values.get(number) is not None for number in self._points)
        with _quiet(), threadpool_limits(1):
            if len(self._points) < self._initial or known < max(1, self._initial // 2):
                with contextlib.suppress(SearchSpaceExhausted):
                    return self._spread(len(self._points))
            try:
                return self._proposed(seed)
            except (DataRequiredError, SearchSpaceExhausted):
                return None

    def add(self, number: int, point: Point, asked: bool) -> None:
        if self._space.unmet(point) is None:  # a resumed run may have others, from before there was a constraint
            self._points[number] = point

    def tell(self, number: int, value: float | None) -> None:
        self._values[number] = value

    def _spread(self, number: int) -> Point:
        """Point `number` of a Sobol sequence."""
        client = self._space.client(self._initial_seed)
        client.configure_generation_strategy("random_search", initialization_random_seed=self._initial_seed)
        trials = client.get_next_trials(number + 1)
        return self._space.point_of(trials[max(trials)])

    def _proposed(self, seed: int) -> Point:
        client = self._space.client(seed)
        client.configure_generation_strategy("fast", initialize_with_center=False, initialization_budget=0)
        for number, point in self._points.items():
            trial = client.attach_trial(self._space.values(point))
            value = self._values.get(number)
            if value is not None:
                client.complete_trial(trial, {"objective": value})
            elif number in self._values:
                client.mark_trial_abandoned(trial)  # where a trial failed, Ax proposes the same point again
        (values,) = client.get_next_trials(1).values()
        return self._space.point_of(values)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Ax's lines about trials, and without the warnings of its models about numbers."""
    from ax.utils.common.logger import ROOT_STREAM_HANDLER

    level = ROOT_STREAM_HANDLER.level
    ROOT_STREAM_HANDLER.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        ROOT_STREAM_HANDLER.setLevel(level)


def _is_itself(each: Dimension) -> bool:
    """True if the number that is searched is the value, or the value less the least one."""
    if isinstance(each.domain, Integer):
        return not each.log and (each.domain.q or 1) == 1
    own = isinstance(each.domain, NormalFloat)  # its quantile is searched
    return isinstance(each.domain, Float) and not own and not each.log and each.domain.q is None


def _offset(each: Dimension) -> int:
    """What Ax's number has more than ours, so that it is the value itself, which constraints are about."""
    return each.domain.least if isinstance(each.domain, Integer) and _is_itself(each) else 0


def _parameter(name: str, each: Dimension) -> Any:
    from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

    if each.kind == "choice":
        return ChoiceParameterConfig(name=name, values=list(range(each.size)), parameter_type="int", is_ordered=False)
    offset, scaling = _offset(each), "log" if each.log else "linear"
    bounds = (each.low + offset, each.high + offset)
    return RangeParameterConfig(name=name, bounds=bounds, parameter_type=each.kind, scaling=scaling)


_ACCEPTED = (
    'it is {"name": "x", "type": "range", "bounds": [0, 1]}, maybe with "log_scale" and "value_type"; or of type '
    '"choice" with "values", or "fixed" with a "value"'
)
_KEYS = {
    "range": {"bounds", "log_scale", "value_type"},
    "choice": {"values", "value_type"},
    "fixed": {"value", "value_type"},
}


def _of_parameter(parameter: Any) -> tuple[str, Any]:
    """One of Ax's own parameters as (name, domain or constant)."""
    keys = set(parameter) if isinstance(parameter, Mapping) else set()
    kind = str(parameter["type"]) if {"name", "type"} <= keys else ""
    if kind not in _KEYS or keys - {"name", "type"} - _KEYS[kind] or not isinstance(parameter["name"], str):
        raise refused("AxSearch: space", parameter, _ACCEPTED)
    name = parameter["name"]
    if kind == "fixed" and "value" in keys:
        return name, parameter["value"]
    if kind == "choice" and parameter.get("values"):
        return name, Categorical(tuple(parameter["values"]))
    bounds = parameter.get("bounds", ())
    if kind != "range" or len(bounds) != 2:
        raise refused("AxSearch: space", parameter, _ACCEPTED)
    log, given = bool(parameter.get("log_scale")), parameter.get("value_type")
    if given == "int" or (given is None and all(isinstance(bound, int) for bound in bounds)):
        return name, Integer(int(bounds[0]), int(bounds[1]) + 1, log)
    return name, Float(float(bounds[0]), float(bounds[1]), log)
