"""The results of experiments, live or loaded from a path."""

from __future__ import annotations

from tuner.analysis.experiment import ExperimentAnalysis
from tuner.analysis.grid import ResultGrid

__all__ = ["ExperimentAnalysis", "ResultGrid"]
