"""What a simulated attempt is: the script that it follows, and the virtual checkpoints that it saves."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainables.automatic import DONE, AutomaticKeys
from trainables.runtime.cadence import SaveCadence
from trainables.store.publish import checkpoint_name
from trainables.wire import Answer, AttemptErrored, CheckpointRef
from tuner.error import SettingError, require
from tuner.executors.base import Launch
from tuner.executors.pool import Share

Model = Callable[[dict[str, Any]], Iterable[tuple[float, Mapping[str, Any]]]]
"""From a config to what its trial would do: (seconds since the last result, metrics), one by one."""


@dataclass(frozen=True, slots=True)
class SimulatedSave:
    """What a checkpoint of a simulated trial costs.

    Args:
        bytes: its size.
        save_s: virtual seconds to save it.
        load_s: virtual seconds to start from it.

    Raises:
        SettingError: a number below 0, or none.

    Example:
        >>> SimulatedSave(bytes=100_000_000, save_s=0.4, load_s=0.2).save_s
        0.4
    """

    bytes: int = 0
    save_s: float = 0.0
    load_s: float = 0.0

    def __post_init__(self) -> None:
        whole = isinstance(self.bytes, int) and self.bytes >= 0
        require(whole, "SimulatedSave: bytes", self.bytes, "a whole number from 0 is accepted")
        for name in ("save_s", "load_s"):
            seconds = getattr(self, name)
            fits = isinstance(seconds, (int, float)) and 0 <= seconds < math.inf
            require(fits, f"SimulatedSave: {name}", seconds, "seconds from 0 are accepted")


SaveModel = Callable[[dict[str, Any]], SimulatedSave]
"""From a config to what a checkpoint of its trial costs."""


@dataclass(slots=True, eq=False)
class SimulatedAttempt:
    """A running trial that exists only here."""

    launch: Launch
    node: int
    share: Share
    pid: int
    keys: AutomaticKeys = field(init=False)
    cadence: SaveCadence | None = None
    """When it pays to save; None: that is not asked."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    answer: Answer | None = None
    error: AttemptErrored | None = None
    halted: bool = False
    over: bool = False
    saving: CheckpointRef | None = None
    """It saves just now."""
    durable: int = -1
    """The journal is durable up to the result of this iteration."""
    cost: SimulatedSave | None = None
    """Of its checkpoints, once somebody asked."""
    trial_id: str = field(init=False)
    number: int = field(init=False)
    _script: Iterator[tuple[float, Mapping[str, Any]]] | None = None
    _ahead: tuple[float, Mapping[str, Any]] | Exception | None = None
    _saves: int = 0
    _numbers: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.trial_id = self.launch.job.trial_id
        self.number = self.launch.job.attempt

    def next_step(self, model: Model, *, says_done: bool) -> tuple[float, Mapping[str, Any]]:
        """What it does next, and how long that takes.

        Raises StopIteration at its end, SettingError for what is no step, and what the model raises.

        Args:
            says_done: the last result says that it is the last, as a class says it: it is known one step ahead then.
        """
        if self._script is None:
            job = self.launch.job
            self._script = itertools.islice(model(job.config), job.start_iteration, None)
            self._ahead = self._drawn() if says_done else None
        if not says_done:
            return _checked(next(self._script))
        step, self._ahead = self._ahead, self._drawn()
        if step is None:
            raise StopIteration
        if isinstance(step, Exception):
            raise step
        return _checked(step if self._ahead is not None else (step[0], {DONE: True, **step[1]}))

    def _drawn(self) -> tuple[float, Mapping[str, Any]] | Exception | None:
        if self._script is None or isinstance(self._ahead, Exception):
            return None
        try:
            return next(self._script, None)
        except Exception as error:  # the trial fails with it one step later
            return error

    def save_due(self) -> tuple[bool, float]:
        """Whether it pays to save after the result that is there, and what the save before took."""
        cadence = self.cadence
        if cadence is None:
            return False, 0.0
        cadence.step_done()
        due, took = cadence.due(), cadence.measured_s
        cadence.reported(saved=False)
        cadence.measured_s = 0.0
        return due, took

    def cost_of_save(self, save: SaveModel) -> SimulatedSave:
        """What a checkpoint of it costs. Raises SettingError where the model says no such thing."""
        if self.cost is None:
            cost = save(self.launch.job.config)
            if not isinstance(cost, SimulatedSave):
                raise SettingError(f"save={save!r:.80} returned {cost!r:.80}; accepted is a SimulatedSave")
            self.cost = cost
        return self.cost

    def next_save(self) -> CheckpointRef:
        """The reference of a checkpoint of the result that it reported last, as a process would name it."""
        job, iteration = self.launch.job, self.keys.iteration
        self._saves += 1
        number = job.save_count + self._saves if job.name_by_index else iteration
        name = checkpoint_name(number, job.generation, job.attempt, self._numbers[number])
        self._numbers[number] += 1
        return CheckpointRef(self.trial_id, name, job.generation, self.number, self._saves, iteration)


def _checked(step: tuple[float, Mapping[str, Any]]) -> tuple[float, Mapping[str, Any]]:
    seconds = step[0]
    require(
        0 <= seconds < math.inf, "a simulated trial's seconds to its next result", seconds, "0 or more are accepted"
    )
    require(isinstance(step[1], Mapping), "a simulated trial's result", step[1], "a dict of metrics is accepted")
    return step
