"""All experiments of which samples are stored."""

from __future__ import annotations

from tests.data import lives, schedulers, searchers

EXPERIMENTS = [*lives.EXPERIMENTS, *searchers.EXPERIMENTS, *schedulers.EXPERIMENTS]
BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
