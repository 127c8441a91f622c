"""Results for the Optuna searcher: the study, what it is told of trials, and its state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import cloudpickle

from tuner.error import SettingError
from tuner.search.fitting import check_names, misfit
from tuner.search.optuna_space import distributions_of, params_of_function, plain_result, read
from tuner.search.optuna_study import (
    RESULT,
    TRIAL_ID,
    constrain,
    end_state,
    insert,
    open_study,
    optuna_id,
    refuse_other_space,
    states,
)
from tuner.search.resolve import Space
from tuner.search.searcher import Metric, Searcher, names_of, values_of

if TYPE_CHECKING:
    import optuna

NEEDS_DICT = "evaluated points need a dict as space: a define-by-run function does not say what it would have asked for"


class StudySearcher(Searcher):
    """Has an Optuna study, and tells it what came of the trials."""

    _remembered = ("_seed", "_asked", "_exhausted", "_outdated", "_trials", "_steps")
    _points: list[Mapping[str, Any]]
    _rewards: list[Any] | None
    _sampler: Any
    _seed: int | None
    _study_name: str
    _memory: Any
    _given_storage: Any
    _constraints: tuple[str, ...]

    def __init__(self, metric: Metric, mode: Metric) -> None:
        super().__init__(metric, mode)
        self._function: Callable[[Any], Mapping[str, Any] | None] | None = None
        self._space: Space | None = None
        self._study: optuna.Study | None = None
        self._storage: Any = None
        """What the study is in; before there is one, what a state brought."""
        self._stored: dict[str, int] | None = None
        """Of a storage of the user's: which of its trials is whose."""
        self._outdated = False
        """The sampler has not drawn what is in the storage: its random state is behind."""
        self._trials: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._asked = 0
        self._exhausted = False

    def _ready(self) -> optuna.Study:
        """The study, made when it is needed first."""
        if self._study is not None:
            return self._study
        if self._space is None and self._function is None:
            raise SettingError("OptunaSearch has no search space: give it a space, or the run a config with domains")
        if self._metric is None or self._mode is None:
            raise SettingError("OptunaSearch needs metric= and mode=: give them to it or to the run")
        given = self._storage or self._given_storage or self._memory
        study = open_study(given, self._study_name, self._sampler, names_of(self._mode))
        if self._space is not None:
            refuse_other_space(study, given, distributions_of(self._space.root))
        self._study, self._storage = study, study._storage
        self._study.stop = self._stop  # type: ignore[method-assign]
        if self._rewards is not None and not self._study.get_trials(deepcopy=False):
            for point, reward in zip(self._points, self._rewards, strict=True):
                self.add_evaluated_point(point, reward)
        return self._study

    def _stop(self) -> None:
        """What a sampler calls that has been everywhere: `Study.stop` itself works inside `optimize` only."""
        self._exhausted = True

    def _params(self, config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Optuna's parameters and distributions of a config that was suggested before."""
        if self._function is not None:
            return params_of_function(self._function, config)
        assert self._space is not None
        found = read(self._space.root, config)
        return {name: value for name, (value, _) in found.items()}, {name: kind for name, (_, kind) in found.items()}

    def _add(self, study: optuna.Study, trial_id: str, config: Mapping[str, Any]) -> None:
        """Have a running trial in the study, without asking the sampler."""
        params, distributions = self._params(config)
        self._trials[trial_id] = insert(
            study, state=states().RUNNING, params=params, distributions=distributions, user_attrs={TRIAL_ID: trial_id}
        )

    def _find(self, study: optuna.Study, trial_id: str) -> int | None:
        if self._given_storage is None:
            return None
        if self._stored is None:
            trials = study.get_trials(deepcopy=False)
            self._stored = {each.user_attrs[TRIAL_ID]: each.number for each in trials if TRIAL_ID in each.user_attrs}
        return self._stored.get(trial_id)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        number = self._trials.get(trial_id)
        if number is None or not isinstance(self._metric, str):
            return  # of several objectives Optuna takes final values only
        score = values_of(self._metric, result)[0]
        last = self._steps.get(trial_id, -1)
        step = int(result.get("training_iteration", last + 1))
        if score is None or step <= last:
            return
        study = self._ready()
        inner = optuna_id(study, number)
        if not study._storage.get_trial(inner).state.is_finished():
            study._storage.set_trial_intermediate_value(inner, step, score)
        self._steps[trial_id] = step

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        number = self._trials.get(trial_id)
        if number is None:
            return
        self._steps.pop(trial_id, None)
        values = values_of(self._metric, result or {})
        study = self._ready()
        before = study._storage.get_trial(optuna_id(study, number))
        state = end_state(values, error=error, reported=bool(before.intermediate_values))
        complete, failed = states().COMPLETE, states().FAIL
        if before.state.is_finished():
            if before.state is failed and state is complete:
                # It was continued and has succeeded: to Optuna, where it stays failed, it is another one.
                self._trials[trial_id] = insert(
                    study,
                    values=values,
                    params=before.params,
                    distributions=before.distributions,
                    intermediate_values=before.intermediate_values,
                    user_attrs={TRIAL_ID: trial_id},
                )
            return
        if state is not failed:
            if self._sampler is not None or self._given_storage is not None:
                study._storage.set_trial_user_attr(before._trial_id, RESULT, plain_result(result or {}))
            constrain(study, before._trial_id, result or {}, self._constraints)
        study.tell(number, values if state is complete else None, state=state)  # type: ignore[arg-type]

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        if self._function is not None:
            raise SettingError(NEEDS_DICT)
        from optuna.trial import create_trial

        study = self._ready()
        assert self._space is not None
        check_names(self._space.root, parameters, "")
        params, distributions = self._params(parameters)
        study.add_trial(
            create_trial(
                state=states().FAIL if error else states().PRUNED if pruned else states().COMPLETE,
                values=None if error else list(value) if isinstance(value, (list, tuple)) else [value],
                params=params,
                distributions=distributions,
                intermediate_values=dict(enumerate(intermediate_values or ())),
            )
        )

    def learn_from(self, trial: Any) -> str | None:
        values = values_of(self._metric, trial.last_result)
        if any(value is None or math.isnan(value) for value in values):
            return f"{trial.trial_id} has no {' and '.join(names_of(self._metric))}"
        study = self._ready()
        if self._space is not None and (problem := misfit(self._space.root, trial.config)):
            return f"{trial.trial_id}: {problem}"
        params, distributions = self._params(trial.config)
        if not params:
            return f"{trial.trial_id}: the function asks for what its config does not have"
        if self._find(study, trial.trial_id) is None:
            whose = {TRIAL_ID: trial.trial_id}
            insert(study, values=values, params=params, distributions=distributions, user_attrs=whose)
        return None

    def get_state(self) -> dict[str, Any]:
        storage = self._storage if self._given_storage is None else None
        return super().get_state() | {
            "storage": None if storage is None else cloudpickle.dumps(storage),
            "sampler": None if self._sampler is None else cloudpickle.dumps(self._sampler),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        if state["sampler"] is not None and self._sampler is not None:
            self._sampler = cloudpickle.loads(state["sampler"])
        self._stored = self._study = self._storage = None
        if state["storage"] is not None and self._given_storage is None:
            self._storage = cloudpickle.loads(state["storage"])
