"""`Stopper`: the interface of rules that end a trial or the experiment, and its obligations."""

from __future__ import annotations

from typing import Any

from tuner.experiment.reason import Reason
from tuner.search.pickled_state import Stateful


class Stopper(Stateful):
    """Says after each result whether a trial, or everything, ends.

    Obligations of a subclass: it does no I/O and keeps no trial; `get_state` / `set_state` carry what later answers
    depend on, but not the arguments of the constructor.

    Each (trial, training_iteration) is told at most once, but to one that defines `on_rollback(trial, iteration)`: that
    hears when a trial goes back to a checkpoint of that iteration, and is told again what is trained again.

    Example:
        >>> class Enough(tune.Stopper):
        ...     def __call__(self, trial_id, result):
        ...         return result["loss"] < 0.1
        ...     def stop_all(self):
        ...         return False
    """

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool | Reason:
        """True, or a reason that the journal keeps: this trial ends now, after this result."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__(trial_id, result)")

    def decides_from(self, trial_id: str, iteration: int) -> float:
        """The first `training_iteration` after this one with which it may end anything; by default the next one.

        A trial need not wait for the answers to results before it. Asked after `__call__`.
        """
        return iteration + 1

    def on_trial_fork(self, trial_id: str, result: dict[str, Any]) -> None:
        """A new trial begins at a checkpoint of another one, because a user wants so; `result` is that one's there."""

    def on_trial_start(self, trial_id: str, result: dict[str, Any], *, reused: bool) -> None:
        """An attempt of a trial begins, its first or another one.

        Args:
            result: that of the checkpoint that it starts from, another trial's perhaps; empty: it starts from nothing.
            reused: nothing is trained in it: it goes through results of an earlier experiment (`reuse=`).
        """

    def stop_all(self) -> bool:
        """True: every trial ends at its next result, and no other begins."""
        raise NotImplementedError(f"{type(self).__name__} does not define stop_all()")


class TrialStopper(Stopper):
    """Base of stoppers that end one trial at a time, and never the experiment."""

    def stop_all(self) -> bool:
        return False
