"""The small files of trials on their way to a replica: what the loggers write, and the artifacts of users."""

from __future__ import annotations

import fnmatch
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainables.config import SyncConfig
from trainables.store import fs
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import agent
from tuner.experiment.paths import TrialPaths, is_trial_file
from tuner.experiment.trial import Trial
from tuner.syncer.queue import Patience

log = logging.getLogger(__name__)

RENAMED = {TrialPaths.error_txt.name}
"""What is called otherwise when a trial recovers. Other files go here by accident only: a copy is no accident's."""
AT_ONCE = 16
"""Trials whose files go in one job."""


@dataclass(frozen=True, slots=True)
class Artifacts:
    """What else of a trial's directory goes to the replica."""

    on: bool = False
    on_checkpoint: bool = True
    excludes: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: SyncConfig) -> Artifacts:
        return cls(config.sync_artifacts, config.sync_artifacts_on_checkpoint, tuple(config.excludes or ()))


class TrialFiles:
    """Which trials' files are to go there; one job at a time."""

    def __init__(self, name: str, artifacts: Artifacts, guard: str) -> None:
        self._name, self._artifacts, self._guard = name, artifacts, guard
        self._dirty: dict[str, Trial] = {}
        self._under: list[Trial] = []
        self._running: dict[str, Trial] = {}
        self._owed: set[str] = set()
        self._suspects: set[str] = set()
        """Trials of a job that failed: each goes in one of its own, so that one that is refused holds no other."""
        self._there: dict[str, set[str]] = {}
        """Directory of a trial -> the loggers' files that it has over there, where it is known."""
        self._sent: dict[str, set[str]] = {}
        """The same of those that are on their way."""
        self._void: dict[str, Path] = {}
        """Keys of those that have gone here -> where they lay."""
        self._removing: dict[str, Path] = {}
        self._left_out: set[Path] = set()
        """Artifacts that cannot be copied, of which that was said."""
        self._patience = Patience()

    @property
    def busy(self) -> bool:
        return bool(self._under)

    @property
    def has_void(self) -> bool:
        """Something there has gone here."""
        return bool(self._void or self._removing)

    @property
    def waiting(self) -> list[Trial]:
        """Trials whose files are not there as they are here."""
        return [*self._under, *(trial for trial in self._dirty.values() if trial not in self._under)]

    @property
    def owed(self) -> bool:
        """A snapshot has dropped results that are in files which are not there yet."""
        return bool(self._owed)

    def known(self, dirname: str, names: Iterable[str]) -> None:
        """These are there of a trial whose directory here is as its last owner left it."""
        if found := set(names):
            self._there[dirname] = found

    def void(self, path: Path) -> None:
        """A file of a trial that is there has gone here."""
        self._void[f"{self._name}/{path.parent.name}/{path.name}"] = path

    def removal(self) -> agent.Delete | None:
        """Delete over there what has gone here, once what came in its place is there; None: nothing has."""
        if self._removing or self._under:
            return None  # what is being sent may be one that came back
        self._removing = {key: path for key, path in self._void.items() if not fs.exists(path)}
        self._void = {}
        return agent.Delete(keys=list(self._removing), guard=self._guard) if self._removing else None

    def removed(self, *, again: bool) -> None:
        """That has ended; `again`: it failed, and may not the next time."""
        self._void.update(self._removing if again else {})
        self._removing = {}

    def started(self, trial: Trial) -> None:
        self._running[trial.trial_id] = trial

    def saved(self, trial: Trial) -> None:
        """A checkpoint was published: artifacts go with it, if that is asked for."""
        if self._artifacts.on and self._artifacts.on_checkpoint:
            self._dirty[trial.trial_id] = trial

    def changed(self, trial: Trial) -> None:
        """Send its files soon."""
        self._dirty[trial.trial_id] = trial

    def ended(self, trial: Trial) -> None:
        self._running.pop(trial.trial_id, None)
        self._dirty[trial.trial_id] = trial

    def period(self) -> None:
        """Time to send what running trials have written."""
        self._dirty.update(self._running)

    def owe(self, trials: Iterable[Trial]) -> None:
        """What these trials' files hold is about to be dropped from the journal."""
        for trial in trials:
            self._dirty[trial.trial_id] = trial
            self._owed.add(trial.trial_id)

    @property
    def due_at(self) -> float | None:
        """When the next job may begin after one that failed, in monotonic seconds; None: not by itself."""
        return self._patience.until if self._patience.failures and self._dirty and not self._under else None

    def push(self, now: float) -> agent.Push | None:
        """The next job; None: there is none, one is under way, or one failed a short while ago."""
        if self._under or self._removing or not self._dirty or now < self._patience.until:
            return None
        first = next(iter(self._dirty))
        some = [first] if first in self._suspects else [one for one in self._dirty if one not in self._suspects]
        self._under = [self._dirty.pop(trial_id) for trial_id in some[:AT_ONCE]]
        own: list[tuple[str, str, list[str]]] = []
        others: list[tuple[str, str, list[str]]] = []
        for trial in self._under:
            place = (str(trial.directory), f"{self._name}/{trial.dirname}")
            names, artifacts = self._names(trial.directory)
            self._sent[trial.dirname] = set(names)
            own.append((*place, names))
            others.append((*place, artifacts))
        # What the loggers wrote goes first: what is wrong with artifacts does not hold it.
        groups = [group for group in own + others if group[2]]
        return agent.Push(groups=groups, guard=self._guard)

    def arrived(self, now: float, *, whole: bool) -> None:
        """The job has ended; `whole`: everything of it is there."""
        under, self._under = self._under, []
        self._patience.ended(now, well=whole)
        names = {trial.trial_id for trial in under}
        self._suspects = self._suspects - names if whole else self._suspects | names
        for trial in under:
            sent = self._sent.pop(trial.dirname)
            if whole and sent:
                for name in sorted((self._there.pop(trial.dirname, set()) - sent) & RENAMED):
                    self.void(trial.directory / name)
                if trial.status != Trial.TERMINATED:
                    self._there[trial.dirname] = sent
            if not whole:
                self._dirty.setdefault(trial.trial_id, trial)
            elif trial.trial_id not in self._dirty:
                self._owed.discard(trial.trial_id)

    def _names(self, directory: Path) -> tuple[list[str], list[str]]:
        """The loggers' files of a trial; and with artifacts what else lies there, but no checkpoint."""
        own, others = [], []
        for name in fs.listdir(directory) if fs.is_dir(directory) else ():
            if is_trial_file(name):
                own.append(name)
            elif self._artifacts.on and not name.startswith("."):
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
        return any(fnmatch.fnmatchcase(part, pattern) for part in parts for pattern in self._artifacts.excludes)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
