"""Reading a run again and again, here or in its replica, as cheaply as that goes. Nothing is claimed or written."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from trainables.errors import ObjectNotFoundError
from trainables.store import fs
from tuner.clock import Clock, SystemClock
from tuner.error import ExperimentNotFoundError, SettingError
from tuner.experiment.liveness import LastDriver, Liveness, last_driver
from tuner.experiment.ownership import STALE_S
from tuner.experiment.paths import ExperimentPaths, is_history
from tuner.experiment.reader import lies_at, load_with_journal, read_settings
from tuner.experiment.state import ExperimentState
from tuner.progress.observed import ObservedRun
from tuner.syncer import views
from tuner.syncer.remote_experiment import JOURNAL, RemoteExperiment


class WatchedRun(Protocol):
    """Where a run is read."""

    interval: float
    """Seconds between two looks, at least."""

    def look(self) -> ObservedRun:
        """How it stands now. Raises what reading raises; the next look may do better."""


class WatchedDirectory:
    """A run whose directory is here, or on a shared disk. The journal is read only when something was written to it."""

    interval = 0.5

    def __init__(self, paths: ExperimentPaths, clock: Clock | None = None) -> None:
        self._paths, self._clock = paths, clock or SystemClock()
        self._sign: object = None
        self._read: tuple[ExperimentState, dict[str, Any]] | None = None
        self._silence = _Silence(self._clock)

    def look(self) -> ObservedRun:
        driver = last_driver(self._paths, self._clock.time())  # first: what it wrote last is read then
        sign = _written(self._paths)
        if self._read is None or sign != self._sign:
            self._read, self._sign = (load_with_journal(self._paths, [])[0], read_settings(self._paths)), sign
        return ObservedRun(*self._read, driver, self._silence.of(self._paths, driver))


def _written(paths: ExperimentPaths) -> object:
    """Another one whenever the journal is another."""
    found = []
    for name in sorted(fs.listdir(paths.journal)) if fs.exists(paths.journal) else ():
        try:
            status = (paths.journal / name).stat()
        except FileNotFoundError:
            continue  # folded into a snapshot just now
        found.append((name, status.st_size, status.st_mtime_ns))
    return found, fs.is_dir(paths.replaced)


class _Silence:
    """How long nothing was heard of a driver that cannot be seen from here, by this machine's own clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._at = clock, clock.monotonic()
        self._heard: object = None

    def of(self, paths: ExperimentPaths, driver: LastDriver) -> float:
        """0.0 as long as that is no reason to think it dead."""
        if driver.liveness is not Liveness.UNKNOWN or driver.record is None:
            return 0.0
        beats = paths.heartbeats(driver.record.generation)
        heard = (driver.record.generation, fs.read_file(beats) if fs.exists(beats) else b"")
        now = self._clock.monotonic()
        if heard != self._heard:
            self._heard, self._at = heard, now
        return now - self._at if now - self._at > STALE_S else 0.0


class WatchedReplica:
    """A run by its replica: what is new of its journal is fetched into a directory of this process."""

    interval = 10.0

    def __init__(self, remote: RemoteExperiment, beside: Path, clock: Clock | None = None) -> None:
        if not remote.uploader.can.list:
            raise SettingError(f"{remote.uri} cannot be watched: the place cannot list what it holds")
        self._remote, self._clock = remote, clock or SystemClock()
        self.paths = self._paths = ExperimentPaths(beside / remote.name)
        """Where what was brought of it lies."""
        self._sizes: dict[str, int] = {}
        self._with_history = False
        self._packs = threading.Lock()
        self._silence = _Silence(self._clock)

    def look(self) -> ObservedRun:
        self.bring()
        with lies_at(self._paths.root, self._remote.uri):
            driver = last_driver(self._paths, self._clock.time())
            state, settings = load_with_journal(self._paths, [])[0], read_settings(self._paths)
        for trial in state.trials:
            trial.__dict__["origin"] = self._remote.uri
        return ObservedRun(state, settings, driver, self._silence.of(self._paths, driver))

    def bring(self) -> None:
        """Fetch what is new or may be another; sealed segments stay as they are."""
        remote = self._remote
        remote.look()
        if not remote.exists:
            raise ExperimentNotFoundError(f"there is no experiment at {remote.uri}")
        there = {key: remote.sizes[key] for key in remote.keys if key.split("/")[0] in JOURNAL and not is_history(key)}
        if self._with_history:
            self._bring_packs()  # first: a segment is always in the journal or in a pack
        for gone in self._sizes.keys() - there.keys():
            fs.remove_quietly(self._paths.root / gone)
        again = [key for key, size in there.items() if self._sizes.get(key) != size or not key.startswith("journal/")]
        try:
            remote.fetch(again, self._paths.root)
        except ObjectNotFoundError:
            self._sizes = {}  # the journal was folded meanwhile: all of it at the next look
            raise
        self._sizes = there

    def bring_history(self) -> None:
        """Fetch what snapshots have replaced, as of the last look; later looks keep it up to date."""
        if not self._with_history:
            self._bring_packs()
            self._with_history = True

    def _bring_packs(self) -> None:
        """Fetch the packs that are new, and remove those that were dropped."""
        root, history = self._paths.root, self._paths.history
        with self._packs:
            remote = {key: size for key, size in self._remote.sizes.items() if is_history(key)}
            names = fs.listdir(history) if fs.is_dir(history) else []
            local = {path.relative_to(root).as_posix(): fs.size(path) for path in (history / name for name in names)}
            self._remote.fetch([key for key, size in remote.items() if local.get(key) != size], root)
            for gone in local.keys() - remote.keys():
                fs.remove_quietly(root / gone)


@contextmanager
def source_at(uri: str) -> Iterator[WatchedReplica]:
    """The replica at a URI. Raises SettingError, TransferError."""
    with views.opened(uri) as remote, tempfile.TemporaryDirectory(prefix="watch-") as directory:
        yield WatchedReplica(remote, Path(directory))
