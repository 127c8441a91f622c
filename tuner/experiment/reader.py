"""Reading an experiment without owning it: for listing, showing, results. Nothing is written or unpickled."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from trainables.errors import TrainablesError
from tuner.error import ExperimentDamagedError, ExperimentNotFoundError, TuneError
from tuner.experiment import events as ev
from tuner.experiment import formats
from tuner.experiment.history import History
from tuner.experiment.journal import JournalContents, read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.replacing import standing
from tuner.experiment.state import ExperimentState

log = logging.getLogger(__name__)

LOOK_AGAIN = 5
"""The oldest of a history may be dropped between the look and the reading: so often is looked again."""

T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class Replayed(Generic[T]):
    """What was made of an experiment's history, and how far back that goes."""

    made: T
    since: float | None
    """The time before which nothing is recorded any more, in seconds since the epoch; None: all is, from the start."""
    notes: list[str]
    """What of the history cannot be read, one line each."""


def replay(
    paths: ExperimentPaths, contents: JournalContents, make: Callable[[ExperimentState, Iterable[ev.AnyFact]], T]
) -> Replayed[T]:
    """Go through all that is recorded of an experiment, also what snapshots have replaced.

    `make` gets the state before the first fact that is recorded, and the facts from there on.
    """
    paths = standing(paths)
    for left in reversed(range(LOOK_AGAIN)):
        history = History(paths, contents)
        state = ExperimentState.from_snapshot(paths.root, history.base)
        try:
            since = None if history.is_whole else history.since or _last_told(state)
            made = make(state, (ev.decode(fact.body) for fact in history.facts()))
        except FileNotFoundError:
            if not left:
                raise
            continue
        return Replayed(made, since, history.notes)
    raise AssertionError("not reached")


def _last_told(state: ExperimentState) -> float | None:
    """The latest time that a state tells."""
    told = [time for trial in state.trials for time in (trial.started_at, trial.ended_at)]
    told += [record.saved_at for trial in state.trials for record in trial.checkpoints]
    return max((time for time in told if time is not None), default=None)
