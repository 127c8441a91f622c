"""The books of a run: facts go into journal and state as one, and what has to wait for the disk waits here."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from trainables.store import fs
from tuner.clock import Clock
from tuner.error import StorageFullError
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter
from tuner.experiment.paths import TrialPaths
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial

log = logging.getLogger(__name__)

FULL_PATIENCE_S = 60.0
"""How long trials wait for space on a full disk before the run ends, resumable."""
FULL_LOOK_S = 0.5


class Books:
    """Keeps journal and state in step.

    Nothing here blocks but `sync`: facts are appended, `flush` hands them to the system, and an action that needs them
    on the disk (`when_durable`) is run by `run_due` once a group sync has come that far.

    Args:
        directories: False: trials have no files of their own that a compaction would make durable.
    """

    def __init__(
        self, state: ExperimentState, journal: JournalWriter, *, clock: Clock, directories: bool = True
    ) -> None:
        self.state = state
        self.full = False
        """The disk is full: what is appended waits in memory, and so do the trials."""
        self._journal, self._clock = journal, clock
        self._after: deque[tuple[int, Callable[[], None]]] = deque()
        self._full_since = 0.0
        self._unsynced: set[Trial] = set()
        self._directories = directories

    def add(self, fact: ev.AnyFact) -> int:
        """Journal a fact and apply it; returns its number."""
        seq = self._journal.append(ev.encode(fact), vital=isinstance(fact, ev.VITAL))
        self.state.apply(fact)
        return seq

    def add_result(self, trial: Trial, fact: ev.ResultReported, metrics: dict[str, Any]) -> int:
        """`add` for a result whose metrics are at hand already."""
        seq = self._journal.append(ev.encode(fact))
        self.state.add_result(trial, fact, metrics)
        if self._directories:
            self._unsynced.add(trial)
        return seq

    def touch(self, trials: Iterable[Trial]) -> None:
        """Files of these trials changed since the last snapshot: they are made durable before the next one."""
        if self._directories:
            self._unsynced.update(trials)

    @property
    def last_seq(self) -> int:
        """The number of the newest fact."""
        return self._journal.last_seq

    @property
    def unsynced(self) -> Iterable[Trial]:
        """Trials whose files changed since the last snapshot."""
        return self._unsynced

    def when_durable(self, action: Callable[[], None], seq: int | None = None) -> None:
        """Have `action` run by `run_due` once the fact `seq` (default: all so far) is on the disk."""
        self._after.append((self._journal.last_seq if seq is None else seq, action))

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

    def postpone_compaction(self, why: str) -> None:
        """There is no room for what a snapshot needs: try again when the journal has grown as much again."""
        self._journal.postpone_compaction(why)

    def compact(self, plugins: dict[str, str]) -> bool:
        """Fold the journal into one snapshot; what it drops is durable in the trials' own files before.

        `plugins` names the blobs of the plug-ins' states. False: there was no room for a snapshot.
        """
        for trial in self._unsynced:
            paths = TrialPaths(trial.directory)
            description = (paths.trial_json, paths.params_json, paths.error_txt)  # nobody looks at those again either
            for file in (paths.result_json, paths.progress_csv, *description):
                if fs.exists(file):
                    fs.fsync_file(file)
            if fs.is_dir(trial.directory):
                fs.fsync_dir(trial.directory)
        if self._unsynced:
            fs.fsync_dir(self.state.root)
        self._unsynced.clear()
        self._journal.flush()
        if not self._journal.compact(self.state.snapshot(plugins)):
            return False
        self.state.plugins = plugins
        return True
