"""Calls to plug-ins, whose errors say whose they are."""

from __future__ import annotations

from typing import Any

from tuner.slow_calls import timed


def call(plugin: object, method: str, *arguments: Any, **named: Any) -> Any:
    """Call a method of a plug-in. What it raises stays what it is, and says whose it is."""
    try:
        with timed(lambda: name_of(plugin, method)):
            return getattr(plugin, method)(*arguments, **named)
    except Exception as error:
        blame(error, plugin, method)
        raise


def blame(error: Exception, plugin: object, what: str) -> None:
    """Say in the traceback whose error it is, by the name that the user knows."""
    error.add_note(f"raised by {name_of(plugin, what)}")


def name_of(plugin: object, what: str) -> str:
    """What the user calls a method of a plug-in."""
    return getattr(plugin, "called_now", None) or f"{label(plugin)}.{what}"


def label(plugin: object) -> str:
    """The class of a plug-in, under whatever wraps it."""
    return type(getattr(plugin, "unwrapped", plugin)).__name__
