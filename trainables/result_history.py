"""Reader and writer of `result.json`: one tagged JSON object per line and reported result.

It is a users' file: NaN and the infinities stand in it as Python's own `json` writes them, which pandas and others
read. The JSON standard has them not, so everything else of ours tags them; of a history both forms are read.

Where the newest checkpoint of a trial outlived the machine that had the results before it, each of these has a row that
says no more than `{"training_iteration": 7, "missing": true}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables import tagged

if TYPE_CHECKING:
    import pandas

RESULT_FILE = "result.json"
PARAMS_FILE = "params.json"
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
    """A result as a line of `result.json`. Raises MetricError, which names the key, for what cannot be written."""
    data = tagged.dumps(result)
    if _TAGGED_FLOAT in data:
        bare = json.loads(data, object_hook=_bare_float)
        data = json.dumps(bare, ensure_ascii=False, separators=(",", ":")).encode()
    return data + b"\n"


def read_line(line: bytes) -> Any:
    """What a line of `result.json` holds. Raises ValueError for one that is damaged."""
    try:
        return tagged.loads(line)
    except ValueError:
        return tagged.untag(json.loads(line))  # slower, and it knows NaN and Infinity


_TAGGED_FLOAT = b'{"$":"float"'


def _bare_float(value: dict[str, Any]) -> Any:
    number = value.get("v")
    if value.get("$") != "float" or not isinstance(number, str):
        return value
    return float(number)


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
