"""Schedulers that were written for Ray: their hooks get a controller, and their whole state is kept."""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from trainables.metrics import with_paths
from tuner.error import ResumeError
from tuner.experiment import unpickling
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.trial import Trial
from tuner.schedulers.base import Decision, Directive, Reasoned, TrialScheduler
from tuner.schedulers.controller import RunController
from tuner.schedulers.hook_arity import ARGUMENTS, CHOICE, Hook, both, made_ours_by
from tuner.search.pickled_state import UNPICKLABLE

_CONTROLLER, _MARK = "_run_controller", "_is_written_for_ray"


def make_ours(cls: type[TrialScheduler]) -> None:
    """Have a class that was written for Ray be called like one of ours.

    What its `on_trial_result` answers and what it asked of the controller is one decision; the results that it gets
    have nested values under their paths too ("eval/auc"), and each trial is what the scheduler has made of it. Its
    state is all of its attributes that can be pickled, in which a trial stays that trial.
    """
    for name in ARGUMENTS:
        setattr(cls, name, _entered(name, _method(cls, name)))
    setattr(cls, "orders", _with_wishes(_method(cls, "orders")))  # noqa: B010 - else a type checker minds
    setattr(cls, "on_trial_start", _starting(_method(cls, "on_trial_start")))  # noqa: B010
    before_ours = cls.__mro__[: next(n for n, base in enumerate(cls.__mro__) if _is_ours(base) and base is not cls)]
    for name, method in (("get_state", _get_state), ("set_state", _set_state)):
        if not any(name in vars(base) for base in before_ours):
            setattr(cls, name, method)
    setattr(cls, _MARK, True)
    cls.sees_new = True


def _method(cls: type, name: str) -> Hook:
    """A method of a class, also where that is one of the object which it wraps."""
    found: Any = getattr(cls, name)
    if not isinstance(found, property):
        return found  # type: ignore[no-any-return]

    def of_the_wrapped(self: Any, *arguments: Any) -> Any:
        bound: Hook = property.__get__(found, self)
        return bound(*arguments)

    return of_the_wrapped


def _is_ours(cls: type) -> bool:
    return issubclass(cls, TrialScheduler) and not vars(cls).get(_MARK, False)


def join(scheduler: Any, trials: Sequence[Trial], *, search_alg: Any, has_room: Callable[[Trial], bool]) -> None:
    """Tell a scheduler that was written for Ray, and those that it or one of ours wraps, which run it belongs to."""
    while isinstance(scheduler, TrialScheduler):
        if scheduler.sees_new:
            controller = RunController(trials, search_alg=search_alg, scheduler_alg=scheduler, has_room=has_room)
            scheduler.__dict__[_CONTROLLER] = controller
        scheduler = vars(scheduler).get("scheduler")


def _controller_of(scheduler: TrialScheduler) -> RunController:
    found: RunController | None = vars(scheduler).get(_CONTROLLER)
    if found is None:  # it belongs to no run, and is called by a test
        found = scheduler.__dict__[_CONTROLLER] = RunController(scheduler_alg=scheduler)
    return found


# --- hooks ----------------------------------------------------------------------------------------------------------


def _entered(name: str, hook: Hook) -> Hook:
    """A hook that adds the controller where none is given: it is the run that calls then, and no subclass."""
    count = ARGUMENTS[name]
    call: Hook = _CALLS.get(name, _plainly)

    @functools.wraps(hook)
    def entered(self: Any, *arguments: Any, **named: Any) -> Any:
        first = arguments[0] if arguments else None
        if name == CHOICE:
            by_run = isinstance(first, Sequence) and not isinstance(first, RunController)
        else:
            by_run = len(arguments) + len(named) <= count
        return call(self, hook, _controller_of(self), *arguments) if by_run else hook(self, *arguments, **named)

    return both(entered)


def _plainly(scheduler: TrialScheduler, hook: Hook, controller: RunController, trial: Trial) -> Any:
    return hook(scheduler, controller, controller.shown(trial))


