"""Calls to plug-ins, whose errors say whose they are."""

from __future__ import annotations

from typing import Any


def call(plugin: object, method: str, *arguments: Any, **named: Any) -> Any:
    """Call a method of a plug-in. What it raises stays what it is, and says whose it is."""
    try:
        return getattr(plugin, method)(*arguments, **named)
    except Exception as error:
        blame(error, plugin, method)
        raise


def blame(error: Exception, plugin: object, what: str) -> None:
    error.add_note(f"raised by {label(plugin)}.{what}")


def label(plugin: object) -> str:
    """The class of a plug-in, under whatever wraps it."""
    return type(getattr(plugin, "unwrapped", plugin)).__name__
