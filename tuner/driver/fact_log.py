"""The fact log of a run: facts go to journal, state and plug-ins as one; what needs the disk waits here."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from trainables.store import fs
from tuner.clock import Clock
from tuner.driver.plugins import FactApplier, Heard
from tuner.driver.plugins.stored import discard, save
from tuner.error import StorageFullError
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter
from tuner.experiment.paths import TrialPaths
from tuner.experiment.trial import Trial
from tuner.freed_memory import give_back
from tuner.syncer.sink import ReplicaSink

log = logging.getLogger(__name__)

FULL_PATIENCE_S = 60.0
"""How long trials wait for space on a full disk before the run ends, resumable."""
FULL_LOOK_S = 0.5


class FactLog:
    """Journals facts and has them applied.

    Nothing here blocks but `sync`: facts are appended, `flush` hands them to the system, and an action that needs them
    on the disk (`when_durable`) is run by `run_due` once a group sync has come that far.

    Args:
        directories: False: trials have no files of their own that a compaction would make durable.
    """

    def __init__(self, applier: FactApplier, journal: JournalWriter, *, clock: Clock, directories: bool = True) -> None:
        self.applier, self.state = applier, applier.state
        self.full = False
        """The disk is full: what is appended waits in memory, and so do the trials."""
        self._journal, self._clock = journal, clock
        self._after: deque[tuple[int, Callable[[], None]]] = deque()
        self._meanwhile: deque[Callable[[], None]] = deque()
        self._full_since = 0.0
        self._unsynced: set[Trial] = set()
        self._directories = directories

    def add(self, fact: ev.AnyFact) -> int:
        """Journal a fact and apply it; returns its number."""
        seq = self._journal.append(ev.encode(fact), vital=isinstance(fact, ev.VITAL))
        self.applier.apply(fact)
        return seq

    def add_result(self, heard: Heard, fact: ev.ResultReported) -> int:
        """`add` for a result, of which the plug-ins have heard already."""
        self.applier.keep(heard, fact, self._append)
        if self._directories:
            self._unsynced.add(heard.trial)
        return self._journal.last_seq

    def _append(self, fact: ev.AnyFact) -> None:
        self._journal.append(ev.encode(fact))

    def touch(self, trials: Iterable[Trial]) -> None:
        """Files of these trials changed since the last snapshot: they are made durable before the next one."""
        if self._directories:
            self._unsynced.update(trials)

    @property
    def last_seq(self) -> int:
        """The number of the newest fact."""
        return self._journal.last_seq

    def when_durable(
        self, action: Callable[[], None], seq: int | None = None, *, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """Have `action` run by `run_due` once the fact `seq` (default: all so far) is on the disk.

        `meanwhile` is run before it, while the disk is at work: what of it needs no disk costs no time then.
        """
        self._after.append((self._journal.last_seq if seq is None else seq, action))
        if meanwhile is not None:
            self._meanwhile.append(meanwhile)

    def flush(self) -> bool:
        """Hand what was appended to the system; False while the disk is full. Raises when that lasts too long."""
        try:
            self._journal.flush()
        except StorageFullError as error:
            now = self._clock.monotonic()
            if not self.full:
                self.full, self._full_since = True, now
                log.warning("%s; the trials wait", error)
            elif now - self._full_since >= FULL_PATIENCE_S:
                raise
            return False
        if self.full:
            self.full = False
            log.warning("there is space again in %s", self.state.root)
        return True

    def run_due(self) -> None:
        """Ask for a group sync if somebody waits for one, and run what has become due."""
        if self._after:
            self._journal.request_sync()
        while self._meanwhile:
            self._meanwhile.popleft()()
        while self.due:
            self._after.popleft()[1]()

    @property
    def due(self) -> bool:
        """Something waits for facts that are on the disk now."""
        return bool(self._after) and self._after[0][0] <= self._journal.durable_seq

    def sync(self) -> None:
        """Return when everything is on the disk. Raises StorageFullError."""
        self._journal.sync_now()

    def should_compact(self) -> bool:
        return self._journal.should_compact()

    def compact(self, copies: ReplicaSink) -> None:
        """Fold the journal into one snapshot, unless there is no room for it.

        What it drops is durable in the trials' own files before; the plug-in states that only the snapshot before
        named go.
        """
        copies.touched(self._unsynced)
        before = self.state.plugins
        try:
            saved = save(self.applier.plugins)
        except StorageFullError as error:
            self._journal.postpone_compaction(str(error))
            return
        self._journal.flush()  # and the rows of results that wait with it
        self._sync_files()
        if self._journal.compact(self.state.snapshot(saved)):
            self.state.plugins = saved
            discard(self.applier.plugins, set(before.values()) - set(saved.values()))
        give_back()  # the snapshot was in memory as a whole, more than once

    def _sync_files(self) -> None:
        for trial in self._unsynced:
            paths = TrialPaths(trial.directory)
            params = (paths.params_json, paths.exact_params_json)
            description = (paths.trial_json, *params, paths.error_txt)  # nobody looks at those again either
            for file in (paths.result_json, paths.progress_csv, *description):
                if fs.exists(file):
                    fs.fsync_file(file)
            if fs.is_dir(trial.directory):
                fs.fsync_dir(trial.directory)
        if self._unsynced:
            fs.fsync_dir(self.state.root)
        self._unsynced.clear()
