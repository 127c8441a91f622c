"""`Tracker`: what a library for tracking must do for a `TrackerCallback`, one thin adapter for each."""

from __future__ import annotations

import abc
import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from trainables.store.manifest import MANIFEST_NAME


class RunEnding(enum.Enum):
    """Why a run is closed. Its trial's checkpoints stay as they are."""

    FINISHED = "finished"
    """The trial came to a good end."""
    FAILED = "failed"
    """The trial failed for good."""
    UNFINISHED = "unfinished"
    """The driver ends, or needs room, and the trial does not: the same run will be opened again."""
    SUPERSEDED = "superseded"
    """The trial went back behind what was sent: another run has what stands."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A trial's run, as it is to be opened."""

    trial_id: str
    name: str
    """The trial's, and the run's."""
    experiment: str
    """The experiment's name: the default of groups."""
    directory: Path
    """The trial's."""
    config: Mapping[str, Any]
    evaluated: Mapping[str, Any] = field(default_factory=dict)
    """The searched keys of the config, flat."""
    number: int = 1
    """Of the trial's runs: another one begins when what was sent is void."""
    run_id: str = ""
    """What the library has called it; empty: it was never opened."""
    sent: int = 0
    """The iteration up to which results were given to the library."""
    safe: int = 0
    """The iteration up to which the library is known to have kept them."""

    @property
    def key(self) -> str:
        """Unique among all runs of all experiments: a trial's id begins with the experiment's."""
        return self.trial_id if self.number == 1 else f"{self.trial_id}-{self.number}"


@dataclass(slots=True)
class OpenRun:
    """A run that takes results."""

    run: TrackedRun
    run_id: str
    handle: Any
    """The library's own."""
    reached: int | None
    """The last iteration that the tracker has; None: it cannot say, and what was sent counts."""
    given: int = 0
    """The last iteration that `send` gave to the library: what comes after it is sent again if `send` raises."""


Row = tuple[int, dict[str, Any]]
"""(iteration, the result as it was reported)"""


def files_of(directory: str) -> Iterator[tuple[str, str]]:
    """(path, path within it) of what the user has put into a checkpoint."""
    for file in sorted(Path(directory).rglob("*")):
        if file.is_file() and file.name != MANIFEST_NAME:
            yield str(file), file.relative_to(directory).as_posix()


class Tracker(abc.ABC):
    """Adapter of one library. All calls come from one thread; what they raise is tried again later.

    Results come in the order of their iterations. `open` is the one that must find out what the tracker has: after a
    kill of the driver nobody else knows what the library had not yet written.
    """

    name: ClassVar[str]
    """In messages, and in the name of the file that says what was sent."""
    keeps_at_once: ClassVar[bool] = False
    """`send` returns when the results are safe from a kill; False: when the run is closed they are."""

    @property
    @abc.abstractmethod
    def destination(self) -> str:
        """Which project or experiment it sends to: what was sent to one was not sent to another."""

    @abc.abstractmethod
    def open(self, run: TrackedRun) -> OpenRun:
        """Start the run, or go on with the one that there is."""

    @abc.abstractmethod
    def send(self, run: OpenRun, rows: Sequence[Row]) -> None:
        """Give results to the library, and note each in `run.given` once it has been."""

    def update_config(self, run: OpenRun, config: Mapping[str, Any], iteration: int) -> None:
        """The trial goes on with another config after that iteration."""

    def save(self, run: OpenRun, directory: str, iteration: int) -> None:
        """Store a checkpoint's files as an artifact; they may go when it returns. Called where that is asked for."""
        raise NotImplementedError

    @abc.abstractmethod
    def close(self, run: OpenRun, ending: RunEnding) -> None:
        """End the run, or let go of it. When this returns, the library has written what it was given."""
