"""Clients of the transfer agent: jobs go out, answers come in, and an agent that hangs or dies is replaced."""

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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import cloudpickle
import msgspec

from trainables.errors import InvalidSettingError
from trainables.net.backoff import patient
from trainables.net.failed import FailureKind
from trainables.net.frames import FrameSocket, encode
from trainables.quick_dataclass import dataclass
from trainables.starting import start_process, start_thread
from trainables.transfer import transfer_jobs
from trainables.transfer.backend import Can
from trainables.transfer.transfer_jobs import AnyJob, Begun, Done, JobFailed, Moved, OpenPlace, PlaceOpened

log = logging.getLogger(__name__)

START_S = 30.0
"""An agent that has not looked at its place after so long is no use: its own look ends after 10 s."""
CLOSE_S = 5.0
"""So long an agent may take to leave when it is told to."""
MAX_LOST = 3
"""Agents in a row that may be lost over one job, or before they have looked at the place."""
_LOOK_S = 1.0
_LOOKS = (transfer_jobs.Read, transfer_jobs.Children, transfer_jobs.ListKeys, transfer_jobs.FetchFiles)
_PACKAGES = Path(__file__).parents[2]
_AGENT = "import sys; sys.path.append(sys.argv[2]); from trainables.transfer.agent import main; main(sys.argv[1:])"

T = TypeVar("T")
Ended = Callable[[Done | JobFailed], None]


class TransferClient(ABC):
    """Does jobs on one place. `submit` and `answers` are for one thread, the rest for any."""

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
    def answers(self) -> list[Done | JobFailed]:
        """What ended since the last call, of what was submitted."""

    @abstractmethod
    def do(self, job: AnyJob, *, timeout_s: float) -> Done | JobFailed:
        """Do one job and wait for it; an agent of which nothing is heard for so many seconds is ended."""

    def call(self, job: AnyJob, *, timeout_s: float) -> bytes:
        """Do one job and wait for it. Raises TransferError, also when nothing moves for `timeout_s` seconds.

        What only looks is asked again, for so long, while the store is overloaded. Over an agent that somebody killed
        the job is done again: doing one twice comes to the same.
        """

        def done() -> bytes:
            answer = _again_if_lost(lambda: self.do(job, timeout_s=timeout_s))
            if isinstance(answer, JobFailed):
                raise answer.error()
            return answer.data

        return patient(done, timeout_s) if isinstance(job, _LOOKS) else done()

    def silence(self, now: float) -> tuple[AnyJob, float] | None:
        """The job of which nothing was heard for longest, and since when in seconds; None: none runs."""
        return None

    def wait(self, timeout_s: float | None) -> None:
        """Return when `answers` may have something, at the latest after so many seconds."""

    def restart(self, why: str) -> None:
        """End what hangs: every job that runs fails, and may be done again."""

    def close(self) -> None:
        """End it; what still runs is given up."""


def _again_if_lost(do: Callable[[], T | JobFailed]) -> T | JobFailed:
    """What came of it, done again while the agent is lost over it."""
    for _ in range(MAX_LOST - 1):
        answer = do()
        if not _is_lost(answer):
            return answer
        log.warning("%s; it is started anew", answer.message)
    return do()


@dataclass(slots=True)
class _Running:
    job: AnyJob
    ended: Ended
    heard: float
    """Monotonic time at which it was last heard of."""
    begun: bool = False
    """It does not wait for its turn any more."""


