"""Reading an experiment without owning it: for listing, showing, results. Nothing is written or unpickled."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainables.errors import TrainablesError
from tuner.error import ExperimentDamagedError, ExperimentNotFoundError, TuneError
from tuner.experiment import events as ev
from tuner.experiment import formats
from tuner.experiment.journal import JournalContents, read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.replacing import standing
from tuner.experiment.state import ExperimentState

log = logging.getLogger(__name__)


def is_experiment(paths: ExperimentPaths) -> bool:
    """True if the directory holds an experiment of ours."""
    return standing(paths).experiment_json.is_file()


@contextlib.contextmanager
def lies_at(fetched: Path, uri: str) -> Iterator[None]:
    """Whoever reads what was fetched from a place elsewhere is told of that place, and not of where it was put."""
    try:
        yield
    except (TuneError, TrainablesError) as error:
        if str(fetched) not in str(error):
            raise
        raise type(error)(str(error).replace(str(fetched), uri)) from error


def read_settings(paths: ExperimentPaths) -> dict[str, Any]:
    """What experiment.json holds.

    Raises ExperimentNotFoundError if there is none, NewerFormatError, ExperimentDamagedError if it cannot be read.
    """
    try:
        text = standing(paths).experiment_json.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise ExperimentNotFoundError(f"there is no experiment at {paths.root}") from None
    try:
        settings = json.loads(text)
        version = int(settings["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise ExperimentDamagedError(f"{paths.experiment_json} cannot be read: {error}") from error
    formats.check(version, standing(paths).experiment_json)
    return dict(settings)


def load_state(paths: ExperimentPaths) -> ExperimentState:
    """The state of an experiment as its journal has it now; safe beside a running driver.

    Of one that is about to be replaced it is the old one's, until the new one's first trial has started.
    What is lost of the journal is a warning.
    """
    state, contents = load_with_journal(paths)
    for damage in contents.damaged:
        log.warning("%s/%s", paths.journal, damage)
    return state


def load_with_journal(paths: ExperimentPaths) -> tuple[ExperimentState, JournalContents]:
    """`load_state`, and the journal that it was read from: what of it is lost, a person wants to know."""
    paths = standing(paths)
    read_settings(paths)
    contents = read_journal(paths)
    state = ExperimentState.from_snapshot(paths.root, contents.snapshot)
    for _, body in contents.bodies:
        state.apply(ev.decode(body))
    return state, contents
