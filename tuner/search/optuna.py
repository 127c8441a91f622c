"""Searching with Optuna's samplers.

Optuna itself is imported when a searcher is made, not with this module.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle

from trainables.metrics import score_of
from tuner.error import SettingError
from tuner.search.sample import Categorical, Domain, Float, Integer, Normal, describe, same
from tuner.search.searcher import Metric, Searcher, Suggestion, contains
from tuner.search.space import Branches, Computed, Fixed, Grid, HashDraw, Items, Leaf, Node, Space

if TYPE_CHECKING:
    import optuna

_TRIAL_ID = "trial_id"
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


class OptunaSearch(Searcher):
    """Proposes configs with a sampler of Optuna: TPE unless another one is given.

    A default sampler is made anew for each suggestion, from the seed and the number of the suggestion: the same history gives the
    same suggestion, in any process. A sampler that you give keeps its own random state, which is saved and restored.

    Args:
        space: None (the run's `config` is searched), a dict of domains or of Optuna's distributions, or a define-by-run function
            `f(trial)` that calls `trial.suggest_...` and may return a dict of constants.
        metric: what is optimised; a list for several objectives.
        mode: "min" or "max"; one per metric.
        points_to_evaluate: configs, whole or in part, that come first.
        sampler: one of `optuna.samplers`.
        seed: of the default sampler; None: the experiment's. A given sampler has its own.
        evaluated_rewards: the results of `points_to_evaluate`, which are then learned from and not run.
        study_name: the study's name, "optuna" if None.
        storage: where the study is kept: an Optuna storage or URL; None: in memory, and with the experiment.

    Raises:
        SettingError: a space that Optuna cannot search; an unknown metric or mode.
        ModuleNotFoundError: Optuna is not installed.

    Example:
        >>> searcher = OptunaSearch({"lr": loguniform(1e-4, 1e-1)}, metric="loss", mode="min", seed=1)  # doctest: +SKIP

    Source: Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization", section 4 (TPE); Akiba et al. 2019, "Optuna".
    """

    needs_metric = True

    def __init__(
        self,
        space: Mapping[str, Any] | Callable[[Any], Mapping[str, Any] | None] | None = None,
        metric: Metric = None,
        mode: Metric = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        sampler: optuna.samplers.BaseSampler | None = None,
        seed: int | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
        study_name: str | None = None,
        storage: Any = None,
    ) -> None:
        super().__init__(metric, mode)
        self._points = list(points_to_evaluate or ())
        self._rewards = None if evaluated_rewards is None else list(evaluated_rewards)
        self._sampler = _checked_sampler(sampler, seed)
        self._given_seed = self._seed = seed
        self._study_name, self._given_storage = study_name or "optuna", storage
        self._own_space = space is not None
        self._function: Callable[[Any], Mapping[str, Any] | None] | None = None
        self._space: Space | None = None
        self._study: optuna.Study | None = None
        self._trials: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._asked = 0
        if self._rewards is not None and len(self._rewards) != len(self._points):
            raise SettingError(
                f"evaluated_rewards has {len(self._rewards)} values for {len(self._points)} points_to_evaluate; it has one per point"
            )
        if space is not None:
            self._take(space)

    # --- getting ready --------------------------------------------------------------------------------------

    def set_search_properties(self, metric: Metric, mode: Metric, config: Any, **spec: Any) -> bool:
        self._fill_in(metric, mode)
        if self._given_seed is None:
            self._seed = spec.get("seed")
        if self._own_space:
            return False
        self._take(config)
        return True

    def _take(self, space: Any) -> None:
        if callable(space):
            self._function = space
            if self._rewards is not None:
                raise SettingError("evaluated_rewards needs a dict as space: a define-by-run function does not say what it would have asked")
            return
        if not isinstance(space, Mapping):
            raise SettingError(f"space={space!r} is not accepted; accepted are a dict and a define-by-run function")
        self._space = Space(_wrapped(_nested(space) if self._own_space else space))
        _refuse_grids(self._space.root, "")

    def _ready(self) -> optuna.Study:
        """The study, made when it is needed first."""
        if self._study is not None:
            return self._study
        import optuna

        if self._space is None and self._function is None:
            raise SettingError("OptunaSearch has no search space: give it a space, or the run a config with domains")
        if self._metric is None or self._mode is None:
            raise SettingError("OptunaSearch needs metric= and mode=: give them to it or to the run")
        modes = [self._mode] if isinstance(self._mode, str) else list(self._mode)
        storage = self._given_storage or optuna.storages.InMemoryStorage()
        with _quiet():
            self._study = optuna.create_study(
                storage=storage,
                sampler=self._sampler or optuna.samplers.RandomSampler(seed=0),
                pruner=optuna.pruners.NopPruner(),
                study_name=self._study_name,
                directions=["minimize" if mode == "min" else "maximize" for mode in modes],
                load_if_exists=True,
            )
        if self._rewards is not None and not self._study.get_trials(deepcopy=False):
            for point, reward in zip(self._points, self._rewards, strict=True):
                self.add_evaluated_point(point, reward)
        return self._study

    # --- suggesting ----------------------------------------------------------------------------------------

    def suggest(self, trial_id: str) -> Suggestion:
        study = self._ready()
        point = self._points[self._asked] if self._rewards is None and self._asked < len(self._points) else None
        if point is not None:
            study.enqueue_trial(self._point_params(point))
        if self._sampler is None:
            study.sampler = self._fresh_sampler()
        trial = study.ask()
        trial.set_user_attr(_TRIAL_ID, trial_id)
        self._asked += 1
        self._trials[trial_id] = trial.number
        if self._function is not None:
            return self._run_function(self._function, trial)
        assert self._space is not None
        return self._space.resolve(_AskDraw(trial, self._key()))

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        study = self._ready()
        known = self._find(study, trial_id)
        if known is not None:  # a storage of the user's has it already
            self._asked += 1
            self._trials[trial_id] = known
            return True
        if self._sampler is not None:  # its random state moves only by asking it
            if contains(config, self.suggest(trial_id)):
                return True
            self._overwrite(study, trial_id, config)
            return False
        params, distributions = self._params(config)
        self._add(study, trial_id, params, distributions)
        self._asked += 1
        return True

    def _fresh_sampler(self) -> optuna.samplers.BaseSampler:
        import optuna

        return optuna.samplers.TPESampler(seed=HashDraw(self._key()).seed("sampler") % 2**32)

    def _key(self) -> str:
        if self._seed is None:
            import random

            self._seed = random.SystemRandom().getrandbits(31)
        return f"optuna {self._seed} {self._asked}"

    @staticmethod
    def _run_function(function: Callable[[Any], Mapping[str, Any] | None], trial: Any) -> dict[str, Any]:
        returned = function(trial)
        if returned is not None and not (isinstance(returned, Mapping) and all(isinstance(key, str) for key in returned)):
            raise SettingError(f"the define-by-run function returned {returned!r}; it returns a dict with names as keys, or None")
        return _nested({**trial.params, **(returned or {})})

    # --- what a config means to Optuna --------------------------------------------------------------------------

    def _params(self, config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Optuna's parameters and distributions of a config that was suggested before."""
        if self._function is not None:
            return _params_of_function(self._function, config)
        assert self._space is not None
        found: dict[str, tuple[Any, Any]] = {}
        _read(self._space.root, config, "", found)
        return {name: value for name, (value, _) in found.items()}, {name: kind for name, (_, kind) in found.items()}

    def _point_params(self, point: Mapping[str, Any]) -> dict[str, Any]:
        if self._space is None:
            return _flat(point)
        _check_names(self._space.root, point, "")
        return self._params(point)[0]

    def _add(self, study: optuna.Study, trial_id: str, params: Any, distributions: Any) -> None:
        import optuna

        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=params,
                distributions=distributions,
                user_attrs={_TRIAL_ID: trial_id},
            )
        )
        self._trials[trial_id] = study.get_trials(deepcopy=False)[-1].number

    def _overwrite(self, study: optuna.Study, trial_id: str, config: Mapping[str, Any]) -> None:
        """The journal's config in the place of one that was suggested at the replay."""
        import optuna

        study.tell(self._trials.pop(trial_id), state=optuna.trial.TrialState.FAIL)
        self._add(study, trial_id, *self._params(config))

    def _find(self, study: optuna.Study, trial_id: str) -> int | None:
        if self._given_storage is None:
            return None
        for trial in study.get_trials(deepcopy=False):
            if trial.user_attrs.get(_TRIAL_ID) == trial_id:
                return trial.number
        return None

    # --- learning --------------------------------------------------------------------------------------------

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        number = self._trials.get(trial_id)
        if number is None or not isinstance(self._metric, str):
            return  # of several objectives Optuna takes final values only
        score = score_of(result, self._metric)
        last = self._steps.get(trial_id, -1)
        step = int(result.get("training_iteration", last + 1))
        if score is None or step <= last:
            return
        study = self._ready()
        storage = study._storage
        optuna_id = storage.get_trial_id_from_study_id_trial_number(study._study_id, number)
        if not storage.get_trial(optuna_id).state.is_finished():
            storage.set_trial_intermediate_value(optuna_id, step, score)
        self._steps[trial_id] = step

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        import optuna

        number = self._trials.get(trial_id)
        if number is None:
            return
        self._steps.pop(trial_id, None)
        names = [self._metric] if isinstance(self._metric, str) else list(self._metric or ())
        values = [score_of(result or {}, name) for name in names]
        usable = [value for value in values if value is not None and not math.isnan(value)]
        states = optuna.trial.TrialState
        study = self._ready()
        before = study.get_trials(deepcopy=False)[number]
        if error or any(value is not None and math.isnan(value) for value in values):
            state = states.FAIL
        elif len(usable) == len(names):
            state = states.COMPLETE
        else:
            state = states.PRUNED if before.intermediate_values else states.FAIL
        if before.state.is_finished():
            if before.state is states.FAIL and state is states.COMPLETE:
                self._complete_failed(study, trial_id, before, usable)
            return
        study.tell(number, usable if state is states.COMPLETE else None, state=state)

    def _complete_failed(self, study: optuna.Study, trial_id: str, before: Any, values: list[float]) -> None:
        """A trial that had failed was continued and has succeeded: what Optuna calls finished cannot change, so it is told as another."""
        import optuna

        study.add_trial(
            optuna.trial.create_trial(
                values=values,
                params=before.params,
                distributions=before.distributions,
                intermediate_values=before.intermediate_values,
                user_attrs={_TRIAL_ID: trial_id},
            )
        )
        self._trials[trial_id] = study.get_trials(deepcopy=False)[-1].number

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Learn from a config that was evaluated elsewhere.

        Args:
            parameters: the config, at least its searched values.
            value: what it gave; a list for several objectives.
            error, pruned: that it failed, or was stopped early.
            intermediate_values: its results on the way, from step 0.
        """
        import optuna

        if self._function is not None:
            raise SettingError("evaluated points need a dict as space: a define-by-run function does not say what it would have asked")
        study = self._ready()
        states = optuna.trial.TrialState
        assert self._space is not None
        _check_names(self._space.root, parameters, "")
        params, distributions = self._params(parameters)
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        study.add_trial(
            optuna.trial.create_trial(
                state=states.FAIL if error else states.PRUNED if pruned else states.COMPLETE,
                values=None if error else values,
                params=params,
                distributions=distributions,
                intermediate_values=dict(enumerate(intermediate_values or ())),
            )
        )

    # --- coming back ------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        storage = self._study._storage if self._study is not None and self._given_storage is None else None
        return {
            "seed": self._seed,
            "asked": self._asked,
            "trials": dict(self._trials),
            "steps": dict(self._steps),
            "storage": None if storage is None else cloudpickle.dumps(storage),
            "sampler": None if self._sampler is None else cloudpickle.dumps(self._sampler),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        import optuna

        if self._given_seed is None:
            self._seed = state["seed"]
        self._asked, self._trials, self._steps = state["asked"], dict(state["trials"]), dict(state["steps"])
        if state["sampler"] is not None and self._sampler is not None:
            self._sampler = cloudpickle.loads(state["sampler"])
        self._study = None
        if state["storage"] is not None and self._given_storage is None:
            self._study = optuna.load_study(
                study_name=self._study_name,
                storage=cloudpickle.loads(state["storage"]),
                sampler=self._sampler or optuna.samplers.RandomSampler(seed=0),
                pruner=optuna.pruners.NopPruner(),
            )


def _checked_sampler(sampler: Any, seed: int | None) -> Any:
    if sampler is None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            raise SettingError(f"seed={seed!r} is not accepted; it is a whole number")
        return None
    import optuna

    if not isinstance(sampler, optuna.samplers.BaseSampler):
        raise SettingError(f"sampler={sampler!r} is not accepted; it is one of optuna.samplers, made: TPESampler(seed=1)")
    if seed is not None:
        raise SettingError(f"seed={seed!r} has no effect on a given sampler; give it to {type(sampler).__name__} itself")
    return sampler


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's line about a new study; its logging stays as the user set it."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


# --- spaces ----------------------------------------------------------------------------------------------------


def _wrapped(space: Any) -> Any:
    """A space with Optuna's distributions as domains."""
    if type(space).__module__.startswith("optuna.distributions"):
        return Given(space)
    if isinstance(space, Categorical):
        return Categorical(tuple(map(_wrapped, space.categories)))
    if isinstance(space, Mapping):
        return {key: _wrapped(value) for key, value in space.items()}
    if type(space) in (list, tuple):
        return type(space)(map(_wrapped, space))
    return space


