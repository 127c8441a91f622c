"""The custodian of an experiment's checkpoints.

Retention decides, the budget counts, deletion and hashing run beside the loop.

The loop journals what the custodian decides; nothing is deleted before that is durable.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from trainables.config import Budget, CheckpointConfig, CheckpointStrategy
from trainables.errors import CheckpointCorruptError, CheckpointError, CheckpointNotFoundError
from trainables.starting import start_thread
from trainables.store import fs, verify
from trainables.store.manifest import Published
from trainables.wire import CheckpointRef
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.retention.budget import BudgetLedger, Key
from tuner.retention.deleter import Delete, Deleter, delete_here
from tuner.retention.manager import Ending, RetentionManager
from tuner.retention.rules import ANEW, BUDGET
from tuner.syncer.sink import Problem, Then

log = logging.getLogger(__name__)

QUIET_S = 0.5
"""A wait for deletions that is shorter is not said."""


class Custodian:
    """Looks after the checkpoints of one experiment on this host.

    Args:
        config: what is kept.
        budget: limit on all checkpoints of the experiment, or None.
        metric, mode: rank trials under the budget.
        inline: do everything at once on the caller's thread (inline executor, crash harness).
        wake: called from the background threads when `finished` has something.
        is_read: a checkpoint is being copied, and may not be deleted just now; asked from other threads.
        delete: deletes one, on whichever hosts it lies; called from other threads.
    """

    def __init__(
        self,
        config: CheckpointConfig | CheckpointStrategy,
        *,
        budget: Budget | None = None,
        metric: str | None = None,
        mode: str | None = None,
        inline: bool = False,
        wake: Callable[[], None] = lambda: None,
        is_read: Callable[[Path], bool] | None = None,
        delete: Delete = delete_here,
    ) -> None:
        self._manager = RetentionManager(config)
        self._ledger = None
        if budget is not None:
            self._ledger = BudgetLedger(budget, metric=metric, mode="min" if mode == "min" else "max")
        self._inline, self._wake = inline, wake
        self._deleter = Deleter(delete, inline=inline, is_pinned=is_read)
        self._deleter.on_done(self._deleted)
        self._done: queue.SimpleQueue[CheckpointRef | tuple[Then, Problem]] = queue.SimpleQueue()
        self._checks: queue.SimpleQueue[tuple[Path, str, Then] | list[Path] | None] = queue.SimpleQueue()
        self._checker: threading.Thread | None = None

    # --- what stays -------------------------------------------------------------------------------------

    def take_over(self, state: ExperimentState) -> None:
        """Count what is there at the start."""
        if self._ledger is not None:
            records = [record for trial in state.trials for record in trial.checkpoints]
            for record in sorted(records, key=lambda record: record.number):
                self._ledger.saved(record)
            for trial in state.trials:
                if trial.status == Trial.TERMINATED:
                    self._ledger.ended(trial.trial_id)

    def refusal(self, trial: Trial, size: int, metrics: Mapping[str, Any], in_use: Collection[Key]) -> str | None:
        """Why a save of so many bytes does not fit into the budget, or None: it does."""
        if self._ledger is None:
            return None
        refused = self._ledger.admit(trial.trial_id, size, metrics=metrics, in_use=in_use)
        return None if refused is None else refused.message

    def saved(self, trial: Trial, record: CheckpointRecord, in_use: Collection[Key], *, admitted: bool) -> str | None:
        """A checkpoint was published: warn of its score once; say why it has to go at once if it does not fit."""
        for notice in self._manager.observe(record):
            log.warning(notice.message)
        if self._ledger is None:
            return None
        self._ledger.saved(record)
        if admitted:
            return None
        refused = self._ledger.overfull(trial.trial_id, in_use=in_use)
        return None if refused is None else refused.message

    def not_saved(self, trial: Trial) -> None:
        """A publish failed."""
        if self._ledger is not None:
            self._ledger.not_saved(trial.trial_id)

    def attempt_ended(self, trial: Trial) -> None:
        """Nothing of this attempt is on its way any more."""
        if self._ledger is not None:
            self._ledger.attempt_ended(trial.trial_id)
            if trial.status == Trial.TERMINATED:
                self._ledger.ended(trial.trial_id)

    def to_forget(self, trial: Trial, in_use: Collection[Key]) -> list[tuple[CheckpointRef, str]]:
        """What may go now, and by which rule: of this trial by its settings, of all trials by the budget."""
        used = {order for trial_id, order in in_use if trial_id == trial.trial_id}
        own = trial.own_checkpoints
        forgotten = self._manager.forget(own or trial.checkpoints, Ending.of(trial.status), used)
        refs = [(ref, self._manager.rule) for ref in forgotten]
        if own and (self._ledger is not None or not self._manager.keeps_all):
            # The life before is over, and there is something newer than all of it.
            void = trial.checkpoints[: -len(own)]
            refs += [(record.ref, ANEW) for record in void if record.order not in used]
        for ref, _ in refs:
            self.gone(ref)
        if self._ledger is not None:
            for ref in self._ledger.plan(in_use).forget:
                self.gone(ref)
                refs.append((ref, BUDGET))
        return refs

    def gone(self, ref: CheckpointRef) -> None:
        """A checkpoint is not counted any more."""
        if self._ledger is not None:
            self._ledger.gone(ref)

    # --- beside the loop ----------------------------------------------------------------------------------

    def delete(self, ref: CheckpointRef, path: Path) -> None:
        """Delete a forgotten checkpoint; `finished` tells when it is gone."""
        self._deleter.submit(ref, path)

    @property
    def deleting(self) -> bool:
        """True while a deletion is queued or under way."""
        return self._deleter.pending > 0

    def _deleted(self, ref: CheckpointRef) -> None:
        self._done.put(ref)
        self._wake()

    def check(self, path: Path, digest: str, then: Then) -> None:
        """Hash a checkpoint before a trial gets it; a broken one is set aside. `finished` calls `then(problem)`.

        What `then` is told is said in `tuner.syncer.sink.Then`: of one that cannot be read just now an error.
        """
        if self._inline:
            then(_check(path, digest))
        else:
            self._beside((path, digest, then))

    def after_death(self, directory: Path) -> list[Published]:
        """What a process that died left in its trial's directory: its checkpoints; what it staged is removed."""
        leftovers = verify.leftovers(directory)
        if self._inline:
            _remove(leftovers)
        elif leftovers:
            self._beside(leftovers)
        return verify.list_checkpoints(directory)

    def _beside(self, job: tuple[Path, str, Then] | list[Path]) -> None:
        if self._checker is None:
            self._checker = start_thread(self._work, name="tuner-checker")
        self._checks.put(job)

    def _work(self) -> None:
        while (job := self._checks.get()) is not None:
            if isinstance(job, list):
                _remove(job)
                continue
            path, digest, then = job
            problem: Problem
            try:
                problem = _check(path, digest)
            except Exception as error:  # a trial waits for the answer, and others for this thread
                problem = ev.ErrorInfo(type(error).__name__, str(error), traceback.format_exc())
            self._done.put((then, problem))
            self._wake()

    def finished(self) -> list[ev.CheckpointDeleted]:
        """What ended beside the loop since the last call; the answers of `check` are given here."""
        facts: list[ev.CheckpointDeleted] = []
        while not self._done.empty():  # nobody else takes from it
            item = self._done.get_nowait()
            if isinstance(item, CheckpointRef):
                facts.append(ev.CheckpointDeleted(item))
            else:
                then, problem = item
                then(problem)
        return facts

    def settled(self, timeout: float) -> list[ev.CheckpointDeleted]:
        """As `finished`, after a wait of at most so many seconds for the deletions that are under way."""
        self._deleter.drain(timeout)
        return self.finished()

    def close(self, timeout: float | None, *, patient: bool = False) -> list[ev.CheckpointDeleted]:
        """Wait for deletions that are under way, at most `timeout` seconds; warn of what could not be deleted.

        With `patient` the time starts again with each that ends. A wait that can be noticed is said.
        """
        until = None if timeout is None else time.monotonic() + timeout
        quiet = QUIET_S if timeout is None else min(QUIET_S, timeout)
        if not self._deleter.drain(quiet):
            left = self._deleter.failures(unfinished=True)
            bound = "" if timeout is None or patient else f" up to {timeout:g} s"
            log.warning("waiting%s for %d deletions, %s first", bound, len(left), left[0].path if left else "one")
            self._deleter.drain(_left(timeout, until, patient), patient=patient)
        self._checks.put(None)
        if self._checker is not None:
            self._checker.join(_left(timeout, until, patient))
        for failure in self._deleter.failures(unfinished=True):
            log.warning("could not delete %s; the next start tries again", failure)
        self._deleter.close()
        return self.finished()


def _left(timeout: float | None, until: float | None, patient: bool) -> float | None:
    return timeout if patient or until is None else max(0.0, until - time.monotonic())


def _remove(leftovers: list[Path]) -> None:
    for path in leftovers:
        fs.remove_quietly(path)


def _check(path: Path, digest: str) -> Problem:
    try:
        verify.check(path, digest=digest or None)
    except (CheckpointCorruptError, CheckpointNotFoundError) as error:
        return _set_aside(path, str(error))
    except (CheckpointError, OSError) as error:
        # The disk did not give it, or a newer version wrote it: it may be whole.
        return ev.ErrorInfo(type(error).__name__, str(error), disk=True)
    return None


def _set_aside(path: Path, problem: str) -> str:
    try:
        verify.quarantine(path)
    except FileNotFoundError:
        pass  # nothing there to set aside
    except OSError as error:
        return f"{problem}; to set it aside failed: {error}"
    return problem
