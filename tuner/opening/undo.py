"""A start that can be taken back, until the first trial of its run has started."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from trainables.starting import start_thread
from trainables.store import fs
from tuner.callback import Callback, Trials
from tuner.clock import Clock
from tuner.experiment import replacing
from tuner.experiment.lock import claim
from tuner.experiment.ownership import Ownership
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.trial import Trial
from tuner.spec import Spec

TOLD_FROM = 100
"""From so many files and directories on, their removal is spoken of: it takes about a millisecond for each file."""


class StartUndo(Callback):
    """Holds what takes a start back, and lets go of it when the first trial starts; so it does of what was replaced.

    Args:
        paths, ownership: of the experiment.
        made: the directories that were not there before, the experiment's own first and then those above it.
        inline: remove what was replaced on the caller's thread.
        say: told of what takes long.
        undone: called before anything is taken back: nothing is written there any more.
    """

    changes_results = False

    def __init__(
        self,
        paths: ExperimentPaths,
        ownership: Ownership,
        *,
        made: Sequence[Path],
        inline: bool,
        say: Callable[[str], None],
        undone: Callable[[], None],
    ) -> None:
        self.made = made
        self._paths, self._ownership, self._inline, self._say, self._undone = paths, ownership, inline, say, undone
        self._steps = ExitStack()
        self._open = False
        self._remove_elsewhere: Callable[[], None] | None = None
        self._remover: threading.Thread | None = None
        self._elsewhere: threading.Thread | None = None

    def add(self, step: Callable[[], object]) -> None:
        """Add what takes back the next step of the start. The latest is taken back first."""
        self._open = True
        self._steps.callback(step)

    def on_trial_start(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self.settle()

    def settle(self) -> None:
        """The new experiment is the one from here on; one that it replaces goes, beside the run."""
        if not self._open:
            return
        self._open = False
        self._steps.pop_all()
        self._ownership.check()
        removed = replacing.give_up(self._paths)
        if removed is None:
            return
        if self._remove_elsewhere is not None:
            self._elsewhere = start_thread(self._remove_elsewhere, name="tuner-replacing-elsewhere", daemon=False)
        if (count := len(fs.listdir(removed))) >= TOLD_FROM:
            when = "first" if self._inline else "beside the run"
            self._say(f"removing the experiment that was replaced, {when}: {count} directories and files")
        if self._inline:
            fs.remove_quietly(removed)
        else:
            self._remover = start_thread(fs.remove_quietly, name="tuner-replacing", args=(removed,), daemon=False)

    def when_replaced(self, remove: Callable[[], None]) -> None:
        """Have what other hosts hold of a replaced experiment removed with it, beside the run."""
        self._remove_elsewhere = remove

    @property
    def replaces(self) -> bool:
        """True while an old experiment can still come back."""
        return self._open and fs.is_dir(self._paths.replaced)

    def take_back(self) -> None:
        """Leave everything as it was before, unless a trial has started. The journal must be closed."""
        if not self._open:
            return
        self._open = False
        self._undone()
        self._ownership.check()
        self._steps.close()

    def wait_elsewhere(self) -> None:
        """Wait until other hosts have let go of the old one: so long they are needed."""
        if self._elsewhere is not None:
            self._elsewhere.join()

    def close(self) -> None:
        """Wait until the old one is gone."""
        if self._remover is not None:
            self._remover.join(1.0)
            if self._remover.is_alive():
                self._say("waiting until the experiment that was replaced is removed")
            self._remover.join()
        self._remove_empty()  # what a run had in them is gone only now

    def remove_made(self) -> None:
        """Remove what this start has made."""
        replacing.remove_begun(self._paths)
        if self.made:
            root = self._paths.root
            gone = root.with_name(f".removed-{secrets.token_hex(4)}")
            fs.rename(root, gone)  # at once, so that nobody finds half of it
            fs.remove_quietly(gone)
            self._remove_empty()

    def _remove_empty(self) -> None:
        with contextlib.suppress(OSError):  # others are in it
            for directory in self.made[1:]:
                fs.rmdir(directory)


def recover(spec: Spec, paths: ExperimentPaths, clock: Clock) -> None:
    """Bring back an experiment whose replacement was killed before its first trial had started."""
    if not replacing.interrupted(paths):
        return
    ownership = claim(paths, takeover=spec.takeover, clock=clock, wait=clock.sleep)
    try:
        replacing.put_back(paths)
    finally:
        ownership.release()
