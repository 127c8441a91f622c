"""What a user may change of a run that goes on, and the values that are accepted, in a script as in an order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from trainables.errors import InvalidSettingError
from trainables.validation import duration_or_none, unknown_name
from tuner.error import OrderError, TuneError, require
from tuner.resources import SHORT_NAMES, amount_of, parse_resources

NUM_SAMPLES, MAX_CONCURRENT, TIME_BUDGET = "num_samples", "max_concurrent", "time_budget_s"
RESOURCES = "resources"
"""Of a trial: what it gets."""
_ALIASES = {"max_concurrent_trials": MAX_CONCURRENT}
NAME_LENGTH = 100
LARGEST = 2**53
"""Numbers above it are none that anybody means."""


def samples(name: str, value: Any) -> int:
    """A `num_samples`. Raises SettingError."""
    require(is_count(value) and value and value >= -1, name, value, "accepted are 1, 2, ... and -1 (no limit)")
    return int(value)


def trials_at_once(name: str, value: Any) -> int | None:
    """A `max_concurrent_trials`. Raises SettingError."""
    fits = value is None or (is_count(value) and value >= 0)
    require(fits, name, value, "accepted are 1, 2, ... and None or 0 (no limit)")
    return None if value is None else int(value)


def is_count(value: Any) -> bool:
    """A whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _without_limit(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """The same check, where every way to say that there is no limit becomes None."""

    def checked(name: str, value: Any) -> Any:
        number = check(name, value)
        return None if number in (0, math.inf) else number

    return checked


def amounts(name: str, value: Any) -> dict[str, float]:
    """What a trial gets of some resources; 0: nothing any more. Raises ResourceError or SettingError."""
    fits = isinstance(value, Mapping) and value and all(isinstance(key, str) and key for key in value)
    require(fits, name, value, 'accepted are amounts such as {"cpu": 2, "gpu": 0.5}; what is not named stays')
    require(
        not (set(OF_RUN) | set(_ALIASES)) & set(value), name, value, "num_samples and the like are set without a trial"
    )
    found = {SHORT_NAMES.get(key, key): amount_of(key, amount) for key, amount in value.items()}
    require(len(found) == len(value), name, value, "each resource is accepted once")
    if wanted := {key: amount for key, amount in found.items() if amount}:
        parse_resources(wanted)
    return found


OF_RUN: Mapping[str, Callable[[str, Any], Any]] = {
    NUM_SAMPLES: samples,
    MAX_CONCURRENT: _without_limit(trials_at_once),
    TIME_BUDGET: _without_limit(duration_or_none),
}
"""Name of a setting -> what is accepted, and the value as it is kept."""


def checked(name: str, value: Any, trial: str | None) -> tuple[str, Any]:
    """The name and the value of a setting as they are kept. Raises OrderError, which says what is accepted.

    Args:
        trial: whose setting it is; None: the run's.
    """
    try:
        if trial is not None:
            require(name == RESOURCES, "name", name, f"of a trial there is {RESOURCES}")
            return name, amounts(name, value)
        name = _ALIASES.get(name, name)
        if name in (RESOURCES, "cpu", "gpu", "memory", *SHORT_NAMES):
            raise OrderError(f"{name} is set of one trial: say of which")
        if name not in OF_RUN:
            raise OrderError(unknown_name("setting", name[:NAME_LENGTH], OF_RUN))
        kept = OF_RUN[name](name, value)
        require(kept is None or kept <= LARGEST, name, value, f"accepted is at most {LARGEST:,}")
        return name, kept
    except (TuneError, InvalidSettingError, ArithmeticError) as error:
        raise OrderError(str(error)[:1000]) from None


def said_by(spec: Any, name: str) -> int | float | None:
    """What a script says of a setting, as it is kept.

    Args:
        spec: the run's settings as the script gave them.
    """
    given = {NUM_SAMPLES: "num_samples", MAX_CONCURRENT: "max_concurrent_trials", TIME_BUDGET: "time_budget_s"}[name]
    found: int | float | None = OF_RUN[name](name, getattr(spec, given))
    return found
