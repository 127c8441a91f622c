"""`Stopper`: the interface of rules that end a trial or the experiment, and its obligations."""

from __future__ import annotations

from typing import Any

from tuner.experiment.reason import Reason
from tuner.search.pickled_state import Stateful


class Stopper(Stateful):
    """Says after each result whether a trial, or everything, ends.

    Obligations of a subclass: it does no I/O and keeps no trial; each (trial, training_iteration) is told at most once;
    `get_state` / `set_state` carry what later answers depend on, but not the arguments of the constructor.
    """

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool | Reason:
        """True, or a reason that the journal keeps: this trial ends now, after this result."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__(trial_id, result)")

    def on_trial_fork(self, trial_id: str, result: dict[str, Any]) -> None:
        """A new trial begins at a checkpoint of another one, because a user wants so; `result` is that one's there."""

    def stop_all(self) -> bool:
        """True: every trial ends at its next result, and no other begins."""
        raise NotImplementedError(f"{type(self).__name__} does not define stop_all()")


class TrialStopper(Stopper):
    """Base of stoppers that end one trial at a time, and never the experiment."""

    def stop_all(self) -> bool:
        return False
