"""What a user's subclass adds to one of our searchers, for its state: found, as no such class says it."""

from __future__ import annotations

import dis
import functools
import inspect
from types import FunctionType
from typing import Any

from tuner.search.pickled_state import picklable_attributes

_PACKAGE = __name__.partition(".")[0]


def added_attributes(plugin: object) -> dict[str, Any]:
    """The attributes that no class of ours has or sets, without those that cannot be pickled."""
    ours = next(each for each in type(plugin).__mro__ if _is_ours(each))
    if ours is type(plugin):
        return {}
    known = _set_by(ours)
    added = {name: value for name, value in vars(plugin).items() if name not in known and not hasattr(ours, name)}
    return picklable_attributes(added)


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in (_PACKAGE, object.__module__)


@functools.cache
def _set_by(cls: type) -> frozenset[str]:
    """The names of the attributes that the methods of a class and of its bases set."""
    methods = [inspect.unwrap(each) for base in cls.__mro__ for each in vars(base).values() if callable(each)]
    codes = [each.__code__ for each in methods if isinstance(each, FunctionType)]
    return frozenset(
        str(step.argval) for code in codes for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"
    )
