"""Which checkpoints go, and how: policies applied to trials, the experiment's budget, and the deleter."""

from __future__ import annotations

from tuner.retention.budget import BudgetLedger, EvictionPlan, Refusal
from tuner.retention.custodian import Custodian
from tuner.retention.deleter import CouldNotDelete, Deleter
from tuner.retention.manager import Ending, RetentionManager, ScoreWarning, TrialRetention

__all__ = [
    "BudgetLedger",
    "CouldNotDelete",
    "Custodian",
    "Deleter",
    "Ending",
    "ScoreWarning",
    "EvictionPlan",
    "Refusal",
    "RetentionManager",
    "TrialRetention",
]
