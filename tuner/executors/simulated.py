"""SimulatedExecutor: scripted trials on virtual time, for tests of everything above it.

No process, no thread, no disk, no waiting: a hundred thousand trials fit into one test.
"""

from __future__ import annotations

import heapq
import inspect
import itertools
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from trainables import tagged
from trainables.automatic import AutomaticKeys
from trainables.runtime.tracebacks import message_of, writable
from trainables.trainable import Trainable, saves
from trainables.wire import Answer, AttemptErrored, Finished, Halt, Preempted, Report, ToTrial
from tuner.clock import VirtualClock
from tuner.error import SettingError
from tuner.executors import base
from tuner.executors.pool import NodePools, Share, check_fits

Model = Callable[[dict[str, Any]], Iterable[tuple[float, Mapping[str, Any]]]]
"""From a config to what its trial would do: (seconds since the last result, metrics), one by one."""

_What = Literal["start", "report", "preempted", "end", "killed", "timeout", "lost"]
_FIRST_PID = 100_000


class SimulatedExecutor(base.Executor):
    """Runs trials that are only described, on a clock that jumps from one event to the next.

    They save nothing: no scheduler can pause or clone one, and a trainable that saves when it is told to is refused.

    Args:
        model: the trials' behaviour. One that raises fails its trial. A trial that starts from a checkpoint of
            iteration k leaves out the first k results.
        slots: how many cores each node has.
        resources: further resources of each node and their amounts.
        nodes: how many nodes there are.
        losses: (virtual seconds from the start, number of a node from 0): that node is lost then, with what runs there.
        clock: give it to the loop as well; default: a new one, to be had as `clock`.
        directories: False: trials get no directory and no default loggers write; of each there is what the journal
            says. For runs of very many.

    Example:
        >>> executor = SimulatedExecutor(lambda config: [(60.0, {"loss": config["lr"]})] * 10, slots=4)
        >>> executor.clock.monotonic()
        0.0
    """

    inline = True
    clock: VirtualClock

    def __init__(
        self,
        model: Model,
        *,
        slots: float = 1,
        resources: Mapping[str, float] | None = None,
        nodes: int = 1,
        losses: Iterable[tuple[float, int]] = (),
        clock: VirtualClock | None = None,
        directories: bool = True,
    ) -> None:
        self.directories = directories
        self.clock: VirtualClock = clock or VirtualClock()
        self._model = model
        self._each: dict[str, float] = {"cpu": float(slots), **(resources or {})}
        self._nodes = NodePools(self._each, nodes)
        self._heap: list[tuple[float, int, _SimulatedAttempt | int, _What]] = []
        self._order = itertools.count()
        self._pids = itertools.count(_FIRST_PID)
        self._attempts: dict[str, _SimulatedAttempt] = {}
        self._woken = False
        for seconds, node in losses:
            self._at(seconds, node, "lost")

    def total(self) -> base.Resources:
        return self._nodes.total

    def start(self, trainable: Any, *, lock_fds: Sequence[int] = (), marker: str = "", temporary: Path) -> None:
        """Do nothing with it: the model stands for the trainable. Raises SettingError for a class that saves."""
        if inspect.isclass(trainable) and issubclass(trainable, Trainable) and saves(trainable):
            raise SettingError(
                f"the class {trainable.__name__} cannot be simulated: SimulatedExecutor saves nothing, so that a trial "
                "that a scheduler pauses would begin anew each time; accepted are a function, which may do nothing, "
                "and a class without save_checkpoint(): these are never paused"
            )

    def can_launch(self, resources: base.Resources, promised: Sequence[base.Resources] = ()) -> bool:
        return self._nodes.fits(resources, promised)

    def launch(self, launch: base.Launch) -> None:
        check_fits(launch.resources, self._each)
        attempt = _SimulatedAttempt(launch, *self._nodes.take(launch.resources), next(self._pids))
        self._attempts[attempt.trial_id] = attempt
        self._at(0.0, attempt, "start")
        if launch.timeout_s is not None:
            self._at(launch.timeout_s, attempt, "timeout")

    def tell(self, trial_id: str, message: ToTrial) -> None:
        attempt = self._attempts.get(trial_id)
        if attempt is None:
            return
        if isinstance(message, Answer):
            attempt.answer = message
            attempt.halted |= message.should_stop
        elif isinstance(message, Halt):
            attempt.halted = True

    def kill(self, trial_id: str) -> None:
        attempt = self._attempts.get(trial_id)
        if attempt is not None:
            self._at(0.0, attempt, "killed")

    def run_once(self, dispatch: base.Dispatch, timeout: float | None) -> None:
        """Jump to the next event and dispatch everything of that instant, or jump ahead by `timeout`."""
        clock, heap = self.clock, self._heap
        limit = None if timeout is None else clock.monotonic() + max(0.0, timeout)
        if not heap or (limit is not None and heap[0][0] > limit):
            if limit is not None:
                clock.advance_to(limit)
            elif not self._woken:
                raise RuntimeError("nothing will ever happen: no trial runs and there is no time limit")
            self._woken = False
            return
        now = heap[0][0]
        clock.advance_to(now)
        events: list[base.Event] = []
        waiting = []
        while heap and heap[0][0] <= now:
            _, _, attempt, what = heapq.heappop(heap)
            if isinstance(attempt, int):
                self._lose(attempt, events)
            elif not attempt.over and self._happen(attempt, what, events):
                waiting.append(attempt)
        if events:
            dispatch(events)
        for attempt in waiting:
            self._after_answer(attempt)

    def wake(self) -> None:
        self._woken = True

    def shutdown(self, *, grace_s: float = 0.0) -> None:
        self._heap.clear()
        self._attempts.clear()

    def _lose(self, node: int, events: list[base.Event]) -> None:
        self._nodes.lose(node)
        for attempt in [attempt for attempt in self._attempts.values() if attempt.node == node]:
            self._over(attempt, base.KILLED, "lost", events)

    def _at(self, seconds: float, attempt: _SimulatedAttempt | int, what: _What) -> None:
        heapq.heappush(self._heap, (self.clock.monotonic() + seconds, next(self._order), attempt, what))

    def _happen(self, attempt: _SimulatedAttempt, what: _What, events: list[base.Event]) -> bool:
        """Let one thing happen to an attempt; True if it waits for an answer then."""
        trial_id, number = attempt.trial_id, attempt.number
        if what == "report":
            metrics = attempt.keys.complete(attempt.metrics)
            report = Report(attempt.keys.iteration, msgspec.Raw(tagged.dumps(metrics)))
            attempt.answer = None
            events.append(base.Message(trial_id, number, report))
            return True
        if what == "start":
            job = attempt.launch.job
            events.append(base.Started(trial_id, number, attempt.pid))
            attempt.keys = AutomaticKeys(
                clock=self.clock,
                trial_id=trial_id,
                experiment_tag=job.experiment_tag,
                iteration=job.start_iteration,
                time_total_s=job.start_time_total_s,
            )
            self._next(attempt)
            return False
        if what in ("killed", "timeout"):
            self._over(attempt, base.KILLED, what, events)
            return False
        last: Finished | AttemptErrored | Preempted = Finished()
        if what == "preempted":
            last = Preempted()
        elif attempt.error is not None:
            last = attempt.error
        events.append(base.Message(trial_id, number, last))
        self._over(attempt, 0, None, events)
        return False

    def _after_answer(self, attempt: _SimulatedAttempt) -> None:
        if attempt.over:
            return
        answer = attempt.answer
        if answer is None:
            raise RuntimeError(f"trial {attempt.trial_id} got no answer to its report")
        if answer.then != "continue":
            self._at(0.0, attempt, "end")
        elif attempt.halted:
            self._at(0.0, attempt, "preempted")
        else:
            self._next(attempt)

    def _next(self, attempt: _SimulatedAttempt) -> None:
        """Ask the model for the next result and when it comes."""
        try:
            if attempt.script is None:
                job = attempt.launch.job
                attempt.script = itertools.islice(self._model(job.config), job.start_iteration, None)
            duration, attempt.metrics = next(attempt.script)
        except StopIteration:
            self._at(0.0, attempt, "end")
        except Exception as error:  # the model's trial fails with it
            attempt.error = AttemptErrored(type(error).__name__, message_of(error), writable(traceback.format_exc()))
            self._at(0.0, attempt, "end")
        else:
            self._at(duration, attempt, "report")

    def _over(
        self, attempt: _SimulatedAttempt, status: int, reason: base.ExitReason | None, events: list[base.Event]
    ) -> None:
        attempt.over = True
        del self._attempts[attempt.trial_id]
        self._nodes.give_back(attempt.node, attempt.share)
        events.append(base.Exited(attempt.trial_id, attempt.number, status, reason))


@dataclass(slots=True, eq=False)
class _SimulatedAttempt:
    """A running trial that exists only here."""

    launch: base.Launch
    node: int
    share: Share
    pid: int
    keys: AutomaticKeys = field(init=False)
    script: Iterator[tuple[float, Mapping[str, Any]]] | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    answer: Answer | None = None
    error: AttemptErrored | None = None
    halted: bool = False
    over: bool = False
    trial_id: str = field(init=False)
    number: int = field(init=False)

    def __post_init__(self) -> None:
        self.trial_id = self.launch.job.trial_id
        self.number = self.launch.job.attempt