class ProcessClient(TransferClient):
    """In a process of its own: what it costs is not the caller's, and what hangs can be ended.

    It ends with this process, whatever ends that.

    Args:
        arguments: keyword arguments of `trainables.transfer.open.open_backend`, or these cloudpickled.
        wake: called from a thread when `answers` has something.
        cwd: where the agent runs, if it is there; None: where this process does.
        start_s: seconds that an agent may take to look at its place.

    Raises TransferError, InvalidSettingError or MissingExtraError when the place cannot be used.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any] | bytes,
        *,
        wake: Callable[[], None] = lambda: None,
        cwd: Path | None = None,
        start_s: float = START_S,
    ) -> None:
        self._wake, self._cwd, self._start_s = wake, cwd, start_s
        self._numbers = itertools.count(1)
        self._running: dict[int, _Running] = {}
        self._answers: queue.SimpleQueue[Done | JobFailed] = queue.SimpleQueue()
        self._back: list[Done | JobFailed] = []
        self._lock = threading.Lock()
        self._dead = False
        self._spoke = 0.0
        """Monotonic time at which the agent was started, or was last heard at all."""
        try:
            self._arguments = arguments if isinstance(arguments, bytes) else cloudpickle.dumps(dict(arguments))
        except Exception as error:  # whatever a user's object raises
            syncer = arguments["syncer"] if isinstance(arguments, Mapping) else None
            raise InvalidSettingError(f"syncer={syncer!r} cannot be sent to the process that syncs: {error}") from error
        self._greeting: queue.SimpleQueue[PlaceOpened | JobFailed] = queue.SimpleQueue()
        opened = _again_if_lost(self._open)
        if isinstance(opened, JobFailed):
            self.close()
            raise opened.error()
        self.can, self.uri = Can(**opened.can), opened.uri

    def _open(self) -> PlaceOpened | JobFailed:
        """Start an agent and hear what it says of its place."""
        self._start(check=True)
        try:
            return self._greeting.get(timeout=self._start_s)
        except queue.Empty:
            place = cloudpickle.loads(self._arguments).get("place")
            return JobFailed(FailureKind.TRANSFER, f"{place}: no answer within {self._start_s:.0f} s")

    def submit(self, job: AnyJob) -> int:
        def ended(answer: Done | JobFailed) -> None:
            self._answers.put(answer)
            self._wake()

        return self._send(job, ended)

    def answers(self) -> list[Done | JobFailed]:
        found, self._back = self._back, []
        while not self._answers.empty():  # nobody else takes from it
            found.append(self._answers.get())
        return found

    def do(self, job: AnyJob, *, timeout_s: float) -> Done | JobFailed:
        ended: queue.SimpleQueue[Done | JobFailed] = queue.SimpleQueue()
        self._send(job, ended.put)
        hung = False
        while True:
            try:
                answer = ended.get(timeout=_LOOK_S)
            except queue.Empty:
                silent = self.silence(time.monotonic())
                if silent is not None and silent[1] > timeout_s:
                    self.restart(f"nothing moved for {silent[1]:.0f} s")
                    hung = True
                continue
            # What has hung once would hang again: that is for the caller to try.
            return msgspec.structs.replace(answer, kind=FailureKind.TRANSFER) if hung and _is_lost(answer) else answer

    def silence(self, now: float) -> tuple[AnyJob, float] | None:
        with self._lock:
            begun = [running for running in self._running.values() if running.begun]
            oldest = min(begun or self._running.values(), key=lambda running: running.heard, default=None)
            # What waits for its turn is silent only if the agent is, and begins nothing.
            since = 0.0 if oldest is None else oldest.heard if begun else max(oldest.heard, self._spoke)
        return None if oldest is None else (oldest.job, now - since)

    def wait(self, timeout_s: float | None) -> None:
        with contextlib.suppress(queue.Empty):
            self._back.append(self._answers.get(timeout=timeout_s))

    def restart(self, why: str) -> None:
        log.warning("the process that syncs is started anew: %s", why)
        self._process.kill()  # its reader says of every job that it was lost

    def close(self) -> None:
        self.closed = True
        self._line.end()  # with this it removes what it has in the temporary directory
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._line.close()

    def _send(self, job: AnyJob, ended: Ended) -> int:
        number = next(self._numbers)
        job = msgspec.structs.replace(job, id=number)
        body = encode(job)  # raises before anything is begun
        with self._lock:
            if self._dead:
                self._start(check=False)
            self._running[number] = _Running(job, ended, time.monotonic())
            line = self._line
        try:
            line.send_body(body)
        except OSError as error:
            self._lose(number, f"the process that syncs is gone: {error}")
        return number

    def _start(self, *, check: bool) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = start_process(
                [sys.executable, "-c", _AGENT, str(theirs.fileno()), str(_PACKAGES)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=self._cwd if self._cwd is not None and self._cwd.is_dir() else None,
                start_new_session=True,  # Ctrl-C and notices are the caller's
                what="syncing",
            )
        self._line = FrameSocket(ours)
        self._dead, self._spoke = False, time.monotonic()
        try:
            with contextlib.suppress(ConnectionError):  # it has died already: the reader says so
                self._line.send(OpenPlace(self._arguments, sys.path, check))
            start_thread(self._read, name="transfer-client", args=(self._line, self._process))
        except BaseException:
            self.close()
            raise

    def _read(self, line: FrameSocket, process: subprocess.Popen[bytes]) -> None:
        for body in line.bodies():
            answer = transfer_jobs.decode_answer(body)
            if isinstance(answer, PlaceOpened) or (isinstance(answer, JobFailed) and answer.id == 0):
                self._greeting.put(answer)
            elif isinstance(answer, Moved | Begun):
                self._heard(answer)
            else:
                self._end(answer)
        why = f"the process that syncs ended ({process.wait()})"
        line.close()  # the next agent has another
        with self._lock:
            self._dead = True
            self.lost += not self.closed
            lost = [] if self.closed else list(self._running)
        self._greeting.put(JobFailed(FailureKind.PROCESS_LOST, why))  # nobody looks after the first that is no such one
        for number in lost:
            self._lose(number, why)

    def _lose(self, number: int, why: str) -> None:
        self._end(JobFailed(FailureKind.PROCESS_LOST, why, transient=True, id=number))

    def _heard(self, sign: Moved | Begun) -> None:
        with self._lock:
            self._spoke = time.monotonic()
            if isinstance(sign, Moved):
                self.heard_at = self._spoke
            if (running := self._running.get(sign.id)) is not None:
                running.begun, running.heard = True, self._spoke

    def _end(self, answer: Done | JobFailed) -> None:
        with self._lock:
            self._spoke = time.monotonic()
            known = self._running.pop(answer.id, None)
        if known is not None:
            known.ended(answer)


def _is_lost(answer: object) -> TypeGuard[JobFailed]:
    return isinstance(answer, JobFailed) and answer.kind is FailureKind.PROCESS_LOST


class InlineClient(TransferClient):
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
        from trainables.transfer.job_worker import JobWorker  # with all that moves bytes: an agent has that elsewhere
        from trainables.transfer.open import open_backend

        backend = open_backend(**arguments)
        if check:
            backend.check()
        self._worker, self._wake = JobWorker(backend, arguments), wake
        self.can, self.uri = backend.can, backend.uri
        self._numbers = itertools.count(1)
        self._ended: list[Done | JobFailed] = []

    def submit(self, job: AnyJob) -> int:
        answer = self.do(job, timeout_s=0.0)
        self._ended.append(answer)
        self._wake()
        return answer.id

    def answers(self) -> list[Done | JobFailed]:
        ended, self._ended = self._ended, []
        return ended

    def do(self, job: AnyJob, *, timeout_s: float) -> Done | JobFailed:
        return self._worker.do(msgspec.structs.replace(job, id=next(self._numbers)), lambda moved: None)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._worker.close()
