"""SimulatedExecutor: scripted trials on virtual time, for tests of everything above it.

No process, no thread, no disk, no waiting: a hundred thousand trials fit into one test.
"""

from __future__ import annotations

import heapq
import inspect
import itertools
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from trainables import tagged
from trainables.automatic import AutomaticKeys
from trainables.runtime.cadence import SaveCadence
from trainables.runtime.tracebacks import message_of, writable
from trainables.trainable import Trainable, saves
from trainables.wire import (
    Answer,
    AttemptErrored,
    Durable,
    Finished,
    Halt,
    Preempted,
    Report,
    SavePublished,
    ToTrial,
)
from tuner.clock import VirtualClock
from tuner.error import SettingError, require
from tuner.executors import base
from tuner.executors.pool import NodePools, check_fits
from tuner.executors.simulated_attempt import Model, SaveModel, SimulatedAttempt

_What = Literal["start", "loaded", "report", "saved", "preempted", "end", "killed", "timeout", "lost"]
_FIRST_PID = 100_000


class SimulatedExecutor(base.Executor):
    """Runs trials that are only described, on a clock that jumps from one event to the next.

    Without `save` they save nothing: no scheduler can pause or clone one, and a trainable that saves when it is told to
    is refused. With it they save when they are told to, whatever the trainable is, so that every scheduler runs here,
    `checkpoint_frequency` and `checkpoint_at_end` hold, and retention and budgets decide as about real checkpoints.
    These are facts of the journal, and nothing of them is on a disk: a resume with such an executor goes on from them.
    They lie where all nodes see them: a lost node takes only what was being saved there.

    Args:
        model: the trials' behaviour. One that raises fails its trial. A trial that starts from a checkpoint leaves out
            as many results as its own count of iterations says; a clone's is its own, not the donor's.
        save: from a config to the `SimulatedSave` that says what a checkpoint of its trial costs. Saving and loading
            hold the slot, and count for no result. A trial whose model ends says `done` with its last result, as a
            class does. None: trials save nothing.
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
        save: SaveModel | None = None,
        slots: float = 1,
        resources: Mapping[str, float] | None = None,
        nodes: int = 1,
        losses: Iterable[tuple[float, int]] = (),
        clock: VirtualClock | None = None,
        directories: bool = True,
    ) -> None:
        require(
            save is None or callable(save), "save", save, "it is a function from a config to a SimulatedSave, or None"
        )
        self.directories = directories
        self.clock: VirtualClock = clock or VirtualClock()
        self._model, self._save = model, save
        self.virtual_checkpoints = save is not None
        self._each: dict[str, float] = {"cpu": float(slots), **(resources or {})}
        self._nodes = NodePools(self._each, nodes)
        self._heap: list[tuple[float, int, SimulatedAttempt | int, _What]] = []
        self._order = itertools.count()
        self._pids = itertools.count(_FIRST_PID)
        self._attempts: dict[str, SimulatedAttempt] = {}
        self._woken = False
        for seconds, node in losses:
            self._at(seconds, node, "lost")

    def total(self) -> base.Resources:
        return self._nodes.total

    def start(self, trainable: Any, *, lock_fds: Sequence[int] = (), marker: str = "", temporary: Path) -> None:
        """Do nothing: the model stands for the trainable. Raises SettingError for one that saves, without `save`."""
        if self._save is not None:
            return
        if inspect.isclass(trainable) and issubclass(trainable, Trainable) and saves(trainable):
            raise SettingError(
                f"the class {trainable.__name__} cannot be simulated: SimulatedExecutor saves nothing, so that a trial "
                "that a scheduler pauses would begin anew each time; accepted are SimulatedExecutor(save=), which says "
                "what a checkpoint costs, or a function, which may do nothing, and a class without save_checkpoint(): "
                "these are never paused"
            )

    def can_launch(self, resources: base.Resources, promised: Sequence[base.Resources] = ()) -> bool:
        return self._nodes.fits(resources, promised)

    def launch(self, launch: base.Launch) -> None:
        check_fits(launch.resources, self._each)
        attempt = SimulatedAttempt(launch, *self._nodes.take(launch.resources), next(self._pids))
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
        elif isinstance(message, Durable):
            attempt.durable = message.iteration

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
            self._after_dispatch(attempt)

    def wake(self) -> None:
        self._woken = True

    def shutdown(self, *, grace_s: float = 0.0) -> None:
        self._heap.clear()
        self._attempts.clear()

    def _lose(self, node: int, events: list[base.Event]) -> None:
        self._nodes.lose(node)
        for attempt in [attempt for attempt in self._attempts.values() if attempt.node == node]:
            self._over(attempt, base.KILLED, "lost", events)

    def _at(self, seconds: float, attempt: SimulatedAttempt | int, what: _What) -> None:
        heapq.heappush(self._heap, (self.clock.monotonic() + seconds, next(self._order), attempt, what))

    def _happen(self, attempt: SimulatedAttempt, what: _What, events: list[base.Event]) -> bool:
        """Let one thing happen to an attempt; True if it goes on once that is dispatched."""
        trial_id, number = attempt.trial_id, attempt.number
        if what == "report":
            metrics = attempt.keys.complete(attempt.metrics)
            report = Report(attempt.keys.iteration, msgspec.Raw(tagged.dumps(metrics)), None, *attempt.save_due())
            attempt.answer = None
            events.append(base.Message(trial_id, number, report))
            return True
        if what == "start":
            events.append(base.Started(trial_id, number, attempt.pid))
            self._begin(attempt)
            return False
        if what == "loaded":
            self._go_on(attempt)
            return False
        if what == "saved":
            return self._publish(attempt, events)
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

    def _begin(self, attempt: SimulatedAttempt) -> None:
        job = attempt.launch.job
        if job.save_pace is not None and self._save is not None:
            attempt.cadence = SaveCadence(job.save_pace, self.clock)
        attempt.keys = AutomaticKeys(
            clock=self.clock,
            trial_id=attempt.trial_id,
            experiment_tag=job.experiment_tag,
            iteration=job.start_iteration,
            time_total_s=job.start_time_total_s,
        )
        if job.checkpoint is None or self._save is None:
            self._next(attempt)
        else:
            self._held(attempt, "loaded")

    def _publish(self, attempt: SimulatedAttempt, events: list[base.Event]) -> bool:
        """The save has taken its time: the checkpoint is there once the journal has its result."""
        ref, cost = attempt.saving, attempt.cost
        assert ref is not None and cost is not None
        if attempt.durable < ref.iteration:
            raise RuntimeError(f"the journal is durable up to iteration {attempt.durable}, not {ref.iteration}")
        if attempt.cadence is not None:
            attempt.cadence.saved()
        events.append(base.Message(attempt.trial_id, attempt.number, SavePublished(ref, cost.bytes, "")))
        return True

    def _after_dispatch(self, attempt: SimulatedAttempt) -> None:
        if attempt.over:
            return
        answer = attempt.answer
        if answer is None:
            raise RuntimeError(f"trial {attempt.trial_id} got no answer to its report")
        if answer.save and self._save is not None and attempt.saving is None:
            attempt.saving = attempt.next_save()
            self._held(attempt, "saved")
        else:
            attempt.saving = None
            self._go_on(attempt)

    def _held(self, attempt: SimulatedAttempt, until: Literal["loaded", "saved"]) -> None:
        """It saves, or loads, and keeps its slot for as long as that takes."""
        assert self._save is not None
        try:
            cost = attempt.cost_of_save(self._save)
        except Exception as error:
            self._fail(attempt, error)
        else:
            self._at(cost.load_s if until == "loaded" else cost.save_s, attempt, until)

    def _go_on(self, attempt: SimulatedAttempt) -> None:
        if attempt.answer is not None and attempt.answer.then != "continue":
            self._at(0.0, attempt, "end")
        elif attempt.halted:
            self._at(0.0, attempt, "preempted")
        else:
            attempt.keys.start_step()
            self._next(attempt)

    def _next(self, attempt: SimulatedAttempt) -> None:
        """Ask the model for the next result and when it comes."""
        try:
            duration, attempt.metrics = attempt.next_step(self._model, says_done=self._save is not None)
        except StopIteration:
            self._at(0.0, attempt, "end")
        except Exception as error:  # the model's trial fails with it
            self._fail(attempt, error)
        else:
            self._at(duration, attempt, "report")

    def _fail(self, attempt: SimulatedAttempt, error: Exception) -> None:
        attempt.error = AttemptErrored(type(error).__name__, message_of(error), writable(traceback.format_exc()))
        self._at(0.0, attempt, "end")

    def _over(
        self, attempt: SimulatedAttempt, status: int, reason: base.ExitReason | None, events: list[base.Event]
    ) -> None:
        attempt.over = True
        del self._attempts[attempt.trial_id]
        self._nodes.give_back(attempt.node, attempt.share)
        events.append(base.Exited(attempt.trial_id, attempt.number, status, reason))
