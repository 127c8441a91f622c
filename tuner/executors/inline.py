"""InlineExecutor: trials run in the driver's own process and thread, one after another, for debuggers and tests."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables import wire
from tuner.executors.base import KILLED, Dispatch, Event, Executor, Exited, Launch, Message, Resources, Started
from tuner.executors.pool import detect
from tuner.executors.reactor import Reactor

if TYPE_CHECKING:
    from trainables.runtime.reuse import Reuse


class InlineExecutor(Executor):
    """Runs every trial here, one at a time, so that a breakpoint in the trainable works.

    `run_once` runs a whole attempt; each of its messages is dispatched from within. Checkpoints are published before
    `report` returns. What needs a process of its own is not there: output goes where it goes, `launch.environment` and
    time limits have no effect, and `kill` acts at the trial's next report. The random generators that a trial seeds are
    put back after it. With `reuse_actors=True` the object of a class goes from one trial to the next.

    Example:
        >>> executor = InlineExecutor()
        >>> executor.can_launch({"cpu": 1})
        True
    """

    inline = True
    keeps_processes = True
    max_concurrent = 1  # one begins only when the loop turns to it: all would be created before the first has a result

    def __init__(self) -> None:
        self._total, _ = detect()
        self._trainable: Any = None
        self._queue: deque[Launch] = deque()
        self._link: _InlineLink | None = None
        self._reuse: Reuse | None = None
        self._reactor = Reactor()

    def total(self) -> Resources:
        return self._total

    def start(self, trainable: Any, *, lock_fds: Sequence[int] = (), marker: str = "", temporary: Path) -> None:
        self._trainable = trainable

    @property
    def is_in_users_code(self) -> bool:
        return self._link is not None and self._link.is_working

    def can_launch(self, resources: Resources, promised: Sequence[Resources] = ()) -> bool:
        return not self._queue and self._link is None

    def launch(self, launch: Launch) -> None:
        self._queue.append(launch)

    def tell(self, trial_id: str, message: wire.ToTrial) -> None:
        if self._link is not None and self._link.trial_id == trial_id:
            self._link.hear(message)

    def kill(self, trial_id: str) -> None:
        if self._link is not None and self._link.trial_id == trial_id:
            self._link.killed = True
        elif (launch := next((each for each in self._queue if each.job.trial_id == trial_id), None)) is not None:
            self._queue.remove(launch)
            exited = Exited(trial_id, launch.job.attempt, KILLED, "killed")
            self._reactor.call_soon(lambda events: events.append(exited))

    def run_once(self, dispatch: Dispatch, timeout: float | None) -> None:
        events: list[Event] = []
        self._reactor.wait(0.0 if self._queue else timeout, events)
        if events:
            dispatch(events)
        elif self._queue:
            self._run(self._queue.popleft(), dispatch)

    def wake(self) -> None:
        self._reactor.wake()

    def end_idle(self) -> None:
        if self._reuse is not None and not self._queue:
            self._reuse.drop()

    def shutdown(self, *, grace_s: float = 0.0) -> None:
        self._queue.clear()
        self.end_idle()

    def _run(self, launch: Launch, dispatch: Dispatch) -> None:
        from trainables.runtime.reuse import Reuse
        from trainables.runtime.worker import run_job  # the driver needs them for this executor only

        job = launch.job
        link = self._link = _InlineLink(job.trial_id, job.attempt, dispatch)
        restore = _random_states()
        try:
            link.deliver([Started(job.trial_id, job.attempt, os.getpid())])
            if not link.killed:
                if launch.reuse and self._reuse is None:
                    self._reuse = Reuse(in_place=True)
                link.is_working = True
                run_job(job, self._trainable, link, own_process=False, reuse=self._reuse)
            link.deliver(link.take_posted())
        except ConnectionError:
            if link.failure is None:
                raise
        finally:
            self._link = None
            restore()
        if link.failure is not None:
            raise link.failure
        ended = Exited(job.trial_id, job.attempt, 0)
        dispatch([replace(ended, status=KILLED, reason="killed") if link.killed else ended])


class _InlineLink(wire.DriverLink):
    """`trainables.wire.Link` by plain calls into the loop.

    The loop lives in one thread. What a publisher thread posts waits for the next call from that thread; a blocking
    publish has the trial wait meanwhile.
    """

    def __init__(self, trial_id: str, attempt: int, dispatch: Dispatch) -> None:
        self.trial_id = trial_id
        self.killed = False
        self.failure: BaseException | None = None
        """What the loop raised: the driver's failure, not the trial's."""
        self.is_working = False
        """The trial's code runs, and has not called the loop."""
        self._attempt = attempt
        self._dispatch = dispatch
        self._thread = threading.get_ident()
        self._posted: deque[Event] = deque()
        self._answers: list[wire.Answer] = []
        self._durable = -1
        self._halted = False

    def deliver(self, events: Sequence[Event]) -> None:
        """Hand events to the loop. Raises ConnectionError, as a socket would, when it has failed."""
        if self.failure is None and events:
            working, self.is_working = self.is_working, False
            try:
                self._dispatch(events)
            except BaseException as error:
                self.failure = error
            self.is_working = working
        if self.failure is not None:
            raise ConnectionError("the driver has failed") from self.failure

    def take_posted(self) -> list[Event]:
        posted = list(self._posted)
        for _ in posted:
            self._posted.popleft()
        return posted

    def hear(self, message: wire.ToTrial) -> None:
        if isinstance(message, wire.Answer):
            self._answers.append(message)
            self._halted |= message.should_stop
        elif isinstance(message, wire.Durable):
            self._durable = max(self._durable, message.iteration)
        elif isinstance(message, wire.Halt):
            self._halted = True

    def call(self, report: wire.Report, meanwhile: Callable[[], None] = wire.nothing) -> wire.Answer:
        self._answers.clear()
        meanwhile()
        self.deliver([*self.take_posted(), Message(self.trial_id, self._attempt, report)])
        if self.killed:
            raise ConnectionError("the trial was ended")
        if not self._answers:
            raise RuntimeError("the loop returned from dispatch without an answer")
        return self._answers[-1]

    def send(self, message: wire.Finished | wire.AttemptErrored | wire.Preempted) -> None:
        if self.failure is None and not self.killed:
            self.deliver([*self.take_posted(), Message(self.trial_id, self._attempt, message)])

    def post(self, message: wire.SideMessage) -> None:
        self._posted.append(Message(self.trial_id, self._attempt, message))
        if threading.get_ident() == self._thread:
            self.deliver(self.take_posted())

    def wait_durable(self, iteration: int) -> None:
        if self._durable < iteration and threading.get_ident() == self._thread:
            working, self.is_working = self.is_working, False
            self._dispatch([])  # the loop settles what is due
            self.is_working = working
        if self._durable < iteration:
            raise RuntimeError(f"the journal is durable up to iteration {self._durable}, not {iteration}")

    def halted(self) -> bool:
        return self._halted

    def watch(self, changed: Callable[[], None]) -> None:
        """Nothing to watch: the loop runs in this thread, and speaks only while it is called."""


def _random_states() -> Callable[[], None]:
    """Remember the driver's random generators; call the result to put them back."""
    python = random.getstate()
    numpy: Any = sys.modules.get("numpy.random")
    torch: Any = sys.modules.get("torch")
    state = None if numpy is None else numpy.get_state()
    tensor = None if torch is None else torch.get_rng_state()

    def restore() -> None:
        random.setstate(python)
        if numpy is not None:
            numpy.set_state(state)
        if torch is not None:
            torch.set_rng_state(tensor)

    return restore
