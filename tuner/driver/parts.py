"""What admission, results, endings and the loop share."""

from __future__ import annotations

import math
from dataclasses import field
from enum import Enum

from trainables.quick_dataclass import dataclass
from tuner.clock import Clock
from tuner.driver.attempts import Attempts, Waiting
from tuner.driver.checkpoints import TrialCheckpoints
from tuner.driver.fact_log import FactLog
from tuner.driver.jobs import RunPlan
from tuner.driver.plugins import PluginSet
from tuner.driver.seen_interruptions import SeenInterruptions
from tuner.executors.base import Executor
from tuner.experiment.ownership import Ownership
from tuner.experiment.state import ExperimentState
from tuner.syncer.sink import ReplicaSink


class Timer(Enum):
    """What the loop turns for at a certain time, although nothing is heard."""

    HEARTBEAT = "heartbeat"
    """Other hosts are to see that this driver lives."""
    BUDGET = "budget"
    """`time_budget_s` is spent: the run is halted, and every trial may save."""
    GRACE = "grace"
    """A run that is halted waits no longer: what runs still is killed."""
    ORDERS = "orders"
    """Users may have ordered something."""
    FULL = "full"
    """The disk was full: the journal is tried again."""
    STARVED = "starved"
    """So long a trial without space waits for a deletion that is under way."""


@dataclass(slots=True)
class RunLimits:
    """What users may change while the run goes on; the loop and admission go by it."""

    at_once: float = math.inf
    """Trials that run at the same time: the limit of the executor where it has one, else the setting."""
    wished: float = math.inf
    """The same as the setting says it, whatever the executor does."""
    time_budget_s: float | None = None
    began: float = 0.0
    """When the loop did, in monotonic seconds."""


@dataclass(frozen=True, slots=True)
class LoopParts:
    """The parts of a running experiment."""

    plan: RunPlan
    facts: FactLog
    plugins: PluginSet
    checkpoints: TrialCheckpoints
    executor: Executor
    copies: ReplicaSink
    clock: Clock
    ownership: Ownership | None
    attempts: Attempts
    waiting: Waiting
    interruptions: SeenInterruptions
    timers: dict[Timer, float] = field(default_factory=dict)
    """When each is due, in monotonic seconds."""
    limits: RunLimits = field(default_factory=RunLimits)

    @property
    def state(self) -> ExperimentState:
        return self.facts.state

    def set_budget(self) -> None:
        """Have the run halted when its time is up."""
        if (budget := self.limits.time_budget_s) is None:
            self.timers.pop(Timer.BUDGET, None)
        else:
            self.timers[Timer.BUDGET] = self.limits.began + budget

    def check_owner(self) -> None:
        """Raise OwnedElsewhereError where another driver has taken over."""
        if self.ownership is not None:
            self.ownership.check()
