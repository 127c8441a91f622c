"""All experiments of which samples are stored."""

from __future__ import annotations

from tests.data import lives, schedulers, searchers, spread

FIRST = [*lives.EXPERIMENTS, *searchers.EXPERIMENTS, *schedulers.EXPERIMENTS]
"""Stored by the first format."""
LATER = spread.EXPERIMENTS
"""Stored by each format since."""
BY_NAME = {experiment.name: experiment for experiment in [*FIRST, *LATER]}


def is_new(name: str, version: str) -> bool:
    """Whether a sample has no like among the first format's: another call, or more that was compacted or packed."""
    return version == "0.1.0" or not any(BY_NAME[name] == experiment for experiment in FIRST)
