"""The trials or all results of an experiment as one table in a file, for other programs. Nothing is unpickled."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from trainables import tagged
from trainables.errors import MissingExtraError
from trainables.places import split_query
from trainables.result_history import flatten, write_line
from tuner.analysis import scopes
from tuner.analysis.loaded import config_of, configs_of
from tuner.error import SettingError
from tuner.experiment.outcome import ended_because
from tuner.experiment.trial import Trial

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]


def of_trials(trials: Sequence[Trial]) -> list[Row]:
    """A row for each trial, also for one without a result: how it stands and why it ended, its config, its last result.

    What it reported under a name that a column has already is in "result/<name>".
    """
    configs = (flatten({"config": config_of(trial, trial.iteration)}) for trial in trials)
    return [_joined(_about(trial) | config, trial.last_result) for trial, config in zip(trials, configs, strict=True)]


def of_results(trials: Sequence[Trial]) -> list[Row]:
    """A row for each result that stands, trial by trial, oldest first."""
    rows = []
    for trial in trials:
        known, config = {"trial_id": trial.trial_id, "trial": trial.index}, configs_of(trial)
        rows += [_joined(known | flatten({"config": config(row)}), row) for row in scopes.history(trial)]
    return rows


def _about(trial: Trial) -> Row:
    error = trial.error
    return {
        "trial_id": trial.trial_id,
        "trial": trial.index,
        "status": trial.status,
        "end_reason": ended_because(trial),
        "failure": None if error is None else f"{error.type}: {error.message}",
        "iterations": trial.iteration,
        "checkpoints": len(trial.checkpoints),
        "logdir": trial.path,
    }


def _joined(known: Row, result: Mapping[str, Any]) -> Row:
    reported = flatten({key: value for key, value in result.items() if key not in ("config", "trial_id")})
    return known | {f"result/{key}" if key in known else key: value for key, value in reported.items()}


def writer_for(target: str) -> Callable[[Sequence[Row]], bytes]:
    """What makes the file of that name, by its suffix. Raises SettingError, which names those that are accepted."""
    suffix = PurePath(split_query(target)[0]).suffix.lower()
    if suffix not in WRITERS:
        accepted = ", ".join(WRITERS)
        raise SettingError(
            f"{target!r} is not accepted: what to write follows from the suffix, which is one of {accepted}"
        )
    if suffix == ".parquet":
        _need_pyarrow()
    return WRITERS[suffix]


def _csv(rows: Sequence[Row]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _json_lines(rows: Sequence[Row]) -> bytes:
    return b"".join(map(write_line, rows))


def _parquet(rows: Sequence[Row]) -> bytes:
    _need_pyarrow()
    made = _frame(rows)
    out = io.BytesIO()
    made.to_parquet(out, engine="pyarrow", index=False)
    return out.getvalue()


WRITERS: Mapping[str, Callable[[Sequence[Row]], bytes]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".jsonl": _json_lines,
}


def _need_pyarrow() -> None:
    try:
        importlib.import_module("pyarrow")
    except ImportError as error:
        raise MissingExtraError(
            "Parquet is written by pyarrow, which is not installed: pip install pyarrow; or write .csv or .jsonl"
        ) from error


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _frame(rows: Sequence[Row]) -> pandas.DataFrame:
    """Columns of one kind each, as Parquet wants them: what is mixed becomes text."""
    import pandas

    return pandas.DataFrame({key: _series([row.get(key) for row in rows]) for key in _columns(rows)})


def _series(values: Sequence[Any]) -> pandas.Series[Any]:
    import pandas

    found = {_kind(value) for value in values if value is not None}
    if found == {"int"} and all(-(2**63) <= value < 2**63 for value in values if value is not None):
        return pandas.Series(values, dtype="Int64" if None in values else "int64")
    if found and found <= {"int", "float"}:
        return pandas.Series([None if value is None else float(value) for value in values], dtype="float64")
    if found == {"bool"}:
        return pandas.Series(values, dtype="boolean" if None in values else "bool")
    return pandas.Series([None if value is None else str(_cell(value)) for value in values], dtype="object")


def _kind(value: Any) -> str:
    return "bool" if isinstance(value, bool) else type(value).__name__


def _cell(value: Any) -> Any:
    """What a text file can hold of a value: numbers and text as they are, all else as JSON."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    return tagged.dumps(value).decode()
