"""What plug-ins need of the results: their metrics, and a scheduler's `time_attr`, have to be in the first one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from trainables.metrics import MISSING, as_score, lookup, nearest_keys, score_of
from tuner.driver.plugins.calling import label
from tuner.error import MetricMissingError
from tuner.schedulers import TrialScheduler
from tuner.search import Searcher
from tuner.search.searcher import Metric

log = logging.getLogger(__name__)


class RequiredMetrics:
    """Looks for what plug-ins go by. What the first result lacks is an error with the nearest keys.

    The run's own metric, where no plug-in uses it, is only warned of.
    """

    def __init__(self, metric: Metric, *, used: Sequence[str], strict: bool) -> None:
        self.unused = set(names_of(metric)).difference(used)
        """Metrics of the run that no plug-in goes by, until they were looked for."""
        self.seen: set[str] = set()
        self._strict = strict
        self._no_number: set[str] = set()
        """Metrics that were warned of because a result had something else there."""

    def look_for_unused(self, result: dict[str, Any]) -> None:
        """Warn once of a metric of the run that the first result lacks: "best" would go by nothing."""
        for metric in sorted(name for name in self.unused if lookup(result, name) is MISSING):
            log.warning(
                "metric=%r: the first result does not have it, so no trial is the best until it comes; there are: %s",
                metric,
                ", ".join(nearest_keys(result, metric)),
            )
        self.unused.clear()

    def has_metric(self, plugin: Searcher | TrialScheduler, result: dict[str, Any]) -> bool:
        """Whether a result has what the plug-in goes by. Raises MetricMissingError."""
        for metric in names_of(plugin.metric):
            value = lookup(result, metric)
            if type(value) is float and metric in self.seen:  # what nearly every one is
                continue
            if value is MISSING:
                if metric not in self.seen and self._insists(plugin):
                    raise MetricMissingError(
                        f"{label(plugin)} needs the metric {metric!r}, which the first result does not have; "
                        f"reported were: {', '.join(nearest_keys(result, metric))}"
                    )
                return False
            self.seen.add(metric)
            if as_score(value) is None and metric not in self._no_number:
                self._no_number.add(metric)
                log.warning(
                    "%s goes by the metric %r, and a result has %.60r, a %s and no number: such a result decides "
                    "nothing",
                    label(plugin),
                    metric,
                    value,
                    type(value).__name__,
                )
        return True

    def check_time(self, scheduler: TrialScheduler, result: dict[str, Any]) -> None:
        """Raises MetricMissingError where the first result lacks what the scheduler measures progress by."""
        name = scheduler.time_attr
        if name is None or name in self.seen:
            return
        if score_of(result, name) is not None:
            self.seen.add(name)
        elif self._insists(scheduler):
            there = lookup(result, name)
            problem = "does not have" if there is MISSING else f"has as {there!r}, which is no number"
            raise MetricMissingError(
                f"{label(scheduler)} measures progress by time_attr={name!r}, which the first result {problem}; "
                f"reported were: {', '.join(nearest_keys(result, name))}"
            )

    def _insists(self, plugin: object) -> bool:
        return self._strict and getattr(plugin, "require_attrs", True)


def names_of(metric: Metric) -> Sequence[str]:
    """One metric, several or none as names."""
    if metric is None:
        return ()
    return (metric,) if isinstance(metric, str) else tuple(metric)
