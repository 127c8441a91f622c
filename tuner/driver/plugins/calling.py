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
    """Say in the traceback whose error it is, by the name that the user knows, and how to go on."""
    who = getattr(plugin, "called_now", None) or f"{label(plugin)}.{what}"
    error.add_note(f'raised by {who}; resume="AUTO" continues the run')


def label(plugin: object) -> str:
    """The class of a plug-in, under whatever wraps it."""
    return type(getattr(plugin, "unwrapped", plugin)).__name__
