"""Searching with Optuna's samplers.

Optuna itself is imported when a searcher is made, not with this module.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import cloudpickle

from trainables.masking import MASK, masked
from trainables.metrics import score_of
from trainables.validation import checked_names
from tuner.error import SettingError
from tuner.search.optuna_space import (
    AskDraw,
    check_names,
    check_searchable,
    config_of_function,
    first_function,
    flat,
    misfit,
    nested,
    params_of_function,
    plain_result,
    read,
    wrapped,
)
from tuner.search.optuna_study import (
    begin,
    checked_names_of_metrics,
    checked_sampler,
    constrain,
    grid_is_taken,
    in_memory,
    quiet,
)
from tuner.search.resolve import HashDraw, Space
from tuner.search.searcher import Metric, Searcher, Suggestion, contains
from tuner.search.variants import list_of_points

if TYPE_CHECKING:
    import optuna

_TRIAL_ID, _RESULT = "trial_id", "result"
_NEEDS_DICT = (
    "evaluated points need a dict as space: a define-by-run function does not say what it would have asked for"
)


@checked_names
class OptunaSearch(Searcher):
    """Proposes configs with a sampler of Optuna: TPE unless another one is given.

    The default sampler is made anew for each suggestion, from the seed and the suggestion's number: the same history
    gives the same suggestion, in any process. A sampler that you give keeps its own random state, which is saved; with
    a `storage` of yours beside it, a resume after a kill gives it a new one, and never its first draws again. Its
    `constraints_func` finds the last result of a trial, flat, in `trial.user_attrs["result"]`.

    Args:
        space: None (the run's `config` is searched), a dict of domains or of Optuna's distributions, or a define-by-run
            function `f(trial)` that calls `trial.suggest_...` and may return a dict of constants.
        metric: what is optimised; a list for several objectives.
        mode: "min" or "max"; one per metric.
        points_to_evaluate: configs, whole or in part, that come first.
        sampler: one of `optuna.samplers`.
        seed: of the default sampler; None: the experiment's. A given sampler has its own.
        evaluated_rewards: the results of `points_to_evaluate`, which are then learned from and not run.
        study_name: the study's name, "optuna" if None.
        storage: where the study is kept: an Optuna storage or URL, of which a password is not stored with the
            experiment; None: in memory, and with the experiment. A trial that was asked for just before a kill is taken
            up again there.
        constraints: metrics of the last result that are at most 0 where a trial is feasible; one without them is not.
        warm_start: earlier experiments to learn from: a path or URI, an analysis, or a list of them. Their finished
            trials whose configs fit the space are read at the start of a new experiment, and kept with it.
        ask_ahead: compute the next suggestion in a thread while trials run, so that a slow sampler keeps nobody
            waiting. It does not know the results that come after the suggestion before it was taken.

    Raises:
        SettingError: a space that Optuna cannot search; an unknown metric or mode.
        ModuleNotFoundError: Optuna is not installed.

    Example:
        >>> searcher = OptunaSearch({"lr": loguniform(1e-4, 1e-1)}, metric="loss", mode="min", seed=1)  # doctest: +SKIP

    Source: Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization", section 4 (TPE); Akiba et al. 2019,
    "Optuna: A Next-generation Hyperparameter Optimization Framework".
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
        constraints: str | Sequence[str] = (),
        warm_start: Any = None,
        ask_ahead: bool = False,
    ) -> None:
        super().__init__(metric, mode)
        self._points = list_of_points(points_to_evaluate)
        if evaluated_rewards is not None and (
            isinstance(evaluated_rewards, str) or not hasattr(evaluated_rewards, "__iter__")
        ):
            raise SettingError(
                f"evaluated_rewards={evaluated_rewards!r} is not accepted; it is a list of numbers, or of lists of them"
            )
        self._rewards = None if evaluated_rewards is None else list(evaluated_rewards)
        self._sampler = checked_sampler(sampler, seed)
        self._given_seed = self._seed = seed
        if study_name is not None and not isinstance(study_name, str):
            raise SettingError(f"study_name={study_name!r} is not accepted; it is a name, or None")
        self._given_study_name, self._study_name = study_name, study_name or "optuna"
        # One in memory ends with the process, so that it is kept as our own is.
        self._memory: Any = storage if in_memory(storage) else None
        self._given_storage: Any = None if in_memory(storage) else storage
        self._constraints = checked_names_of_metrics("constraints", constraints)
        self.warm_start, self.ask_ahead = warm_start, bool(ask_ahead)
        self._stored: dict[str, int] | None = None
        """Of a storage of the user's: which of its trials is whose."""
        self._outdated = False
        """The sampler has not drawn what is in the storage: its random state is behind."""
        self._own_space = space is not None
        self._function: Callable[[Any], Mapping[str, Any] | None] | None = None
        self._space: Space | None = None
        self._study: optuna.Study | None = None
        self._storage: Any = None
        self._trials: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._asked = 0
        self._exhausted = False
        if self._rewards is not None and len(self._rewards) != len(self._points):
            raise SettingError(
                f"evaluated_rewards has {len(self._rewards)} values for {len(self._points)} points_to_evaluate; "
                "it has one per point"
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
                raise SettingError(_NEEDS_DICT)
            return
        if not isinstance(space, Mapping):
            raise SettingError(f"space={space!r} is not accepted; accepted are a dict and a define-by-run function")
        self._space = Space(wrapped(nested(space) if self._own_space else space))
        check_searchable(self._space.root, "")
        if self.ask_ahead and (computed := first_function(self._space.root)):
            raise SettingError(
                f"ask_ahead=True is not accepted with the sample_from at {computed!r}: it would run in a thread, with "
                "the global random generators seeded; use a choice or a define-by-run function there"
            )

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
        if isinstance(self._given_storage, str) and MASK in self._given_storage:
            raise SettingError(
                f"the password of storage={self._given_storage!r} is not kept with the experiment: give the search_alg "
                "again (Tuner.restore(..., tune_config=)), or a URL without it, with the password where the database's "
                "driver looks (PGPASSWORD, ~/.pgpass, ~/.my.cnf)"
            )
        self._storage = optuna.storages.get_storage(self._given_storage or self._memory)
        with quiet():
            self._study = optuna.create_study(
                storage=self._storage,
                sampler=self._sampler or optuna.samplers.RandomSampler(seed=0),
                pruner=optuna.pruners.NopPruner(),
                study_name=self._study_name,
                directions=["minimize" if mode == "min" else "maximize" for mode in modes],
                load_if_exists=True,
            )
        self._study.stop = self._stop  # type: ignore[method-assign]
        if self._rewards is not None and not self._study.get_trials(deepcopy=False):
            for point, reward in zip(self._points, self._rewards, strict=True):
                self.add_evaluated_point(point, reward)
        return self._study

    def _stop(self) -> None:
        """What a sampler calls that has been everywhere: `Study.stop` itself works inside `optimize` only."""
        self._exhausted = True

    # --- suggesting ----------------------------------------------------------------------------------------

    def suggest(self, trial_id: str) -> Suggestion:
        study = self._ready()
        if self._exhausted or grid_is_taken(self._sampler, study):
            return Searcher.FINISHED
        if self._sampler is None:
            study.sampler = self._fresh_sampler()
        elif self._outdated:
            self._sampler.reseed_rng()
            self._outdated = False
        trial = self._begun(study, trial_id)
        if trial is None:
            point = self._points[self._asked] if self._rewards is None and self._asked < len(self._points) else None
            if point is not None:
                study.enqueue_trial(self._point_params(point))
            trial = begin(study)
            trial.set_user_attr(_TRIAL_ID, trial_id)
        self._asked += 1
        self._trials[trial_id] = trial.number
        if self._function is not None:
            return config_of_function(self._function, trial)
        assert self._space is not None
        config = self._space.resolve(AskDraw(trial, self._key()))
        self._make_canonical(trial, config)
        return config

    def _begun(self, study: optuna.Study, trial_id: str) -> optuna.Trial | None:
        """What a driver asked for that was killed before it could write it down; what it drew stands."""
        import optuna

        number = self._find(study, trial_id)
        if number is None or study.get_trials(deepcopy=False)[number].state is not optuna.trial.TrialState.RUNNING:
            return None
        return optuna.trial.Trial(study, self._optuna_id(number))

    def _make_canonical(self, trial: optuna.Trial, config: Mapping[str, Any]) -> None:
        """Let the study hold what a replay reads from the config: a value that was rounded differs from the draw."""
        if self._given_storage is not None:
            return  # it is never replayed: the storage has it
        drawn = trial.params
        params, distributions = self._params(config)
        for name, value in params.items():
            if name in drawn and drawn[name] != value:
                kind = distributions[name]
                self._storage.set_trial_param(self._optuna_id(trial.number), name, kind.to_internal_repr(value), kind)

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        study = self._ready()
        known = self._find(study, trial_id)
        if known is not None:  # a storage of the user's has it already
            self._asked += 1
            self._trials[trial_id] = known
            self._outdated = True
            return True
        if self._sampler is not None:  # its random state moves only by asking it
            suggestion = self.suggest(trial_id)
            if not isinstance(suggestion, dict):
                self._add(trial_id, *self._params(config))
                self._asked += 1
                return False
            if contains(config, suggestion):
                return True
            self._overwrite(study, trial_id, config)
            return False
        params, distributions = self._params(config)
        self._add(trial_id, params, distributions)
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

    # --- what a config means to Optuna --------------------------------------------------------------------------

    def _params(self, config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Optuna's parameters and distributions of a config that was suggested before."""
        if self._function is not None:
            return params_of_function(self._function, config)
        assert self._space is not None
        found: dict[str, tuple[Any, Any]] = {}
        read(self._space.root, config, "", found)
        return {name: value for name, (value, _) in found.items()}, {name: kind for name, (_, kind) in found.items()}

    def _point_params(self, point: Mapping[str, Any]) -> dict[str, Any]:
        if self._space is None:
            return flat(point)
        check_names(self._space.root, point, "")
        return self._params(point)[0]

    def _add(self, trial_id: str, params: Any, distributions: Any) -> None:
        import optuna

        template = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING,
            params=params,
            distributions=distributions,
            user_attrs={_TRIAL_ID: trial_id},
        )
        self._trials[trial_id] = self._insert(template)

    def _insert(self, template: optuna.trial.FrozenTrial) -> int:
        """Put a trial into the study as it is, without asking the sampler; returns its number."""
        storage = self._storage
        optuna_id = storage.create_new_trial(storage.get_study_id_from_name(self._study_name), template)
        return int(storage.get_trial_number_from_id(optuna_id))

    def _optuna_id(self, number: int) -> int:
        storage = self._storage
        study_id = storage.get_study_id_from_name(self._study_name)
        return int(storage.get_trial_id_from_study_id_trial_number(study_id, number))

    def _overwrite(self, study: optuna.Study, trial_id: str, config: Mapping[str, Any]) -> None:
        """The journal's config in the place of one that was suggested at the replay."""
        import optuna

        study.tell(self._trials.pop(trial_id), state=optuna.trial.TrialState.FAIL)
        self._add(trial_id, *self._params(config))

    def _find(self, study: optuna.Study, trial_id: str) -> int | None:
        if self._given_storage is None:
            return None
        if self._stored is None:
            self._stored = {
                trial.user_attrs[_TRIAL_ID]: trial.number
                for trial in study.get_trials(deepcopy=False)
                if _TRIAL_ID in trial.user_attrs
            }
        return self._stored.get(trial_id)

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
        self._ready()
        optuna_id = self._optuna_id(number)
        if not self._storage.get_trial(optuna_id).state.is_finished():
            self._storage.set_trial_intermediate_value(optuna_id, step, score)
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
        before = self._storage.get_trial(self._optuna_id(number))
        if error or any(value is not None and math.isnan(value) for value in values):
            state = states.FAIL
        elif len(usable) == len(names):
            state = states.COMPLETE
        else:
            state = states.PRUNED if before.intermediate_values else states.FAIL
        if before.state.is_finished():
            if before.state is states.FAIL and state is states.COMPLETE:
                self._complete_failed(trial_id, before, usable)
            return
        if state is not states.FAIL:
            if self._sampler is not None or self._given_storage is not None:
                self._storage.set_trial_user_attr(before._trial_id, _RESULT, plain_result(result or {}))
            constrain(study, before._trial_id, result or {}, self._constraints)
        study.tell(number, usable if state is states.COMPLETE else None, state=state)

    def _complete_failed(self, trial_id: str, before: Any, values: list[float]) -> None:
        """A failed trial was continued and has succeeded: to Optuna, where it stays failed, it is another one."""
        import optuna

        template = optuna.trial.create_trial(
            values=values,
            params=before.params,
            distributions=before.distributions,
            intermediate_values=before.intermediate_values,
            user_attrs={_TRIAL_ID: trial_id},
        )
        self._trials[trial_id] = self._insert(template)

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
            raise SettingError(_NEEDS_DICT)
        study = self._ready()
        states = optuna.trial.TrialState
        assert self._space is not None
        check_names(self._space.root, parameters, "")
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

    def learn_from(self, trial: Any) -> str | None:
        import optuna

        config, last = trial.config, trial.last_result
        names = [self._metric] if isinstance(self._metric, str) else list(self._metric or ())
        values = [value for name in names if (value := score_of(last, name)) is not None and not math.isnan(value)]
        if len(values) < len(names):
            return f"{trial.trial_id} has no {' and '.join(names)}"
        study = self._ready()
        if self._space is not None and (problem := misfit(self._space.root, config, "")):
            return f"{trial.trial_id}: {problem}"
        params, distributions = self._params(config)
        if not params:
            return f"{trial.trial_id}: the function asks for what its config does not have"
        if self._find(study, trial.trial_id) is None:
            study.add_trial(
                optuna.trial.create_trial(
                    values=values,
                    params=params,
                    distributions=distributions,
                    user_attrs={_TRIAL_ID: trial.trial_id},
                )
            )
        return None

    # --- where it is kept ---------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Pickled with the experiment's settings: without the password of a database."""
        state = dict(self.__dict__)
        if isinstance(self._given_storage, str):
            state["_given_storage"] = masked(self._given_storage)
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> OptunaSearch:
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    # --- coming back ------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        storage = self._storage if self._study is not None and self._given_storage is None else None
        return {
            "seed": self._seed,
            "asked": self._asked,
            "exhausted": self._exhausted,
            "outdated": self._outdated,
            "trials": dict(self._trials),
            "steps": dict(self._steps),
            "storage": None if storage is None else cloudpickle.dumps(storage),
            "sampler": None if self._sampler is None else cloudpickle.dumps(self._sampler),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        import optuna

        if self._given_seed is None:
            self._seed = state["seed"]
        self._exhausted = state["exhausted"]
        self._asked, self._trials, self._steps = state["asked"], dict(state["trials"]), dict(state["steps"])
        if state["sampler"] is not None and self._sampler is not None:
            self._sampler = cloudpickle.loads(state["sampler"])
        self._stored, self._outdated = None, state["outdated"]
        self._study = None
        if state["storage"] is not None and self._given_storage is None:
            self._storage = cloudpickle.loads(state["storage"])
            self._study = optuna.load_study(
                study_name=self._study_name,
                storage=self._storage,
                sampler=self._sampler or optuna.samplers.RandomSampler(seed=0),
                pruner=optuna.pruners.NopPruner(),
            )
            self._study.stop = self._stop  # type: ignore[method-assign]
