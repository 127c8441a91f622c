"""Descriptions of plug-ins by class and arguments, so that a resume can say what has changed."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

_PLAIN = (str, int, float, bool, type(None))
_LONGEST = 200
_SAID_APART = ("metric", "mode")


def described(thing: Any) -> str:
    """A class with those of its arguments that are not the defaults, a function's name, or plain values as they are.

    An argument is found where the constructor keeps it, as `_given_x`, `_x` or `x`; else it is left out.

    >>> described({"loss": 0.1}), described(print)
    ("{'loss': 0.1}", 'print')
    """
    text = _text(thing)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _text(thing: Any) -> str:
    if isinstance(thing, _PLAIN):
        return repr(thing)
    if isinstance(thing, Mapping):
        return f"{{{', '.join(f'{key!r}: {_text(value)}' for key, value in thing.items())}}}"
    if isinstance(thing, (list, tuple)):
        return f"[{', '.join(map(_text, thing))}]"
    if inspect.isroutine(thing) or isinstance(thing, type):
        return str(getattr(thing, "__qualname__", type(thing).__name__))
    return f"{type(thing).__name__}({', '.join(_arguments(thing))})"


def _arguments(thing: Any) -> list[str]:
    try:
        parameters = inspect.signature(type(thing)).parameters
    except (ValueError, TypeError):  # some builtins have none
        return []
    kept = getattr(thing, "__dict__", {})
    said = []
    for name, parameter in parameters.items():
        place = next((place for place in (f"_given_{name}", f"_{name}", name) if place in kept), None)
        if place is None or name in _SAID_APART:
            continue
        value = _text(kept[place])
        if parameter.default is parameter.empty or value != _text(parameter.default):
            said.append(f"{name}={value}")
    return said
