"""One experiment as pages see it: read once, followed from then on, shared by all who look, however many."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

from trainables.errors import TrainablesError
from trainables.starting import start_thread
from tuner.clock import Clock, SystemClock
from tuner.error import TuneError
from tuner.experiment import run_state
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.journal_reader import JournalContents
from tuner.experiment.journal_tail import JournalReplaced, JournalTail
from tuner.experiment.liveness import LastDriver, last_driver
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import is_experiment, read_settings
from tuner.experiment.replacing import standing
from tuner.ui.checked import CheckedFiles
from tuner.ui.fact_index import FactIndex
from tuner.ui.picture import Picture, picture_of
from tuner.ui.sources import ExperimentSource

log = logging.getLogger(__name__)

DRIVER_EVERY_S = 2.0
"""So often is looked whether the driver lives."""
AGAIN_S = 1.0
"""Between two readings of all of it, at least."""
SILENCE_S = 20.0
"""A place that has not answered for so long is said to be silent."""
CLOSE_S = 5.0
"""So long a look that goes on may hold the end of the server."""
REPLACED = 5
"""So often in a row a journal may be another one before who asks for it is told so."""


class LiveExperiment:
    """An experiment that is read by a thread of its own from when somebody first asks for it.

    Args:
        name: as it is called in addresses.
        source: where it is read.
    """

    settings_at: Callable[[ExperimentPaths], dict[str, Any]] = staticmethod(read_settings)
    """Reads its settings."""

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
        self.noted = 0
        """How it stood when it was last seen that trials go on, or do not."""
        self._picture: Picture | None = None
        self._listeners: set[Callable[[], None]] = set()
        self._thread: threading.Thread | None = None
        self._stop, self._nudged = threading.Event(), threading.Event()
        self._replaced = -AGAIN_S
        self._looking_since: float | None = None
        """When the look began that has not ended; monotonic."""
        self._tail = JournalTail(source.paths)
        self.past: OrderedDict[tuple[int, int], Picture] = OrderedDict()
        """Earlier moments that were looked at, by epoch and fact."""
        self.past_lock = threading.Lock()
        self.checked = CheckedFiles(self.clock)
        self.weighed: tuple[int, Any] | None = None
        """Of how many trials the importance of parameters was told last, and what it was."""
        self._index: tuple[int, FactIndex] | None = None
        self._indexing = threading.Lock()
        self._contents = JournalContents()
        """The journal as it was read, without its facts."""
        self._asking = threading.Lock()
        self._brought = -inf

    @property
    def picture(self) -> Picture:
        """What was read. Raises TuneError before that."""
        if self._picture is None:
            raise TuneError(self.error or "it is being read")
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
        """End following it; a look that waits for somebody who does not answer is left to itself."""
        self._stop.set()
        self._nudged.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        if self._thread is None or not self._thread.is_alive():
            self.source.close()

    def look_now(self) -> None:
        """Something has just been changed."""
        self._nudged.set()

    def look(self) -> None:
        """Bring it up to date, in the caller's thread: for who asks now and then, and has not started it.

        Raises what `hostile.UNREADABLE` names.
        """
        with self._asking:
            now = self.clock.monotonic()
            if self.source.is_local or now - self._brought >= self.source.interval:
                self.source.bring()
                self._brought = now
            for left in reversed(range(REPLACED)):
                try:
                    self._read() if self._picture is None else self._more()
                    break
                except JournalReplaced as error:
                    self._again()
                    if not left:
                        raise TuneError(f"{self.source.address} changes as it is read: {error}") from error
            self._look_at_driver()

    def check_silence(self) -> None:
        """Say so where the place does not answer."""
        since = self._looking_since
        if since is not None and self.clock.monotonic() - since > SILENCE_S and self.error is None:
            self._trouble(f"{self.source.address} has not answered for {SILENCE_S:g} s; it is waited for")

    def index(self) -> FactIndex:
        """Where the facts about each trial lie, the newest among them; made when it is first asked for."""
        with self._indexing:
            self.source.bring_history()
            epoch, found = self.epoch, self._index
            if found is not None and found[0] == epoch:
                try:
                    found[1].look()
                    return found[1]
                except FileNotFoundError:
                    pass  # the driver has packed and dropped more than was looked at
            self._index = epoch, FactIndex(standing(self.source.paths), self._contents, self._stop.is_set)
            self.standing += 1
            return self._index[1]

    def forget(self, index: FactIndex) -> None:
        """It names what is not there any more: the next one is made anew."""
        with self._indexing:
            if self._index is not None and self._index[1] is index:
                self._index = None

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
            nudged = self._nudged.is_set()
            self._nudged.clear()
            begun = self._looking_since = self.clock.monotonic()
            try:
                self.source.bring()
                self._looking_since = None
                if self._picture is None:
                    self._read()
                else:
                    self._more()
                if nudged or begun - looked >= DRIVER_EVERY_S:  # who gives an order to an ended run owns it meanwhile
                    looked = begun
                    self._look_at_driver()
                self._well()
            except JournalReplaced:
                self._again()
                self._nudged.wait(AGAIN_S - (begun - self._replaced))  # not as fast as it goes
                self._replaced = begun
                continue
            except UNREADABLE as error:
                self._trouble(_where(error) + said(error))
            except Exception as error:  # of one experiment, and of no other
                why = f"{type(error).__name__}: {said(error)}"
                if why != self.error:
                    log.exception("%s cannot be read", self.source.address)
                self._trouble(why)
            self._looking_since = None
            self._nudged.wait(self.source.interval if self.error is None else max(self.source.interval, 1.0))

    def _read(self) -> None:
        contents = self._tail.begin()
        paths = standing(self.source.paths)
        driver = self._driver()
        snapshot = (contents.snapshot_seq, contents.snapshot)
        picture = picture_of(paths, snapshot, contents.bodies, self._progress, self.settings_at)
        _note_damage(picture, contents)
        with self.lock:
            picture.seq = contents.last_seq
            self._contents = replace(contents, snapshot=None, bodies=[])
            self._picture = picture
            self.epoch += 1
        self._stand(driver)
        self.ready.set()
        self._tell()
        if self._thread is not None:
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
            if not is_experiment(self.source.paths):
                raise JournalReplaced("somebody has removed it")  # file by file, maybe: the journal was the first
            return
        with self.lock:
            if any(b'"kind":"generation"' in body[:80] for _, body in facts):
                self.picture.settings = self.settings_at(standing(self.source.paths))
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
                self.noted = self.standing + 1
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


def _where(error: BaseException) -> str:
    """The file that an error of the system is about."""
    file = (
        error.filename if isinstance(error, OSError) and not isinstance(error, (TuneError, TrainablesError)) else None
    )
    return f"{file}: " if file else ""


def _note_damage(picture: Picture, contents: JournalContents) -> None:
    for line in (*contents.damaged, *contents.notes):
        picture.complain(str(line))
