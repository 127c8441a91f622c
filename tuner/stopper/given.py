"""`as_stopper`: one stopper from whatever `stop=` was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.clock import Clock
from tuner.error import SettingError
from tuner.stopper.budgets import TimeoutStopper
from tuner.stopper.combined import CombinedStopper, FunctionStopper
from tuner.stopper.criteria import DictStopper
from tuner.stopper.stopper import Stopper


def as_stopper(stop: Any, *, clock: Clock | None = None, strict: bool = True) -> Stopper | None:
    """What `stop=` means.

    Args:
        stop: None, a dict of criteria, a `Stopper`, a function `(trial_id, result) -> bool`, or a list of them.
        clock: for stoppers that look at the time.
        strict: a dict that stands alone is an error once its metrics have turned out not to exist (`DictStopper`).

    Raises:
        SettingError: anything else; the message says what is accepted.
    """
    if stop is None or (isinstance(stop, Mapping) and not stop):
        return None
    if isinstance(stop, (list, tuple)):
        parts = [made for made in (as_stopper(one, clock=clock, strict=False) for one in stop) if made is not None]
        return CombinedStopper(*parts) if parts else None
    if isinstance(stop, Stopper):
        _give_clock(stop, clock)
        return stop
    if isinstance(stop, Mapping):
        return DictStopper(stop, strict=strict)
    if isinstance(stop, type) and issubclass(stop, Stopper):
        raise SettingError(f"stop={stop!r} is a class; create an instance of it: stop={stop.__name__}(...)")
    if FunctionStopper.is_valid_function(stop):
        return FunctionStopper(stop)
    raise SettingError(
        f"stop={stop!r} is not accepted; accepted are a dict like "
        "{'training_iteration': 10, 'loss': tune.at_most(0.1)}, a Stopper,"
        " a function (trial_id, result) -> bool, and a list of them"
    )


def _give_clock(stopper: Stopper, clock: Clock | None) -> None:
    if clock is None:
        return
    if isinstance(stopper, CombinedStopper):
        for inner in stopper.stoppers:
            _give_clock(inner, clock)
    elif isinstance(stopper, TimeoutStopper):
        stopper.use_clock(clock)
