"""The trials of an experiment as a table: the best first, failed ones apart, chosen, sorted, cut to a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainables.metrics import MISSING, as_score, lookup, metric_names, rank_of
from trainables.printable import one_line
from trainables.result_history import flatten
from trainables.validation import unknown_name
from tuner.analysis import scopes
from tuner.analysis.goal import Goal
from tuner.analysis.reported import AUTOMATIC
from tuner.cli import output
from tuner.error import SettingError, require
from tuner.experiment.hostile import noted
from tuner.experiment.outcome import WORDS, ended_because, outcome
from tuner.experiment.trial import Trial
from tuner.experiment.trials import find_trial
from tuner.progress import formatting
from tuner.progress.run_view import RunView
from tuner.progress.trial_rows import ENDLESS, TrialRow, cut

FIXED = {
    "number": "index",
    "id": "id",
    "iteration": "iteration",
    "time": "time",
    "state": "state",
    "reason": "reason",
    "checkpoints": "checkpoints",
    "size": "bytes",
}
"""Columns that every table has, and what of a row they show."""
OTHERS = 3
"""Other metrics that are shown where there is room."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which trials are wanted, and in which order.

    Args:
        sort: a column; None: the metric.
        reverse: the other way round.
        limit: so many at most.
        states: only those.
    """

    sort: str | None = None
    reverse: bool = False
    limit: int | None = None
    states: Sequence[str] = ()

    def __post_init__(self) -> None:
        require(self.limit is None or self.limit > 0, "--limit", self.limit, "accepted are 1, 2, 3, ...")
        for given in self.states:
            if _status(given) is None:
                raise SettingError(unknown_name("state", given, WORDS.values()))


def row_of(trial: Trial, metrics: Sequence[str], problems: list[str], note: str = "") -> dict[str, Any]:
    """What is shown of a trial; what cannot be read is a line of `problems`. `note`: why it does not go on."""
    result: Mapping[str, Any] = {}
    params: Any = None
    with noted(f"the config of trial {trial.trial_id}", problems):
        params = trial.evaluated_params
    with noted(f"the result of trial {trial.trial_id}", problems):
        result = dict(trial.last_result)
    return {
        "index": trial.index,
        "id": trial.trial_id,
        "status": trial.status,
        "state": one_line(outcome(trial, "" if trial.is_finished() else note)),
        "reason": ended_because(trial),
        "iteration": trial.iteration,
        "time": as_score(result.get("time_total_s")),
        "params": params,
        "metrics": {metric: _value(trial, result, metric) for metric in metrics},
        "result": result,
        "checkpoints": len(trial.checkpoints),
        "bytes": sum(record.bytes for record in trial.checkpoints),
        "error": None if trial.error is None else f"{trial.error.type}: {trial.error.message}",
        "from": None,
    }


def fill_donors(rows: Sequence[dict[str, Any]], trials: Sequence[Trial]) -> None:
    """Name the checkpoint of another trial that a clone or a fork continues from, as NUMBER@ITERATION."""
    for row, trial in zip(rows, trials, strict=True):
        clones = trial.clones[trial.past_clones :] or trial.clones[: trial.forked]
        if clones:
            donor = clones[-1].donor
            found = find_trial(trials, donor.trial_id)
            row["from"] = f"{donor.trial_id if found is None else found.index}@{donor.iteration}"


def fill_constants(rows: Sequence[dict[str, Any]], trials: Sequence[Trial], problems: list[str]) -> None:
    """Where one trial has a parameter of its own, as a fork may, the others show what it is in their configs."""
    keys = {key for row in rows for key in (row["params"] or {})}
    for row, trial in zip(rows, trials, strict=True):
        if row["params"] is not None and (missing := keys - row["params"].keys()):
            with noted(f"the config of trial {trial.trial_id}", problems):
                config = flatten(trial.config)
                row["params"] = row["params"] | {key: config[key] for key in sorted(missing & config.keys())}


def _value(trial: Trial, result: Mapping[str, Any], metric: str) -> Any:
    """Its last value, as what is best is told by: who evaluates each third epoch has it in an earlier result."""
    found = lookup(result, metric)
    if found is MISSING:
        return scopes.score(trial, metric, "min", "last")
    return found


def arranged(rows: list[dict[str, Any]], goal: Goal, choice: Choice) -> list[dict[str, Any]]:
    """The rows of the states that are wanted, best first, failed ones last. Raises SettingError for no such column."""
    wanted = {_status(given) for given in choice.states}
    kept = [row for row in rows if not wanted or row["status"] in wanted]
    if choice.sort is not None:
        _check_column(choice.sort, rows)
    if choice.sort is None and goal.metrics or choice.sort in goal.metrics:
        name, mode = choice.sort or goal.metrics[0], goal.mode or "min"
        kept.sort(key=lambda row: _by_score(row["metrics"].get(name), mode, choice.reverse))
    elif choice.sort is not None:
        kept.sort(key=lambda row: _by_value(_cell(row, choice.sort or ""), choice.reverse))
    elif choice.reverse:
        kept.reverse()
    kept.sort(key=lambda row: row["status"] == Trial.ERROR)
    return kept


def _status(given: str) -> str | None:
    words = {**{said: status for status, said in WORDS.items()}, **{status.lower(): status for status in WORDS}}
    return words.get(given.lower())


def _check_column(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    found = {key for row in rows for key in (row["params"] or {})}
    found |= {key for row in rows for key in (*row["metrics"], *metric_names(row["result"]))}
    if name not in FIXED and name not in found:
        raise SettingError(unknown_name("column", name, [*FIXED, *(found - AUTOMATIC)]))


def _cell(row: Mapping[str, Any], column: str) -> Any:
    if column in FIXED:
        return row[FIXED[column]]
    if column in (row["params"] or {}):
        return row["params"][column]
    found = row["metrics"].get(column, MISSING)
    found = lookup(row["result"], column) if found is MISSING else found
    return None if found is MISSING else found


def _by_score(value: Any, mode: str, reverse: bool) -> tuple[bool, float]:
    score = as_score(value)
    if score is None or math.isnan(score):
        return True, 0.0
    rank = -rank_of(score, mode)[1]
    return False, -rank if reverse else rank


def _by_value(value: Any, reverse: bool) -> tuple[Any, ...]:
    """Numbers before text before nothing; within these the smallest first."""
    score = as_score(value) if not isinstance(value, bool) else float(value)
    if score is not None and not math.isnan(score):
        return 0, -score if reverse else score
    if value is None or score is not None:
        return (2,)
    text = str(value)
    return 1, [-ord(sign) for sign in text] if reverse else [ord(sign) for sign in text]


def text_of(rows: Sequence[dict[str, Any]], goal: Goal, hidden: int, width: int | None) -> list[str]:
    """The table, line by line, of at most `width` columns; None: nothing is cut."""
    others = [*goal.metrics[1:], *_others(rows, goal.metrics)]
    has_donors = any(row["from"] is not None for row in rows)
    shown = [_shown(row, goal, others, has_donors=has_donors) for row in rows]
    failed = sum(row["status"] == Trial.ERROR for row in rows)
    ended, apart = shown[: len(shown) - failed], shown[len(shown) - failed :]
    metric = output.value(goal.metrics[0]) if goal.metrics else None
    view = RunView(None, (), ended, apart, metric=metric, hidden=hidden)
    lines = [cut(line.plain.rstrip(), width or ENDLESS) for line in view.trials(width)]
    return [*lines[: 1 + len(ended)], "", *lines[1 + len(ended) :]] if ended and apart else lines


def _others(rows: Sequence[dict[str, Any]], metrics: Sequence[str]) -> list[str]:
    """Other metrics that these trials report."""
    names = dict.fromkeys(
        name
        for row in rows[:OTHERS]
        for name in metric_names(row["result"])
        if as_score(lookup(row["result"], name)) is not None
    )
    return [name for name in names if name not in AUTOMATIC and name not in metrics][:OTHERS]


def _shown(row: Mapping[str, Any], goal: Goal, others: Sequence[str], *, has_donors: bool) -> TrialRow:
    time = row["time"]
    return TrialRow(
        number=str(row["index"]),
        metric=output.value(row["metrics"][goal.metrics[0]]) if goal.metrics else "",
        iteration=str(row["iteration"] or ""),
        time="" if time is None else formatting.duration(time),
        state=WORDS.get(row["status"], ""),
        standing=row["state"],
        parameters={output.value(key): output.value(value) for key, value in (row["params"] or {}).items()},
        metrics={output.value(name): output.value(_cell(row, name)) for name in others}
        | ({"from": output.value(row["from"] or "")} if has_donors else {})
        | {"checkpoints": str(row["checkpoints"]), "id": output.value(row["id"])},
    )
