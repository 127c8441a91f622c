"""`BayesOptSearch`: searches with the Gaussian processes of `bayesian-optimization`.

The library itself is imported when a searcher is made, not with this module.
"""

from __future__ import annotations

import logging
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, Literal

from trainables.reporting import library
from trainables.validation import checked_names
from tuner.error import SettingError, require
from tuner.search.arguments import whole_number
from tuner.search.dimensions import Dimension, DimensionSpace, Point
from tuner.search.domains import Categorical, Float, Integer, is_number
from tuner.search.fitting import nested
from tuner.search.library import LibrarySearcher, SearchedSpace, has_domains
from tuner.search.searcher import Metric

log = logging.getLogger(__name__)


@checked_names
class BayesOptSearch(LibrarySearcher):
    """Proposes configs with a Gaussian process. It is for few, continuous values; OptunaSearch is recommended.

    Every dimension is searched in the unit interval, where that is meant on a log scale; whole numbers and multiples
    are rounded, the values of a choice are a dimension each. A trial that runs counts as the worst result so far until
    it has its own, so that several at once are not given the same; so does one that failed.

    With the same seed and the same results the suggestions are the same, in any process; a resume goes on with the
    suggestion that would have come. Another version of the library, of scikit-learn, or another kind of processor, may
    suggest something else.

    Args:
        space: a dict of domains; or the library's own, `{"lr": (0.001, 0.1)}`; None: the run's `config`. Values that
            have an effect only with one value of a choice cannot be searched.
        metric: what is optimised.
        mode: "min" or "max".
        points_to_evaluate: configs, whole or in part, that come first.
        utility_kwargs: of the acquisition function: `kind` ("ucb", "ei" or "poi"), `kappa`, `xi`, `kappa_decay`,
            `kappa_decay_delay`.
        random_state: the seed; None: the experiment's.
        random_search_steps: how many random points there are before the model proposes any.
        verbose: has no effect.
        patience: a suggestion that was made before is not made again; the search ends when so many in a row were.
        skip_duplicate: False: it is made again, up to `patience` times.
        analysis: an earlier experiment to learn from, as the `warm_start` of OptunaSearch.
        repeat_float_precision: suggestions that are equal to so many decimals of the unit interval are the same.
        evaluated_rewards: the results of `points_to_evaluate`, which are then learned from and not run.

    Raises:
        SettingError: a space that it cannot search; an unknown metric or mode.
        MissingExtraError: the library is not installed (`pip install "tuner[bayesopt]"`).

    Example:
        >>> searcher = BayesOptSearch({"x": uniform(0, 1)}, metric="loss", mode="min")  # doctest: +SKIP

    Source: Snoek et al. 2012, "Practical Bayesian Optimization of Machine Learning Algorithms"; Ginsbourger et al.
    2010, "Kriging is well-suited to parallelize optimization" (constant liar).
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: Metric = None,
        mode: Metric = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        utility_kwargs: Mapping[str, Any] | None = None,
        random_state: int | None = 42,
        random_search_steps: int = 10,
        verbose: int = 0,
        patience: int = 5,
        skip_duplicate: bool = True,
        analysis: Any = None,
        repeat_float_precision: int = 5,
        evaluated_rewards: Sequence[float] | None = None,
    ) -> None:
        library("bayes_opt", extra="bayesopt")
        self._given_random_state = random_state
        self._given_utility_kwargs = dict(utility_kwargs or {})
        self._model = _Model(
            utility=_Utility(**_utility(self._given_utility_kwargs)),
            random_steps=whole_number("random_search_steps", random_search_steps, least=0),
            patience=whole_number("patience", patience, least=1),
            repeats=not skip_duplicate,
            decimals=whole_number("repeat_float_precision", repeat_float_precision, least=0),
        )
        self.warm_start = analysis
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, random_state)

    def _own(self, space: Any) -> SearchedSpace | None:
        if not isinstance(space, Mapping) or has_domains(space):
            return None
        return DimensionSpace(
            nested({name: _of_bounds(name, bounds) for name, bounds in space.items()}), "BayesOptSearch"
        )

    def _check(self, space: DimensionSpace) -> None:
        for each in space.dimensions.values():
            if each.parent is not None:
                raise SettingError(
                    f"BayesOptSearch cannot search {each.name!r}, {each.domain.describe()}: it has an effect only with "
                    f"one value of the choice at {each.parent[0]!r}. Put it beside that choice, or search with "
                    "OptunaSearch or HyperOptSearch"
                )

    def _opened(self, space: Any) -> _Regression:
        return _Regression(list(space.dimensions.values()), self._model)


@dataclass(frozen=True)
class _Utility:
    """How a point is rated by what the process says of it."""

    kind: Literal["ucb", "ei", "poi"] = "ucb"
    kappa: float = 2.576
    xi: float = 0.0
    kappa_decay: float = 1.0
    kappa_decay_delay: int = 0

    def arguments(self, number: int) -> dict[str, Any]:
        """Of the library, for point `number`."""
        kappa = self.kappa * self.kappa_decay ** max(0, number - self.kappa_decay_delay)
        return {"kind": self.kind, "kappa": kappa, "xi": self.xi}

    def suggested(self, bayes_opt: ModuleType, number: int, **common: Any) -> Any:
        """An optimizer of the library, and a function that asks it: version 2 took the acquisition apart from it."""
        given = self.arguments(number)
        if not hasattr(bayes_opt, "acquisition"):
            optimizer = bayes_opt.BayesianOptimization(**common)
            return optimizer, lambda: optimizer.suggest(bayes_opt.UtilityFunction(**given))
        classes = bayes_opt.acquisition
        if self.kind == "ucb":
            acquisition = classes.UpperConfidenceBound(kappa=given["kappa"])
        else:
            kind = classes.ExpectedImprovement if self.kind == "ei" else classes.ProbabilityOfImprovement
            acquisition = kind(xi=self.xi)
        optimizer = bayes_opt.BayesianOptimization(acquisition_function=acquisition, **common)
        return optimizer, optimizer.suggest


@dataclass(frozen=True)
class _Model:
    """The settings of a search."""

    utility: _Utility
    random_steps: int
    patience: int
    repeats: bool
    decimals: int


class _Regression:
    """Points in the unit cube and their values; the process is fitted to them anew for each suggestion."""

    asks_move_it: ClassVar[bool] = False

    def __init__(self, dimensions: Sequence[Dimension], model: _Model) -> None:
        self._dimensions, self._model = dimensions, model
        self._points: list[tuple[float, ...]] = []
        self._values: dict[int, float | None] = {}

    def ask(self, seed: int) -> Point | None:
        model, seen = self._model, Counter(map(self._rounded, self._points))
        for attempt in range(model.patience):
            point = self._proposed(seed + attempt)
            rounded = self._rounded(_to_cube(self._dimensions, point))
            if seen[rounded] < (model.patience if model.repeats else 1):
                return point
        log.warning(
            "BayesOptSearch ends: %d suggestions in a row had been made before (patience=, skip_duplicate=)",
            model.patience,
        )
        return None

    def add(self, number: int, point: Point, asked: bool) -> None:
        self._points.append(_to_cube(self._dimensions, point))

    def tell(self, number: int, value: float | None) -> None:
        self._values[number] = value

    def _rounded(self, cube: Sequence[float]) -> tuple[float, ...]:
        return tuple(round(each, self._model.decimals) for each in cube)

    def _proposed(self, seed: int) -> Point:
        known = {number: value for number, value in self._values.items() if value is not None}
        if len(self._points) < self._model.random_steps or not known:
            draw = random.Random(seed)
            return _from_cube(self._dimensions, [draw.random() for _ in range(_width(self._dimensions))])
        import bayes_opt
        from threadpoolctl import threadpool_limits

        names = [f"x{index}" for index in range(_width(self._dimensions))]
        optimizer, suggest = self._model.utility.suggested(
            bayes_opt, len(self._points), f=None, pbounds=dict.fromkeys(names, (0.0, 1.0)), random_state=seed, verbose=0
        )
        worst = max(known.values())
        values: dict[tuple[float, ...], list[float]] = {}
        for number, cube in enumerate(self._points):
            values.setdefault(cube, []).append(known.get(number, worst))
        for cube, of_it in values.items():
            optimizer.register(params=dict(zip(names, cube, strict=True)), target=-math.fsum(of_it) / len(of_it))
        with threadpool_limits(1):  # with more it takes longer, and sums differ between machines
            suggested = suggest()
        return _from_cube(self._dimensions, [float(suggested[name]) for name in names])


def _width(dimensions: Sequence[Dimension]) -> int:
    return sum(each.size if each.kind == "choice" else 1 for each in dimensions)


def _to_cube(dimensions: Sequence[Dimension], point: Point) -> tuple[float, ...]:
    cube: list[float] = []
    for each in dimensions:
        number = point[each.name]
        if each.kind == "choice":
            cube += [float(index == number) for index in range(each.size)]
        else:
            low, high, at = (math.log(value) if each.log else value for value in (each.low, each.high, number))
            cube.append((at - low) / (high - low))
    return tuple(cube)


def _from_cube(dimensions: Sequence[Dimension], cube: Sequence[float]) -> Point:
    point, rest = {}, list(cube)
    for each in dimensions:
        taken = [rest.pop(0) for _ in range(each.size if each.kind == "choice" else 1)]
        if each.kind == "choice":
            point[each.name] = taken.index(max(taken))
        else:
            low, high = (math.log(value) if each.log else value for value in (each.low, each.high))
            at = low + (high - low) * taken[0]
            point[each.name] = each.within(math.exp(at) if each.log else at)
    return point


def _of_bounds(name: str, bounds: Any) -> Any:
    """One of the library's own bounds as a domain: (low, high), (low, high, int), or categories."""
    listed = isinstance(bounds, (list, tuple)) and len(bounds) > 1
    accepted = "it is a pair (low, high), (low, high, int), or a tuple of values; or give domains for all"
    require(listed, f"BayesOptSearch: space[{name!r}]", bounds, accepted)
    kind = bounds[2] if len(bounds) == 3 and isinstance(bounds[2], type) else float if len(bounds) == 2 else None
    if kind is None or not all(map(is_number, bounds[:2])):
        return Categorical(tuple(bounds))
    require(bounds[0] < bounds[1], f"BayesOptSearch: space[{name!r}]", bounds, "low is below high")
    return Integer(int(bounds[0]), int(bounds[1]) + 1) if kind is int else Float(float(bounds[0]), float(bounds[1]))


def _utility(given: Mapping[str, Any]) -> dict[str, Any]:
    """Checked `utility_kwargs`."""
    known = list(_Utility.__dataclass_fields__)
    for name in given:
        require(name in known, "utility_kwargs", dict(given), f"it has {', '.join(known)}")
    kind = given.get("kind", "ucb")
    require(kind in ("ucb", "ei", "poi"), "utility_kwargs['kind']", kind, "it is 'ucb', 'ei' or 'poi'")
    return dict(given)
