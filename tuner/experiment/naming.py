"""What trials and their directories are called."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuner.error import SettingError
from tuner.experiment.paths import EXPERIMENT_NAME, safe_name
from tuner.experiment.trial import Trial

LIMIT = 60
"""Characters of a directory's name: paths below it stay short enough for every filesystem."""


def default_dirname(trainable_name: str, trial_id: str) -> str:
    """`<trainable>_<trial id>`, at most 60 characters of A-Z a-z 0-9 _ . -"""
    return f"{safe_name(trainable_name, limit=LIMIT - len(trial_id) - 1)}_{trial_id}"


def aside_name(name: str, number: int | str) -> str:
    """What `TUNE_EXISTING=aside` calls an earlier experiment of that name, if the number is free."""
    suffix = f".{number}"
    return name[: EXPERIMENT_NAME - len(suffix)] + suffix


def script_hash(trainable: Any, trainable_name: str) -> str:
    """Short hash of the script's file name and the trainable's source name: the same from any checkout."""
    main = sys.modules.get("__main__")
    script = Path(getattr(main, "__file__", None) or "interactive").name
    source = f"{script}:{getattr(trainable, '__qualname__', trainable_name)}"
    return hashlib.sha256(source.encode()).hexdigest()[:8]


class TrialNames:
    """Applies the user's `trial_name_creator` and `trial_dirname_creator`, where there are any.

    A directory's name is made safe, and gets the trial's id where it does not hold it: two trials never share one.
    """

    def __init__(
        self, name: Callable[[Trial], str] | None = None, dirname: Callable[[Trial], str] | None = None
    ) -> None:
        self._name, self._dirname = name, dirname

    def of(self, trial: Trial) -> tuple[str, str]:
        """(name, directory's name) of a new trial.

        What a creator raises is raised with a note that names it; SettingError when it returns no text.
        """
        name, dirname = trial.name, trial.dirname
        if self._name is not None:
            name = _created("trial_name_creator", self._name, trial)
        if self._dirname is not None:
            wanted = _created("trial_dirname_creator", self._dirname, trial)
            dirname = safe_name(wanted, limit=LIMIT)
            if trial.trial_id not in dirname:
                dirname = default_dirname(wanted, trial.trial_id)
        return name, dirname


def _created(setting: str, creator: Callable[[Trial], str], trial: Trial) -> str:
    who = f"{setting} ({getattr(creator, '__qualname__', type(creator).__qualname__)})"
    try:
        made = creator(trial)
    except Exception as error:
        error.add_note(f"raised by {who} for trial {trial.trial_id}")
        raise
    if not isinstance(made, str) or not made or not _whole(made):
        raise SettingError(f"{who} returned {made!r} for trial {trial.trial_id}; accepted is a text that is not empty")
    return made


def _whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a character, which no file takes
        return False
    return True
