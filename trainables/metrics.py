"""Metric lookup in nested results, the same for scheduler, searcher, stopper, retention and reporter.

A result may be nested. `"eval/auc"` names `{"eval": {"auc": ...}}` as well as the flat `{"eval/auc": ...}`; a key
that is there as it is spelled always comes first, so that slashes and dots in real keys are no trouble.
"""

from __future__ import annotations

import difflib
import math
import numbers
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

_TOKEN = re.compile(r"[^/.]+")


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"
    """No such metric in this result."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing.MISSING


def lookup(metrics: Mapping[str, Any], name: str) -> Any:
    """The value of a metric, or `MISSING`.

    At every level the longest piece of `name` that is a key is tried first; "/" and "." both go a level down.

    >>> lookup({"eval": {"auc": 0.9}}, "eval/auc"), lookup({"eval/auc": 0.8}, "eval/auc"), lookup({}, "auc")
    (0.9, 0.8, MISSING)
    """
    if name in metrics:  # what nearly every call is
        return metrics[name]
    if "/" not in name and "." not in name:
        return MISSING
    spans = [match.span() for match in _TOKEN.finditer(name)]
    return _descend(metrics, name, spans) if len(spans) > 1 else MISSING


def _descend(metrics: Mapping[str, Any], name: str, spans: list[tuple[int, int]]) -> Any:
    for count in range(len(spans), 0, -1):
        words = [name[start:end] for start, end in spans[:count]]
        as_spelled = name[spans[0][0] : spans[count - 1][1]]
        for key in (as_spelled, "/".join(words), ".".join(words)):
            if key not in metrics:
                continue
            value = metrics[key]
            if count == len(spans):
                return value
            if isinstance(value, Mapping):
                found = _descend(value, name, spans[count:])
                if found is not MISSING:
                    return found
    return MISSING


def as_score(value: Any) -> float | None:
    """A value as a number that can be ranked: None for what is no number (booleans are none); NaN stays NaN."""
    if type(value) is float:  # what nearly every one is
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int) or isinstance(value, numbers.Real):  # an ABC, which is slow to ask: numpy's numbers
        try:
            return float(value)
        except OverflowError:  # an int beyond the range of floats
            return math.inf if abs(value) == value else -math.inf
    return None


def score_of(metrics: Mapping[str, Any], name: str) -> float | None:
    """The metric `name` as a score; None when it is absent or not a number."""
    return as_score(lookup(metrics, name))


def rank_of(score: float, mode: str = "max") -> tuple[bool, float]:
    """Where a score ranks, greater is better: NaN is worse than every number."""
    return (False, 0.0) if math.isnan(score) else (True, -score if mode == "min" else score)


def with_paths(metrics: dict[str, Any]) -> dict[str, Any]:
    """The same, where it is nested with each inner value under its path as well, as code for Ray looks it up.

    >>> with_paths({"eval": {"auc": 0.9}})
    {'eval': {'auc': 0.9}, 'eval/auc': 0.9}
    """
    if not any(isinstance(value, dict) for value in metrics.values()):
        return metrics
    return {**metrics, **{name: lookup(metrics, name) for name in metric_names(metrics)}}


def metric_names(metrics: Mapping[str, Any]) -> list[str]:
    """The names of all metrics of a result, nested ones as `"a/b"`, in their order."""
    return list(_names(metrics, ""))


def _names(metrics: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in metrics.items():
        if isinstance(value, Mapping) and value:
            yield from _names(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}"


def nearest_keys(metrics: Mapping[str, Any], name: str, *, limit: int = 5) -> list[str]:
    """The reported names that read most like `name`, nearest first; when none comes near, the first `limit` of all,
    what is reported of itself last."""
    names = [key for key in metric_names(metrics) if key != name]
    wanted = name.lower()
    last = re.split(r"[/.]", wanted)[-1]

    def likeness(key: str) -> float:
        lower = key.lower()
        tail = re.split(r"[/.]", lower)[-1]
        whole = difflib.SequenceMatcher(None, wanted, lower).ratio()
        ends = difflib.SequenceMatcher(None, last, tail).ratio()
        part = 0.7 if last and tail and (last in lower or tail in wanted) else 0.0
        return max(whole, ends, part)

    rated = [(likeness(key), key) for key in names]
    near = sorted((pair for pair in rated if pair[0] >= 0.5), key=lambda pair: -pair[0])
    if near:
        return [key for _, key in near[:limit]]
    from trainables.automatic import AutomaticKeys  # sockets: only a mistake needs it

    return sorted(names, key=AutomaticKeys().complete({}).__contains__)[:limit]
