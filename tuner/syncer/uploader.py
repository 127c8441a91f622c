"""The driver's end of a replica's agent: jobs go out, answers come in, and an agent that hangs is replaced."""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle
import msgspec

from trainables import errors
from trainables.errors import InvalidSettingError, MissingExtraError, TransferError
from trainables.starting import start_process, start_thread
from trainables.transfer import agent
from trainables.transfer.agent import AnyJob, Begun, Done, Failed, Moved, PlaceOpened
from trainables.transfer.backend import Can
from trainables.wire import Frames, frame
from tuner.error import SettingError
from tuner.syncer.patience import patient

log = logging.getLogger(__name__)

START_S = 30.0
"""An agent that has not looked at its place after so long is no use: its own look ends after 10 s."""
CLOSE_S = 5.0
"""So long an agent may take to leave when it is told to."""
MAX_LOST = 3
"""Agents in a row that may be lost over one job, or before they have looked at the place."""
LOST = "AgentLost"
"""The type of a `Failed` that says: the agent was ended, or has died, over that job."""
_LOOKS = (agent.Read, agent.Children, agent.ListKeys, agent.FetchFiles)


class Uploader(ABC):
    """Does jobs on one place. Safe to use from one thread."""

    can: Can
    uri: str
    """The place, as messages name it."""
    beside: bool = True
    """Jobs are done beside the caller; it may wait for them."""
    heard_at: float = 0.0
    """Monotonic time of the last sign of progress."""
    closed: bool = False
    lost: int = 0
    """Agents that were ended, or have died, over their work."""

    @abstractmethod
    def submit(self, job: AnyJob) -> int:
        """Have a job done; returns the number that its answer will have. Never blocks."""

    @abstractmethod
    def answers(self) -> list[Done | Failed]:
        """What ended since the last call."""

    def call(self, job: AnyJob, *, timeout_s: float) -> bytes:
        """Do one job and wait for it. Raises TransferError, also when nothing moves for `timeout_s` seconds.

        What only looks is asked again, for so long, while the store is overloaded. Over an agent that somebody killed
        the job is done again: doing one twice comes to the same.
        """
        if isinstance(job, _LOOKS):
            return patient(lambda: self._call_again(job, timeout_s), timeout_s)
        return self._call_again(job, timeout_s)

    def _call_again(self, job: AnyJob, timeout_s: float) -> bytes:
        for _ in range(MAX_LOST - 1):
            try:
                return self._call(job, timeout_s)
            except _AgentLost as error:
                log.warning("%s; it is started anew", error)
        return self._call(job, timeout_s)

    def _call(self, job: AnyJob, timeout_s: float) -> bytes:
        number = self.submit(job)
        waiting: list[Done | Failed] = []
        hung = False
        while True:
            for answer in self.answers():
                if answer.id != number:
                    waiting.append(answer)
                    continue
                self._put_back(waiting)
                if isinstance(answer, Failed):
                    if answer.type == LOST and not hung:
                        raise _AgentLost(answer.message, transient=True)
                    raise as_error(answer)
                return answer.data
            hung = self._wait(timeout_s) or hung

    def silence(self, now: float) -> tuple[AnyJob, float] | None:
        """The job of which nothing was heard for longest, and since when in seconds; None: none runs."""
        return None

    def wait(self, timeout_s: float | None) -> None:
        """Return when `answers` may have something, at the latest after so many seconds."""

    def restart(self, why: str) -> None:
        """End what hangs: every job that runs fails, and may be done again."""

    def close(self) -> None:
        """End it; what still runs is given up."""

    def _put_back(self, answers: list[Done | Failed]) -> None:
        raise NotImplementedError

    def _wait(self, timeout_s: float) -> bool:
        """Wait a while for an answer; True: nothing moved for so long that the agent was ended."""
        raise NotImplementedError


class _AgentLost(TransferError):
    """The agent was killed, or has died, over a job that it was to do."""


