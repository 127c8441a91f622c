"""Stoppers made of other stoppers or of a function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from trainables.validation import checked_names
from tuner.error import require
from tuner.experiment.reason import Reason, ReasonKind
from tuner.stopper.stopper import Stopper, TrialStopper


@checked_names
class FunctionStopper(TrialStopper):
    """Ends a trial when a function `(trial_id, result)` says so.

    Example:
        >>> FunctionStopper(lambda trial_id, result: result["loss"] < 0.1)("0001", {"loss": 0.05})
        True
    """

    _remembered = ()

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        accepted = "a function for it takes (trial_id, result) and returns a bool"
        require(self.is_valid_function(function), "stop", function, accepted)
        self._function = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(self._function(trial_id, result))

    @property
    def called_now(self) -> str:
        """The function's name, for an error that it raises."""
        return f"stop={getattr(self._function, '__qualname__', type(self._function).__qualname__)}"

    @classmethod
    def is_valid_function(cls, function: Any) -> bool:
        """True if it can be called with (trial_id, result)."""
        if not callable(function) or isinstance(function, (Stopper, type)):
            return False
        try:
            inspect.signature(function).bind("trial", {})
        except ValueError:
            return True  # a builtin without a signature: it will say so itself
        except TypeError:
            return False
        return True


class CombinedStopper(Stopper):
    """Ends a trial, or all, when one of several stoppers does.

    Example:
        >>> from tuner.stopper import MaximumIterationStopper, TrialPlateauStopper
        >>> CombinedStopper(MaximumIterationStopper(5), TrialPlateauStopper("loss")).stop_all()
        False
    """

    def __init__(self, *stoppers: Stopper) -> None:
        for stopper in stoppers:
            require(isinstance(stopper, Stopper), "CombinedStopper: stopper", stopper, "all are Stoppers")
        self._stoppers = stoppers
        self._asked: Stopper | None = None
        self._told: dict[str, int] = {}
        """Trial that went back -> up to which iteration those that cannot go back were told already."""

    def on_trial_start(self, trial_id: str, result: dict[str, Any], *, reused: bool) -> None:
        for stopper in self._stoppers:
            stopper.on_trial_start(trial_id, result, reused=reused)

    def on_rollback(self, trial: Any, iteration: int) -> None:
        """Results after `iteration` are void; only those of the stoppers that can go back hear what comes again."""
        self._told[trial.trial_id] = trial.told
        for stopper in filter(_goes_back, self._stoppers):
            stopper.on_rollback(trial, iteration)  # type: ignore[attr-defined]

    def decides_from(self, trial_id: str, iteration: int) -> float:
        return min((each.decides_from(trial_id, iteration) for each in self._stoppers), default=math.inf)

    def on_trial_fork(self, trial_id: str, result: dict[str, Any]) -> None:
        for stopper in self._stoppers:
            stopper.on_trial_fork(trial_id, result)

    @property
    def stoppers(self) -> tuple[Stopper, ...]:
        """Those that are asked, in their order."""
        return self._stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool | Reason:
        answers = []
        again = trial_id in self._told and result.get("training_iteration", math.inf) <= self._told[trial_id]
        if not again:
            self._told.pop(trial_id, None)
        for stopper in self._stoppers:  # all, also after a yes: each counts for itself
            if again and not _goes_back(stopper):
                continue
            self._asked = stopper
            answers.append((stopper(trial_id, result), stopper))
        self._asked = None
        answer, stopper = next(((answer, stopper) for answer, stopper in answers if answer), (False, self))
        if isinstance(answer, Reason) or not answer:
            return answer
        kind = ReasonKind.EXPERIMENT if stopper.stop_all() else ReasonKind.CRITERION
        return Reason(kind, type(stopper).__name__)

    @property
    def called_now(self) -> str | None:
        """Which of them is asked, for an error that it raises."""
        named: str | None = getattr(self._asked, "called_now", None)
        return named or (f"{type(self._asked).__qualname__}.__call__" if self._asked is not None else None)

    def stop_all(self) -> bool:
        return True in [stopper.stop_all() for stopper in self._stoppers]

    def get_state(self) -> dict[str, Any]:
        return {"stoppers": [stopper.get_state() for stopper in self._stoppers], "told": dict(self._told)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._told = dict(state.get("told", {}))  # older ones have none
        for stopper, inner in zip(self._stoppers, state["stoppers"], strict=False):
            stopper.set_state(inner)


def _goes_back(stopper: Stopper) -> bool:
    return hasattr(stopper, "on_rollback")


class NoopStopper(TrialStopper):
    """Ends nothing."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False
