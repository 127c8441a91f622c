"""All trials of an experiment as columns, a row each in order of creation, brought up to date from the state."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import numpy as np

from trainables import tagged
from trainables.metrics import as_score, lookup, metric_names
from trainables.printable import one_line
from trainables.result_history import flatten
from tuner.analysis import scopes
from tuner.analysis.reported import AUTOMATIC
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.outcome import outcome
from tuner.experiment.trial import Trial
from tuner.ui.columns import ColumnSet

STATES = (Trial.PENDING, Trial.RUNNING, Trial.PAUSED, Trial.TERMINATED, Trial.ERROR)
_CODES = {state: code for code, state in enumerate(STATES)}
TEXT = 200
"""Characters of a text in a cell."""
SAID = 400
"""Characters of what is said of a trial, which the first line of an error may be."""
NAMES = 400
"""Metrics, and parameters, that have columns: who reports a name of its own in each result has too many."""
_INTEGERS = ("index", "iteration", "attempt", "failures", "checkpoints", "bytes", "pinned")
_FLOATS = ("time", "started_at", "ended_at")
_FLAT = ("id", "index", "name_of", "state", "said", "iteration", *_FLOATS, *_INTEGERS[2:], "held", "problem")


class TrialColumns:
    """The rows of all trials.

    Args:
        metrics: what is best, the first of them first.
        modes: "min" or "max" of each.
    """

    def __init__(self, metrics: Sequence[str], mode: str | None) -> None:
        self.goals, self.mode = list(metrics), mode
        self.ids: list[str] = []
        self.row_of: dict[str, int] = {}
        self.names: list[str] = []
        self.said: list[str] = []
        self._said: dict[str, str] = {}
        self.hosts: list[str] = []
        """Where each last reported from; "" is not known."""
        self.states = array("b")
        self.held = array("b")
        self.integers = {name: array("q") for name in _INTEGERS}
        self.floats = {name: array("d") for name in _FLOATS}
        self.rested = array("d")
        """Seconds between a trial's first start and now, or its end, in which it did not run."""
        self.problems: dict[int, str] = {}
        self.config, self.last = ColumnSet(), ColumnSet()
        self.changed = array("q")
        """The number of the fact that changed a row last."""

    def __len__(self) -> int:
        return len(self.ids)

    def row(self, trial_id: str, index: int) -> int:
        """The row of a trial, made where it has none."""
        found = self.row_of.get(trial_id)
        if found is not None:
            return found
        row = self.row_of[trial_id] = len(self.ids)
        self.ids.append(trial_id)
        self.names.append("")
        self.said.append("")
        self.hosts.append("")
        self.rested.append(0.0)
        self.states.append(0)
        self.held.append(0)
        self.changed.append(0)
        for name, integers in self.integers.items():
            integers.append(index if name == "index" else 0)
        for floats in self.floats.values():
            floats.append(nan)
        return row

    def first(self, rows: int) -> TrialColumns:
        """A table of its first rows."""
        made = TrialColumns(self.goals, self.mode)
        for name in ("ids", "names", "said", "hosts", "states", "held", "changed", "rested"):
            setattr(made, name, getattr(self, name)[:rows])
        made.row_of = {trial_id: row for row, trial_id in enumerate(made.ids)}
        made.integers = {name: values[:rows] for name, values in self.integers.items()}
        made.floats = {name: values[:rows] for name, values in self.floats.items()}
        made.problems = {row: why for row, why in self.problems.items() if row < rows}
        made.config, made.last = self.config.first(rows), self.last.first(rows)
        return made

    def clear(self, row: int) -> None:
        """Forget what stands in a row, but whose it is."""
        self.names[row] = self.said[row] = self.hosts[row] = ""
        self.states[row] = self.held[row] = 0
        for name, integers in self.integers.items():
            integers[row] = integers[row] if name == "index" else 0
        for floats in self.floats.values():
            floats[row] = nan
        self.config.put(row, {})
        self.last.put(row, {})
        self.problems.pop(row, None)

    def update(self, trial: Trial, seq: int, note: str = "") -> None:
        """Bring the row of a trial up to date.

        Args:
            seq: the newest fact.
            note: why those that have not ended do not go on.
        """
        row = self.row(trial.trial_id, trial.index)
        self.changed[row] = seq
        self.names[row] = self.ids[row] if trial.name == trial.trial_id else trial.name  # one text in memory
        self.states[row] = _CODES.get(trial.status, 0)
        self.held[row] = trial.held
        kept = trial.checkpoints
        integers = (trial.index, trial.iteration, trial.attempt, trial.num_failures, len(kept))
        counts = (sum(record.bytes for record in kept), sum(record.pinned for record in kept))
        for name, number in zip(_INTEGERS, (*integers, *counts), strict=True):
            self.integers[name][row] = number
        problems: list[str] = []
        result: Mapping[str, Any] = {}
        try:
            result = trial.last_result
            self.last.put(row, self._metrics(trial, result))
        except UNREADABLE as error:
            problems.append(f"its result cannot be read: {said(error)}")
        try:
            self.config.put(row, cells(trial.evaluated_params or _whole_config(trial), self.config))
        except UNREADABLE as error:
            problems.append(f"its config cannot be read: {said(error)}")
        host = result.get("hostname")
        self.hosts[row] = self._text(host) if isinstance(host, str) else ""
        time = as_score(result.get("time_total_s"))
        times = (time, trial.started_at, trial.ended_at)
        self.rested[row] = sum(rest.until - rest.since for rest in trial.rests if rest.until is not None)
        for name, value in zip(_FLOATS, times, strict=True):
            self.floats[name][row] = nan if value is None else value
        self._say(row, trial, note, problems)

    def _say(self, row: int, trial: Trial, note: str, problems: list[str]) -> None:
        try:
            text = one_line(outcome(trial, "" if trial.is_finished() else note))
        except UNREADABLE as error:
            text = trial.status
            problems.append(f"its state cannot be read: {said(error)}")
        self.said[row] = self._text(text if len(text) <= SAID else text[:SAID] + "...")
        if problems:
            self.broken(row, "; ".join(problems))
        else:
            self.problems.pop(row, None)

    def _text(self, text: str) -> str:
        """The same, once in memory."""
        return self._said.setdefault(text, text) if len(self._said) < 1000 else text

    def broken(self, row: int, why: str) -> None:
        """The row of a trial of which something cannot be read."""
        self.problems[row] = one_line(why)[:TEXT]

    def _metrics(self, trial: Trial, result: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in metric_names(result):
            if name not in AUTOMATIC and len(found) < NAMES:
                found[name] = lookup(result, name)
        found = cells(found, self.last)
        for name in self.goals:
            if as_score(lookup(result, name)) is None:
                score = scopes.score(trial, name, "min", "last")
                if score is not None:
                    found[name] = score
            else:
                found[name] = as_score(lookup(result, name))
        return found

    # --- what is served -----------------------------------------------------------------------------------

    @property
    def metrics(self) -> list[str]:
        """All metrics that were reported, the experiment's own first."""
        return [*self.goals, *(name for name in self.last.columns if name not in self.goals)]

    def best(self, metric: str | None = None, mode: str | None = None) -> int | None:
        """The row of the trial whose last value is best; of equals the earliest; None: there is none."""
        name = metric or (self.goals[0] if self.goals else None)
        column = None if name is None else self.last.columns.get(name)
        if column is None:
            return None
        column.extend_to(len(self))
        values = column.numbers()
        if not len(values) or np.isnan(values).all():
            return None
        return int(np.nanargmax(values) if (mode or self.mode) == "max" else np.nanargmin(values))

    def counts(self) -> dict[str, int]:
        """How many trials are in which state."""
        found = np.bincount(np.array(self.states, dtype=np.int64), minlength=len(STATES))
        return {state: int(number) for state, number in zip(STATES, found, strict=True)}

    def all(self) -> dict[str, Any]:
        """Every column."""
        rows = len(self)
        flat: dict[str, Any] = {
            "id": self.ids,
            "name_of": self.names,
            "state": [STATES[code] for code in self.states],
            "said": self.said,
            "held": [bool(held) for held in self.held],
            "problem": [self.problems.get(row) for row in range(rows)] if self.problems else [None] * rows,
        }
        flat |= {name: np.array(values) for name, values in (self.integers | self.floats).items()}
        ordered = {name: flat[name] for name in _FLAT}
        return ordered | {"config": self.config.all(rows), "last": self.last.all(rows)}

    def some(self, rows: Sequence[int]) -> dict[str, Any]:
        """The same of some rows, and which rows these are."""
        flat: dict[str, Any] = {
            "row": list(rows),
            "id": [self.ids[row] for row in rows],
            "name_of": [self.names[row] for row in rows],
            "state": [STATES[self.states[row]] for row in rows],
            "said": [self.said[row] for row in rows],
            "held": [bool(self.held[row]) for row in rows],
            "problem": [self.problems.get(row) for row in rows],
        }
        for name, values in (self.integers | self.floats).items():
            flat[name] = [values[row] for row in rows]
        return flat | {"config": self.config.some(rows), "last": self.last.some(rows)}

    def since(self, seq: int) -> list[int]:
        """The rows that facts after that one have changed."""
        found: list[int] = np.flatnonzero(np.array(self.changed) > seq).tolist()
        return found


def cells(values: Mapping[str, Any], known: ColumnSet) -> dict[str, Any]:
    """What of some values fits into cells: numbers, switches, short texts; all else as text."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known.columns and len(known.columns) + len(made) > NAMES:
            continue
        made[str(name)] = cell(value)
    return made


def cell(value: Any) -> Any:
    """A value as JSON holds it: a number, a switch, a short text."""
    if value is None or type(value) in (bool, float, int):
        return value
    if type(value) is str:
        return value if len(value) <= TEXT else value[:TEXT] + "..."
    score = as_score(value)
    if score is not None:
        return score
    text = one_line(str(value))
    return text if len(text) <= TEXT else text[:TEXT] + "..."


def _whole_config(trial: Trial) -> dict[str, Any]:
    config = tagged.loads(bytes(trial.raw_config))
    return flatten(config) if isinstance(config, dict) else {}
