"""`command:` of a config file, which replaces `trainable:`; `metrics:` and `checkpoints:` stand beside or below it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.command.command import Command
from trainables.errors import TrainablesError
from trainables.validation import unknown_name
from tuner.error import SettingError

BESIDE = ("metrics", "checkpoints", "shell")
"""Arguments of `Command` that may stand beside `command:`."""
_ACCEPTED = list(inspect.signature(Command).parameters)


def taken(found: dict[str, Any], beside: Path) -> dict[str, Any] | None:
    """Take the keys of a command out of what a file says; None: it names a trainable.

    Returns:
        Arguments of `Command`; its `config` file by its full path, looked for in `beside`.

    Raises:
        SettingError: both are named, or a key is not known.
    """
    if "command" not in found:
        if lonely := [key for key in BESIDE if key in found]:
            raise SettingError(f"{lonely[0]} goes with `command:`, which is not there")
        return None
    if "trainable" in found:
        raise SettingError("trainable and command exclude each other: give one of them")
    said = found.pop("command")
    given = dict(said) if isinstance(said, Mapping) else {"command": said}
    for key in given:
        if key not in _ACCEPTED:
            raise SettingError(f"command: {unknown_name('key', str(key), _ACCEPTED)}")
    for key in BESIDE:
        if key in found:
            if key in given:
                raise SettingError(f"{key} stands beside `command:` and below it: give it once")
            given[key] = found.pop(key)
    edited = given.get("config")
    if isinstance(edited, Mapping) and isinstance(edited.get("file"), str):
        given["config"] = {**edited, "file": str((beside / edited["file"]).expanduser().resolve())}
    return given


def made(given: Mapping[str, Any]) -> Command:
    """The trainable. Raises SettingError."""
    for key in ("command", "metrics"):
        if key not in given:
            raise SettingError(f"{key} is missing: a command is `command:` with its `metrics:`")
    try:
        return Command(**given)
    except TrainablesError as error:
        raise SettingError(str(error)) from error
