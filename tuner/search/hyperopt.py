"""`HyperOptSearch`: searches with HyperOpt's TPE.

HyperOpt itself is imported when a searcher is made, not with this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from trainables.reporting import library
from trainables.validation import checked_names
from tuner.error import SettingError, require
from tuner.search.arguments import check_number, is_whole, whole_number
from tuner.search.dimensions import Dimension, DimensionSpace, Point
from tuner.search.domains import same
from tuner.search.library import LibrarySearcher, SearchedSpace, has_domains
from tuner.search.searcher import Metric


@checked_names
class HyperOptSearch(LibrarySearcher):
    """Proposes configs with HyperOpt's Tree of Parzen Estimators. OptunaSearch, whose TPE is newer, is recommended.

    All domains are searched, values of a choice that hold domains as conditional ones. A failed trial, or one with a
    result that is no finite number, is a failure to HyperOpt: its point is not taken for a good one.

    With the same seed and the same results the suggestions are the same, in any process; a resume goes on with the
    suggestion that would have come. Another version of HyperOpt may suggest something else.

    Args:
        space: a dict of domains; or HyperOpt's own, `{"lr": hp.loguniform("lr", -9, -2)}` at any depth; None: the run's
            `config`.
        metric: what is optimised.
        mode: "min" or "max".
        points_to_evaluate: configs, whole or in part, that come first; in a space of HyperOpt's own, by label.
        n_initial_points: how many random points there are before the model proposes any.
        random_state_seed: None: the experiment's.
        gamma: the share of results that the model takes for good ones.
        evaluated_rewards: the results of `points_to_evaluate`, which are then learned from and not run.

    Raises:
        SettingError: a space that HyperOpt cannot search; an unknown metric or mode.
        MissingExtraError: HyperOpt is not installed (`pip install "tuner[hyperopt]"`).

    Example:
        >>> searcher = HyperOptSearch({"lr": loguniform(1e-4, 1e-1)}, metric="loss", mode="min")  # doctest: +SKIP

    Source: Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization", section 4.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: Metric = None,
        mode: Metric = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        n_initial_points: int | None = 20,
        random_state_seed: int | None = None,
        gamma: float | None = 0.25,
        evaluated_rewards: Sequence[float] | None = None,
    ) -> None:
        library("hyperopt", extra="hyperopt")
        self._given_random_state_seed = random_state_seed
        self._n_initial_points = (
            20 if n_initial_points is None else whole_number("n_initial_points", n_initial_points, least=0)
        )
        self._gamma = 0.25 if gamma is None else gamma
        check_number("gamma", self._gamma, lambda value: 0 < value <= 1, "a number above 0, at most 1")
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, random_state_seed)

    def _own(self, space: Any) -> SearchedSpace | None:
        from hyperopt.pyll import Apply

        if isinstance(space, Apply) or (isinstance(space, Mapping) and _holds(space, Apply)):
            if has_domains(space):
                raise SettingError(
                    "HyperOptSearch: space= has HyperOpt's hp.... beside domains of tuner's; use one of the two for all"
                )
            return _Labelled(space)
        return None

    def _opened(self, space: Any) -> _Trials:
        expression = space.expression if isinstance(space, _Labelled) else _expression(space)
        return _Trials(expression, self._n_initial_points, float(self._gamma))


_SEARCHED: Any = object()
"""A value of a choice in which something is searched."""


class _Trials:
    """HyperOpt's trials, and its TPE, which is a function of them and of a seed."""

    asks_move_it: ClassVar[bool] = False

    def __init__(self, expression: Any, startup: int, gamma: float) -> None:
        from hyperopt.base import Domain, Trials

        self._domain = Domain(_same, expression)
        self._trials = Trials()
        self._startup, self._gamma = startup, gamma

    def ask(self, seed: int) -> Point:
        from hyperopt import tpe

        tuning = {"n_startup_jobs": self._startup, "gamma": self._gamma, "verbose": False}
        asked = tpe.suggest([len(self._trials)], self._domain, self._trials, seed, **tuning)
        return {label: values[0] for label, values in asked[0]["misc"]["vals"].items() if len(values)}

    def add(self, number: int, point: Point, asked: bool) -> None:
        from hyperopt.base import STATUS_NEW

        misc = {
            "tid": number,
            "cmd": self._domain.cmd,
            "idxs": {label: [number] if label in point else [] for label in self._domain.params},
            "vals": {label: [point[label]] if label in point else [] for label in self._domain.params},
        }
        self._trials.insert_trial_docs(self._trials.new_trial_docs([number], [None], [{"status": STATUS_NEW}], [misc]))
        self._trials.refresh()

    def tell(self, number: int, value: float | None) -> None:
        from hyperopt.base import JOB_STATE_DONE, STATUS_FAIL, STATUS_OK

        trial = self._trials.trials[number]
        trial["state"] = JOB_STATE_DONE
        trial["result"] = {"status": STATUS_FAIL} if value is None else {"status": STATUS_OK, "loss": value}


