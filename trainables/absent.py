"""Says what to use instead of an attribute that a class of Ray's has and ours has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn


class SaysInstead:
    """Base of classes whose AttributeError names the remedy, where it is known."""

    _instead: ClassVar[Mapping[str, str]] = {}
    """Attribute of Ray's class -> what to use."""

    if not TYPE_CHECKING:  # a type checker is to know what is not there

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(without(self, name, type(self)._instead), name=name, obj=self)


def without(thing: Any, name: str, instead: Mapping[str, str]) -> str:
    """What to say of an attribute that `thing` has not."""
    text = f"{type(thing).__name__!r} object has no attribute {name!r}"
    return f"{text}; instead: {instead[name]}" if name in instead else text
