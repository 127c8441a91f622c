"""Words for continuing an experiment: the call or the command, in the form of what started it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.places import parent_and_name
from tuner.experiment.paths import ExperimentPaths, is_elsewhere

RUN, TUNER, CONFIG = "tune.run", "Tuner", "tuner run"
"""What starts experiments. A trainer's `fit()` is named by the trainer's class."""


def starter_of(paths: ExperimentPaths, settings: Mapping[str, Any]) -> str:
    """What started an experiment, or continued it last.

    Args:
        settings: its experiment.json.
    """
    return CONFIG if paths.config_yaml.exists() else str(settings.get("started_by") or RUN)


def resume_words(place: str | os.PathLike[str], starter: str, *, errored: bool = False) -> str:
    """The argument, call or command that continues an experiment: `resume="AUTO"`, `Tuner.restore(path, trainable)`.

    Args:
        place: the experiment's directory, or its URI.
        errored: continue its failed trials too.
    """
    path = os.fspath(place)
    if starter == TUNER:
        return f"Tuner.restore({path!r}, trainable{', resume_errored=True' if errored else ''})"
    if starter == CONFIG and not is_elsewhere(path):
        return f"`tuner resume {shlex.quote(path)}{' --errored' if errored else ''}`"
    if starter in (RUN, CONFIG):
        return f'resume="AUTO{"+ERRORED" if errored else ""}"'
    return f"{starter}.restore({path!r}, ...)"


def how_to_continue(place: str | os.PathLike[str], starter: str) -> str:
    """The whole call or command that continues the experiment at a path or URI."""
    words, name = resume_words(place, starter), parent_and_name(place)[1]
    return f"the same call with name={name!r} and {words}" if words.startswith("resume=") else words


def how_to_choose(local: Path, remote: str, starter: str) -> str:
    """How to continue one of two histories that have diverged, that of a directory or that of its replica."""
    if starter in (RUN, CONFIG):
        return 'resume="LOCAL" or resume="REMOTE" chooses one'
    return f"{resume_words(local, starter)} or {resume_words(remote, starter)} chooses one"
