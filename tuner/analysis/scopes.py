"""Scores of trials by a metric: best, last or mean result.

NaN counts for nothing: a trial has a score if one of its results has a number there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trainables.dominance import Point, first_front
from trainables.metrics import rank_of, score_of
from trainables.result_history import read_history
from tuner.error import SettingError, require
from tuner.experiment.forks import chain
from tuner.experiment.paths import TrialPaths
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import NOT_SUMMED

_LAST_N = re.compile(r"last-([1-9]\d*)-avg")


def check(metric: str | None, mode: str | None, scope: str = "last") -> tuple[str, str]:
    """Metric and mode, once they are known to be usable. Raises SettingError."""
    if not isinstance(metric, str) or not metric:
        raise SettingError(f"metric={metric!r} is not accepted: name one metric, here or where the run was started")
    require(mode in ("min", "max"), "mode", mode, "accepted are 'min' and 'max'")
    fits = scope in ("all", "last", "avg") or _LAST_N.fullmatch(str(scope))
    require(fits, "scope", scope, "accepted are 'all', 'last', 'avg' and 'last-5-avg' with any number")
    return metric, str(mode)


def history(trial: Trial) -> list[dict[str, Any]]:
    """All results of a trial, oldest first; only the last where no `result.json` was written."""
    rows = read_history(TrialPaths(trial.directory).result_json)
    return rows or ([trial.last_result] if trial.last_result else [])


def whole_history(trials: Sequence[Trial], trial: Trial) -> list[dict[str, Any]]:
    """`history`, of a fork with the results before its own: those of the trial whose checkpoint it began at."""
    return [row for _, rows in histories(trials, trial) for row in rows]


def histories(trials: Sequence[Trial], trial: Trial) -> Iterator[tuple[Trial, list[dict[str, Any]]]]:
    """(trial, its results) of all that `whole_history` is made of, oldest first."""
    reached = 0
    for earlier, until in chain(trials, trial):
        yield earlier, [row for row in history(earlier) if reached < row.get("training_iteration", 0) <= until]
        reached = until
    yield trial, history(trial)


def best_row(trial: Trial, metric: str, mode: str) -> dict[str, Any]:
    """The result with the best value, of equals the earlier; the last one if no result has a number there."""
    scores = [(score_of(row, metric), row) for row in history(trial)]
    ranked = [(rank_of(value, mode), row) for value, row in scores if value is not None]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else trial.last_result


def scored_at(trial: Trial, metric: str, mode: str, scope: str) -> int:
    """The iteration of the result that gives a trial its score; of a mean that of the last result."""
    if scope == "all":
        row = best_row(trial, metric, mode)
    elif scope == "last" and score_of(trial.last_result, metric) is None:
        row = next((row for row in reversed(history(trial)) if score_of(row, metric) is not None), {})
    else:
        row = trial.last_result
    return int(row.get("training_iteration", trial.iteration))


def score(trial: Trial, metric: str, mode: str, scope: str) -> float | None:
    """The trial's score; NaN if it reported nothing but NaN, None if it never reported a number there.

    For a plain metric all but the mean of the last few comes from what the state knows; the history is not read.
    """
    if not trial.iteration:
        return None
    summary: Mapping[str, Any] = trial.metric_summary
    known = summary.get(metric)
    if scope == "last":
        last = score_of(trial.last_result, metric)
        if last is not None:
            return last
    elif known is not None:
        low, high, total, count = known
        if scope == "all":
            return float(low if mode == "min" else high)
        if scope == "avg":
            return float(total / count)
    if (
        known is None
        and summary
        and metric not in {*NOT_SUMMED, *trial.unsummed_metrics}
        and "/" not in metric  # it lacks nested ones too
        and "." not in metric
    ):
        return score_of(trial.last_result, metric)  # NaN, or nothing: no result has a number there
    return _from_history(trial, metric, mode, scope)


def _from_history(trial: Trial, metric: str, mode: str, scope: str) -> float | None:
    scores = [found for row in history(trial) if (found := score_of(row, metric)) is not None]
    if not scores:
        return None
    if scope == "last":
        return scores[-1]
    few = _LAST_N.fullmatch(scope)
    if few is not None:
        scores = scores[-int(few[1]) :]
    numbers = [found for found in scores if not math.isnan(found)]
    if not numbers:
        return math.nan
    if scope == "all":
        return min(numbers) if mode == "min" else max(numbers)
    return math.fsum(numbers) / len(numbers) if all(map(math.isfinite, numbers)) else sum(numbers) / len(numbers)


def best(
    trials: Iterable[Trial], metric: str, mode: str, scope: str, *, filter_nan_and_inf: bool | None = None
) -> Trial | None:
    """The trial with the best score; of equals the earlier; None if no trial has one.

    With `filter_nan_and_inf` trials whose score is NaN or infinite do not count. None: NaN does not, and infinities
    rank as numbers. False: all count, and a NaN is worse than any number.
    """

    def counts(value: float) -> bool:
        return filter_nan_and_inf is False if math.isnan(value) else not (filter_nan_and_inf and math.isinf(value))

    scores = ((score(trial, metric, mode, scope), trial) for trial in trials)
    ranked = ((rank_of(value, mode), trial) for value, trial in scores if value is not None and counts(value))
    return max(ranked, key=lambda pair: pair[0], default=(None, None))[1]


def front(trials: Iterable[Trial], metrics: Sequence[str], modes: Sequence[str]) -> list[Trial]:
    """The trials whose last results no other one's beats in all metrics, in their order; of those that have all."""
    points: dict[Trial, Point] = {}
    for trial in trials:
        scores = [score(trial, metric, mode, "last") for metric, mode in zip(metrics, modes, strict=True)]
        if all(value is not None and not math.isnan(value) for value in scores):
            signed = zip(scores, modes, strict=True)
            points[trial] = tuple(-value if mode == "max" else value for value, mode in signed if value is not None)
    best = set(first_front(points.values()))
    return [trial for trial, point in points.items() if point in best]