def _refuse_grids(node: Node, path: str) -> None:
    if isinstance(node, Grid):
        raise SettingError(f"OptunaSearch cannot search the grid_search at {path!r}; make it a choice([...])")
    inner: Sequence[tuple[Any, Node]] = node.nodes if isinstance(node, Items) else ()
    for key, child in inner:
        _refuse_grids(child, f"{path}/{key}" if path else str(key))


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{"a/b": 1} as {"a": {"b": 1}}: Optuna's names are flat."""
    made: dict[str, Any] = {}
    for name, value in flat.items():
        *way, last = name.split("/") if isinstance(name, str) else [name]
        node = made
        for key in way:
            node = node.setdefault(key, {})
        node[last] = value
    return made


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(_flat(value, f"{prefix}{key}/"))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


class _AskDraw:
    """Values that an Optuna trial suggests."""

    def __init__(self, trial: Any, key: str) -> None:
        self._trial, self._hash = trial, HashDraw(key)

    def value(self, name: str, domain: Domain) -> Any:
        return _from_optuna(domain, self._trial._suggest(name, _distribution(domain)))

    def index(self, name: str, domain: Categorical) -> int:
        return _index(domain, self._trial._suggest(name, _distribution(domain)))

    def seed(self, name: str) -> int:
        return self._hash.seed(name)


