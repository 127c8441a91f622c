"""`DictStopper`: stop criteria `{"metric": limit}`, with a direction where one is said."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from trainables.automatic import TRAINING_ITERATION
from trainables.metrics import MISSING, as_score, lookup, metric_names, nearest_keys
from trainables.near_misses import near_misses
from trainables.quick_dataclass import dataclass
from trainables.result_history import flatten
from trainables.validation import checked_names
from tuner.error import MetricMissingError, SettingError, require
from tuner.experiment.reason import Reason, ReasonKind
from tuner.stopper.stopper import TrialStopper

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AtLeast:
    """A stop criterion that is met by a value of at least `limit`."""

    limit: float

    def is_met(self, value: float) -> bool:
        """Whether a value is good enough to stop; NaN is not."""
        return value >= self.limit


class AtMost(AtLeast):
    """A stop criterion that is met by a value of at most `limit`."""

    def is_met(self, value: float) -> bool:
        return value <= self.limit


def at_most(limit: float) -> AtMost:
    """For `stop={"loss": at_most(0.1)}`: stop once the loss is 0.1 or lower. A plain number means "at least".

    >>> bool(DictStopper({"loss": at_most(0.1)})("trial", {"loss": 0.05}))
    True
    """
    return AtMost(_limit("at_most", limit))


def at_least(limit: float) -> AtLeast:
    """For `stop={"accuracy": at_least(0.99)}`: what a plain number means, said.

    >>> DictStopper({"accuracy": at_least(0.99)})("trial", {"accuracy": 0.98})
    False
    """
    return AtLeast(_limit("at_least", limit))


def _limit(name: str, limit: Any) -> float:
    number = as_score(limit)
    if number is None or math.isnan(number):
        raise SettingError(f"{name}({limit!r}) is not accepted; it is a number")
    return number


NEVER_SEEN = 100
"""A trial with more results than that, none of which has a metric of `stop=`, and nobody else has had one: an error."""


@checked_names
class DictStopper(TrialStopper):
    """Ends a trial whose metric reaches a value: `{"training_iteration": 10}` ends it after exactly ten results.

    A metric may come with some results only: a result without it decides nothing. One that the very first result
    lacks is warned of, with the nearest names there are, since it may be misspelled.

    Args:
        criteria: metric -> number (reached from below), True, `at_least(number)` or `at_most(number)`. One that is met
            is enough.
        strict: raise once a trial has more than 100 results and no trial has ever reported any of the metrics: nothing
            else might end it. So it is for a `stop={...}` that stands alone; in a list of stoppers others may end it.

    Raises:
        SettingError: a criterion that is none.
        MetricMissingError: see `strict`; the message has the nearest names. A resume may have another `stop=`.
    """

    def __init__(self, criteria: Mapping[str, Any], strict: bool = False) -> None:
        accepted = "it is a dict like {'training_iteration': 10}"
        require(isinstance(criteria, Mapping), "criteria", criteria, accepted)
        for name, limit in criteria.items():
            if isinstance(limit, Mapping) and limit:
                raise SettingError(
                    f"stop={{{name!r}: {limit!r}}} is not accepted; a nested metric is named with slashes: "
                    f"stop={flatten({name: limit})!r}"
                )
            number = isinstance(limit, (AtLeast, bool)) or as_score(limit) is not None
            if not isinstance(name, str) or not number or limit != limit:
                raise SettingError(
                    f"stop={{{name!r}: {limit!r}}} is not accepted; a metric's name has a number (stop once the metric "
                    "is that or higher), tune.at_least(number) or tune.at_most(number)"
                )
        self._criteria = dict(criteria)
        self._strict = bool(strict)
        self._looked = False
        self._found = "done" in criteria  # it need not be reported to be False
        self._without: dict[str, int] = {}
        """Trial -> its results, as long as none of any trial has had one of the metrics."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool | Reason:
        if not self._looked or not self._found:
            self._look_for(trial_id, result)
        for name, limit in self._criteria.items():
            if _reached(value := lookup(result, name), limit):
                cut = limit.limit if isinstance(limit, AtLeast) else as_score(limit)
                return Reason(ReasonKind.CRITERION, type(self).__name__, metric=name, value=as_score(value), cut=cut)
        return False

    def decides_from(self, trial_id: str, iteration: int) -> float:
        limit = as_score(self._criteria.get(TRAINING_ITERATION))
        if limit is None or len(self._criteria) > 1 or type(self).__call__ is not DictStopper.__call__:
            return super().decides_from(trial_id, iteration)
        return max(iteration + 1, math.ceil(limit)) if math.isfinite(limit) else limit

    def _look_for(self, trial_id: str, result: dict[str, Any]) -> None:
        missing = [name for name in self._criteria if lookup(result, name) is MISSING and name != "done"]
        if len(missing) < len(self._criteria):
            self._found = True
            self._without.clear()
        for name in missing if not self._looked else ():
            meant = near_misses(name, metric_names(result))
            log.warning(
                "stop: the first result has no metric %r, which decides nothing until it comes; %sthere are: %s",
                name,
                f"did you mean {meant[0]!r}? " if meant else "",
                ", ".join(nearest_keys(result, name)),
            )
        self._looked = True
        if not self._found:
            self._without[trial_id] = count = self._without.get(trial_id, 0) + 1
            if self._strict and count > NEVER_SEEN:
                near = "; ".join(f"{name!r} (there are: {', '.join(nearest_keys(result, name))})" for name in missing)
                raise MetricMissingError(
                    f"stop: after {count} results of {trial_id} no trial has ever reported {near}, so nothing would "
                    "end the trials. Correct stop= and resume the run; if the metric does come later, "
                    "TUNE_DISABLE_STRICT_METRIC_CHECKING=1 waits for it"
                )

    def get_state(self) -> dict[str, Any]:
        names = sorted(self._criteria)
        return {"names": names, "looked": self._looked, "found": self._found, "without": dict(self._without)}

    def set_state(self, state: dict[str, Any]) -> None:
        if state["names"] == sorted(self._criteria):  # other metrics are looked for anew
            self._looked, self._found, self._without = state["looked"], state["found"], dict(state["without"])


def _reached(value: Any, limit: Any) -> bool:
    if isinstance(limit, bool):
        return value is not MISSING and bool(value is not None and value == limit)
    number = float(value) if isinstance(value, bool) else as_score(value)
    if number is None:
        return False
    return limit.is_met(number) if isinstance(limit, AtLeast) else bool(number >= limit)
