"""Which metrics the trials of an experiment have reported, and what is said of one that none has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainables.automatic import AutomaticKeys
from trainables.metrics import MISSING, lookup, metric_names, nearest_keys
from tuner.error import SettingError
from tuner.experiment.trial import Trial

AUTOMATIC = {*AutomaticKeys().complete({}), "episodes_total", "should_checkpoint", "timesteps_total"}
"""Keys of a result that the package, not the user, put there."""


def check_reported(metric: str, trials: Iterable[Trial]) -> None:
    """Refuse a metric that no trial has reported, where any has reported something. Raises SettingError."""
    reported: dict[str, Any] = {}
    for trial in trials:
        if lookup(trial.last_result, metric) is not MISSING or metric in trial.metric_summary:
            return
        reported |= dict.fromkeys([*metric_names(trial.last_result), *trial.metric_summary])
        reported |= dict.fromkeys(trial.unsummed_metrics)
    if reported and metric not in reported:
        own = {name: None for name in reported if name not in AUTOMATIC} or reported
        near = nearest_keys(own, metric, limit=1)
        others = [name for name in own if name not in near]
        raise SettingError(
            f"no trial has reported a metric {metric!r}; reported, nearest first: {', '.join([*near, *others])}"
        )