def _distribution(domain: Domain) -> Any:
    """How Optuna searches a domain."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(domain, Given):
        return domain.distribution
    if isinstance(domain, Float):
        # Optuna has no steps on a log scale: it searches without, and the value is rounded.
        return FloatDistribution(domain.lower, domain.upper, log=domain.log, step=None if domain.log else domain.q)
    if isinstance(domain, Integer):
        step = 1 if domain.log else domain.q or 1
        return IntDistribution(domain.least, domain.greatest, log=domain.log, step=step)
    if isinstance(domain, Normal):
        return FloatDistribution(_TAIL, 1 - _TAIL)  # the quantile: uniform ones are normal values
    if isinstance(domain, Categorical):
        return CategoricalDistribution(_labels(domain))
    raise SettingError(f"OptunaSearch cannot search {describe(domain)}")


def _labels(domain: Categorical) -> tuple[Any, ...]:
    """The categories as Optuna knows them: themselves where it can hold them, else their numbers."""
    values = domain.categories
    plain = all(type(value) in _PLAIN and value == value for value in values)
    return values if plain and len(set(values)) == len(values) else tuple(range(len(values)))


def _index(domain: Categorical, label: Any) -> int:
    return next(index for index, own in enumerate(_labels(domain)) if same(own, label))


def _from_optuna(domain: Domain, value: Any) -> Any:
    if isinstance(domain, Normal):
        return domain.at(value)
    return domain.quantize(value) if isinstance(domain, (Float, Integer)) else value


def _to_optuna(domain: Domain, value: Any) -> Any:
    if isinstance(domain, Normal):
        return min(max(domain.quantile(value), _TAIL), 1 - _TAIL)
    return value


def _read(node: Node, value: Any, name: str, found: dict[str, tuple[Any, Any]]) -> None:
    """Collect name -> (Optuna's value, distribution) of the searched values that a config has."""
    if isinstance(node, Leaf):
        found[name] = (_to_optuna(node.domain, value), _distribution(node.domain))
    elif isinstance(node, Branches):
        for index, inner in enumerate(node.nodes):
            if _fits(inner, value):
                found[name] = (_labels(node.domain)[index], _distribution(node.domain))
                _read(inner, value, f"{name}[{index}]", found)
                return
    elif isinstance(node, Items):
        prefix = f"{name}/" if name else ""
        for key, inner in node.nodes:
            with contextlib.suppress(KeyError, IndexError, TypeError):  # a point may name a part only
                item = value[key]
                _read(inner, item, f"{prefix}{key}", found)


def _fits(node: Node, value: Any) -> bool:
    """True if `value` can have come from this subtree."""
    if isinstance(node, Fixed):
        return contains(value, node.value) and contains(node.value, value)
    if isinstance(node, Leaf):
        return node.domain.is_valid(value)
    if isinstance(node, Branches):
        return any(_fits(inner, value) for inner in node.nodes)
    if isinstance(node, Items):
        if node.kind is dict:
            keys = [key for key, _ in node.nodes]
            return isinstance(value, Mapping) and set(value) == set(keys) and all(_fits(inner, value[key]) for key, inner in node.nodes)
        same_kind = isinstance(value, (list, tuple)) and len(value) == len(node.nodes)
        return same_kind and all(_fits(inner, value[key]) for key, inner in node.nodes)
    return isinstance(node, Computed)


def _check_names(node: Node, point: Mapping[str, Any], path: str) -> None:
    if not isinstance(node, Items) or node.kind is not dict or not isinstance(point, Mapping):
        return
    nodes = dict(node.nodes)
    for key, value in point.items():
        if key not in nodes:
            raise SettingError(f"points_to_evaluate: {path + str(key)!r} is not in the search space, which has: {', '.join(map(str, nodes))}")
        _check_names(nodes[key], value, f"{path}{key}/")


def _params_of_function(function: Callable[[Any], Any], config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a define-by-run function would have asked for, had it been answered with this config."""
    import optuna

    fixed = optuna.trial.FixedTrial(_flat(config))
    try:
        function(fixed)
    except (ValueError, KeyError, AttributeError, TypeError):
        return {}, {}  # it asks for what the config does not have: nothing is learned from that trial
    names = fixed.distributions
    return {name: fixed.params[name] for name in names}, dict(names)


