"""`SMACSearch`: searches with SMAC's random forests.

SMAC itself is imported when a searcher is made, not with this module.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from trainables.reporting import library
from trainables.validation import checked_names
from tuner.error import SettingError, require
from tuner.search.arguments import whole_number
from tuner.search.dimensions import Dimension, DimensionSpace, Point
from tuner.search.fitting import check_own_names, nested, value_at
from tuner.search.library import LibrarySearcher, SearchedSpace
from tuner.search.searcher import Metric


@checked_names
class SMACSearch(LibrarySearcher):
    """Proposes configs with SMAC: a random forest, or a Gaussian process, and expected improvement.

    All domains are searched, values of a choice that hold domains as conditional ones. The model is trained anew for
    each suggestion. A trial that failed is a crash to SMAC, with the worst result so far as its cost.

    With the same seed and the same results the suggestions are the same, in any process; a resume goes on with the
    suggestion that would have come. Another version of SMAC, or another kind of processor, may suggest something else.

    Args:
        space: a dict of domains; or a `ConfigSpace.ConfigurationSpace`; None: the run's `config`.
        metric: what is optimised.
        mode: "min" or "max".
        points_to_evaluate: configs, whole or in part, that come first; whole in a space of ConfigSpace's.
        n_initial_points: how many random points there are before the model proposes any.
        model: "forest", for any space; "process", for few continuous values.
        seed: None: the experiment's.
        evaluated_rewards: the results of `points_to_evaluate`, which are then learned from and not run.

    Raises:
        SettingError: a space that SMAC cannot search; an unknown metric or mode.
        MissingExtraError: SMAC is not installed (`pip install "tuner[smac]"`).

    Example:
        >>> searcher = SMACSearch({"lr": loguniform(1e-4, 1e-1)}, metric="loss", mode="min")  # doctest: +SKIP

    Source: Lindauer et al. 2022, "SMAC3: A Versatile Bayesian Optimization Package for Hyperparameter Optimization".
    """

    def __init__(
        self,
        space: Any = None,
        metric: Metric = None,
        mode: Metric = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        n_initial_points: int = 10,
        model: Literal["forest", "process"] = "forest",
        seed: int | None = None,
        evaluated_rewards: Sequence[float] | None = None,
    ) -> None:
        library("smac", extra="smac")
        self._n_initial_points = whole_number("n_initial_points", n_initial_points, least=1)
        require(model in ("forest", "process"), "model", model, "it is 'forest' or 'process'")
        self._given_model = model
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed)

    def _own(self, space: Any) -> SearchedSpace | None:
        from ConfigSpace import ConfigurationSpace

        return _Configurations(space) if isinstance(space, ConfigurationSpace) else None

    def _opened(self, space: Any) -> _RunHistory:
        own = isinstance(space, _Configurations)
        names = {name: name for name in space.configspace} if own else _names(space)
        configspace = space.configspace if own else _configspace(space, names)
        return _RunHistory(configspace, names, self._n_initial_points, self._given_model)


class _RunHistory:
    """What was tried; SMAC is made anew for each suggestion, with a seed of its own, and told of it."""

    asks_move_it: ClassVar[bool] = False

    def __init__(self, configspace: Any, names: Mapping[str, str], initial: int, model: str) -> None:
        self._configspace, self._names, self._initial, self._model = configspace, names, initial, model
        self._configurations: list[Any] = []
        self._values: dict[int, float | None] = {}

    def ask(self, seed: int) -> Point:
        known = [value for value in self._values.values() if value is not None]
        if len(self._configurations) < self._initial or not known:
            self._configspace.seed(seed)
            return self._point(self._configspace.sample_configuration())
        # It writes what it does into a directory, which nobody reads: the journal has it.
        with tempfile.TemporaryDirectory() as directory:
            return self._point(self._proposed(seed, max(known), directory))

    def add(self, number: int, point: Point, asked: bool) -> None:
        from ConfigSpace import Configuration

        values = {own: point[name] for name, own in self._names.items() if name in point}
        self._configurations.append(Configuration(self._configspace, values=values))

    def tell(self, number: int, value: float | None) -> None:
        self._values[number] = value

    def _point(self, configuration: Any) -> Point:
        values = dict(configuration)
        plain = {name: values[own] for name, own in self._names.items() if own in values}
        return {name: value.item() if hasattr(value, "item") else value for name, value in plain.items()}

    def _proposed(self, seed: int, worst: float, directory: str) -> Any:
        import smac
        from smac.runhistory import StatusType, TrialInfo, TrialValue
        from threadpoolctl import threadpool_limits

        facade = smac.BlackBoxFacade if self._model == "process" else smac.HyperparameterOptimizationFacade
        self._configspace.seed(seed)
        scenario = smac.Scenario(
            self._configspace, output_directory=directory, deterministic=True, n_trials=10**9, seed=seed
        )
        tried = facade(
            scenario,
            _never,
            acquisition_maximizer=_ordered(facade.get_acquisition_maximizer(scenario)),
            initial_design=smac.initial_design.DefaultInitialDesign(scenario),
            logging_level=False,
            overwrite=True,
        )
        for number, configuration in enumerate(self._configurations):
            info = TrialInfo(configuration, seed=0)
            if number not in self._values:
                tried.runhistory.add_running_trial(info)
                continue
            value = self._values[number]
            status = StatusType.CRASHED if value is None else StatusType.SUCCESS
            tried.tell(info, TrialValue(worst if value is None else value, status=status), save=False)
        with threadpool_limits(1):
            return tried.ask().config


def _ordered(maximizer: Any) -> Any:
    """With start points in an order of their own: SMAC takes them out of a set, whose order each process shuffles."""
    local = maximizer._local_search
    found = local._get_init_points_from_previous_configs
    local._get_init_points_from_previous_configs = lambda *words: sorted(
        found(*words), key=lambda each: each.get_array().tobytes()
    )
    return maximizer


def _never(config: Any, seed: int = 0) -> float:
    raise NotImplementedError("SMAC is asked, and runs nothing")


def _names(space: DimensionSpace) -> dict[str, str]:
    """The names of ConfigSpace, which has rules for them."""
    return {name: f"x{index}" for index, name in enumerate(space.dimensions)}


def _configspace(space: DimensionSpace, names: Mapping[str, str]) -> Any:
    import ConfigSpace

    def made(each: Dimension) -> Any:
        name = names[each.name]
        if each.kind == "choice":
            return ConfigSpace.CategoricalHyperparameter(name, list(range(each.size)))
        if each.kind == "int":
            return ConfigSpace.UniformIntegerHyperparameter(name, int(each.low), int(each.high), log=each.log)
        return ConfigSpace.UniformFloatHyperparameter(name, each.low, each.high, log=each.log)

    whole = ConfigSpace.ConfigurationSpace()
    whole.add([made(each) for each in space.dimensions.values()])
    for each in space.dimensions.values():
        if each.parent is not None:
            choice, number = each.parent
            whole.add(ConfigSpace.EqualsCondition(whole[names[each.name]], whole[names[choice]], number))
    return whole


class _Configurations:
    """A space of ConfigSpace's. Points are its values by name."""

    def __init__(self, configspace: Any) -> None:
        require(len(configspace), "SMACSearch: space", configspace, "it has something to search")
        self.configspace = configspace

    def config(self, point: Point, key: str) -> dict[str, Any]:
        return nested(point)

    def point(self, config: Mapping[str, Any]) -> Point:
        found = {name: value_at(config, name, _ABSENT) for name in self.configspace}
        return {name: value for name, value in found.items() if value is not _ABSENT}

    def misfit(self, config: Mapping[str, Any]) -> str | None:
        from ConfigSpace import Configuration

        try:
            Configuration(self.configspace, values=self.point(config))
        except Exception as error:  # ConfigSpace's own: a value that is missing, too much or out of bounds
            return str(error)
        return None

    def given(self, point: Mapping[str, Any], what: str, *, whole: bool = False) -> Point:
        check_own_names(list(self.configspace), point, what)
        made = self.point(point)
        if problem := self.misfit(made):
            raise SettingError(f"{what}: {dict(point)!r} is not accepted: {problem}")
        return made


_ABSENT: Any = object()
