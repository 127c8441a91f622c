"""CallerExecutor: attempts run in processes that are not ours, which ask for trials and report (`tune.open_session`).

Room is there while a caller asks. What the loop launches goes to whoever asked first; a launch whose caller has died
meanwhile waits for the next one. An answer to a report is sent when the journal has it: a caller that goes on after a
driver's death is ahead of the next one by the report that was not answered, and by no more.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from trainables.net.frames import frame
from trainables.starting import start_thread
from trainables.wire import Answer, ToTrial
from tuner.executors.base import (
    KILLED,
    Dispatch,
    Event,
    Executor,
    Exited,
    Launch,
    Offered,
    Released,
    Resources,
    Started,
    Told,
)
from tuner.executors.callers.caller_lines import CallerLine, CallerLines
from tuner.executors.callers.caller_words import Adopted, Handed, LetIn, NoTrial, Over, RunOver
from tuner.executors.callers.doors import Doors
from tuner.executors.local.pickled import pickle_job
from tuner.executors.pool import detect
from tuner.executors.reactor import Reactor
from tuner.experiment import holding


class CallerExecutor(Executor):
    """Hands trials to callers.

    Args:
        ready: called with the doors, once callers may knock; returns what they are told first.
        opener: the door of the caller that has started this process.
        listen: the IP address at which callers of other hosts are let in; "": they are not.
    """

    def __init__(self, ready: Callable[[Doors], LetIn], opener: socket.socket, *, listen: str = "") -> None:
        self._total, _ = detect()
        self._ready, self._opener, self._listen = ready, opener, listen
        self._reactor = Reactor()
        self._lines = CallerLines(self._reactor)
        self._queue: deque[Launch] = deque()
        """Launched, and given to nobody yet."""
        self._held: list[tuple[CallerLine, Answer]] | None = None
        """While the loop is at work: answers that are sent when it has written them down."""

    def total(self) -> Resources:
        return self._total

    def start(self, trainable: Any, *, lock_fds: Sequence[int] = (), marker: str = "", temporary: Path) -> None:
        doors = self._lines.doors = Doors(self._reactor, self._lines, temporary / "callers", listen=self._listen)
        doors.welcome = self._ready(doors)
        doors.let_in(self._opener)

    @property
    def deserted(self) -> bool:
        """The last caller has left, or is gone."""
        return self._lines.doors is not None and not self._lines.anybody

    def can_launch(self, resources: Resources, promised: Sequence[Resources] = ()) -> bool:
        return len(self._lines.askers) > len(promised) + len(self._queue)

    def awaits_room(self) -> bool:
        return not self.deserted

    def filled(self, coming: int) -> None:
        for asker in list(self._lines.askers)[coming + len(self._queue) :]:
            if not asker.waits:
                self._lines.askers.remove(asker)
                asker.say(NoTrial())
                asker.close()

    def prepare(self, launch: Launch) -> Launch:
        return replace(launch, packed=pickle_job(launch.job, f"the config of trial {launch.job.trial_id}"))

    def launch(self, launch: Launch) -> None:
        self._queue.append(launch)
        self._hand()

    def outlives(self, trial_id: str, attempt: int, directory: Path) -> bool:
        if not holding.is_held(directory):
            return False

        def wait() -> None:
            holding.wait_until_free(directory)
            self._reactor.call_soon(lambda events: events.append(Released(trial_id, attempt)))

        start_thread(wait, name="wait-for-caller")
        return True

    def adopt(self, offered: Offered, *, iteration: int, then: Told) -> None:
        line = self._lines.offers.pop(offered.trial_id, None)
        if line is None:  # it has died
            exited = Exited(offered.trial_id, offered.attempt, KILLED, "lost")
            self._reactor.call_soon(lambda events: events.append(exited))
            return
        self._lines.attempts[offered.trial_id] = line
        line.say(Adopted(iteration, then))

    def decline(self, offered: Offered, *, ended: bool) -> None:
        line = self._lines.offers.pop(offered.trial_id, None)
        if line is not None:
            line.say(Over("stop" if ended else "pause"))
            line.close()

    def tell(self, trial_id: str, message: ToTrial) -> None:
        line = self._lines.attempts.get(trial_id)
        if line is None:
            return
        if not isinstance(message, Answer):
            line.side.send(frame(message))
        elif self._held is None:
            line.main.send(frame(message))
        else:
            self._held.append((line, message))

    def kill(self, trial_id: str) -> None:
        line = self._lines.attempts.pop(trial_id, None)
        launch = next((each for each in self._queue if each.job.trial_id == trial_id), None)
        if line is not None:
            exited = Exited(trial_id, line.attempt, KILLED, "killed")
            line.close()
        elif launch is not None:
            exited = Exited(trial_id, launch.job.attempt, KILLED, "killed")
            self._queue.remove(launch)
        else:
            return
        self._reactor.call_soon(lambda events: events.append(exited))

    def run_once(self, dispatch: Dispatch, timeout: float | None) -> None:
        self._hand()
        events: list[Event] = []
        self._reactor.wait(timeout, events)
        if not events:
            return
        held: list[tuple[CallerLine, Answer]] = []
        self._held = held
        try:
            dispatch(events)
        finally:
            self._held = None
        for line, answer in held:
            line.main.send(frame(answer))
        self._lines.settle()

    def wake(self) -> None:
        self._reactor.wake()

    def shutdown(self, *, grace_s: float = 0.0) -> None:
        for asker in self._lines.askers:
            asker.say(NoTrial(ends=True))
        self._queue.clear()
        self._lines.close()

    def say_over(self, last: RunOver) -> None:
        """The driver's last word, when all is written down, or when it cannot begin."""
        if self._lines.doors is None:
            self._opener.send(msgspec.json.encode(last))
        else:
            self._lines.say_over(last)

    def _hand(self) -> None:
        """Give what was launched to those who ask."""
        while self._queue and self._lines.askers:
            launch, line = self._queue.popleft(), self._lines.askers.popleft()
            job, packed = launch.job, launch.packed
            assert packed is not None
            line.trial_id, line.attempt = job.trial_id, job.attempt
            self._lines.attempts[job.trial_id] = line
            line.say(Handed(packed))
            self._start(Started(job.trial_id, job.attempt, line.door.pid))

    def _start(self, started: Started) -> None:
        self._reactor.call_soon(lambda events: events.append(started))
