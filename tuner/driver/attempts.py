"""Where trials stand: the attempts that run, by phase, and the trials that wait for room."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from enum import Enum
from typing import overload

from trainables import wire
from trainables.quick_dataclass import dataclass
from trainables.wire import CheckpointRef
from tuner.executors.base import Resources
from tuner.experiment import events as ev
from tuner.experiment.reason import Reason
from tuner.experiment.trial import Trial


class Phase(Enum):
    """Where an attempt stands, and the facts that are born there.

    A trial waits, is chosen, and its attempt goes CHECKING, JOURNALED, TRAINING; then, as it is told, PAUSE_DUE,
    PAUSED, STOPPED or REFUSED; when its process has exited ENDED, STARVED or BACKING_OFF. It may end from anywhere.
    """

    CHECKING = "checking"
    """Room is promised to it, and the checkpoint that it is to start from is hashed; a damaged one is a
    `CheckpointSetAside`. It leaves with `RolledBack`, where results are void from here on, and `AttemptStarted`."""
    JOURNALED = "journaled"
    """Its start is a fact, and its process begins once that is on the disk."""
    TRAINING = "training"
    """It reports and saves: `ResultReported`, `CheckpointPublished`, `PublishFailed`."""
    PAUSE_DUE = "pause due"
    """It is to pause, and trains on to its next save, with the same facts."""
    PAUSED = "paused"
    """It was told to pause. `Exploited` or `Reallocated` says how its trial goes on, where that changes."""
    STOPPED = "stopped"
    """It was told to stop."""
    REFUSED = "refused"
    """A save did not fit into the budget: its process is being ended, and nothing that it still says counts."""
    STARVED = "starved"
    """`AttemptEnded`, for want of space: its trial tries again when something was freed."""
    BACKING_OFF = "backing off"
    """`AttemptEnded`, in failure and not for the first time in a row: its trial tries again after a while."""
    ENDED = "ended"
    """`AttemptEnded`, and its trial waits; or `TrialEnded`."""


@dataclass(slots=True)
class LiveAttempt:
    """One attempt, from its choice to its end. Its phase is changed by `Attempts.enter` only."""

    trial: Trial
    number: int
    resources: Resources
    phase: Phase = Phase.CHECKING
    said: wire.Finished | wire.AttemptErrored | wire.Preempted | None = None
    """Its last word."""
    why: Reason | None = None
    """Why it is to pause, from the first time on that this was decided."""
    save_asked: bool = False
    """A user wants a checkpoint of it."""
    reallocates: bool = False
    """A user gives its trial other resources: it is to pause, and to go on with those."""
    published: bool = False
    """It has a checkpoint of its own: what it started from is not needed any more."""
    behind: set[CheckpointRef] = field(default_factory=set)
    """Saves that belong to results which came without them."""
    saved_behind: bool = False
    """Such a one has come since it is to pause: it may, at its next result."""
    decided: wire.Answer | None = None
    """How it ends, on a result for whose answer its process did not wait: what that has reported since is nothing."""
    open: set[CheckpointRef] = field(default_factory=set)
    """Checkpoints that its process reads, after the one that it started from."""
    reuses: bool = False
    """It has no process: it goes through what an earlier experiment's trial has reported."""
    error: ev.ErrorInfo | None = None
    """Why it is STARVED."""
    again_at: float = 0.0
    """When a trial that is BACKING_OFF tries again, in monotonic seconds."""


class Attempts:
    """All attempts that have not ended, by trial. Who asks often who stands where finds a dict of those: to be read."""

    def __init__(self) -> None:
        self.running: dict[str, LiveAttempt] = {}
        """Those with a process, and those that are about to have one."""
        self.prepared: dict[str, LiveAttempt] = {}
        """CHECKING or JOURNALED: no process yet, and room is promised."""
        self.starved: dict[str, LiveAttempt] = {}
        self.backing_off: dict[str, LiveAttempt] = {}

    def begin(self, trial: Trial, resources: Resources) -> LiveAttempt:
        """The trial was chosen."""
        run = LiveAttempt(trial, trial.attempt + 1, resources)
        for there in self._of(run.phase):
            there[trial.trial_id] = run
        return run

    def take_up(self, trial: Trial, resources: Resources, phase: Phase) -> LiveAttempt:
        """The attempt that it has had goes on where it stood."""
        run = LiveAttempt(trial, trial.attempt, resources)
        self.enter(run, phase)
        return run

    def enter(self, run: LiveAttempt, phase: Phase) -> None:
        """The attempt stands there from now on."""
        trial_id = run.trial.trial_id
        for before in self._of(run.phase):
            before.pop(trial_id, None)
        run.phase = phase
        for there in self._of(phase):
            there[trial_id] = run

    def _of(self, phase: Phase) -> Sequence[dict[str, LiveAttempt]]:
        match phase:
            case Phase.CHECKING | Phase.JOURNALED:
                return (self.running, self.prepared)
            case Phase.TRAINING | Phase.PAUSE_DUE | Phase.PAUSED | Phase.STOPPED | Phase.REFUSED:
                return (self.running,)
            case Phase.STARVED:
                return (self.starved,)
            case Phase.BACKING_OFF:
                return (self.backing_off,)
            case Phase.ENDED:
                return ()


class Waiting:
    """Trials in the order in which they began to wait. Adding and removing cost the same however many there are."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        # Not a dict: finding its first item again and again walks over all that were removed before it.
        self._trials: OrderedDict[str, Trial] = OrderedDict()
        self._behind: dict[str, Trial] = {}
        self.view: Sequence[Trial] = _View(self._trials)
        """Live and read-only."""
        self.alike = True
        """No trial with a request of its own was met yet."""
        for trial in trials:
            self.add(trial)

    def __len__(self) -> int:
        return len(self._trials)

    def __contains__(self, trial: Trial) -> bool:
        return trial.trial_id in self._trials

    def add(self, trial: Trial) -> None:
        self._trials[trial.trial_id] = trial
        if trial.is_behind:
            self._behind[trial.trial_id] = trial

    def remove(self, trial: Trial) -> None:
        del self._trials[trial.trial_id]

    def first_behind(self) -> Trial | None:
        """Whoever waits longest of those that are behind what they were told."""
        for trial_id, trial in list(self._behind.items()):
            if trial in self and trial.is_behind:
                return trial
            del self._behind[trial_id]
        return None


class _View(Sequence[Trial]):
    """The trials as a sequence: an item costs as many steps as it is away from the nearer end."""

    def __init__(self, trials: OrderedDict[str, Trial]) -> None:
        self._trials = trials

    @overload
    def __getitem__(self, index: int) -> Trial: ...
    @overload
    def __getitem__(self, index: slice) -> list[Trial]: ...
    def __getitem__(self, index: int | slice) -> Trial | list[Trial]:
        if isinstance(index, slice):
            return list(self._trials.values())[index]
        count = len(self._trials)
        at = range(count)[index]
        if at < count // 2 or at == 0:
            return next(itertools.islice(self._trials.values(), at, None))
        return next(itertools.islice(reversed(self._trials.values()), count - 1 - at, None))

    def __len__(self) -> int:
        return len(self._trials)

    def get(self, trial_id: str) -> Trial | None:
        """Whoever waits under that trial_id, at the cost of one."""
        return self._trials.get(trial_id)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._trials.values())

    def __contains__(self, item: object) -> bool:
        return isinstance(item, Trial) and self._trials.get(item.trial_id) is item
