"""Delegation: methods and attributes that a wrapper takes from the object it wraps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def delegates(to: str, *names: str) -> Callable[[type[T]], type[T]]:
    """Class decorator: methods and attributes of these names are those of the wrapped object, which `to` names."""

    def delegated(name: str) -> property:
        def read(wrapper: Any) -> Any:
            return getattr(getattr(wrapper, to), name)

        def write(wrapper: Any, value: Any) -> None:
            setattr(getattr(wrapper, to), name, value)

        return property(read, write)

    def decorate(wrapper: type[T]) -> type[T]:
        for name in names:
            setattr(wrapper, name, delegated(name))
        return wrapper

    return decorate
