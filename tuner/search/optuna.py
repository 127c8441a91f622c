"""`OptunaSearch`: searches with Optuna's samplers.

Optuna itself is imported when a searcher is made, not with this module.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainables.masking import masked
from trainables.validation import checked_names
from tuner.error import SettingError, refused, require
from tuner.search.fitting import check_point, nested
from tuner.search.hidden_domains import refuse_hidden
from tuner.search.optuna_results import NEEDS_DICT, StudySearcher
from tuner.search.optuna_space import AskDraw, check_searchable, config_of_function, first_function, wrapped
from tuner.search.optuna_study import (
    TRIAL_ID,
    begin,
    checked_names_of_metrics,
    checked_sampler,
    grid_is_taken,
    in_memory,
    optuna_id,
    states,
    suggesting,
)
from tuner.search.resolve import HashDraw, Space
from tuner.search.searcher import Metric, Searcher, Suggestion, contains
from tuner.search.space_tree import flat
from tuner.search.variants import list_of_points

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial


@checked_names
class OptunaSearch(StudySearcher):
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
        SettingError: a space that Optuna cannot search; an unknown metric or mode; a study in `storage` with other
            choices under the same name, or other objectives.
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
        listed = not isinstance(evaluated_rewards, str) and hasattr(evaluated_rewards or (), "__iter__")
        accepted = "it is a list of numbers, or of lists of them"
        require(listed, "evaluated_rewards", evaluated_rewards, accepted)
        self._rewards = None if evaluated_rewards is None else list(evaluated_rewards)
        self._sampler = checked_sampler(sampler, seed)
        self._given_seed = self._seed = seed
        require(study_name is None or isinstance(study_name, str), "study_name", study_name, "it is a name, or None")
        self._given_study_name, self._study_name = study_name, study_name or "optuna"
        # One in memory ends with the process, so that it is kept as our own is.
        self._memory: Any = storage if in_memory(storage) else None
        self._given_storage: Any = None if in_memory(storage) else storage
        self._constraints = checked_names_of_metrics("constraints", constraints)
        self.warm_start, self.ask_ahead = warm_start, bool(ask_ahead)
        self._own_space = space is not None
        if self._rewards is not None and len(self._rewards) != len(self._points):
            raise SettingError(
                f"evaluated_rewards has {len(self._rewards)} values for {len(self._points)} points_to_evaluate; "
                "it has one per point"
            )
        if space is not None:
            self._take(space)

    def set_search_properties(self, metric: Metric, mode: Metric, config: Any, **spec: Any) -> bool:
        self._fill_in(metric, mode)
        if self._given_seed is None:
            self._seed = spec.get("seed")
        if not self._own_space:
            self._take(config)
        if self._given_storage is not None and self._space is not None and self._metric and self._mode:
            self._ready()  # a study that has another space is refused before anything is started
        return not self._own_space

    def _take(self, space: Any) -> None:
        if callable(space):
            self._function = space
            if self._rewards is not None:
                raise SettingError(NEEDS_DICT)
            return
        if not isinstance(space, Mapping):
            raise refused("space", space, "accepted are a dict and a define-by-run function")
        if self._own_space:
            refuse_hidden(dict(space))
        self._space = Space(wrapped(nested(space) if self._own_space else space))
        check_searchable(self._space.root)
        for point in self._points:
            check_point(self._space.root, point, "points_to_evaluate")
        if self.ask_ahead and (computed := first_function(self._space.root)):
            raise SettingError(
                f"ask_ahead=True is not accepted with the sample_from at {computed!r}: it would run in a thread, with "
                "the global random generators seeded; use a choice or a define-by-run function there"
            )

    def suggest(self, trial_id: str) -> Suggestion:
        study = self._ready()
        trial = self._begun(study, trial_id)
        if trial is None and (self._exhausted or grid_is_taken(self._sampler, study)):
            return Searcher.FINISHED
        if self._sampler is None:
            import optuna

            study.sampler = optuna.samplers.TPESampler(seed=HashDraw(self._key()).seed("sampler") % 2**32)
        elif self._outdated:
            self._sampler.reseed_rng()
            self._outdated = False
        point = None
        if trial is None:
            point = self._points[self._asked] if self._rewards is None and self._asked < len(self._points) else None
            if point is not None:
                study.enqueue_trial(self._point_params(point))
            trial = begin(study)
            trial.set_user_attr(TRIAL_ID, trial_id)
        self._asked += 1
        self._trials[trial_id] = trial.number
        if self._function is not None:
            suggests = suggesting(trial, study, self._given_storage)
            return config_of_function(self._function, suggests, flat(point) if point else {})
        assert self._space is not None
        config = self._space.resolve(AskDraw(trial, self._key()))
        self._make_canonical(study, trial, config)
        return config

    def _begun(self, study: optuna.Study, trial_id: str) -> optuna.Trial | FrozenTrial | None:
        """What a driver asked for that was killed before it could write it down, or what is replayed: it stands."""
        import optuna

        number = self._find(study, trial_id)
        if number is None:
            return None
        self._outdated = True
        there = study.get_trials(deepcopy=False)[number]
        return there if there.state.is_finished() else optuna.trial.Trial(study, optuna_id(study, number))

    def _make_canonical(
        self, study: optuna.Study, trial: optuna.Trial | FrozenTrial, config: Mapping[str, Any]
    ) -> None:
        """Let the study hold what a replay reads from the config: a value that was rounded differs from the draw."""
        if self._given_storage is not None:
            return  # it is never replayed: the storage has it
        drawn = trial.params
        params, distributions = self._params(config)
        for name, value in params.items():
            if name in drawn and drawn[name] != value:
                kind, number = distributions[name], optuna_id(study, trial.number)
                study._storage.set_trial_param(number, name, kind.to_internal_repr(value), kind)

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        study = self._ready()
        known = self._find(study, trial_id)
        if known is not None:  # a storage of the user's has it already
            self._trials[trial_id] = known
            self._outdated = True
        elif self._sampler is not None:  # its random state moves only by asking it
            suggestion = self.suggest(trial_id)
            if contains(config, suggestion):
                return True
            if isinstance(suggestion, dict):  # the journal's config takes its place
                study.tell(self._trials[trial_id], state=states().FAIL)
            else:
                self._asked += 1
            self._add(study, trial_id, config)
            return False
        else:
            self._add(study, trial_id, config)
        self._asked += 1
        return True

    def _key(self) -> str:
        if self._seed is None:
            self._seed = random.SystemRandom().getrandbits(31)
        return f"optuna {self._seed} {self._asked}"

    def _point_params(self, point: Mapping[str, Any]) -> dict[str, Any]:
        if self._space is None:
            return flat(point) if point else {}
        return self._params(point)[0]

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
