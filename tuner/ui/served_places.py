"""Which experiments are served, and how they are called: those that were named, and those in directories that were."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from trainables.errors import TrainablesError
from trainables.places import parent_and_name
from trainables.transfer.open import shown
from tuner.clock import Clock, SystemClock
from tuner.error import ExperimentNotFoundError, TuneError
from tuner.experiment.finding import find_experiment
from tuner.experiment.paths import ExperimentPaths, as_local_path, default_storage, is_elsewhere
from tuner.experiment.reader import is_experiment
from tuner.syncer import views
from tuner.tools.watching import WatchedReplica
from tuner.ui.live_experiment import ExperimentSource, LiveExperiment, LocalSource


@dataclass
class ReplicaSource:
    """An experiment in a bucket, or at another place: its journal is fetched, as far as it is new."""

    address: str
    replica: WatchedReplica

    is_local = False

    @property
    def interval(self) -> float:
        return self.replica.interval

    @property
    def paths(self) -> ExperimentPaths:
        return self.replica.paths

    def bring(self) -> None:
        self.replica.bring()


class Places:
    """What is served.

    Args:
        given: paths, URIs and names of experiments, and directories and URIs with experiments in them; none: the
            default storage. Raises ExperimentNotFoundError for one that is nothing of these, and what opening raises.
    """

    def __init__(self, given: Sequence[str], clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._served: dict[str, LiveExperiment] = {}
        self._names: dict[str, str] = {}
        self._folders: list[Path] = []
        try:
            for place in given or [str(default_storage())]:
                self._add(place, alone=bool(given))
        except BaseException:
            self._stack.close()
            raise

    def _add(self, place: str, *, alone: bool) -> None:
        if is_elsewhere(place):
            self._add_remote(place.rstrip("/"))
            return
        folder = as_local_path(place)
        if is_experiment(ExperimentPaths(folder)):
            self._serve(str(folder))
        elif folder.is_dir() or not alone:
            self._folders.append(folder)
        else:
            self._serve(str(find_experiment(place)))

    def _add_remote(self, uri: str) -> None:
        with views.opened(uri) as remote:
            remote.look()
            found = remote.exists
        if found:
            self._serve(uri)
            return
        place, names = views.names_under(uri)
        if not names:
            raise ExperimentNotFoundError(f"there is no experiment at {shown(uri)}, nor one in it")
        for name in names:
            self._serve(f"{uri}/{name}")

    def _serve(self, address: str) -> None:
        if address in self._names:
            return
        base = parent_and_name(address)[1] if is_elsewhere(address) else Path(address).name
        name, number = base, 1
        while name in self._served:
            number += 1
            name = f"{base}~{number}"
        self._names[address] = name
        self._served[name] = LiveExperiment(name, self._source(address), self._clock)

    def _source(self, address: str) -> ExperimentSource:
        if not is_elsewhere(address):
            return LocalSource(ExperimentPaths(Path(address)))
        beside = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tuner-ui-"))
        remote = self._stack.enter_context(views.opened(address))
        return ReplicaSource(shown(address), WatchedReplica(remote, Path(beside), self._clock))

    def _look(self) -> None:
        """Experiments that have come into the directories since the last look."""
        for folder in self._folders:
            for path in _experiments(folder):
                self._serve(str(path))

    def all(self) -> list[LiveExperiment]:
        """All that are there now, in the order of their names."""
        with self._lock:
            self._look()
            return [self._served[name] for name in sorted(self._served)]

    def get(self, name: str) -> LiveExperiment:
        """The experiment of that name. Raises ExperimentNotFoundError."""
        with self._lock:
            if name not in self._served:
                self._look()
            found = self._served.get(name)
        if found is None:
            raise ExperimentNotFoundError(f"there is no experiment {name!r:.200} here")
        return found

    def close(self) -> None:
        for live in self._served.values():
            live.close()
        self._stack.close()


def _experiments(folder: Path) -> Iterator[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return
    for path in inside:
        try:
            if not path.name.startswith(".") and path.is_dir() and is_experiment(ExperimentPaths(path)):
                yield path
        except (OSError, TuneError, TrainablesError):
            continue  # of another user, or taken away just now
