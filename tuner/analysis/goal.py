"""What is best in an experiment, as its settings say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Goal(NamedTuple):
    """What is best."""

    metrics: list[str]
    mode: str | None
    """Of the first; None: nobody has said it."""


def goal_of(settings: Mapping[str, Any], metric: str | None = None, mode: str | None = None) -> Goal:
    """What is best, by an experiment's settings, or by what is asked for instead."""
    searched = settings.get("searches_for") or {}
    names, modes = (_listed(settings.get(key) or searched.get(key)) for key in ("metric", "mode"))
    modes = modes if len(modes) == len(names) else modes[:1] * len(names)
    if metric is None:
        return Goal(names, mode or next(iter(modes), None))
    return Goal([metric], mode or dict(zip(names, modes, strict=False)).get(metric))


def _listed(given: Any) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())
