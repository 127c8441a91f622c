"""Hooks of schedulers in two forms: ours, and Ray's, whose first argument is the controller of the run.

A class that has a hook with one argument more than ours was written for Ray: `written_for_ray` makes its hooks ours.
From then on the hooks of all other schedulers accept a controller too, so that its
`super().on_trial_result(controller, trial, result)` and `inner.on_trial_add(controller, trial)` work. Where nobody
defines such a class nothing is wrapped.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

Hook = Callable[..., Any]
CHOICE = "choose_trial_to_run"
ARGUMENTS = {
    "on_trial_add": 1,
    "on_trial_result": 2,
    "on_trial_complete": 2,
    "on_trial_error": 1,
    "on_trial_remove": 1,
    CHOICE: 1,
}
"""Hook -> how many arguments ours has; Ray's have a controller before them, but for the last, which gets only that."""
_OURS = "pending"
"""`choose_trial_to_run(self, pending)` is ours; by any other name it is Ray's, and gets what can be both."""
_TAKES_BOTH = "__takes_both__"
_makers: list[Callable[[Any], None]] = []
_wrapping = False
"""A class was defined that was written for Ray."""


def look_at_hooks(cls: type, base: type) -> None:
    """Make the hooks of a new subclass of `base` callable in the form that others use."""
    global _wrapping
    hooks = {name: getattr(cls, name) for name in ARGUMENTS}
    theirs = [name for name, hook in hooks.items() if _is_rays(name, hook, sure=True)]
    if not theirs:
        if _wrapping:
            _accept_controllers(cls)
        return
    if not _wrapping:
        _wrapping = True
        for other in _with_subclasses(base):
            if other is not cls:
                _accept_controllers(other)
    for name, hook in hooks.items():
        if name in vars(cls) and not _is_rays(name, hook, sure=False):
            setattr(cls, name, _dropping(name, hook, ARGUMENTS[name]))
    for make_ours in _makers:
        make_ours(cls)


def made_ours_by(make_ours: Callable[[Any], None]) -> None:
    """Say what a class that was written for Ray is given to, once it is defined: that builds on the base class."""
    _makers.append(make_ours)


def both(hook: Hook) -> Hook:
    """Mark a hook as one that may be called in either form."""
    setattr(hook, _TAKES_BOTH, True)
    return hook


def _with_subclasses(cls: type) -> Iterator[type]:
    yield cls
    below: type
    for below in cls.__subclasses__():
        yield from _with_subclasses(below)


def _is_rays(name: str, hook: Hook, *, sure: bool) -> bool:
    """Whether it was written for Ray: by the number of its arguments, and without `sure` if that is possible only."""
    function = inspect.unwrap(hook)
    if getattr(hook, _TAKES_BOTH, False) or not isinstance(function, FunctionType):
        return False
    code = function.__code__
    arguments = code.co_varnames[1 : code.co_argcount]
    if code.co_flags & inspect.CO_VARARGS:
        return not sure
    if name == CHOICE:
        return arguments != (_OURS,)
    needed = len(arguments) - len(function.__defaults__ or ())
    return (needed if sure else len(arguments)) > ARGUMENTS[name]


def _accept_controllers(cls: type) -> None:
    """Have those hooks that a class defines in our form drop a controller that is given before their arguments."""
    for name, count in ARGUMENTS.items():
        hook = vars(cls).get(name)
        if isinstance(hook, FunctionType) and not getattr(hook, _TAKES_BOTH, False):
            setattr(cls, name, _dropping(name, hook, count))


def _dropping(name: str, hook: Hook, count: int) -> Hook:
    @functools.wraps(hook)
    def dropping(self: Any, *arguments: Any, **named: Any) -> Any:
        if len(arguments) + len(named) > count:
            arguments = arguments[1:]
        elif name == CHOICE and arguments:
            arguments = (getattr(arguments[0], "offered", arguments[0]),)
        return hook(self, *arguments, **named)

    return both(dropping)
