"""What a run needs of its results: the metric it is asked for, those of its plug-ins, and a scheduler's `time_attr`."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from trainables.automatic import DEFAULT_METRIC, AutomaticKeys
from trainables.metrics import MISSING, as_score, lookup, metric_names, nearest_keys, score_of
from trainables.near_misses import near_misses
from tuner.driver.plugins.calling import label
from tuner.error import MetricMissingError
from tuner.experiment.trial import Trial
from tuner.schedulers import TrialScheduler
from tuner.search import Searcher
from tuner.search.searcher import Metric
from tuner.stopper import CombinedStopper, Stopper

log = logging.getLogger(__name__)

PATIENCE = 10
"""A trial with so many results, none of which has a metric that nobody has reported yet, ends the run."""
LISTED = 10
"""So many names of metrics are listed."""
LIKE = 0.6
"""How alike two names read at least, from 0 to 1, for one to be suggested for the other."""
_AUTOMATIC = frozenset(AutomaticKeys().complete({}))


class RequiredMetrics:
    """Looks for what searcher, scheduler, budgets of cost and the run itself go by, until each has come once.

    One that the first result lacks while it has a name that is meant as it, and any other that 10 results of a trial
    lack, is an error, and so is one that trials which ended lack (`MissingResults`); a metric may come with some of the
    results only. While a journal is
    replayed (`live` is False) nothing is an error: what is missing there may have been mended since.
    """

    def __init__(
        self,
        metric: Metric,
        *,
        searcher: Searcher,
        scheduler: TrialScheduler,
        stopper: Stopper | None = None,
        strict: bool,
    ) -> None:
        self.live = True
        self.seen: set[str] = set()
        self.warned: set[str] = set()
        """Metrics that the first result had not, and that were spoken of."""
        self._strict = strict
        self._no_number: set[str] = set()
        """Metrics that were warned of because a result had something else there."""
        self._none: set[str] = set()
        """Metrics of the run that have come, but as None."""
        self._without: dict[str, int] = {}
        """Trial -> its results, as long as something is missing in all of them."""
        own, plugins = set(names_of(metric)), (searcher, scheduler)
        self._own = own.difference(name for plugin in plugins for name in names_of(plugin.metric))
        """Metrics of the run that no plug-in goes by."""
        self._needs: dict[str, str] = {name: f"metric={name!r} is" for name in self._own}
        """Metric -> who needs it, in words."""
        for plugin in plugins:
            for name in names_of(plugin.metric) if self._insists(plugin) else ():
                needed = f"{label(plugin)} needs the metric {name!r}, which is"
                self._needs[name] = f"metric={name!r} is" if name in own else needed
        self._needs.update(
            {name: f"cost_attr={name!r} is" for plugin in (searcher, stopper) for name in costs_of(plugin)}
        )
        self.missing = set(self._needs)
        """What has not come yet."""

    def has_come(self, names: Iterable[str]) -> None:
        """Some result had these."""
        self.seen.update(names)
        self.missing -= self.seen

    def look_for_missing(self, trial: Trial, result: dict[str, Any]) -> None:
        """Look whether a result has what has not come yet. Raises MetricMissingError."""
        found = {name: value for name in self.missing if (value := lookup(result, name)) is not MISSING}
        self._none.update(name for name, value in found.items() if value is None and name in self._own)
        self.has_come(name for name, value in found.items() if value is not None or name not in self._own)
        for name in [name for name, value in found.items() if name in self._own and value is not None]:
            self._check_number("the run", name, found[name])
        missing = sorted(self.missing - self._none)
        if not missing or not self.live:
            return
        count = self._without[trial.trial_id] = self._without.get(trial.trial_id, 0) + 1
        if self._strict:
            self._refuse(missing, trial, result, count)
        self._warn(missing, result)

    def _refuse(self, missing: Sequence[str], trial: Trial, result: dict[str, Any], count: int) -> None:
        for name in missing:
            if DEFAULT_METRIC in result:
                number = f"{result[DEFAULT_METRIC]!r:.60}, a number without a name"
                raise MetricMissingError(
                    f"{self._needs[name]} not in the result of {trial}, which is {number}; to name it, "
                    f"{_reported_as(name)}"
                )
            if count == 1 and near_misses(name, metric_names(result)):
                raise self._error(name, result, f"not in the first result of {trial}")
            if count >= PATIENCE:
                raise self._error(name, result, f"not in any of the first {count} results of {trial}")

    def _warn(self, missing: Sequence[str], result: dict[str, Any]) -> None:
        for name in [name for name in missing if name not in self.warned]:
            self.warned.add(name)
            strict = f"; the run ends where trials end without it, or one has {PATIENCE} results without"
            near = _meant(result, name)
            log.warning(
                "%s not in the first result; %s: %s%s",
                self._needs[name],
                "there are" if near is None else f"did you mean {near!r}? There are",
                _nearest(result, name),
                strict if self._strict else "",
            )

    def look_at_ended(self, trial: Trial) -> None:
        """Look at all that a trial has reported, now that it ends well."""
        self._without.pop(trial.trial_id, None)
        for name in sorted(self.missing):
            if name in self._none:
                self._warn_of_none(trial, name)
            elif self._strict and not self.lacks(trial, name):
                self.has_come([name])

    def lacked_by(self, trial: Trial) -> list[str]:
        """What no trial has reported so far, and this one never has."""
        names = sorted(self.missing - self._none) if self._strict else []
        return [name for name in names if self.lacks(trial, name)]

    def lacks(self, trial: Trial, name: str) -> bool:
        """Whether a metric is in no result of a trial, before a resume, too."""
        return lookup({**dict.fromkeys(trial.metric_summary), **trial.last_result}, name) is MISSING

    def never_came(self, name: str, trial: Trial, others: int, *, anew: bool) -> MetricMissingError:
        """The error about a metric that is missing in a trial that has ended, and in others before it.

        Args:
            anew: whether a resume runs the trial once more, with what is corrected in the trainable.
        """
        more = f", nor of {_other_trials(others)} that ended" if others else ""
        problem = f"not in any result of {trial}, which has ended{more}"
        return self._error(name, trial.last_result, problem, anew=anew)

    def _warn_of_none(self, trial: Trial, name: str) -> None:
        if name not in self._no_number:
            self._no_number.add(name)
            text = "%s None in all results of %s, which has ended: a trial without a number is no best trial"
            log.warning(text, self._needs[name], trial)

    def nothing_reported(self, trial: Trial, others: int) -> MetricMissingError:
        """The error about a function that returned and has reported nothing, as in others before it."""
        name = next(iter(self._needs), "loss")
        more = f", like {_other_trials(others)}" if others else ""
        return MetricMissingError(
            f"{trial} returned and has reported nothing{more}, so that there is no result. In {trial.trainable_name}: "
            f"{_reported_as(name)}; then resume the run. TUNE_NEEDS_REPORTS=0 accepts functions that never "
            "report"
        )

    def _error(self, name: str, result: dict[str, Any], problem: str, *, anew: bool = True) -> MetricMissingError:
        near = _meant(result, name)
        hint = f": did you mean {near!r}? Reported were" if near is not None else "; reported were"
        mend = (
            "Correct the name in the call or in the trainable, and resume the run"
            if anew
            else "Correct the name in the call and resume the run, or in the trainable and run anew with overwrite=True"
        )
        return MetricMissingError(
            f"{self._needs[name]} {problem}{hint}: {_nearest(result, name)}. {mend}; "
            "TUNE_DISABLE_STRICT_METRIC_CHECKING=1 goes on without"
        )

    def has_metric(self, plugin: Searcher | TrialScheduler, result: dict[str, Any]) -> bool:
        """Whether a result has what the plug-in goes by."""
        for metric in names_of(plugin.metric):
            value = lookup(result, metric)
            if type(value) is float:  # what nearly every one is
                continue
            if value is MISSING:
                return False
            self._check_number(label(plugin), metric, value)
        return True

    def _check_number(self, who: str, metric: str, value: Any) -> None:
        if as_score(value) is not None or metric in self._no_number:
            return
        self._no_number.add(metric)
        log.warning(
            "%s goes by the metric %r, and a result has %.60r, a %s and no number: such a result decides nothing%s",
            who,
            metric,
            value,
            type(value).__name__,
            f'; report {{"{metric}": float(x)}}' if isinstance(value, str) else "",
        )

    def check_time(self, scheduler: TrialScheduler, result: dict[str, Any]) -> None:
        """Raises MetricMissingError where the first result lacks what the scheduler measures progress by."""
        name = scheduler.time_attr
        if name is None or name in self.seen:
            return
        if score_of(result, name) is not None:
            self.seen.add(name)
        elif self._insists(scheduler) and self._strict:
            there = lookup(result, name)
            problem = "does not have" if there is MISSING else f"has as {there!r}, which is no number"
            raise MetricMissingError(
                f"{label(scheduler)} measures progress by time_attr={name!r}, which the first result {problem}; "
                f"reported were: {', '.join(nearest_keys(result, name))}"
            )

    def _insists(self, plugin: object) -> bool:
        return bool(getattr(plugin, "require_attrs", True))


def _other_trials(count: int) -> str:
    return f"{count} other trial{'s' * (count > 1)}"


def _reported_as(name: str) -> str:
    example = f"{{{json.dumps(name)}: x}}"
    return f"call tune.report({example}), or return {example}"


def _own(result: dict[str, Any]) -> dict[str, Any]:
    """What the user reported; what is reported of itself where that is nothing."""
    return {key: value for key, value in result.items() if key not in _AUTOMATIC} or result


def _nearest(result: dict[str, Any], name: str) -> str:
    """All that was reported, nearest first, as far as a reader wants it."""
    own = _own(result)
    names = list(dict.fromkeys([*nearest_keys(own, name), *metric_names(own)]))
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return (", ".join(names[:LISTED]) or "nothing") + more


def _meant(result: dict[str, Any], name: str) -> str | None:
    """What the user most likely meant, also where that is not enough to end a run; None: nothing comes near."""
    names = metric_names(_own(result))
    return next(iter([*near_misses(name, names), *difflib.get_close_matches(name, names, 1, LIKE)]), None)


def names_of(metric: Metric) -> Sequence[str]:
    """One metric, several or none as names."""
    if metric is None:
        return ()
    return (metric,) if isinstance(metric, str) else tuple(metric)


def costs_of(plugin: object) -> list[str]:
    """The names under which a plug-in, or those that a stopper combines, looks for costs."""
    own = getattr(plugin, "cost_attr", None)
    combined = plugin.stoppers if isinstance(plugin, CombinedStopper) else ()
    return [*([] if own is None else [own]), *(name for each in combined for name in costs_of(each))]