def _decide(
    scheduler: TrialScheduler, hook: Hook, controller: RunController, trial: Trial, result: dict[str, Any]
) -> Any:
    status = controller.statuses.get(trial.trial_id)
    if status == Trial.TERMINATED:  # for Ray it has ended when that was asked for
        controller.wishes.pop(trial.trial_id, None)
        return Reasoned(Decision.STOP, Reason(ReasonKind.DECIDED))
    if status == Trial.PAUSED and trial.trial_id not in controller.wishes:
        return Decision.PAUSE  # a function that runs on to its next save
    controller.statuses.pop(trial.trial_id, None)
    told = with_paths(result)
    controller.deciding = (trial.trial_id, told)
    try:
        return controller.wished(trial, hook(scheduler, controller, controller.shown(trial), told))
    finally:
        controller.deciding = None


def _complete(
    scheduler: TrialScheduler, hook: Hook, controller: RunController, trial: Trial, result: dict[str, Any]
) -> None:
    if controller.statuses.pop(trial.trial_id, None) != Trial.TERMINATED:  # else it was told in the call that asked so
        hook(scheduler, controller, controller.shown(trial), with_paths(result))


def _choose(scheduler: TrialScheduler, hook: Hook, controller: RunController, pending: Sequence[Trial]) -> Trial | None:
    shown = [controller.shown(trial) for trial in pending]
    controller.offered = sorted(shown, key=lambda trial: trial.status != Trial.PENDING)
    try:
        chosen = hook(scheduler, controller)
        waiting = None if chosen is None else controller.get(chosen.trial_id)
        return None if waiting is None else next(one for one in pending if one.trial_id == waiting.trial_id)
    finally:
        controller.offered = ()


def _starting(hook: Hook) -> Hook:
    @functools.wraps(hook)
    def starting(self: TrialScheduler, trial: Trial) -> None:
        _controller_of(self).statuses.pop(trial.trial_id, None)
        hook(self, trial)

    return starting


_CALLS: dict[str, Callable[..., Any]] = {
    "on_trial_result": _decide,
    "on_trial_complete": _complete,
    CHOICE: _choose,
}


def _with_wishes(orders: Hook) -> Hook:
    @functools.wraps(orders)
    def with_wishes(self: TrialScheduler) -> Sequence[Directive]:
        return [*orders(self), *_controller_of(self).ordered()]

    return with_wishes


# --- state ----------------------------------------------------------------------------------------------------------


_ASKED = ("wishes", "statuses", "clones")


class _ByReference(pickle.Pickler):
    """Pickles trials and the controller by what they are called: a resume has them already."""

    def persistent_id(self, thing: Any) -> Any:
        if isinstance(thing, Trial):  # as the scheduler sees it, too
            return thing.trial_id
        return _CONTROLLER if isinstance(thing, RunController) else None


class _ByValue(cloudpickle.Pickler, _ByReference):  # type: ignore[misc]
    """The same, with functions and classes that have no name that others can import."""


def _get_state(scheduler: TrialScheduler) -> dict[str, Any]:
    controller = _controller_of(scheduler)
    attributes = {name: value for name, value in vars(scheduler).items() if name != _CONTROLLER}
    pickled = _pickled(attributes)
    if pickled is None:
        pickled = _pickled({name: value for name, value in attributes.items() if _pickled(value) is not None})
    asked = {name: dict(getattr(controller, name)) for name in _ASKED}
    return {"attributes": pickled, **asked}


def _pickled(thing: Any) -> bytes | None:
    """None: it cannot be."""
    for pickler in (_ByReference, _ByValue):  # the first keeps a script's own classes what they are there
        into = io.BytesIO()
        try:
            pickler(into).dump(thing)
        except UNPICKLABLE:
            continue
        return into.getvalue()
    return None


def _set_state(scheduler: TrialScheduler, state: dict[str, Any]) -> None:
    controller = _controller_of(scheduler)

    def known(name: str) -> Any:
        found = controller if name == _CONTROLLER else controller.get_trial(name)
        if found is None:
            raise ResumeError(f"the stored state of the scheduler knows a trial {name!r}, which is not there")
        return found

    scheduler.__dict__.update(unpickling.loads(state["attributes"], known))
    for name in _ASKED:
        setattr(controller, name, dict(state[name]))


made_ours_by(make_ours)
