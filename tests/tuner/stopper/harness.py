"""A trial that reports until it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuner.stopper import (
    Stopper,
)


def results_until_stop(stopper: Stopper, limit: int = 100, **metrics: Callable[[int], Any]) -> int:
    """How many results of one trial there are, the last one included."""
    for iteration in range(1, limit + 1):
        result = {"training_iteration": iteration, **{name: value(iteration) for name, value in metrics.items()}}
        if stopper("trial", result):
            return iteration
    return limit + 1
