"""The data of the table of trials."""

from __future__ import annotations

from typing import Any

from tuner.error import SettingError
from tuner.ui.seen import Seen


def trials(seen: Seen, columns: str | None = None) -> dict[str, Any]:
    """Every trial, a row each.

    Args:
        columns: only these, separated by commas. Raises SettingError for one that there is not.
    """
    table = seen.picture.table
    best = table.best()
    head = {**seen.head, "metric": seen.metric, "mode": seen.mode, "best": None if best is None else table.ids[best]}
    every = table.all()
    if columns is None:
        return head | every
    wanted = ["id", *(name for name in columns.split(",") if name and name != "id")]
    unknown = [name for name in wanted if name not in every]
    if unknown:
        raise SettingError(f"there is no column {unknown[0]!r:.80}; there are {', '.join(every)}")
    return head | {name: every[name] for name in wanted}
