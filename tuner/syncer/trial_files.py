"""The small files of trials on their way to a replica: what the loggers write, and the artifacts of users."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainables.config import SyncConfig
from trainables.store import fs
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import agent
from tuner.experiment.paths import is_trial_file
from tuner.experiment.trial import Trial

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

    @property
    def busy(self) -> bool:
        return bool(self._under)

    @property
    def waiting(self) -> list[Trial]:
        """Trials whose files are not there as they are here."""
        return [*self._under, *(trial for trial in self._dirty.values() if trial not in self._under)]

    @property
    def owed(self) -> bool:
        """A snapshot has dropped results that are in files which are not there yet."""
        return bool(self._owed)

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

    def push(self) -> agent.Push | None:
        """The next job; None: there is none, or one is under way."""
        if self._under or not self._dirty:
            return None
        self._under = [self._dirty.pop(trial_id) for trial_id in list(self._dirty)[:AT_ONCE]]
        groups = [
            (str(trial.directory), f"{self._name}/{trial.dirname}", names)
            for trial in self._under
            if (names := self._names(trial.directory))
        ]
        return agent.Push(groups=groups, guard=self._guard)

    def arrived(self, *, whole: bool) -> None:
        """The job has ended; `whole`: everything of it is there."""
        under, self._under = self._under, []
        for trial in under:
            if not whole:
                self._dirty.setdefault(trial.trial_id, trial)
            elif trial.trial_id not in self._dirty:
                self._owed.discard(trial.trial_id)

    def _names(self, directory: Path) -> list[str]:
        """The loggers' files of a trial, and with artifacts what else lies there, but no checkpoint."""
        found = []
        for name in fs.listdir(directory) if fs.is_dir(directory) else ():
            path = directory / name
            if is_trial_file(name):
                found.append(name)
            elif self._artifacts.on and not name.startswith(".") and not (path / MANIFEST_NAME).exists():
                found += [below for below in _below(directory, path) if not self._excluded(below)]
        return sorted(found)

    def _excluded(self, name: str) -> bool:
        parts = [name, *name.split("/")]
        return any(fnmatch.fnmatchcase(part, pattern) for part in parts for pattern in self._artifacts.excludes)


def _below(root: Path, path: Path) -> list[str]:
    """Regular files at or below a path, relative to `root`; links are not followed."""
    if path.is_symlink():
        return []
    if path.is_dir():
        return [name for child in sorted(path.iterdir()) for name in _below(root, child)]
    return [str(path.relative_to(root))] if path.is_file() else []
