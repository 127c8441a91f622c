"""How the arguments of stoppers are checked."""

from __future__ import annotations

import datetime
import math
from typing import Any

from trainables.metrics import as_score
from tuner.error import SettingError


def metric_name(metric: Any) -> str:
    if not isinstance(metric, str) or not metric:
        raise SettingError(f"metric={metric!r} is not accepted; it is the name of a metric")
    return metric


def number(name: str, value: Any, *, above: float | None = None) -> float:
    found = as_score(value)
    if found is None or math.isnan(found) or (above is not None and not found > above):
        raise SettingError(
            f"{name}={value!r} is not accepted; it is a number" + ("" if above is None else f" above {above:g}")
        )
    return found


def seconds(name: str, value: Any) -> float:
    """A time span in seconds, of a number of them or a `datetime.timedelta`."""
    found = value.total_seconds() if isinstance(value, datetime.timedelta) else as_score(value)
    if found is None or not found >= 0:
        raise SettingError(f"{name}={value!r} is not accepted; it is a number of seconds or a datetime.timedelta")
    return found
