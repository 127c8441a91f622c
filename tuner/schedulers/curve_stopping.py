"""`CurveStopping`: ends trials whose learning curves will not become the best; `AutoSearch` brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.experiment.reason import ReasonKind
from tuner.schedulers.base import Decision, Reasoned, TrialView, Verdict
from tuner.schedulers.progress import ProgressScheduler
from tuner.search.auto import modelled_space

if TYPE_CHECKING:
    from tuner.search.curves import CurveModel, Curves

LEAST_PROBABILITY = 0.05
_FIRST = 8
"""Scores before anything is decided."""
_STALE = 0.02
"""By what share of its scores the model may be behind: what the trial itself has shown, it always knows."""


class CurveStopping(ProgressScheduler):
    """Ends a trial when the probability that it becomes the best of all at `max_t` is small.

    The probability is that of a Gaussian process over configs and depths, which has learned from the curves of all
    trials. Trials are looked at at each sqrt(2)-fold of the 17th part of `max_t`, and end at `max_t`.

    Args:
        space: the search space, as the run has it.
        max_t: the largest depth, in iterations.
        least_probability: below it a trial ends.

    Source: Domhan et al. 2015, "Speeding Up Automatic Hyperparameter Optimization of Deep Neural Networks by
    Extrapolation of Learning Curves", section 4, with the model of `AutoSearch` in place of parametric curves.
    """

    _remembered = ("_stopped", "_learned")

    def __init__(self, space: Any, *, max_t: float, least_probability: float = LEAST_PROBABILITY) -> None:
        from tuner.search.cube import Cube
        from tuner.search.curves import CurveModel, Curves

        super().__init__(time_attr="training_iteration", metric=None, mode=None)
        self._max_t, self._least_probability = max_t, least_probability
        self._dimensions = modelled_space(space)
        self._curves: Curves = Curves(max_t)
        self._model: CurveModel = CurveModel(Cube(list(self._dimensions.dimensions.values())), self._curves)
        self._stopped = self._learned = 0

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict | Reasoned:
        time, score = self._time(result), self._score(result)
        if time is None or score is None:
            return Decision.CONTINUE
        due = self._note(trial, time, score)
        if time >= self._max_t:
            return Reasoned(Decision.STOP, self._limit(time, self._max_t))
        if not due or self._curves.count < _FIRST:
            return Decision.CONTINUE
        if self._curves.count > self._learned * (1 + _STALE):
            self._model.learn([])
            self._learned = self._curves.count
        if self._model.chance(trial.trial_id, time, score) >= self._least_probability:
            return Decision.CONTINUE
        self._stopped += 1
        return Reasoned(Decision.STOP, self._reason(ReasonKind.WORSE, score))

    def on_trial_complete(self, trial: TrialView, result: dict[str, Any]) -> None:
        time, score = self._time(result), self._score(result)
        if time is not None and score is not None:
            self._note(trial, time, score)

    def on_trial_error(self, trial: TrialView) -> None:
        """What it has shown stands."""

    def _note(self, trial: TrialView, time: float, score: float) -> bool:
        """Keep what a trial shows at a rung; whether it has just come to one."""
        if trial.trial_id not in self._curves.numbers:
            self._curves.add(trial.trial_id, self._dimensions.point(trial.config))
        due = self._curves.is_due(trial.trial_id, time)
        if due:
            self._curves.note(trial.trial_id, time, score)
        return due

    def debug_string(self) -> str:
        return f"Using CurveStopping: num_stopped={self._stopped} of {len(self._curves.points)}"

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "curves": self._curves.get_state(), "model": self._model.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._curves.set_state(state["curves"])
        self._model.set_state(state["model"])
