"""Which checkpoints go, and how: the planner decides, the checker looks before one is used, the deleter deletes."""

from __future__ import annotations

from trainables.quick_dataclass import dataclass
from tuner.retention.budget import BudgetLedger, Refusal
from tuner.retention.checker import Checker
from tuner.retention.deleter import CouldNotDelete, Deleter
from tuner.retention.planner import RetentionPlanner
from tuner.retention.trial_retention import Ending, TrialRetention

__all__ = [
    "BudgetLedger",
    "Checker",
    "CouldNotDelete",
    "Deleter",
    "Ending",
    "Refusal",
    "Retention",
    "RetentionPlanner",
    "TrialRetention",
]


@dataclass(frozen=True, slots=True)
class Retention:
    """The three layers, of one experiment."""

    planner: RetentionPlanner
    checker: Checker
    deleter: Deleter
