"""The table of trials: which rows and columns it has, and how it looks in text, HTML and rich."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from trainables.metrics import MISSING, as_score, lookup, score_of
from trainables.printable import one_line
from trainables.quick_dataclass import dataclass
from trainables.result_history import flatten
from tuner.analysis.reported import AUTOMATIC
from tuner.error import refused, require
from tuner.experiment.trial import Trial
from tuner.progress import formatting

if TYPE_CHECKING:
    from rich.table import Table

Names = Sequence[str] | Mapping[str, str]
"""Keys, or keys and what stands above their column."""

_ORDER = {Trial.RUNNING: 0, Trial.PAUSED: 1, Trial.PENDING: 2, Trial.TERMINATED: 3, Trial.ERROR: 4}


@dataclass(frozen=True)
class Columns:
    """What a table of trials shows; the arguments of `TableReporter` say what each is.

    Of `metrics` None is the run's metrics and `infer_limit` more, of `parameters` the searched keys. Rows are the best
    first, by the first metric, or, without one to sort by, the running ones. `others` are the run's further metrics.
    """

    metrics: Names | None = None
    parameters: Names | None = None
    max_rows: int = 20
    max_width: int = 20
    infer_limit: int = 3
    metric: str | None = None
    mode: str | None = None
    sort_by_metric: bool = True
    others: Sequence[str] = ()

    @classmethod
    def of(cls, metric: str | Sequence[str] | None, mode: str | Sequence[str] | None) -> Columns:
        """Of a run with one metric, several or none."""
        metrics = [metric] if isinstance(metric, str) else list(metric or ())
        first = mode if mode is None or isinstance(mode, str) else mode[0]
        return cls(metric=metrics[0] if metrics else None, mode=first, others=metrics[1:])

    @property
    def goals(self) -> list[str]:
        """The run's metrics."""
        return [] if self.metric is None else [self.metric, *self.others]

    def __post_init__(self) -> None:
        for name in ("metrics", "parameters"):
            value = getattr(self, name)
            if isinstance(value, str) or not (value is None or isinstance(value, (Mapping, Sequence))):
                raise refused(f"{name[:-1]}_columns", value, "accepted are [key, ...], {key: heading} and None")
        for name in ("max_rows", "infer_limit"):
            value = getattr(self, name)
            require(type(value) is int and value >= 0, name, value, "accepted are 0, 1, 2, ...")

    def add(self, kind: str, key: str, heading: str | None = None) -> Columns:
        """The same with one more column; `kind` is "metrics" or "parameters"."""
        names = _named(getattr(self, kind), ()) | {key: heading or key}
        return replace(self, metrics=names) if kind == "metrics" else replace(self, parameters=names)


@dataclass(frozen=True, slots=True)
class TrialTable:
    """Cells of a table, and how many rows did not fit."""

    header: list[str]
    rows: list[list[str]]
    hidden: int = 0

    def plain(self) -> str:
        """Columns as wide as their widest cell."""
        cells = [list(map(one_line, row)) for row in (self.header, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells)
        return "\n".join([*("  ".join(row).rstrip() for row in padded), *self._more()])

    def html(self) -> str:
        """A <table>, everything escaped."""
        head = "".join(f"<th>{html.escape(one_line(cell))}</th>" for cell in self.header)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(one_line(cell))}</td>" for cell in row) + "</tr>" for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" + "".join(self._more())

    def rich(self) -> Table:
        """A table for a terminal."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False, caption="\n".join(self._more()) or None, caption_justify="left")
        for heading in self.header:
            table.add_column(Text(one_line(heading)), no_wrap=True)  # Text: a name in brackets is no markup
        for row in self.rows:
            table.add_row(*(Text(one_line(cell)) for cell in row))
        return table

    def _more(self) -> list[str]:
        return [f"... and {self.hidden} more"] if self.hidden else []


def build(
    trials: Iterable[Trial], columns: Columns, *, hidden: int = 0, notes: Mapping[str, str] | None = None
) -> TrialTable:
    """The table of these trials.

    Args:
        trials: candidates for a row; `columns` says how many of them get one, and in which order.
        hidden: trials that were not even given.
        notes: what stands behind the status of a trial, by id.
    """
    found = [(trial, trial.last_result) for trial in trials]
    if columns.sort_by_metric and columns.metric is not None:
        found.sort(key=lambda pair: rank(pair[1], columns))
    else:
        found.sort(key=lambda pair: _ORDER.get(pair[0].status, 9))
    shown = found[: columns.max_rows]
    parameters = parameters_of([trial for trial, _ in shown], columns, 6)
    metrics = metrics_of(found, columns)
    header = ["trial", "status", *parameters.values(), "iter", "total time", *metrics.values()]
    rows = []
    for trial, result in shown:
        searched = trial.evaluated_params
        config = trial.config if any(key not in searched for key in parameters) else searched
        cells = [formatting.value(_of(searched, config, key), columns.max_width) for key in parameters]
        note = (notes or {}).get(trial.trial_id, "")
        spent = result.get("time_total_s")
        rows.append(
            [
                one_line(trial.name),
                f"{trial.status} {note}".rstrip(),
                *cells,
                str(trial.iteration or ""),
                formatting.duration(spent) if isinstance(spent, (int, float)) else "",
                *(formatting.value(_shown(result, key), columns.max_width) for key in metrics),
            ]
        )
    return TrialTable(header, rows, hidden + len(found) - len(shown))


def parameters_of(trials: Iterable[Trial], columns: Columns, most: int | None = None) -> dict[str, str]:
    """Parameters -> headings: those that are asked for, or the first `most` of the searched ones."""
    searched_keys = dict.fromkeys(key for trial in trials for key in trial.evaluated_params)
    return _named(columns.parameters, islice(searched_keys, most))


def metrics_of(found: Sequence[tuple[Trial, dict[str, Any]]], columns: Columns) -> dict[str, str]:
    """Metrics -> headings: those that are asked for, or the run's own and some that these results have."""
    return _named(columns.metrics, _reported(found, columns))


def rank(result: Mapping[str, Any], columns: Columns) -> tuple[bool, float]:
    """What trials are sorted by: the best metric first, those without one last."""
    score = score_of(result, columns.metric or "")
    if score is None or math.isnan(score):
        return True, 0.0
    return False, score if columns.mode == "min" else -score


def _named(given: Names | None, default: Iterable[str]) -> dict[str, str]:
    names = default if given is None else given
    return dict(names) if isinstance(names, Mapping) else {name: name for name in names}


def _reported(found: Sequence[tuple[Trial, dict[str, Any]]], columns: Columns) -> list[str]:
    names = columns.goals
    sample = next((result for _, result in found if result), {})
    others = (
        key
        for key, value in flatten(sample).items()
        if key not in AUTOMATIC and key not in names and as_score(value) is not None
    )
    return [*names, *islice(others, columns.infer_limit)]


def _shown(result: Mapping[str, Any], key: str) -> Any:
    found = lookup(result, key)
    return None if found is MISSING else found


def _of(searched: Mapping[str, Any], config: Mapping[str, Any], key: str) -> Any:
    found = lookup(searched, key)
    return _shown(config, key) if found is MISSING else found
