"""Which metrics the trials of an experiment have reported, and what is said of one that none has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainables.automatic import AutomaticKeys
from trainables.metrics import MISSING, lookup, metric_names, nearest_keys
from tuner.error import SettingError
from tuner.experiment.trial import Trial

AUTOMATIC = {*AutomaticKeys().complete({}), "episodes_total", "should_checkpoint", "timesteps_total"}
"""Keys of a result that the package, not the user, put there."""


def reported(trials: Iterable[Trial]) -> list[str]:
    """The names of all metrics that these trials have reported, nested ones as "a/b"; of none the package's own."""
    found: dict[str, None] = {}
    for trial in trials:
        names = (metric_names(trial.last_result), trial.metric_summary, trial.unsummed_metrics)
        found |= dict.fromkeys(name for each in names for name in each)
    return [name for name in found if name not in AUTOMATIC] or list(found)


def check_reported(metric: str, trials: Sequence[Trial]) -> None:
    """Refuse a metric that no trial has reported, where any has reported something. Raises SettingError."""
    for trial in trials:
        if lookup(trial.last_result, metric) is not MISSING or metric in trial.metric_summary:
            return
        if metric in trial.unsummed_metrics:
            return
    if names := reported(trials):
        near = nearest_keys(dict.fromkeys(names), metric, limit=1)
        others = [name for name in names if name not in near]
        raise SettingError(
            f"no trial has reported a metric {metric!r}; reported, nearest first: {', '.join([*near, *others])}"
        )
