"""`LibrarySearcher`: the adapter between searchers of other libraries and ours.

A library is asked for points and told of results through `AskTell`; all that is kept of it is the log of that.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from tuner.error import SettingError, require
from tuner.search.arguments import seed_or_none
from tuner.search.dimensions import DimensionSpace, Point
from tuner.search.domains import Domain
from tuner.search.hidden_domains import refuse_hidden
from tuner.search.resolve import HashDraw
from tuner.search.searcher import Metric, Searcher, Suggestion, contains, values_of
from tuner.search.space_tree import is_grid
from tuner.search.variants import list_of_points

Asked = tuple[Literal["asked"], str | None, Any, bool]
"""(.., whose it is, the point, whether the library proposed it); the n-th of the log is point n. None: nobody's."""
Told = tuple[Literal["told"], int, float | None]
"""(.., number of a point, the metric's value; None: it failed)."""


class AskTell(Protocol):
    """A library's optimizer. Lower values are better; points are numbered from 0, as they are added."""

    asks_move_it: ClassVar[bool]
    """True: it has a state that only asking moves, so that it is asked again when it is rebuilt from the log."""

    def ask(self, seed: int) -> Any:
        """A new point, a function of the seed and of all calls before; None: there is none left."""

    def add(self, number: int, point: Any, asked: bool) -> None:
        """A trial runs with this point; `asked`: it is the one that was asked for just before, maybe rounded."""

    def tell(self, number: int, value: float | None) -> None:
        """What came of it: a finite number, or None if it failed. After a failure there may be a number later."""


class SearchedSpace(Protocol):
    """What is searched, as a library has it: configs from points, and points from configs."""

    def config(self, point: Any, key: str) -> dict[str, Any]:
        """The config that a point means; `key` seeds what the point lacks."""

    def point(self, config: Mapping[str, Any]) -> Any:
        """The point that means a config; None: that cannot be said, so that a resume asks the library again."""

    def given(self, point: Mapping[str, Any], what: str, *, whole: bool = False) -> Any:
        """The point of a config that a user gave, in whole or in part. Raises SettingError for what does not fit."""

    def misfit(self, config: Mapping[str, Any]) -> str | None:
        """Why nothing can be learned from a config; None: it is of this space."""


