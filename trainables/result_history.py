"""Reader and writer of `result.json`: one JSON object per line and reported result.

It is a file for other tools: arrays and tuples are lists, what JSON has not is text, and NaN and the infinities are
written as Python's own `json` writes them. The exact values are in the journal. Older files have tagged values, which
are read too.

Where the newest checkpoint of a trial outlived the machine that had the results before it, each of these has a row that
says no more than `{"training_iteration": 7, "missing": true}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trainables import tagged
from trainables.errors import MetricError
from trainables.plain_json import plain_text

if TYPE_CHECKING:
    import pandas

RESULT_FILE = "result.json"
PARAMS_FILE = "params.json"
EXACT_PARAMS_FILE = ".params.json"
"""The config as tagged JSON, where `params.json` cannot hold it exactly."""
_ITERATION = "training_iteration"


def read_history(path: Path) -> list[dict[str, Any]]:
    """All results of a trial that stand, oldest first; [] when the file is not there.

    A line that is not complete (a writer at work, or one that was killed) is left out. A line whose iteration was
    reached before voids those from there on: the trial went back to a checkpoint.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return []
    rows: list[dict[str, Any]] = []
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        try:
            row = read_line(line)
        except ValueError:
            continue
        if not isinstance(row, dict):
            continue
        iteration = row.get(_ITERATION)
        if isinstance(iteration, int):
            while rows and rows[-1].get(_ITERATION, -1) >= iteration:
                rows.pop()
        rows.append(row)
    return rows


def missing_row(iteration: int) -> dict[str, Any]:
    """The row of a result of which nothing else is known."""
    return {_ITERATION: iteration, "missing": True}


def write_line(result: Mapping[str, Any]) -> bytes:
    """A result as a line of `result.json`."""
    try:
        data = tagged.dumps(result)
    except MetricError:  # only from a callback that put it there: report() refuses it
        return plain_text(result) + b"\n"
    return (plain_text(result) if b'"$":' in data else data) + b"\n"


def read_line(line: bytes) -> Any:
    """What a line of `result.json` holds. Raises ValueError for one that is damaged."""
    try:
        row = msgspec.json.decode(line)  # orjson makes floats of large integers
    except (msgspec.DecodeError, ValueError, RecursionError):
        row = json.loads(line)  # slower, and it knows NaN and Infinity
    if b'"$"' in line and _has_only_tags(row):
        with suppress(ValueError, TypeError, LookupError):
            return tagged.untag(row)
    return row


def _has_only_tags(value: Any) -> bool:
    """Whether each key "$" is that of a tag, as older versions wrote them, and none is the user's own."""
    if isinstance(value, dict):
        return ("$" not in value or value.keys() == {"$", "v"}) and all(map(_has_only_tags, value.values()))
    return not isinstance(value, list) or all(map(_has_only_tags, value))


def flatten(metrics: Mapping[Any, Any], *, prefix: str = "") -> dict[str, Any]:
    """A result without nesting.

    >>> flatten({"eval": {"auc": 0.9}, "loss": 1})
    {'eval/auc': 0.9, 'loss': 1}
    """
    flat: dict[str, Any] = {}
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, prefix=f"{prefix}{key}/"))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def frame(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Rows as a DataFrame, nested keys as columns `a/b`. Imports pandas."""
    import pandas

    return pandas.DataFrame([flatten(row) for row in rows])