def _same(config: Any) -> Any:
    return config


def _expression(space: DimensionSpace) -> dict[str, Any]:
    """The dimensions as HyperOpt's, those inside a choice beneath it."""
    inside: dict[tuple[str, int] | None, list[Dimension]] = {}
    for each in space.dimensions.values():
        inside.setdefault(each.parent, []).append(each)

    def below(parent: tuple[str, int] | None) -> dict[str, Any]:
        return {each.name: made(each) for each in inside.get(parent, ())}

    def made(each: Dimension) -> Any:
        from hyperopt import hp

        if each.kind == "choice":
            return hp.choice(each.name, [below((each.name, index)) for index in range(each.size)])
        if each.kind == "int":  # half a step beyond each bound, so that the bounds come as often as their neighbours
            low, high = each.low - 0.5, each.high + 0.5
            if each.log:
                return hp.qloguniform(each.name, math.log(low), math.log(high), 1)
            return hp.quniform(each.name, low, high, 1)
        if each.log:
            return hp.loguniform(each.name, math.log(each.low), math.log(each.high))
        return hp.uniform(each.name, each.low, each.high)

    return below(None)


def _holds(space: Any, kind: type) -> bool:
    inner = space.values() if isinstance(space, Mapping) else space if isinstance(space, (list, tuple)) else ()
    return isinstance(space, kind) or any(_holds(each, kind) for each in inner)


class _Labelled:
    """A space of HyperOpt's own. Points are its values by label; a config does not say which they were."""

    def __init__(self, space: Any) -> None:
        from hyperopt.base import Domain

        self.expression = space
        self._labels, self._options = list(Domain(_same, space).params), _options(space)
        if not self._labels:
            raise SettingError("HyperOptSearch has nothing to search: the space has none of HyperOpt's hp.*")

    def config(self, point: Point, key: str) -> dict[str, Any]:
        from hyperopt import space_eval

        config = space_eval(self.expression, point)
        require(isinstance(config, Mapping), "HyperOptSearch: space", config, "it makes a dict")
        return dict(config)

    def point(self, config: Mapping[str, Any]) -> None:
        return None

    def misfit(self, config: Mapping[str, Any]) -> str:
        return "of a config in HyperOpt's own space its values by label are not known"

    def given(self, point: Mapping[str, Any], what: str, *, whole: bool = False) -> Point:
        for label in point:
            if label not in self._labels:
                raise SettingError(f"{what}: {label!r} is no label of the space, which has: {', '.join(self._labels)}")
        made = {label: self._number(label, value, what) for label, value in point.items()}
        try:
            self.config(made, "")
        except Exception as error:  # HyperOpt's own: whatever an expression raises that lacks a value
            raise SettingError(
                f"{what}: {dict(point)!r} is not accepted; it has a value for each label that has an effect, of "
                f"{', '.join(self._labels)}"
            ) from error
        return made

    def _number(self, label: str, value: Any, what: str) -> Any:
        """The value; of a choice, its number, which may be given too where that value is itself searched."""
        options = self._options.get(label)
        if options is None:
            return value
        found = [index for index, option in enumerate(options) if option is not _SEARCHED and same(option, value)]
        if found:
            return found[0]
        number = is_whole(value) and 0 <= value < len(options) and options[value] is _SEARCHED
        shown = ", ".join(str(index) if option is _SEARCHED else repr(option) for index, option in enumerate(options))
        require(number, f"{what}: {label}", value, f"accepted are: {shown}")
        return value


def _options(space: Any) -> dict[str, list[Any]]:
    """The values of each choice, by label, as far as they are constants."""
    from hyperopt.pyll import as_apply, dfs, rec_eval

    def value(option: Any) -> Any:
        searched = any(node.name == "hyperopt_param" for node in dfs(option))
        return _SEARCHED if searched else rec_eval(option)

    return {
        node.pos_args[0].arg["label"].obj: [value(option) for option in node.pos_args[1:]]
        for node in dfs(as_apply(space))
        if node.name == "switch" and node.pos_args[0].name == "hyperopt_param"
    }
