"""Which experiments are served, and how they are called: those that were named, and those in directories that were."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from trainables.errors import TrainablesError
from trainables.places import parent_and_name
from tuner.clock import Clock, SystemClock
from tuner.error import ExperimentNotFoundError, TuneError
from tuner.experiment.finding import find_experiment
from tuner.experiment.paths import ExperimentPaths, as_local_path, default_storage, is_elsewhere
from tuner.experiment.reader import is_experiment
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.remote_place import RemotePlace
from tuner.ui.replica_source import ReplicaSource
from tuner.ui.sources import ExperimentSource, LocalSource

log = logging.getLogger(__name__)

ALONE_S = 60.0
"""So long the only place that was named may take to answer before there is nothing to serve."""
START_S = 5.0
"""So long those beside others are waited for; they are served as soon as they answer."""


class Places:
    """What is served.

    Args:
        given: paths, URIs and names of experiments, and directories and URIs with experiments in them; none: the
            default storage. Raises SettingError and InvalidAddressError for one that is not accepted, and where all
            the others cannot be had what the first of them raises.
        tell: gets a line for each that cannot be had beside others that can.
    """

    def __init__(
        self, given: Sequence[str], clock: Clock | None = None, *, tell: Callable[[str], object] = log.warning
    ) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._served: dict[str, LiveExperiment] = {}
        self._names: dict[str, str] = {}
        self._folders: list[Path] = []
        self._remote = [RemotePlace(place, self._clock) for place in dict.fromkeys(given) if is_elsewhere(place)]
        try:
            failed = list(self._failed(given))
            if failed and not (self._served or self._folders):
                for error in failed[1:]:
                    tell(str(error))
                raise failed[0]
        except BaseException:
            self._stack.close()
            raise
        for error in failed:
            tell(f"{error}; what else was named is served")

    def _failed(self, given: Sequence[str]) -> Iterator[TuneError | TrainablesError]:
        """Serve what can be had; why the others cannot."""
        for place in given or [str(default_storage())]:
            try:
                if not is_elsewhere(place):
                    self._add(place, alone=bool(given))
            except ExperimentNotFoundError as error:
                yield error
        until = self._clock.monotonic() + (ALONE_S if len(given) == 1 else START_S)
        for remote in self._remote:
            remote.wait(max(until - self._clock.monotonic(), 0.0))
            if remote.error is not None:
                yield remote.error
            self._look_at(remote)

    def _add(self, place: str, *, alone: bool) -> None:
        folder = as_local_path(place)
        if ".." in folder.parts:
            folder = folder.resolve()  # browsers resolve an experiment called ".." in its address
        if is_experiment(ExperimentPaths(folder)):
            self._serve(str(folder))
        elif folder.is_dir() or not alone:
            self._folders.append(folder)
            self._look_into(folder)  # now: what is named after it comes after it
        else:
            self._serve(str(find_experiment(place)))

    @property
    def folders(self) -> list[Path]:
        """Directories of this machine that were named, in which experiments may come."""
        return list(self._folders)

    def serve(self, root: Path) -> None:
        """Serve one more experiment of this machine; doing it twice is no error."""
        with self._lock:
            self._serve(str(root))

    def served(self, root: Path) -> LiveExperiment | None:
        """The experiment of a directory; None: it is not served, as far as was looked."""
        with self._lock:
            return self._served.get(self._names.get(str(root), ""))

    def _serve(self, address: str) -> None:
        if address in self._names:
            return
        base = parent_and_name(address)[1] if is_elsewhere(address) else Path(address).name
        base = base.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")  # it stands in addresses
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
        return ReplicaSource(address, Path(beside), self._clock)

    def _look(self) -> None:
        """Experiments that have come into the directories and places since the last look."""
        for folder in self._folders:
            self._look_into(folder)
        for remote in self._remote:
            self._look_at(remote)

    def _look_into(self, folder: Path) -> None:
        for path in _experiments(folder):
            self._serve(str(path))

    def _look_at(self, remote: RemotePlace) -> None:
        for uri in remote.found():
            self._serve(uri)

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

    def problems(self) -> list[str]:
        """Why places elsewhere cannot be looked into, a line each."""
        return [str(remote.error) for remote in self._remote if remote.error is not None]

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
