"""The beginning of an experiment: until its first trial has started it can be taken back."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainables.starting import start_thread
from trainables.store import fs
from tuner.callback import Callback, Trials
from tuner.experiment import replacing
from tuner.experiment.ownership import Ownership
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.trial import Trial

TOLD_FROM = 100
"""From so many files and directories on, their removal is spoken of: it takes about a millisecond for each file."""


class Beginning(Callback):
    """Holds what a new experiment replaces, and lets go of it when the first trial starts.

    Args:
        paths, ownership: of the experiment.
        new: False for one that is continued where it lies: there is nothing to take back.
        made: the directories that were not there before, the experiment's own first and then those above it.
    """

    changes_results = False

    def __init__(self, paths: ExperimentPaths, ownership: Ownership, *, new: bool, made: Sequence[Path]) -> None:
        self.inline = False
        """Remove the old one on the caller's thread."""
        self.say: Callable[[str], None] = lambda line: None
        """How the user is told of what takes long."""
        self.undone: Callable[[], None] = lambda: None
        """Called before the directory is as it was: nothing is written there any more."""
        self.elsewhere: Callable[[], None] | None = None
        """Removes what other hosts have of the old one; called beside the run."""
        self._paths, self._ownership = paths, ownership
        self._open, self._made = new, made
        self._remover: threading.Thread | None = None
        self._elsewhere: threading.Thread | None = None

    def on_trial_start(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self.settle()

    def settle(self) -> None:
        """The new experiment is the one from here on; the old one goes, beside the run."""
        if not self._open:
            return
        self._open = False
        self._ownership.check()
        removed = replacing.give_up(self._paths)
        if removed is None:
            return
        if self.elsewhere is not None:
            self._elsewhere = start_thread(self.elsewhere, name="tuner-replacing-elsewhere", daemon=False)
        if (count := len(fs.listdir(removed))) >= TOLD_FROM:
            when = "first" if self.inline else "beside the run"
            self.say(f"removing the experiment that was replaced, {when}: {count} directories and files")
        if self.inline:
            fs.remove_quietly(removed)
        else:
            self._remover = start_thread(fs.remove_quietly, name="tuner-replacing", args=(removed,), daemon=False)

    @property
    def replaces(self) -> bool:
        """True while an old experiment can still come back."""
        return self._open and fs.is_dir(self._paths.replaced)

    def take_back(self) -> None:
        """Leave the directory as it was before, unless a trial has started. The journal must be closed."""
        if not self._open:
            return
        self._open = False
        self.undone()
        self._ownership.check()
        if not replacing.put_back(self._paths):
            replacing.remove_begun(self._paths)
            if self._made:
                _remove_root(self._paths.root)
                self._remove_empty()

    def wait_elsewhere(self) -> None:
        """Wait until other hosts have let go of the old one: so long they are needed."""
        if self._elsewhere is not None:
            self._elsewhere.join()

    def close(self) -> None:
        """Wait until the old one is gone."""
        if self._remover is not None:
            self._remover.join(1.0)
            if self._remover.is_alive():
                self.say("waiting until the experiment that was replaced is removed")
            self._remover.join()
        self._remove_empty()  # what a run had in them is gone only now

    def _remove_empty(self) -> None:
        with contextlib.suppress(OSError):  # others are in it
            for directory in self._made[1:]:
                fs.rmdir(directory)


def _remove_root(root: Path) -> None:
    gone = root.with_name(f".removed-{secrets.token_hex(4)}")
    fs.rename(root, gone)  # at once, so that nobody finds half of it
    fs.remove_quietly(gone)