class LibrarySearcher(Searcher):
    """Proposes configs with a library's optimizer.

    Its state is the log of what was asked and told. A resume makes a new optimizer and plays the log to it, so that the
    next suggestion is the one that an uninterrupted run had got: each suggestion has a seed of its own, made of the
    searcher's seed and the suggestion's number.

    A subclass defines `_opened`, and `_own` if the library has a form of its own for spaces.

    Args:
        space: what is searched: a dict of domains, or the library's own form; None: the run's `config`.
        points_to_evaluate: configs, whole or in part, that come first; what a part lacks is drawn at random.
        evaluated_rewards: the results of `points_to_evaluate`, which are then learned from and not run.
        seed: None: the experiment's.
    """

    needs_metric = True
    _remembered = ("_seed", "_log")

    def __init__(
        self,
        space: Any,
        metric: Metric,
        mode: Metric,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None,
        evaluated_rewards: Sequence[float] | None,
        seed: int | None,
    ) -> None:
        super().__init__(metric, mode)
        self._check_metric()
        self._points = list_of_points(points_to_evaluate)
        self._rewards = _rewards(evaluated_rewards, self._points)
        seed_or_none(seed)
        self._given_seed = self._seed = seed
        self._log: list[Asked | Told] = []
        self._numbers: dict[str, int] = {}
        self._count = 0
        self._values: dict[int, float | None] = {}
        self._space: SearchedSpace | None = None
        self._optimizer: AskTell | None = None
        self._own_space = space is not None and space != {}
        if self._own_space:
            self._take(space)

    def _opened(self, space: Any) -> AskTell:
        """A new optimizer for this space."""
        raise NotImplementedError

    def _own(self, space: Any) -> SearchedSpace | None:
        """A space in a form of the library's own; None: it is one of ours. Raises SettingError for what is neither."""
        return None

    def set_search_properties(self, metric: Metric, mode: Metric, config: Any, **spec: Any) -> bool:
        self._fill_in(metric, mode)
        self._check_metric()
        if self._given_seed is None:
            self._seed = spec.get("seed")
        if not self._own_space:
            self._take(config)
        return not self._own_space

    def _check_metric(self) -> None:
        if self._metric is not None and not isinstance(self._metric, str):
            raise SettingError(
                f"{type(self).__name__} optimises one metric, not {self._metric!r}; OptunaSearch takes several"
            )

    def _take(self, space: Any) -> None:
        who = type(self).__name__
        own = self._own(space)
        if own is None:
            require(isinstance(space, Mapping), f"{who}: space", space, "it is a dict of domains")
            if self._own_space:
                refuse_hidden(dict(space))
            own = DimensionSpace(space, who)
            self._check(own)
        self._space = own
        self._given_points = [
            own.given(point, "points_to_evaluate", whole=self._rewards is not None) for point in self._points
        ]

    def _check(self, space: DimensionSpace) -> None:
        """Raise SettingError for a dimension that the library cannot search."""

    def suggest(self, trial_id: str) -> Suggestion:
        space = self._ready()
        number = self._count
        given = self._next_given()
        point = self._live().ask(self._seed_of(number)) if given is None else given
        if point is None:
            return Searcher.FINISHED
        config = space.config(point, self._key(number))
        # What is told is what is tried: a rounded value is not the library's own.
        self._ask(trial_id, point if (canonical := space.point(config)) is None else canonical, given is None)
        return config

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        space = self._ready()
        given = self._next_given()
        point = space.point(config)
        if point is not None and (given is not None or not self._live().asks_move_it):
            self._ask(trial_id, point, given is None)
            return True
        suggestion = self.suggest(trial_id)
        if contains(config, suggestion):
            return True
        if isinstance(suggestion, dict):  # the journal's config takes its place
            self._tell(self._numbers.pop(trial_id), None)
        if point is not None:
            self._ask(trial_id, point, False)
        return False

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        number = self._numbers.get(trial_id)
        if number is None:
            return
        value = None if error else values_of(self._metric, result or {})[0]
        value = value if value is not None and math.isfinite(value) else None
        if number not in self._values or (self._values[number] is None and value is not None):
            self._tell(number, value)

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        point = self._ready().given(parameters, "add_evaluated_point", whole=True)
        self._learn(point, None if error or not math.isfinite(value) else float(value))

    def learn_from(self, trial: Any) -> str | None:
        space = self._ready()
        if problem := space.misfit(trial.config):
            return f"{trial.trial_id}: {problem}"
        value = values_of(self._metric, trial.last_result)[0]
        if value is None or not math.isfinite(value):
            return f"{trial.trial_id} has no {self._metric}"
        self._learn(space.point(trial.config), value)
        return None

    def _learn(self, point: Any, value: float | None) -> None:
        self._ask(None, point, False)
        self._tell(self._count - 1, value)

    def _ready(self) -> SearchedSpace:
        who = type(self).__name__
        if self._space is None:
            raise SettingError(f"{who} has no search space: give it a space, or the run a config with domains")
        if self._metric is None or self._mode is None:
            raise SettingError(f"{who} needs metric= and mode=: give them to it or to the run")
        if self._rewards is not None and not self._log:
            rewards, self._rewards = self._rewards, None
            for point, reward in zip(self._given_points, rewards, strict=True):
                self._learn(point, float(reward) if math.isfinite(reward) else None)
            self._rewards = rewards
        return self._space

    def _next_given(self) -> Any:
        """The user's point that is due; None: they were all given out."""
        given = self._count if self._rewards is None else len(self._points)
        return self._given_points[given] if given < len(self._given_points) else None

    def _ask(self, trial_id: str | None, point: Point, asked: bool) -> None:
        entry: Asked = ("asked", trial_id, point, asked)
        live = self._live()
        self._note(entry)
        live.add(self._count - 1, point, asked)

    def _tell(self, number: int, value: float | None) -> None:
        entry: Told = ("told", number, value)
        live = self._live()
        self._note(entry)
        live.tell(number, self._lower_is_better(value))

    def _note(self, entry: Asked | Told) -> None:
        self._log.append(entry)
        self._count_in(entry)

    def _count_in(self, entry: Asked | Told) -> None:
        if entry[0] == "told":
            self._values[entry[1]] = entry[2]
            return
        if entry[1] is not None:
            self._numbers[entry[1]] = self._count
        self._count += 1

    def _lower_is_better(self, value: float | None) -> float | None:
        return -value if value is not None and self._mode == "max" else value

    def _live(self) -> AskTell:
        """The optimizer; after a resume a new one that is played the log."""
        if self._optimizer is None:
            made = self._opened(self._space)
            number = 0
            for entry in self._log:
                if entry[0] == "told":
                    made.tell(entry[1], self._lower_is_better(entry[2]))
                    continue
                if entry[3] and made.asks_move_it:
                    made.ask(self._seed_of(number))
                made.add(number, entry[2], entry[3])
                number += 1
            self._optimizer = made
        return self._optimizer

    def _key(self, number: int) -> str:
        if self._seed is None:
            self._seed = random.SystemRandom().getrandbits(31)
        return f"{type(self).__name__} {self._seed} {number}"

    def _seed_of(self, number: int) -> int:
        return HashDraw(self._key(number)).seed("ask") % 2**31

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._optimizer, self._count, self._numbers, self._values = None, 0, {}, {}
        for entry in self._log:
            self._count_in(entry)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_optimizer": None}  # it is rebuilt from the log


def has_domains(space: Any) -> bool:
    """True if a domain or a grid of ours is somewhere in a structure of dicts, lists and tuples."""
    if isinstance(space, Domain) or is_grid(space):
        return True
    inner = space.values() if isinstance(space, Mapping) else space if isinstance(space, (list, tuple)) else ()
    return any(map(has_domains, inner))


def _rewards(rewards: Any, points: Sequence[Any]) -> list[float] | None:
    if rewards is None:
        return None
    listed = not isinstance(rewards, str) and hasattr(rewards, "__iter__")
    require(listed, "evaluated_rewards", rewards, "it is a list of numbers")
    values = list(rewards)
    fits = len(values) == len(points)
    require(fits, "evaluated_rewards", rewards, f"it has a number for each of the {len(points)} points_to_evaluate")
    return values
