"""LocalExecutor: the driver's end of everything, on one reactor and one thread."""

from __future__ import annotations

import logging
import marshal
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from trainables.errors import LimitError
from trainables.net.frames import frame
from trainables.starting import no_process
from trainables.wire import Answer, AttemptErrored, Finished, Preempted, Reusable, ToTrial, decode_from_trial
from tuner.clock import Clock, SystemClock
from tuner.executors.base import KILLED, Death, Dispatch, Event, Executor, Exited, Launch, Message, Resources, Started
from tuner.executors.local.first_words import BLOCKS, HELLO
from tuner.executors.local.keeper import CANNOT_FORK
from tuner.executors.local.kept import KeptProcess
from tuner.executors.local.lines import OutputPipe, TextSink, TrialSocket, terminal
from tuner.executors.local.local_attempts import Deadlines, LocalAttempt
from tuner.executors.local.out_of_memory import OomKills
from tuner.executors.local.pickled import TrainableFile, pickle_job, write_trainable
from tuner.executors.local.room import Room
from tuner.executors.local.server import ForkServer
from tuner.executors.local.slots import Slots
from tuner.executors.pool import Pool, Share, detect, together
from tuner.executors.reactor import Reactor

log = logging.getLogger(__name__)

_LAST_WORDS = (Finished, AttemptErrored, Preempted)


