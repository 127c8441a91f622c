"""Schedulers: which trials go on, and which runs next."""

from __future__ import annotations

from typing import Any

from trainables.settings import unknown_name
from tuner.error import SettingError
from tuner.schedulers.asha import ASHAScheduler, AsyncHyperBandScheduler
from tuner.schedulers.base import Decision, TrialScheduler, TrialView
from tuner.schedulers.fifo import FIFOScheduler
from tuner.search import fitting_arguments
from tuner.search.searcher import Metric

__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "Decision",
    "FIFOScheduler",
    "TrialScheduler",
    "TrialView",
    "as_scheduler",
    "create_scheduler",
]

_SCHEDULERS: dict[str, type[TrialScheduler]] = {
    "asha": AsyncHyperBandScheduler,
    "async_hyperband": AsyncHyperBandScheduler,
    "asynchyperband": AsyncHyperBandScheduler,
    "fifo": FIFOScheduler,
}


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """The scheduler of that name.

    Args:
        scheduler: "fifo", or "async_hyperband" (also "asynchyperband", "asha").
        kwargs: arguments of its constructor. Those that only another one of these has are passed over, so that
            schedulers can be exchanged.

    Raises:
        SettingError: an unknown name or argument; the message has the nearest known one.

    Example:
        >>> type(create_scheduler("asha", max_t=10)).__name__
        'AsyncHyperBandScheduler'
    """
    name = str(scheduler).lower()
    if name not in _SCHEDULERS:
        raise SettingError(unknown_name("scheduler", str(scheduler), _SCHEDULERS))
    chosen = _SCHEDULERS[name]
    return chosen(**fitting_arguments(name, chosen, list(_SCHEDULERS.values()), kwargs))


def as_scheduler(scheduler: Any, *, metric: Metric = None, mode: Metric = None) -> TrialScheduler:
    """What decides in an experiment, ready to be told.

    Args:
        scheduler: a `TrialScheduler`, a name for `create_scheduler`, or None: FIFO.
        metric, mode: the run's, for a scheduler that was not given its own.

    Raises:
        SettingError: they do not fit together; the message says what does.
    """
    if scheduler is None:
        made: TrialScheduler = FIFOScheduler()
    elif isinstance(scheduler, str):
        made = create_scheduler(scheduler)
    elif isinstance(scheduler, TrialScheduler):
        made = scheduler
    else:
        hint = (
            "; create an instance of it"
            if isinstance(scheduler, type) and issubclass(scheduler, TrialScheduler)
            else ""
        )
        accepted = "a TrialScheduler, None, " + ", ".join(map(repr, sorted(_SCHEDULERS)))
        raise SettingError(f"scheduler={scheduler!r} is not accepted; accepted are {accepted}{hint}")
    label = type(made).__name__
    several = not (metric is None or isinstance(metric, str))
    if several and made.metric is not None:  # the searcher's objectives; the scheduler has its own
        metric = mode = None
    elif several and made.needs_metric:
        raise SettingError(
            f"{label} compares by one number; give it one of {list(metric or ())!r} as metric=, and mode="
        )
    if not made.set_search_properties(metric, mode):  # type: ignore[arg-type]
        raise SettingError(
            f"metric={metric!r}, mode={mode!r} were given, but {label} has metric={made.metric!r}, mode={made.mode!r}; "
            "give them in one place"
        )
    if made.needs_metric and (made.metric is None or made.mode is None):
        missing = "metric" if made.metric is None else "mode"
        raise SettingError(f"{label} needs a {missing}: give {missing}= to it or to the run")
    return made
