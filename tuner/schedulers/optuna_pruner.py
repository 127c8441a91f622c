"""`OptunaPruner`: Optuna's pruners as a scheduler."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from trainables.metrics import score_of
from trainables.validation import checked_names
from tuner.error import require
from tuner.experiment.reason import Reason, ReasonKind
from tuner.schedulers.base import Decision, Reasoned, TrialView, Verdict
from tuner.schedulers.progress import ProgressScheduler
from tuner.search.optuna_study import insert, optuna_id, quiet, states

if TYPE_CHECKING:
    import optuna


@checked_names
class OptunaPruner(ProgressScheduler):
    """Stops the trials that a pruner of Optuna prunes.

    Each result is an intermediate value. The study that the pruner looks at is this scheduler's own, in memory: a trial
    that ends counts as complete with its last value, one that was stopped here as pruned.

    Args:
        pruner: of `optuna.pruners`, or any `BasePruner`: a copy of it is used.
        metric, mode: what is compared; None: the run's.
        time_attr: what Optuna calls the step, rounded down. A second result of one step replaces the first.

    Raises:
        SettingError: no pruner.

    Example:
        >>> import optuna
        >>> OptunaPruner(optuna.pruners.MedianPruner(), metric="loss", mode="min").debug_string()
        'Using OptunaPruner(MedianPruner): 0 of 0 trials pruned'
    """

    def __init__(
        self,
        pruner: optuna.pruners.BasePruner,
        metric: str | None = None,
        mode: str | None = None,
        time_attr: str = "training_iteration",
    ) -> None:
        import optuna

        super().__init__(time_attr=time_attr, metric=metric, mode=mode)
        hint = "; create an instance of it" if isinstance(pruner, type) else ""
        is_one = isinstance(pruner, optuna.pruners.BasePruner)
        require(is_one, "pruner", pruner, f"it is a pruner of optuna.pruners{hint}")
        # Some keep what they have seen: a copy, so that one pruner can be given to two runs.
        self._pruner = copy.deepcopy(pruner)
        self._study: optuna.Study | None = None
        self._trials: list[optuna.trial.FrozenTrial] = []
        """What the study is made of when it is needed next."""
        self._numbers: dict[str, int] = {}

    def on_trial_add(self, trial: TrialView) -> None:
        self._open(trial.trial_id)

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict | Reasoned:
        if not self._report(trial, result):
            return Decision.CONTINUE
        if not self._pruner.prune(self._ready(), self._frozen(trial.trial_id)):
            return Decision.CONTINUE
        self._close(trial.trial_id, pruned=True)
        metric = str(self._metric)
        worse = Reason(ReasonKind.WORSE, type(self._pruner).__name__, metric=metric, value=score_of(result, metric))
        return Reasoned(Decision.STOP, worse)

    def on_trial_complete(self, trial: TrialView, result: dict[str, Any]) -> None:
        if not self._is_closed(trial.trial_id):
            self._report(trial, result)  # a stopper's last result is news here
            self._close(trial.trial_id, pruned=False)

    def _ready(self) -> optuna.Study:
        if self._study is not None:
            return self._study
        import optuna

        storage = optuna.storages.InMemoryStorage()
        directions = optuna.study.StudyDirection
        direction = directions.MINIMIZE if self._mode == "min" else directions.MAXIMIZE
        with quiet():
            study_id = storage.create_new_study([direction], study_name="tuner")  # Hyperband draws brackets by the name
        for frozen in self._trials:
            storage.create_new_trial(study_id, template_trial=frozen)
        self._study = optuna.Study("tuner", storage, sampler=optuna.samplers.RandomSampler(seed=0), pruner=self._pruner)
        self._trials = []
        return self._study

    def _all(self) -> list[optuna.trial.FrozenTrial]:
        return self._trials if self._study is None else self._study.get_trials(deepcopy=False)

    def _frozen(self, trial_id: str) -> optuna.trial.FrozenTrial:
        study = self._ready()
        return study._storage.get_trial(optuna_id(study, self._numbers[trial_id]))

    def _open(self, trial_id: str) -> None:
        """Have a trial that runs: a new one, or one that had ended and is continued. One that failed never ended."""
        number = self._numbers.get(trial_id)
        if number is None:
            self._numbers[trial_id] = insert(self._ready(), state=states().RUNNING)
        elif self._is_closed(trial_id):
            self._trials = self._all()
            self._study = None
            ended = self._trials[number]
            ended.state, ended.values, ended.datetime_complete = states().RUNNING, None, None

    def _is_closed(self, trial_id: str) -> bool:
        number = self._numbers.get(trial_id)
        return number is not None and self._frozen(trial_id).state.is_finished()

    def _report(self, trial: TrialView, result: dict[str, Any]) -> bool:
        """Write down an intermediate value; False: there is none in the result."""
        time, score = self._time(result), self._score(result)
        if time is None or score is None or not 0 <= time < math.inf:
            return False
        value = -score if self._mode == "min" else score
        self._open(trial.trial_id)
        inner = self._frozen(trial.trial_id)._trial_id
        self._ready()._storage.set_trial_intermediate_value(inner, math.floor(time), value)
        return True

    def _close(self, trial_id: str, *, pruned: bool) -> None:
        self._open(trial_id)
        frozen = self._frozen(trial_id)
        last = None if frozen.last_step is None else frozen.intermediate_values[frozen.last_step]
        values = None if last is None or math.isnan(last) else [last]
        state = states().PRUNED if pruned else states().COMPLETE if values else states().FAIL
        self._ready()._storage.set_trial_state_values(frozen._trial_id, state, values)

    def debug_string(self) -> str:
        pruned = sum(frozen.state is states().PRUNED for frozen in self._all())
        label = type(self._pruner).__name__
        return f"Using OptunaPruner({label}): {pruned} of {len(self._numbers)} trials pruned"

    def get_state(self) -> dict[str, Any]:
        return {
            "trials": copy.deepcopy(self._all()),
            "numbers": dict(self._numbers),
            "pruner": copy.deepcopy(self._pruner),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._study = None
        self._trials, self._numbers = copy.deepcopy(state["trials"]), dict(state["numbers"])
        self._pruner = copy.deepcopy(state["pruner"])
