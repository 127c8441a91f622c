"""`FIFOScheduler`: runs trials in the order of creation."""

from __future__ import annotations

import math
from typing import Any

from trainables.validation import checked_names
from tuner.schedulers.base import Decision, TrialScheduler, TrialView


@checked_names
class FIFOScheduler(TrialScheduler):
    """Runs the trials in the order of their creation, each to its end."""

    _remembered = ()

    def __init__(self) -> None:
        super().__init__()

    def set_search_properties(self, metric: Any, mode: Any, **spec: Any) -> bool:
        if self.sees_new and (metric is None or isinstance(metric, str)):
            return super().set_search_properties(
                metric, mode, **spec
            )  # Ray's keeps them, and who extends it reads them
        return True  # it compares nothing, so that any metric will do, also several

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        return Decision.CONTINUE

    def decides_from(self, trial: TrialView, iteration: int) -> float:
        decides = type(self).on_trial_result is not FIFOScheduler.on_trial_result  # who extends it
        return super().decides_from(trial, iteration) if decides else math.inf
