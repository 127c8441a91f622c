"""Schedulers: which trials go on, and which runs next."""

from __future__ import annotations

from typing import Any

from trainables.validation import unknown_name
from tuner.error import SettingError, refused
from tuner.experiment.reason import Reason, ReasonKind
from tuner.schedulers import written_for_ray as written_for_ray  # it has to be there before a user defines one
from tuner.schedulers.asha import ASHAScheduler, AsyncHyperBandScheduler
from tuner.schedulers.base import Decision, Reasoned, TrialScheduler, TrialView
from tuner.schedulers.curve_stopping import CurveStopping
from tuner.schedulers.fifo import FIFOScheduler
from tuner.schedulers.freeze_thaw import FreezeThawScheduler
from tuner.schedulers.hb_bohb import HyperBandForBOHB
from tuner.schedulers.hyperband import HyperBandScheduler
from tuner.schedulers.median_stopping_rule import MedianStoppingRule
from tuner.schedulers.optuna_pruner import OptunaPruner
from tuner.schedulers.pb2 import PB2
from tuner.schedulers.pbt import PopulationBasedTraining
from tuner.schedulers.pbt_replay import PopulationBasedTrainingReplay
from tuner.schedulers.resource_changing_scheduler import ResourceChangingScheduler
from tuner.search import Searcher, fitting_arguments
from tuner.search.arguments import class_hint, fitting, require_goal
from tuner.search.searcher import Metric

__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "Decision",
    "FIFOScheduler",
    "FreezeThawScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "OptunaPruner",
    "PB2",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "Reason",
    "ReasonKind",
    "Reasoned",
    "ResourceChangingScheduler",
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
    "freeze_thaw": FreezeThawScheduler,
    "hb_bohb": HyperBandForBOHB,
    "hyperband": HyperBandScheduler,
    "median_stopping_rule": MedianStoppingRule,
    "medianstopping": MedianStoppingRule,
    "optuna_pruner": OptunaPruner,
    "pb2": PB2,
    "pbt": PopulationBasedTraining,
    "pbt_replay": PopulationBasedTrainingReplay,
    "resource_changing": ResourceChangingScheduler,
}
SCHEDULER_NAMES = tuple(_SCHEDULERS)
"""What a config file and `create_scheduler` call them."""


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """The scheduler of that name.

    Args:
        scheduler: "fifo", "async_hyperband" (also "asynchyperband", "asha"), "hyperband", "hb_bohb", "freeze_thaw",
            "median_stopping_rule" (also "medianstopping"), "pbt", "pbt_replay", "pb2", "resource_changing" or
            "optuna_pruner".
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


def default_scheduler(searcher: Searcher, space: Any, stop: Any) -> TrialScheduler:
    """The scheduler of a run that was given none: the searcher's own, or FIFO.

    Args:
        searcher: the run's.
        space: what it searches.
        stop: the run's.
    """
    searcher = getattr(searcher, "unwrapped", searcher)
    depth = searcher.early_stopping_depth(stop) if isinstance(searcher, Searcher) else None
    return FIFOScheduler() if depth is None else CurveStopping(space, max_t=depth)


def as_scheduler(scheduler: Any, *, metric: Metric = None, mode: Metric = None, **spec: Any) -> TrialScheduler:
    """What decides in an experiment, ready to be told.

    Args:
        scheduler: a `TrialScheduler`, a name for `create_scheduler`, or None: FIFO.
        metric, mode: the run's, for a scheduler that was not given its own; of several metrics lists of both.
        spec: what else schedulers may know of the run: `seed`, `slots` (how many trials can run at once),
            `total_resources`, `trial_resources`.

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
        named = ", ".join(map(repr, sorted(_SCHEDULERS)))
        hint = class_hint(scheduler, TrialScheduler)
        raise refused("scheduler", scheduler, f"accepted are a TrialScheduler, None, {named}{hint}")
    label = type(made).__name__
    several = not (metric is None or isinstance(metric, str))
    if several and made.metric is not None:  # the searcher's objectives; the scheduler has its own
        metric = mode = None
    elif several and made.needs_metric and not made.several_metrics:
        raise SettingError(
            f"{label} compares by one number; give it one of {list(metric or ())!r} as metric=, and mode=; "
            "ASHAScheduler takes all of them"
        )
    known = fitting(made.set_search_properties, spec)
    if not made.set_search_properties(metric, mode, **known):
        raise SettingError(
            f"metric={metric!r}, mode={mode!r} were given, but {label} has metric={made.metric!r}, mode={made.mode!r}; "
            "give them in one place"
        )
    if made.needs_metric:
        require_goal(label, made.metric, made.mode)
    return made
