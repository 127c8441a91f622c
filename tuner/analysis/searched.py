"""Finished trials over their searched parameters, as columns: what the plots about parameters draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.analysis.plot_source import NothingToPlot, PlotSource, goodness
from tuner.search.optuna_study import states

DRAWN = 500
"""Of more finished trials the better half of so many is drawn, and an even choice of the others."""


@dataclass(frozen=True)
class SearchedParameter:
    """A parameter that had several values.

    Args:
        name: its key.
        values: one per trial; None where the trial has it not.
        numeric: all are numbers.
        log: its domain is logarithmic.
    """

    name: str
    values: Sequence[Any]
    numeric: bool
    log: bool

    def numbers(self) -> list[float]:
        """Of a numeric one, as they are spaced: logarithms of a logarithmic one; NaN where there is none."""
        spaced: Callable[[float], float] = math.log10 if self.log else float
        return [math.nan if value is None else spaced(value) for value in self.values]


@dataclass(frozen=True)
class SearchedTrials:
    """Finished trials that have a finite value.

    Args:
        indices: which trials.
        values: what the metric was at last.
        good: from 0, the worst, to 1, the best.
        parameters: the most important one first.
        count: how many there are; those beyond DRAWN are not among these.
    """

    indices: Sequence[int]
    values: Sequence[float]
    good: Sequence[float]
    parameters: Sequence[SearchedParameter]
    count: int

    def few(self) -> str:
        """What to say where not all are drawn."""
        return f" ({len(self.values)} of {self.count} trials)" if len(self.values) < self.count else ""


def searched(seen: PlotSource, number: int, *, least: int, most: int, numeric: bool = False) -> SearchedTrials:
    """What there is to draw of at least `least` and at most `most` parameters, of numbers only with `numeric`.

    Raises NothingToPlot where there is less.
    """
    done = finished(seen, number)
    keys = dict.fromkeys(key for trial in done for key in trial.params)
    found = {key: _parameter(key, done) for key in keys}
    varied = [
        key for key, each in found.items() if len(set(each.values) - {None}) > 1 and (each.numeric or not numeric)
    ]
    if len(varied) < least:
        kind = "numeric parameter" if numeric else "searched parameter"
        raise NothingToPlot(f"it takes {least} {kind}{'s' * (least > 1)} with several values; there are {len(varied)}")
    weights = importances(seen, number, varied)
    chosen = sorted(varied, key=lambda key: (-weights.get(key, 0.0), key))[:most]
    ordered = sorted(done, key=lambda trial: trial.values[number], reverse=seen.modes[number] == "max")
    ranked = list(zip(goodness(len(ordered)), ordered, strict=True))
    if len(ranked) > DRAWN:
        others = ranked[DRAWN // 2 :]
        ranked = ranked[: DRAWN // 2] + others[:: math.ceil(len(others) / (DRAWN // 2))]
    drawn = [trial for _, trial in ranked]
    return SearchedTrials(
        [trial.number for trial in drawn],
        [trial.values[number] for trial in drawn],
        [good for good, _ in ranked],
        [_parameter(key, drawn) for key in chosen],
        len(done),
    )


def finished(seen: PlotSource, number: int) -> list[Any]:
    """The finished trials of the study with a finite value. Raises NothingToPlot if there are less than two."""
    complete = [trial for trial in seen.study().trials if trial.state is states().COMPLETE]
    done = [trial for trial in complete if math.isfinite(trial.values[number])]
    if len(done) < 2:
        raise NothingToPlot(f"it takes two finished trials with {' and '.join(seen.metrics)}; there are {len(done)}")
    return done


def importances(seen: PlotSource, number: int, keys: Sequence[str]) -> dict[str, float]:
    """How much each parameter matters for getting among the best, the most important one first; they add up to 1.

    Source: Watanabe et al. 2023, "PED-ANOVA", as Optuna has it, which needs no further library.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    sign = -1.0 if seen.modes[number] == "max" else 1.0  # it looks for low ones
    return get_param_importances(
        seen.study(),
        evaluator=PedAnovaImportanceEvaluator(),
        params=list(keys),
        target=lambda trial: sign * trial.values[number],
    )


def _parameter(key: str, trials: Sequence[Any]) -> SearchedParameter:
    values = [trial.params.get(key) for trial in trials]
    numeric = all(value is None or (type(value) in (int, float) and math.isfinite(value)) for value in values)
    log = numeric and any(getattr(trial.distributions.get(key), "log", False) for trial in trials)
    return SearchedParameter(key, values, numeric, log and all(value is None or value > 0 for value in values))