class LocalExecutor(Executor):
    """Runs every attempt in a fresh process of this machine.

    Args:
        cpus: cores to hand out; default: those that this process may run on.
        gpus: GPUs to hand out, a whole number; default: all that are visible. A trial sees its own ones through
            `CUDA_VISIBLE_DEVICES`; fractions share one.
        resources: custom resources and their amounts, for example `{"licence": 2}`.
        clock: for deadlines.

    Example:
        >>> executor = LocalExecutor(cpus=4, resources={"licence": 1})
        >>> executor.total()["licence"]
        1.0
    """

    worker = "trainables.runtime.worker"
    """Module with `run_job`, as trials import it."""
    keeps_processes = answers_ahead = True
    idle_s: float | None = None
    """For so long, at most, a process waits for another attempt; None: as long as nobody needs what it has."""

    def __init__(
        self,
        cpus: float | None = None,
        gpus: float | None = None,
        *,
        resources: Mapping[str, float] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._total, ids = detect(cpus=cpus, gpus=gpus, resources=resources)
        self._hide_gpus = gpus != 0 and bool(ids)
        self._clock: Clock = clock or SystemClock()
        self._trainable: TrainableFile | None = None
        self._slots: Slots | None = None
        self._kills: OomKills | None = None
        self._attempts: dict[str, LocalAttempt] = {}
        self._deadlines = Deadlines(self._clock)
        self._room = Room(Pool(self._total, ids), self._deadlines, self.idle_s)
        self.reactor = Reactor()

    def total(self) -> Resources:
        return self._total

    def start(self, trainable: Any, *, lock_fds: Sequence[int] = (), marker: str = "", temporary: Path) -> None:
        self.start_written(write_trainable(trainable, Path(temporary)), lock_fds=lock_fds, marker=marker)

    def start_written(self, trainable: TrainableFile, *, lock_fds: Sequence[int] = (), marker: str = "") -> None:
        """`start`, with a trainable that is on the disk already."""
        self._trainable, self._kills = trainable, OomKills()
        start = partial(ForkServer, trainable, worker=self.worker, lock_fds=tuple(lock_fds), marker=marker)
        self._slots = Slots(
            self.reactor,
            lambda skip: start(skip=skip),
            trainable.imports,
            ended=self._over,
            keep=self._keep,
            left=self._room.kept.gone,
            note=self.note,
        )

    def can_launch(self, resources: Resources, promised: Sequence[Resources] = ()) -> bool:
        if self._room.queue or self.awaits_room():
            return False
        return self._room.fits(together(resources, promised))

    def awaits_room(self) -> bool:
        return self._slots is not None and not self._slots.usable  # until what a dead server left is ended

    def launch(self, launch: Launch) -> None:
        self._room.queue.append(launch)
        self._place()

    def tell(self, trial_id: str, message: ToTrial) -> None:
        attempt = self._attempts.get(trial_id)
        if attempt is not None:
            (attempt.main if isinstance(message, Answer) else attempt.side).send(frame(message))

    def kill(self, trial_id: str) -> None:
        attempt = self._attempts.get(trial_id)
        if attempt is not None:
            attempt.end("killed")
        elif (launch := self._room.remove(trial_id)) is not None:
            exited = Exited(trial_id, launch.job.attempt, KILLED, "killed")
            self.reactor.call_soon(lambda events: events.append(exited))

    def run_once(self, dispatch: Dispatch, timeout: float | None) -> None:
        assert self._slots is not None, "start() comes first"
        self._place()
        events: list[Event] = []
        self.reactor.wait(self._deadlines.bound(timeout), events)
        for attempt, reason in self._deadlines.passed():
            attempt.end(reason)
        if events:
            dispatch(events)

    def wake(self) -> None:
        self.reactor.wake()

    def owned_processes(self) -> list[tuple[int, int]]:
        return [] if self._slots is None else self._slots.processes()

    def end_idle(self) -> None:
        if not self._room.queue:
            self._room.kept.let_go(self._room.kept.all)

    def shutdown(self, *, grace_s: float = 0.0) -> None:
        if self._slots is not None:
            deadline = self._clock.monotonic() + grace_s
            while self._attempts and (left := deadline - self._clock.monotonic()) > 0:
                self.run_once(lambda events: None, left)
            self._room.clear()
            self.end_idle()
            while self._room.kept.all:  # they give back what they have; each has its own grace time
                self.run_once(lambda events: None, None)
            self._slots.close()
            for attempt in self._attempts.values():
                attempt.close()
            self._slots = None
            self._attempts.clear()
        if self._trainable is not None:  # also when the fork server could not be started
            self._trainable.remove()

    def shown(self, launch: Launch, name: Literal["stdout", "stderr"]) -> TextSink | None:
        """Where the output of an attempt with `tee` goes beside its file."""
        return terminal(name)

    def _place(self) -> None:
        """Begin what there is room for, and give what has begun a process."""
        assert self._slots is not None, "start() comes first"
        while self._room.queue and (found := self._room.take(len(self._attempts))) is not None:
            self._begin(*found, self._slots)
        self._slots.place()

    def _begin(self, launch: Launch, share: Share, kept: KeptProcess | None, slots: Slots) -> None:
        job = launch.packed or pickle_job(launch.job, f"the config of trial {launch.job.trial_id}")
        # The process has the config: once is enough.
        launch = replace(launch, job=replace(launch.job, config={}), packed=None if kept is None else job)
        attempt = LocalAttempt(launch, share, later=kept is not None)
        setup = _setup(launch, share, hide_gpus=self._hide_gpus)
        (ours, theirs), (our_side, their_side) = socket.socketpair(), socket.socketpair()
        attempt.ends = [theirs, their_side]
        attempt.main = TrialSocket(ours, self.reactor, lambda events: self._read(attempt, attempt.main, events))
        attempt.side = TrialSocket(our_side, self.reactor, lambda events: self._read(attempt, attempt.side, events))
        if launch.tee and launch.stdout is not None and launch.stderr is not None:
            attempt.outputs = [
                OutputPipe(launch.stdout, self.shown(launch, "stdout"), self.reactor),
                OutputPipe(launch.stderr, self.shown(launch, "stderr"), self.reactor),
            ]
        attempt.main.send(BLOCKS.pack(len(setup), len(job)) + setup + job)
        if kept is None:
            slots.add(attempt)
        elif slots.hand_on(kept, attempt):
            self._room.kept.remove(kept)
        else:
            self._room.kept.let_go([kept])  # it has died, and holds the share until that is reported
            attempt.close()
            self._room.add_again(attempt.launch)
            return
        self._attempts[attempt.trial_id] = attempt
        if launch.timeout_s is not None:
            self._deadlines.add(launch.timeout_s, attempt, "timeout")

    def _read(self, attempt: LocalAttempt, sock: TrialSocket, events: list[Event]) -> bool:
        """Read once from a socket; False when there is nothing more to read now."""
        data = sock.read()
        if not data:
            if data is not None:
                sock.hush()
            return False
        is_main = sock is attempt.main
        if is_main and not attempt.pid:
            attempt.pid = HELLO.unpack_from(data)[0]  # the first thing it writes, in one piece
            if attempt.later:
                attempt.later, attempt.launch = False, replace(attempt.launch, packed=None)
            events.append(Started(attempt.trial_id, attempt.number, attempt.pid))
            data = data[HELLO.size :]
        try:
            for body in sock.frames.feed(data):
                message = decode_from_trial(body)
                if isinstance(message, _LAST_WORDS):
                    self._deadlines.add(attempt.launch.job.grace_s, attempt, None)
                elif type(message) is Reusable:
                    assert self._slots is not None
                    self._slots.stays(attempt)
                    continue
                events.append(Message(attempt.trial_id, attempt.number, message))
        except msgspec.DecodeError as error:
            log.error("trial %s wrote into its driver's line and is ended: %s", attempt.trial_id, error)
            sock.hush()
            attempt.end(None)
            return False
        return True

    def _hear_out(self, attempt: LocalAttempt, events: list[Event]) -> None:
        for sock in (attempt.main, attempt.side):
            while self._read(attempt, sock, events):
                pass
        for output in attempt.outputs:
            while output.pump():
                pass

    def _keep(self, attempt: LocalAttempt, keeper: socket.socket, events: list[Event]) -> KeptProcess:
        """Nothing of the attempt is left but its process, which waits for another one."""
        self._hear_out(attempt, events)
        attempt.close(main=False)
        del self._attempts[attempt.trial_id]
        events.append(Exited(attempt.trial_id, attempt.number, 0))
        return self._room.kept.add(attempt, keeper)

    def _over(self, attempt: LocalAttempt, pid: int, status: int, peak_kb: int, events: list[Event]) -> None:
        """Nothing of the attempt is left: hear out what it had said, free what it held."""
        self._hear_out(attempt, events)
        if attempt.later and attempt.reason in (None, "lost"):  # it has not begun
            attempt.close()
            del self._attempts[attempt.trial_id]
            self._room.pool.give_back(attempt.share)
            self._room.add_again(attempt.launch)
            return
        if not attempt.pid and pid:
            events.append(Started(attempt.trial_id, attempt.number, pid))
        if status == CANNOT_FORK and not pid:
            why = str(no_process(f"trial {attempt.trial_id}"))
            events.append(Message(attempt.trial_id, attempt.number, AttemptErrored(LimitError.__name__, why, "")))
        reason = attempt.reason
        if reason == "timeout" and status != KILLED:
            reason = None  # it ended by itself before the signal came
        attempt.close()
        del self._attempts[attempt.trial_id]
        self._room.pool.give_back(attempt.share)
        death = _death(self._kills, pid, status, peak_kb) if status and reason is None else None
        events.append(Exited(attempt.trial_id, attempt.number, status, reason, death))


def _death(kills: OomKills | None, pid: int, status: int, peak_kb: int) -> Death:
    return Death(peak_kb * 1024) if status != KILLED or kills is None else kills.death(pid, peak_kb * 1024)


def _setup(launch: Launch, share: Share, *, hide_gpus: bool) -> bytes:
    """What the process is told before its job."""
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(share.gpus)} if share.gpus or hide_gpus else {}
    told = {
        "stdout": None if launch.stdout is None else os.fspath(launch.stdout),
        "stderr": None if launch.stderr is None else os.fspath(launch.stderr),
        "cpus": float(launch.resources.get("cpu", 1.0)),
        "environment": {**gpus, **launch.environment},
    }
    return marshal.dumps({**told, "reuse": True} if launch.reuse else told)
