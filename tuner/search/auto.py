"""`AutoSearch`: a model of whole learning curves proposes configs, and says which trials are worth going on."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainables.metrics import as_score, score_of
from trainables.reporting import library
from trainables.validation import checked_names
from tuner.error import SettingError, require
from tuner.search.arguments import check_number, metric_name, seed_or_none
from tuner.search.dimensions import DimensionSpace, Point
from tuner.search.resolve import HashDraw
from tuner.search.searcher import Metric, Searcher, Suggestion
from tuner.search.space_tree import Computed, walk
from tuner.search.variants import list_of_points

if TYPE_CHECKING:
    from tuner.search.costs import Costs
    from tuner.search.curves import CurveModel, Curves
    from tuner.search.proposing import Proposer

log = logging.getLogger(__name__)

_FIRST, _SHOWN = 8, 4
"""Trials before the model is asked, and how many of them have to have shown something."""


@checked_names
class AutoSearch(Searcher):
    """Proposes configs by a Gaussian process over configs and depths of training, and ends trials early by it.

    A result at epoch 5 tells something about epoch 50, and the process learns how much: results of all depths are
    compared at the largest one, so that trials that were stopped early count for what they have shown. A new config is
    the one with the highest expected improvement over the best that is expected of all trials so far. Without a
    `scheduler=` the run gets one that ends a trial when the probability that it becomes the best is small; with one it
    leaves that to it. Without `max_t` and `stop={"training_iteration": N}` nothing is stopped early, and only last
    results are learned from.

    The first eight configs are random. The model learns from at most 250 results, which bounds the cost of a
    suggestion. What a trial shows before the 17th part of the largest depth counts for nothing. Needs SciPy:
    `pip install "tuner[auto]"`.

    With `cost_attr` a config is worth its expected improvement divided by what an iteration of it is expected to cost,
    by another process that learns from what trials have cost. It pays where configs differ much in cost, and takes some
    milliseconds more. "time_this_iter_s" is in every result: then a run with the same seed is
    another one on another machine, while a resume goes on as ever by the times that were journaled.

    Args:
        max_t: the largest depth, in iterations; None: what the run's `stop` says.
        cost_attr: the name under which results say what they, each of them, cost, as in `CostStopper`; None: all
            configs are taken to cost the same. A run whose results never have it ends with `MetricMissingError`.
        metric, mode: what is optimised; None: the run's. One metric: OptunaSearch takes several.
        points_to_evaluate: configs, whole or in part, that come first.
        seed: None: the experiment's.

    Raises:
        MissingExtraError: SciPy is not installed.
        SettingError: several metrics, or a space with what cannot be modelled: `sample_from`, a grid, a function.

    Example:
        >>> AutoSearch(max_t=27, metric="loss", mode="min").metric  # doctest: +SKIP
        'loss'

    Source: Swersky et al. 2014, "Freeze-Thaw Bayesian Optimization"; Wistuba et al. 2022, "Supervising the
    Multi-Fidelity Race of Hyperparameter Configurations" (DyHPO). Improvement for its cost: Snoek et al. 2012,
    "Practical Bayesian Optimization of Machine Learning Algorithms", section 3.2.
    """

    needs_metric = True
    _remembered = ("_seed",)

    def __init__(
        self,
        max_t: float | None = None,
        *,
        cost_attr: str | None = None,
        metric: Metric = None,
        mode: Metric = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        seed: int | None = None,
    ) -> None:
        library("scipy", extra="auto")
        if max_t is not None:
            check_number("max_t", max_t, lambda number: 1 <= number < math.inf, "a finite number from 1 on, or None")
        super().__init__(metric, mode)
        self._check_metric()
        self.cost_attr = None if cost_attr is None else metric_name(cost_attr, "cost_attr")
        self._max_t, self._points = max_t, list_of_points(points_to_evaluate)
        seed_or_none(seed)
        self._given_seed = self._seed = seed
        self._space: DimensionSpace | None = None
        self._curves: Curves
        self._model: CurveModel
        self._proposer: Proposer
        self._costs: Costs | None = None
        self._last_only = False

    def early_stopping_depth(self, stop: Any) -> float | None:
        return self._max_t if self._max_t is not None else _iterations(stop)

    def set_search_properties(self, metric: Metric, mode: Metric, config: Any, **spec: Any) -> bool:
        self._fill_in(metric, mode)
        self._check_metric()
        if self._given_seed is None:
            self._seed = spec.get("seed")
        depth, scheduled = self.early_stopping_depth(spec.get("stop")), bool(spec.get("scheduled"))
        self._last_only = depth is None and not scheduled
        if self._last_only:
            log.warning(
                "AutoSearch stops no trial early: it does not know how long they train. Give max_t= to it, or "
                'stop={"training_iteration": N} to the run, or a scheduler='
            )
        self._take(config, 1.0 if self._last_only else depth)
        return True

    def _check_metric(self) -> None:
        if self._metric is not None and not isinstance(self._metric, str):
            raise SettingError(f"AutoSearch optimises one metric, not {self._metric!r}; OptunaSearch takes several")

    def _take(self, config: Any, depth: float | None) -> None:
        from tuner.search.costs import Costs
        from tuner.search.cube import Cube
        from tuner.search.curves import CurveModel, Curves
        from tuner.search.proposing import Proposer

        self._space = modelled_space(config)
        cube = Cube(list(self._space.dimensions.values()))
        self._curves = Curves(depth)
        self._model = CurveModel(cube, self._curves)
        self._costs = None if self.cost_attr is None else Costs(cube, self._curves)
        self._proposer = Proposer(cube, self._curves, self._model, self._costs)
        self._given = [self._space.given(point, "points_to_evaluate") for point in self._points]

    def _ready(self) -> DimensionSpace:
        if self._space is None:
            raise SettingError("AutoSearch has no search space: give the run a config with domains")
        if self._metric is None or self._mode is None:
            raise SettingError("AutoSearch needs metric= and mode=: give them to it or to the run")
        return self._space

    def suggest(self, trial_id: str) -> Suggestion:
        space, number = self._ready(), len(self._curves.points)
        key = self._key(number)
        if number < len(self._given):
            point: Point = self._given[number]
        elif self._learn():
            point = self._proposer.best(HashDraw(key).seed("candidates"))
        else:
            point = self._proposer.anywhere(HashDraw(key).seed("start"))
        config = space.config(point, key)
        self._curves.add(trial_id, space.point(config))
        return config

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        space, number = self._ready(), len(self._curves.points)
        self._key(number)
        if number >= len(self._given):
            self._learn()  # the model's parameters go on from those before
        self._curves.add(trial_id, space.point(config))
        return True

    def _learn(self) -> bool:
        """Have the model learn, if there is enough to learn from."""
        curves = self._curves
        pending = [number for number, shown in enumerate(curves.shown) if not shown]
        if len(curves.points) < _FIRST or len(curves.points) - len(pending) < _SHOWN:
            return False
        self._model.learn(pending)
        if self._costs is not None:
            self._costs.learn()
        return True

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if self._space is None or trial_id not in self._curves.numbers:
            return
        self._note_cost(trial_id, result)
        if self._last_only:
            return
        depth, score = score_of(result, "training_iteration"), self._score(result)
        if depth is not None and score is not None and self._curves.is_due(trial_id, depth):
            self._curves.note(trial_id, depth, score)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if self._space is None or trial_id not in self._curves.numbers:
            return
        score = None if error else self._score(result or {})
        if score is not None:
            self._curves.note(trial_id, self._depth(result or {}), score)
        elif not self._curves.shown[self._curves.numbers[trial_id]]:
            self._curves.note(trial_id, self._curves.first_rung, -math.inf)  # as bad as the worst

    def _depth(self, result: Mapping[str, Any]) -> float:
        depth = None if self._last_only else score_of(result, "training_iteration")
        return self._curves.first_rung if depth is None else depth

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        point = self._ready().given(parameters, "add_evaluated_point", whole=True)
        self._learn_of(point, self._curves.deepest(), -math.inf if error else self._turned(float(value)))

    def learn_from(self, trial: Any) -> str | None:
        space = self._ready()
        if problem := space.misfit(trial.config):
            return f"{trial.trial_id}: {problem}"
        score = self._score(trial.last_result or {})
        if score is None or not math.isfinite(score):
            return f"{trial.trial_id} has no {self._metric}"
        self._learn_of(space.point(trial.config), self._depth(trial.last_result), score, trial.last_result)
        return None

    def _learn_of(self, point: Point, depth: float, score: float, result: Mapping[str, Any] | None = None) -> None:
        """Take what an earlier run has shown."""
        trial_id = f"earlier {len(self._curves.points)}"
        self._curves.add(trial_id, point)
        self._curves.note(trial_id, depth, score)
        self._note_cost(trial_id, result or {})

    def _note_cost(self, trial_id: str, result: Mapping[str, Any]) -> None:
        if self._costs is not None:
            self._costs.note(trial_id, score_of(result, str(self.cost_attr)))

    def _score(self, result: Mapping[str, Any]) -> float | None:
        """The metric, turned so that higher is better; None: there is none."""
        value = score_of(result, str(self._metric))
        return None if value is None else self._turned(value)

    def _turned(self, value: float) -> float:
        if math.isnan(value):
            return -math.inf
        return -value if self._mode == "min" else value

    def _key(self, number: int) -> str:
        if self._seed is None:
            self._seed = random.SystemRandom().getrandbits(31)
        return f"AutoSearch {self._seed} {number}"

    def get_state(self) -> dict[str, Any]:
        state = super().get_state()
        if self._space is None:
            return state
        costs = {} if self._costs is None else {"costs": self._costs.get_state()}
        return {**state, "curves": self._curves.get_state(), "model": self._model.get_state(), **costs}

    def set_state(self, state: dict[str, Any]) -> None:
        own = dict(state)
        curves, model, costs = (own.pop(name, None) for name in ("curves", "model", "costs"))
        super().set_state(own)
        if curves is not None:
            self._ready()
            self._curves.set_state(curves)
            self._model.set_state(model)
        if costs is not None and self._costs is not None:
            self._costs.set_state(costs)


def modelled_space(config: Any) -> DimensionSpace:
    """The space as dimensions. Raises SettingError for what a model of it would not know."""
    require(isinstance(config, Mapping), "AutoSearch: config", config, "it is a dict of domains")
    space = DimensionSpace(config, "AutoSearch")
    for path, node in walk(space.space.root):
        if isinstance(node, Computed):
            raise SettingError(
                f"AutoSearch cannot search the sample_from at {path!r}: it cannot know what the function draws. Make "
                "it a domain, compute the value in the trainable, or take search_alg='optuna', which draws it"
            )
    return space


def _iterations(stop: Any) -> float | None:
    """How many iterations a run's `stop` allows, or one of a list; None: it does not say."""
    if isinstance(stop, (list, tuple)):
        return min((depth for each in stop if (depth := _iterations(each)) is not None), default=None)
    limit: Any = stop.get("training_iteration") if isinstance(stop, Mapping) else None
    if hasattr(limit, "is_met"):  # at_least() or at_most()
        limit = limit.limit if limit.is_met(math.inf) else None
    depth = as_score(limit)
    return depth if depth is not None and 1 <= depth < math.inf else None
