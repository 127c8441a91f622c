"""Which checkpoints somebody needs just now: retention leaves these alone."""

from __future__ import annotations

from collections.abc import Mapping

from trainables.store import fs
from trainables.wire import CheckpointRef
from tuner.driver.attempts import LiveAttempt
from tuner.executors.remote_hosts import RemoteHosts
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.syncer.sink import ReplicaSink

Used = set[tuple[str, tuple[int, int, int]]]


class CheckpointsInUse:
    """Knows what attempts read, started from or are to start from, and what is the only safe copy.

    Args:
        running: the loop's attempts, live.
    """

    def __init__(
        self, state: ExperimentState, copies: ReplicaSink, running: Mapping[str, LiveAttempt], hosts: RemoteHosts | None
    ) -> None:
        self._state, self._copies, self._running, self._hosts = state, copies, running, hosts
        self._readers: dict[str, LiveAttempt] = {}
        """Attempts that may use checkpoints; those that do not any more are found out when it matters."""
        self._lent: dict[str, CheckpointRef] = {}
        """Clones -> the donor's checkpoint that was kept for them when they were last looked at."""
        self._safe: dict[str, tuple[int, int, int]] = {}
        """Trials whose newest checkpoint only their host has -> the newest one that the replica has."""

    def take_over(self) -> None:
        """Go on from what was lent to clones before."""
        self._lent = dict(self._state.borrowed)

    def reads(self, run: LiveAttempt) -> None:
        """An attempt may use checkpoints: it is about to start, has started, or has opened one."""
        self._readers[run.trial.trial_id] = run

    def opened(self, run: LiveAttempt, ref: CheckpointRef) -> None:
        """A trial reads a checkpoint, which stays meanwhile. One of another experiment is not kept, or let go, here."""
        if self._state.trials.get(ref.trial_id) is not None:
            run.open.add(ref)
            self.reads(run)

    def now(self, but: LiveAttempt | None = None) -> Used:
        """What is in use; without what `but` started from."""
        used: Used = set()
        for trial_id, run in list(self._readers.items()):
            start = None if run.published else run.trial.started_from
            if self._running.get(trial_id) is not run or (start is None and not run.open):
                del self._readers[trial_id]
                continue
            if start is not None and run is not but:
                used.add((start.trial_id, start.order))
            used |= {(ref.trial_id, ref.order) for ref in run.open}
        used |= set(self._safe.items())
        used |= self._state.pinned
        return used | {(ref.trial_id, ref.order) for ref in self._state.borrowed.values()}

    def given_back(self, trial: Trial) -> CheckpointRef | None:
        """The donor's checkpoint that a clone does not need any more since it was last looked at."""
        before, now = self._lent.pop(trial.trial_id, None), self._state.borrowed.get(trial.trial_id)
        if now is not None:
            self._lent[trial.trial_id] = now
        return before if before != now else None

    def is_held_for(self, trial: Trial) -> bool:
        """Whether an older checkpoint stays because only a host that may die has the newest one."""
        return trial.trial_id in self._safe

    def look_what_is_safe(self, trial: Trial) -> None:
        """While only its host has the newest checkpoint, the newest that the replica has is in use: a host may die."""
        self._safe.pop(trial.trial_id, None)
        newest = trial.latest_checkpoint
        if newest is None or self._hosts is None or not self._hosts.uploads:
            return
        held = next((record for record in reversed(trial.checkpoints) if self._copies.holds(trial, record)), None)
        if held is not None and held is not newest and not fs.is_dir(trial.directory / newest.ref.name):
            self._safe[trial.trial_id] = held.order
