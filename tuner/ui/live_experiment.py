"""One experiment as pages see it: read once, followed from then on, shared by all who look, however many."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from trainables.starting import start_thread
from tuner.clock import Clock, SystemClock
from tuner.experiment import run_state
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.journal_reader import JournalContents
from tuner.experiment.journal_tail import JournalReplaced, JournalTail
from tuner.experiment.liveness import LastDriver, last_driver
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import read_settings
from tuner.experiment.replacing import standing
from tuner.ui.fact_index import FactIndex
from tuner.ui.picture import Picture, picture_of

DRIVER_EVERY_S = 2.0
"""So often is looked whether the driver lives."""


class ExperimentSource(Protocol):
    """Where an experiment is read."""

    @property
    def paths(self) -> ExperimentPaths: ...

    @property
    def interval(self) -> float:
        """Seconds between two looks."""
        ...

    @property
    def address(self) -> str:
        """As people know it."""
        ...

    @property
    def is_local(self) -> bool:
        """Its files lie at `paths`, checkpoints and all, and its driver takes orders there."""
        ...

    def bring(self) -> None:
        """Have what is new lie at `paths`."""


@dataclass(frozen=True)
class LocalSource:
    """A directory of this machine, or of a shared disk."""

    paths: ExperimentPaths
    interval: float = 0.1
    is_local: bool = True

    @property
    def address(self) -> str:
        return str(self.paths.root)

    def bring(self) -> None:
        """It is there."""


class LiveExperiment:
    """An experiment that is read by a thread of its own from when somebody first asks for it.

    Args:
        name: as it is called in addresses.
        source: where it is read.
    """

    def __init__(self, name: str, source: ExperimentSource, clock: Clock | None = None) -> None:
        self.name, self.source = name, source
        self.clock = clock or SystemClock()
        self.lock = threading.RLock()
        """Whoever reads `picture` holds it."""
        self.ready = threading.Event()
        """It was read, or cannot be."""
        self.done = 0.0
        self.error: str | None = None
        self.driver: LastDriver | None = None
        self.note = ""
        self.first_kept = 0
        self.epoch = 0
        """Goes up when all of it was read again: numbers that were given out before may mean something else."""
        self.standing = 0
        """Goes up when something has changed that no fact tells."""
        self._picture: Picture | None = None
        self._listeners: set[Callable[[], None]] = set()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._tail = JournalTail(source.paths)
        self.past: OrderedDict[tuple[int, int], Picture] = OrderedDict()
        """Earlier moments that were looked at, by epoch and fact."""
        self.past_lock = threading.Lock()
        self.weighed: tuple[int, Any] | None = None
        """Of how many trials the importance of parameters was told last, and what it was."""
        self._index: tuple[int, FactIndex] | None = None
        self._indexing = threading.Lock()

    @property
    def picture(self) -> Picture:
        """What was read. Raises RuntimeError before that."""
        if self._picture is None:
            raise RuntimeError(self.error or "it is being read")
        return self._picture

    @property
    def seq(self) -> int:
        return 0 if self._picture is None else self._picture.seq

    @property
    def is_read(self) -> bool:
        return self._picture is not None

    def start(self) -> None:
        """Have it read; doing it twice is no error."""
        with self.lock:
            if self._thread is None:
                self._thread = start_thread(self._follow, name=f"ui-{self.name}")

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def index(self) -> FactIndex:
        """Where the facts about each trial lie; made when it is first asked for."""
        with self._indexing:
            epoch = self.epoch
            if self._index is None or self._index[0] != epoch:
                self._index = epoch, FactIndex(standing(self.source.paths), self._stop.is_set)
                self.standing += 1
            return self._index[1]

    @property
    def known_index(self) -> FactIndex | None:
        """The same, if it has been made."""
        found = self._index
        return found[1] if found is not None and found[0] == self.epoch else None

    def listen(self, listener: Callable[[], None]) -> None:
        """Call that, from another thread, whenever there is something new."""
        self._listeners.add(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        self._listeners.discard(listener)

    # --- the thread ---------------------------------------------------------------------------------------

    def _follow(self) -> None:
        looked = -DRIVER_EVERY_S
        while not self._stop.is_set():
            begun = self.clock.monotonic()
            try:
                self.source.bring()
                if self._picture is None:
                    self._read()
                else:
                    self._more()
                if begun - looked >= DRIVER_EVERY_S:
                    looked = begun
                    self._look_at_driver()
                self._well()
            except JournalReplaced:
                self._again()
                continue
            except UNREADABLE as error:
                self._trouble(said(error))
            self._stop.wait(self.source.interval if self.error is None else max(self.source.interval, 1.0))

    def _read(self) -> None:
        contents = self._tail.begin()
        paths = standing(self.source.paths)
        driver = self._driver()
        picture = picture_of(paths, (contents.snapshot_seq, contents.snapshot), contents.bodies, self._progress)
        _note_damage(picture, contents)
        with self.lock:
            picture.seq = contents.last_seq
            self._picture = picture
            self.epoch += 1
        self._stand(driver)
        self.ready.set()
        self._tell()
        start_thread(self._prepare, name=f"ui-history-{self.name}")

    def _prepare(self) -> None:
        """Know how far back the history goes before somebody asks."""
        try:
            self.index()
        except UNREADABLE as error:
            with self.lock:
                if self._picture is not None:
                    self._picture.complain(f"the history cannot be read: {said(error)}")
        self._tell()

    def _more(self) -> None:
        facts = self._tail.more()
        if not facts:
            return
        with self.lock:
            if any(b'"kind":"generation"' in body[:80] for _, body in facts):
                self.picture.settings = read_settings(standing(self.source.paths))
            self.picture.take(facts, self.note)
        if any(b'"kind":"run_ended"' in body[:80] or b'"kind":"generation"' in body[:80] for _, body in facts):
            self._look_at_driver()
        self._tell()

    def _driver(self) -> LastDriver:
        return last_driver(standing(self.source.paths), self.clock.time())

    def _look_at_driver(self) -> None:
        if self._stand(self._driver()):
            self._tell()

    def _stand(self, driver: LastDriver) -> bool:
        """Say of trials that have not ended why they do not go on; True: that is another reason than before."""
        with self.lock:
            picture = self.picture
            note = run_state.note(driver, picture.state.run_ended)
            changed = self.driver is None or str(driver) != str(self.driver) or note != self.note
            self.driver = driver
            if note != self.note:
                self.note = note
                for trial in picture.state.unfinished:
                    picture.table.update(trial, picture.seq, note)
            self.standing += changed
            return changed

    def _progress(self, done: float) -> None:
        self.done = done
        self._tell()
        if self._stop.is_set():
            raise JournalReplaced("the server ends")

    def _again(self) -> None:
        """All of it is read again; what was read stands until then."""
        with self.lock:
            self._picture = None
            self.ready.clear()
            self.done, self.driver, self.note = 0.0, None, ""

    def _well(self) -> None:
        if self.error is not None:
            self.error = None
            self.standing += 1
            self._tell()

    def _trouble(self, why: str) -> None:
        if self.error != why:
            self.error = why
            self.standing += 1
            self._tell()
        self.ready.set()

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()


def _note_damage(picture: Picture, contents: JournalContents) -> None:
    for line in (*contents.damaged, *contents.notes):
        picture.complain(str(line))
