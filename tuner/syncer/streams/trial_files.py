"""The small files of trials on their way to a replica: what the loggers write, and the artifacts of users."""

from __future__ import annotations

import fnmatch
import logging
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from trainables.net.backoff import BackOff
from trainables.store import fs
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import transfer_jobs
from trainables.transfer.transfer_jobs import Done, JobFailed
from tuner.experiment.paths import TrialPaths, is_trial_file
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.syncer.inventory import Inventory
from tuner.syncer.streams.stream import Answer, Group, ReplicaContext, Stream
from tuner.syncer.streams.written_later import WrittenLater, mark

log = logging.getLogger(__name__)

RENAMED = {TrialPaths.error_txt.name}
"""What is called otherwise when a trial recovers. Other files go here by accident only: a copy is no accident's."""
AT_ONCE = 16
"""Trials whose files go in one job."""


class TrialFiles(Stream):
    """Which trials' files are to go there; one job at a time. Those that an ended trial has only there come here."""

    def __init__(self, context: ReplicaContext) -> None:
        self._context, self._config = context, context.config
        self._dirty: dict[str, Trial] = {}
        self._sending: list[Trial] = []
        self._running: dict[str, Trial] = {}
        self._owed: set[str] = set()
        self._suspects: set[str] = set()
        """Trials of a job that failed: each goes in one of its own, so that one that is refused holds no other."""
        self._there: dict[str, set[str]] = {}
        """Directory of a trial -> its files of `RENAMED` that the replica has, or may have."""
        self._void: dict[str, Path] = {}
        """Names of those that have gone here -> where they lay."""
        self._removing: dict[str, Path] = {}
        self._wanted: dict[str, Sequence[str]] = {}
        """Directory of an ended trial -> its small files that are there and not here; they come beside the run."""
        self._fetching: dict[str, Sequence[str]] = {}
        self._left_out: set[Path] = set()
        """Artifacts that cannot be copied, of which that was said."""
        self._later = WrittenLater()
        self._back_off = BackOff()

    # --- told -------------------------------------------------------------------------------------------

    def take_up(self, state: ExperimentState, held: Inventory) -> None:
        behind = self._context.lacks_snapshot(held.names)
        for trial in state.trials:
            if (found := held.files.get(trial.dirname)) is not None:
                self._is_there(trial.dirname, found.known)
                self._wanted |= {trial.dirname: found.lacking} if found.lacking else {}
                for name in found.void:
                    self._is_void(trial.directory / name)
            if behind and trial.attempt:
                self.owe([trial])
            elif trial.trial_id in held.touched or (trial.attempt and f"{trial.dirname}/result.json" not in held.names):
                self._dirty[trial.trial_id] = trial

    def started(self, trial: Trial) -> None:
        self._running[trial.trial_id] = trial

    def saved(self, trial: Trial) -> None:
        """A checkpoint was published: artifacts go with it, if that is asked for."""
        if self._config.sync_artifacts and self._config.sync_artifacts_on_checkpoint:
            self._dirty[trial.trial_id] = trial

    def ended(self, trial: Trial) -> None:
        self._running.pop(trial.trial_id, None)
        self._dirty[trial.trial_id] = trial

    def period(self) -> None:
        if not self.closing:
            self._dirty.update(self._running)
        for trial, marked in self._later.period(last=self.closing):
            if mark(trial.directory, self._names(trial.directory)[0]) != marked:
                self._dirty.setdefault(trial.trial_id, trial)

    def owe(self, trials: Iterable[Trial]) -> None:
        """What these trials' files hold is about to be dropped from the journal."""
        for trial in trials:
            self._dirty[trial.trial_id] = trial
            self._owed.add(trial.trial_id)

    def _is_there(self, dirname: str, names: Iterable[str]) -> None:
        """The replica has these files of a trial, or may have them."""
        if renamed := RENAMED.intersection(names):
            self._there.setdefault(dirname, set()).update(renamed)

    def _is_void(self, path: Path) -> None:
        """A file of a trial that is there has gone here."""
        self._void[f"{path.parent.name}/{path.name}"] = path

    # --- asked ------------------------------------------------------------------------------------------

    @property
    def drained(self) -> bool:
        void = self._context.can.delete and (self._void or self._removing)
        return not (self._waiting or self._wanted or self._fetching or void)

    @property
    def owed(self) -> bool:
        """A snapshot has dropped results that are in files which are not there yet."""
        return bool(self._owed)

    def missing(self) -> list[str]:
        lines = [f"result files of {dirname}, which are not here" for dirname in (*self._fetching, *self._wanted)]
        return lines + [f"result files of {trial.dirname}" for trial in self._waiting]

    @property
    def _waiting(self) -> list[Trial]:
        """Trials whose files are not there as they are here."""
        return [*self._sending, *(trial for trial in self._dirty.values() if trial not in self._sending)]

    def due_at(self, now: float) -> float | None:
        return self._back_off.until if self._back_off.failures and self._dirty and not self._sending else None

    # --- jobs and their answers ---------------------------------------------------------------------------

    def start_jobs(self, now: float) -> bool:
        return self._fetch() | self._push(now) | self._remove()

    def _fetch(self) -> bool:
        if not self._wanted or self._fetching:
            return False
        self._fetching = {dirname: self._wanted.pop(dirname) for dirname in list(self._wanted)[:AT_ONCE]}
        wanted = [f"{dirname}/{name}" for dirname, names in self._fetching.items() for name in names]
        target = str(self._context.paths.root)
        self._context.submit(
            transfer_jobs.FetchFiles(prefix=self._context.key(), target=target, names=wanted), self._fetched
        )
        return True

    def _fetched(self, answer: Answer) -> None:
        fetching, self._fetching = self._fetching, {}
        if isinstance(answer, JobFailed) and answer.transient:
            self._wanted.update(fetching)
        elif isinstance(answer, JobFailed):
            names, why = ", ".join(fetching), answer.message
            log.warning("%s: result files of %s were not fetched: %s", self._context.uri, names, why)

    def _push(self, now: float) -> bool:
        if self._sending or self._removing or not self._dirty or now < self._back_off.until:
            return False
        first = next(iter(self._dirty))
        some = [first] if first in self._suspects else [one for one in self._dirty if one not in self._suspects]
        self._sending = [self._dirty.pop(trial_id) for trial_id in some[:AT_ONCE]]
        own: list[Group] = []
        others: list[Group] = []
        sent: dict[str, tuple[set[str], int]] = {}
        for trial in self._sending:
            place = (str(trial.directory), self._context.key(trial.dirname))
            names, artifacts = self._names(trial.directory)
            sent[trial.dirname] = set(names), mark(trial.directory, names)
            own.append((*place, names))
            others.append((*place, artifacts))
        # What the loggers wrote goes first: what is wrong with artifacts does not hold it.
        self._context.push([group for group in own + others if group[2]], partial(self._arrived, sent))
        return True

    def _arrived(self, sent: dict[str, tuple[set[str], int]], answer: Answer) -> None:
        trials, self._sending = self._sending, []
        well = isinstance(answer, Done)
        self._back_off.ended(self._context.clock.monotonic(), well=well)
        ids = {trial.trial_id for trial in trials}
        self._suspects = self._suspects - ids if well else self._suspects | ids
        for trial in trials:
            names, marked = sent[trial.dirname]
            if well and not self.closing and trial.trial_id not in self._running:
                self._later.sent(trial, marked)
            if well and names:
                for name in sorted(self._there.pop(trial.dirname, set()) - names):
                    self._is_void(trial.directory / name)
            self._is_there(trial.dirname, names)  # of a job that failed, too: some of its files may have arrived
            if not well:
                self._dirty.setdefault(trial.trial_id, trial)
            elif trial.trial_id not in self._dirty:
                self._owed.discard(trial.trial_id)

    def _remove(self) -> bool:
        """Delete in the replica what has gone here, once what came in its place is there."""
        if self._removing or self._sending or not self._context.can.delete:
            return False  # what is being sent may be one that came back
        self._removing = {name: path for name, path in self._void.items() if not fs.exists(path)}
        self._void = {}
        if self._removing:
            self._context.delete(list(self._removing), self._removed)
        return bool(self._removing)

    def _removed(self, answer: Answer) -> None:
        if isinstance(answer, JobFailed) and answer.transient:
            self._void.update(self._removing)
        self._removing = {}

    # --- what lies in a trial's directory -------------------------------------------------------------------

    def _names(self, directory: Path) -> tuple[list[str], list[str]]:
        """The loggers' files of a trial; and with artifacts what else lies there, but no checkpoint."""
        own, others = [], []
        for name in fs.listdir(directory) if fs.is_dir(directory) else ():
            if is_trial_file(name):
                own.append(name)
            elif self._config.sync_artifacts and not name.startswith("."):
                others += self._artifacts_at(directory, directory / name)
        return sorted(own), sorted(others)

    def _artifacts_at(self, root: Path, path: Path) -> list[str]:
        """Regular files at or below a path, relative to `root`; links are not followed, checkpoints left out."""
        name = str(path.relative_to(root))
        try:
            if path.is_symlink() or (path.parent == root and (path / MANIFEST_NAME).exists()):
                return []
            if path.is_dir():
                return [below for child in sorted(path.iterdir()) for below in self._artifacts_at(root, child)]
            if not path.is_file() or self._excluded(name):
                return []
            problem = "" if os.access(path, os.R_OK) or not path.exists() else "it cannot be read"
        except (FileNotFoundError, NotADirectoryError):
            return []  # removed meanwhile
        except PermissionError as error:
            problem = f"it cannot be read: {error.strerror}"
        if not problem and not _is_text(name):
            problem = "its name is not UTF-8"
        if problem and path not in self._left_out:
            self._left_out.add(path)
            log.warning("%r is not copied to the replica: %s", os.fsencode(path), problem)
        return [] if problem else [name]

    def _excluded(self, name: str) -> bool:
        parts = [name, *name.split("/")]
        return any(fnmatch.fnmatchcase(part, pattern) for part in parts for pattern in self._config.excludes or ())


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
