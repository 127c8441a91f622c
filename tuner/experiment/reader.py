"""Reading an experiment without owning it: for listing, showing, results. Nothing is written or unpickled."""

from __future__ import annotations

import contextlib
import json
import logging
import reprlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from trainables.errors import TrainablesError
from trainables.places import split_query
from trainables.quick_dataclass import dataclass
from trainables.store import fs
from tuner.error import ExperimentDamagedError, ExperimentNotFoundError, TuneError
from tuner.experiment import events as ev
from tuner.experiment import formats
from tuner.experiment.history import History
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.journal import JournalContents, read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.replacing import standing
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial

log = logging.getLogger(__name__)

LOOK_AGAIN = 5
"""The oldest of a history may be dropped between the look and the reading: so often is looked again."""

T = TypeVar("T")

_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "moved_from", "id", "trainable", "entry", "upload_dir"), (str,)),
    **dict.fromkeys(("settings_blob", "space_blob"), (str,)),
    **dict.fromkeys(("metric", "mode"), (str, list)),
    **dict.fromkeys(("retention", "log_files", "inherited_copies", "moved"), (list,)),
    **dict.fromkeys(("sync_command", "s3_extra_args"), (dict,)),
}
"""Settings that are read from it, and what they are where they are not None."""


def is_experiment(paths: ExperimentPaths) -> bool:
    """True if the directory holds an experiment of ours."""
    return standing(paths).experiment_json.is_file()


@contextlib.contextmanager
def lies_at(fetched: Path, uri: str) -> Iterator[None]:
    """Whoever reads what was fetched from a place elsewhere is told of that place, and not of where it was put."""
    try:
        yield
    except (TuneError, TrainablesError) as error:
        error.args = (str(error).replace(str(fetched), split_query(uri)[0]), *error.args[1:])
        raise


def read_settings(paths: ExperimentPaths) -> dict[str, Any]:
    """What experiment.json holds.

    Raises ExperimentNotFoundError if there is none, NewerFormatError, ExperimentDamagedError if it cannot be read.
    """
    try:
        text = fs.read_file(standing(paths).experiment_json)
    except (FileNotFoundError, NotADirectoryError):
        raise ExperimentNotFoundError(f"there is no experiment at {paths.root}") from None
    except OSError as error:
        raise ExperimentDamagedError(f"{paths.experiment_json} cannot be read: {error.strerror}") from error
    try:
        settings = json.loads(text)
        version = int(settings["format"])
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise ExperimentDamagedError(f"{paths.experiment_json} cannot be read: {said(error)}") from error
    formats.check(version, standing(paths).experiment_json)
    for key, kinds in _KINDS.items():
        if not isinstance(settings.get(key), (*kinds, type(None))):
            kept = reprlib.repr(settings[key])
            raise ExperimentDamagedError(f"{paths.experiment_json} cannot be read: {key} is {kept}")
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


def load_with_journal(
    paths: ExperimentPaths, problems: list[str] | None = None
) -> tuple[ExperimentState, JournalContents]:
    """`load_state`, and the journal, of which a person wants to know what is lost; `problems` as for `state_of`."""
    paths = standing(paths)
    settings = read_settings(paths)
    contents = read_journal(paths)
    state = state_of(paths, contents.snapshot, contents.bodies, problems)
    if settings.get("moved"):
        follow(state.trials, settings["moved"])
    return state, contents


def follow(trials: Iterable[Trial], moved: Iterable[Any]) -> None:
    """Say of copies where they are since the experiment got another name: (old URI, new URI), the earliest first."""
    pairs = [pair for pair in moved if isinstance(pair, (list, tuple)) and len(pair) == 2]
    for trial in trials:
        for record in trial.checkpoints:
            for old, new in pairs:
                record.copies = [str(new) if place == old else place for place in record.copies]


def state_of(
    paths: ExperimentPaths,
    snapshot: bytes | None,
    bodies: Iterable[tuple[int, bytes]],
    problems: list[str] | None = None,
) -> ExperimentState:
    """What the snapshot and the facts after it add up to.

    Args:
        problems: gets a line for each fact that cannot be used, and the others are. None: the first one is raised as
            ExperimentDamagedError.
    """
    try:
        state = ExperimentState.from_snapshot(paths.root, snapshot)
    except UNREADABLE as error:
        _tell(f"{paths.journal}: the snapshot cannot be used: {said(error)}", error, problems)
        state = ExperimentState(paths.root)
    for seq, body in bodies:
        try:
            state.apply(ev.decode(body))
        except UNREADABLE as error:
            _tell(f"{_where(paths, seq, body)} cannot be used: {said(error)}", error, problems)
    return state


def facts_of(paths: ExperimentPaths, bodies: Iterable[tuple[int, bytes]]) -> Iterator[ev.AnyFact]:
    """The facts. Raises ExperimentDamagedError at one that is none of ours."""
    for seq, body in bodies:
        try:
            yield ev.decode(body)
        except (ValueError, RecursionError) as error:
            raise ExperimentDamagedError(f"{_where(paths, seq, body)} cannot be used: {said(error)}") from error


def _tell(line: str, error: BaseException, problems: list[str] | None) -> None:
    if problems is None:
        raise ExperimentDamagedError(line) from error
    problems.append(line)


def _where(paths: ExperimentPaths, seq: int, body: bytes) -> str:
    """A fact by its file and line."""
    line = b',"f":' + body + b"}"
    with contextlib.suppress(OSError):
        for name in sorted(fs.listdir(paths.journal)):
            path: Path = paths.journal / name
            if name.endswith(".jsonl") and (at := (data := fs.read_file(path)).find(line)) >= 0:
                return f"{path}, line {data.count(10, 0, at) + 1}: fact {seq}"
    return f"{paths.journal}: fact {seq}"


def _readable(bodies: Iterable[bytes]) -> Iterator[ev.AnyFact]:
    """Those that are facts of ours: whoever replays the journal has named the others."""
    for body in bodies:
        with contextlib.suppress(ValueError, RecursionError):
            yield ev.decode(body)


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
            made = make(state, _readable(fact.body for fact in history.facts()))
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
