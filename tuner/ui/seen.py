"""What a view is made of: an experiment as it is, or as it was after one of its facts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.picture import Picture

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


@dataclass(frozen=True, slots=True)
class Seen:
    """One look, for which `live.lock` is held where it is of now.

    Args:
        at: the fact after which it was so; None: now.
        takes_orders: the server does.
    """

    live: LiveExperiment
    picture: Picture
    at: int | None = None
    takes_orders: bool = False

    @property
    def head(self) -> dict[str, Any]:
        """What the data of every view begins with."""
        return {"name": self.live.name, "seq": self.picture.seq, "at": self.at}

    @property
    def metric(self) -> str | None:
        return self.picture.goal.metrics[0] if self.picture.goal.metrics else None

    @property
    def mode(self) -> str | None:
        """Which of it is best; None: it has no metric."""
        return None if self.metric is None else self.picture.goal.mode or "min"

    @property
    def goals(self) -> list[dict[str, Any]]:
        """All metrics that are best somewhere."""
        modes = self.picture.settings.get("mode")
        listed = modes if isinstance(modes, list) else []
        named = self.picture.goal.metrics
        whole = listed if len(listed) == len(named) else [self.mode] * len(named)
        return [{"metric": name, "mode": mode} for name, mode in zip(named, whole, strict=True)]

    @property
    def now(self) -> float:
        return self.live.clock.time()

    @property
    def time(self) -> float | None:
        """The time of this moment: now, or the last time that was known at an earlier one; None: no time was known."""
        if self.at is None:
            return self.now
        return max([self.last_heard_of, self.picture.told_at or 0.0]) or None

    @property
    def last_heard_of(self) -> float:
        """When anything was last heard of a trial; 0: nothing was."""
        columns = (np.array(self.picture.table.floats[name]) for name in ("started_at", "ended_at"))
        times = [float(np.nanmax(column)) for column in columns if not np.isnan(column).all()]
        return max([*times, *(trial.last_heard_of for trial in self.picture.state.unfinished)], default=0.0)


def as_json(value: Any) -> bytes:
    """JSON, in which what is no finite number is null."""
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except (TypeError, UnicodeError):  # a whole number beyond 64 bits; half a character
        return json.dumps(_plain(value)).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)
