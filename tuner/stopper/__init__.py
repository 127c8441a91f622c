"""Stoppers: when a trial, or the whole experiment, has done enough."""

from __future__ import annotations

from tuner.experiment.reason import Reason, ReasonKind
from tuner.stopper.budgets import (
    CostStopper,
    MaximumIterationStopper,
    MaximumResultsStopper,
    TimeoutStopper,
    TrialTimeoutStopper,
)
from tuner.stopper.combined import CombinedStopper, FunctionStopper, NoopStopper
from tuner.stopper.criteria import DictStopper, at_least, at_most
from tuner.stopper.given import as_stopper
from tuner.stopper.plateau import ExperimentPlateauStopper, TrialPlateauStopper
from tuner.stopper.stopper import Stopper

__all__ = [
    "CombinedStopper",
    "CostStopper",
    "DictStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "MaximumResultsStopper",
    "NoopStopper",
    "Reason",
    "ReasonKind",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
    "TrialTimeoutStopper",
    "as_stopper",
    "at_least",
    "at_most",
]