def as_error(failed: Failed) -> TransferError | InvalidSettingError | MissingExtraError:
    """What the agent raised, as far as it can be known here."""
    kind = getattr(errors, failed.type, TransferError)
    if kind in (InvalidSettingError, MissingExtraError):
        return InvalidSettingError(failed.message) if kind is InvalidSettingError else MissingExtraError(failed.message)
    if not (isinstance(kind, type) and issubclass(kind, TransferError)):
        kind = TransferError
    error: TransferError = kind(failed.message, transient=failed.transient)
    return error


@dataclass(slots=True)
class _Running:
    job: AnyJob
    heard: float
    """Monotonic time at which it was last heard of."""
    begun: bool = False
    """It does not wait for its turn any more."""


class ProcessUploader(Uploader):
    """In a process of its own: what it costs is not the driver's, and what hangs can be ended.

    Args:
        arguments: keyword arguments of `trainables.transfer.open.open_backend`.
        wake: called from a thread when `answers` has something.

    Raises SettingError or TransferError when the place cannot be used.
    """

    def __init__(self, arguments: dict[str, Any], *, wake: Callable[[], None] = lambda: None) -> None:
        self._wake, self._place = wake, arguments.get("place")
        self._numbers = itertools.count(1)
        self._running: dict[int, _Running] = {}
        self._answers: queue.SimpleQueue[Done | Failed] = queue.SimpleQueue()
        self._back: list[Done | Failed] = []
        self._lock = threading.Lock()
        self._dead = False
        self._spoke = 0.0
        """Monotonic time at which the agent was started, or was last heard at all."""
        try:
            self._arguments = cloudpickle.dumps(arguments)
        except Exception as error:  # whatever a user's object raises
            text = f"syncer={arguments.get('syncer')!r} cannot be sent to the process that syncs: {error}"
            raise SettingError(text) from error
        self._greeting: queue.SimpleQueue[PlaceOpened | Failed] = queue.SimpleQueue()
        opened = self._open()
        for _ in range(MAX_LOST - 1):
            if isinstance(opened, Failed) and opened.type == LOST:
                log.warning("%s; it is started anew", opened.message)
                opened = self._open()
        if isinstance(opened, Failed):
            self.close()
            raise as_error(opened)
        self.can, self.uri = Can(**opened.can), opened.uri

    def _open(self) -> PlaceOpened | Failed:
        """Start an agent and hear what it says of its place."""
        self._start(check=True)
        try:
            return self._greeting.get(timeout=START_S)
        except queue.Empty:
            return Failed(0, "TransferError", f"{self._place}: no answer within {START_S:.0f} s")

    def submit(self, job: AnyJob) -> int:
        number = next(self._numbers)
        job = msgspec.structs.replace(job, id=number)
        message = frame(job)
        with self._lock:
            if self._dead:
                self._start(check=False)
            self._running[number] = _Running(job, time.monotonic())
        try:
            self._line.sendall(message)
        except OSError as error:
            self._end(Failed(number, LOST, f"the process that syncs is gone: {error}", transient=True))
        return number

    def answers(self) -> list[Done | Failed]:
        found, self._back = self._back, []
        while not self._answers.empty():  # nobody else takes from it
            found.append(self._answers.get())
        return found

    def silence(self, now: float) -> tuple[AnyJob, float] | None:
        with self._lock:
            begun = [running for running in self._running.values() if running.begun]
            oldest = min(begun or self._running.values(), key=lambda running: running.heard, default=None)
            # What waits for its turn is silent only if the agent is, and begins nothing.
            since = 0.0 if oldest is None else oldest.heard if begun else max(oldest.heard, self._spoke)
        return None if oldest is None else (oldest.job, now - since)

    def restart(self, why: str) -> None:
        log.warning("the process that syncs is started anew: %s", why)
        self._process.kill()  # its reader says of every job that it was lost

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):  # it has gone already
            self._line.shutdown(socket.SHUT_WR)  # with this it removes what it has in the temporary directory
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._line.close()

    def _start(self, *, check: bool) -> None:
        self._line, theirs = socket.socketpair()
        with theirs:
            self._process = start_process(
                [sys.executable, "-m", "trainables.transfer.agent", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the driver's
                what="syncing",
            )
        self._dead, self._spoke = False, time.monotonic()
        try:
            with contextlib.suppress(ConnectionError):  # it has died already: the reader says so
                self._line.sendall(frame(agent.OpenPlace(self._arguments, sys.path, check)))
            start_thread(self._read, name="uploader", args=(self._line, self._process))
        except BaseException:
            self.close()
            raise

    def _read(self, line: socket.socket, process: subprocess.Popen[bytes]) -> None:
        frames = Frames()
        while True:
            try:
                data = line.recv(65536)
            except OSError:
                data = b""
            if not data:
                break
            for body in frames.feed(data):
                answer = agent.decode_answer(body)
                if isinstance(answer, PlaceOpened) or (isinstance(answer, Failed) and answer.id == 0):
                    self._greeting.put(answer)
                elif isinstance(answer, Moved):
                    self._heard(answer.id)
                elif isinstance(answer, Begun):
                    self._has_begun(answer.id)
                else:
                    self._end(answer)
        why = f"the process that syncs ended ({process.wait()})"
        line.close()  # the next agent has another
        with self._lock:
            self._dead = True
            self.lost += not self.closed
            lost = [] if self.closed else list(self._running)
        self._greeting.put(Failed(0, LOST, why))  # nobody looks after the first that is no such one
        for number in lost:
            self._end(Failed(number, LOST, why, transient=True))

    def _has_begun(self, number: int) -> None:
        with self._lock:
            self._spoke = time.monotonic()
            if number in self._running:
                self._running[number].begun, self._running[number].heard = True, self._spoke

    def _heard(self, number: int) -> None:
        with self._lock:
            self.heard_at = self._spoke = time.monotonic()
            if number in self._running:
                self._running[number].heard = self.heard_at

    def _end(self, answer: Done | Failed) -> None:
        with self._lock:
            self._spoke = time.monotonic()
            known = self._running.pop(answer.id, None)
        if known is not None:
            self._answers.put(answer)
            self._wake()

    def wait(self, timeout_s: float | None) -> None:
        try:
            self._back.append(self._answers.get(timeout=timeout_s))
        except queue.Empty:
            pass

    def _put_back(self, answers: list[Done | Failed]) -> None:
        self._back.extend(answers)

    def _wait(self, timeout_s: float) -> bool:
        try:
            self._back.append(self._answers.get(timeout=1.0))
        except queue.Empty:
            silent = self.silence(time.monotonic())
            if silent is not None and silent[1] > timeout_s:
                self.restart(f"nothing moved for {silent[1]:.0f} s")
                return True
        return False


class InlineUploader(Uploader):
    """At once, on the caller's thread: for runs that must repeat, and for places that live in this process.

    Args:
        arguments: keyword arguments of `trainables.transfer.open.open_backend`.
        check: look whether the place takes what is written to it; who only reads may not be allowed to write.
        wake: called when `answers` has something: who waits for other things too need not wait any longer.
    """

    beside = False

    def __init__(
        self, arguments: dict[str, Any], *, check: bool = True, wake: Callable[[], None] = lambda: None
    ) -> None:
        from trainables.transfer.open import open_backend

        backend = open_backend(**arguments)
        if check:
            backend.check()
        self._worker, self._wake = agent.Worker(backend, arguments), wake
        self.can, self.uri = backend.can, backend.uri
        self._numbers = itertools.count(1)
        self._ended: list[Done | Failed] = []

    def submit(self, job: AnyJob) -> int:
        number = next(self._numbers)
        self._ended.append(self._worker.do(msgspec.structs.replace(job, id=number), lambda moved: None))
        self._wake()
        return number

    def answers(self) -> list[Done | Failed]:
        ended, self._ended = self._ended, []
        return ended

    def _put_back(self, answers: list[Done | Failed]) -> None:
        self._ended.extend(answers)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._worker.close()
