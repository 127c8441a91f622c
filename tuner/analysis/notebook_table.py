"""What a notebook shows of an experiment: how many trials came to what, and the best of them, as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainables.html_tables import ROWS, cell, table
from trainables.metrics import rank_of
from tuner.analysis import scopes
from tuner.experiment.outcome import WORDS, outcome
from tuner.experiment.trial import Trial

if TYPE_CHECKING:
    from tuner.analysis.loaded import LoadedExperiment

PARAMETERS = 8
"""Columns of parameters at most, those that differ most first."""


def overview(analysis: LoadedExperiment) -> str:
    """The experiment as HTML, everything escaped, the best trials first."""
    metric, mode = analysis.default_metric, analysis.default_mode
    trials = analysis.trials
    scores: dict[str, float | None] = {}
    shown: Sequence[Trial] = trials
    if metric is not None and mode is not None:
        scores = {trial.trial_id: scopes.score(trial, metric, mode, "last") for trial in trials}
        shown = sorted(trials, key=lambda trial: _place(scores[trial.trial_id], mode), reverse=True)
    shown = shown[:ROWS]
    params = {trial.trial_id: trial.evaluated_params for trial in shown}
    keys = _by_difference(list(params.values()))
    header = ["#", *([metric] if scores else []), "iter", "state", *keys[:PARAMETERS]]
    header += [f"+{len(keys) - PARAMETERS}"] if len(keys) > PARAMETERS else []
    rows = [
        [
            trial.index,
            *([scores[trial.trial_id]] if scores else []),
            trial.iteration,
            outcome(trial),
            *(params[trial.trial_id].get(key) for key in keys[:PARAMETERS]),
        ]
        for trial in shown
    ]
    counts = analysis.stats()["trials"]
    told = ", ".join(f"{counts[status]} {word}" for status, word in WORDS.items() if status in counts)
    head = f"<div><b>{cell(analysis.experiment_path, 300)}</b>: {len(trials)} trials{f' ({told})' if told else ''}"
    head += f", by {cell(metric)} ({mode})</div>" if scores else "</div>"
    more = f"<div>... and {len(trials) - len(shown)} more</div>" if len(trials) > len(shown) else ""
    return head + (table(header, rows) if rows else "") + more


def _place(score: float | None, mode: str) -> tuple[bool, Any]:
    return score is not None, rank_of(math.nan if score is None else score, mode)


def _by_difference(params: Sequence[Mapping[str, Any]]) -> list[str]:
    values: dict[str, set[str]] = {}
    for each in params:
        for key, value in each.items():
            values.setdefault(key, set()).add(cell(value))
    return sorted(values, key=lambda key: -len(values[key]))
