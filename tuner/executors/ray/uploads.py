"""Copies to a replica, made by the host that has the checkpoint: nothing of it passes the driver.

`HostUploads` is the agent's end, `ClusterUploader` the driver's: it gives each job to the host where the files lie.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from trainables.transfer.agent import AnyJob, Done, Failed, PushManifest, PushPayload
from tuner.syncer.uploader import ProcessUploader, Uploader

_LOOK_S = 5.0
LOST = "CheckpointLostError"
"""The type of a `Failed` that says: the host is gone, and the files with it."""


class HostUploads:
    """Does jobs on the replica's place, from this host.

    Args:
        arguments: of `trainables.transfer.open.open_backend`.
        timeout_s: without progress, after which what hangs is started anew.

    Raises SettingError or TransferError when this host cannot use the place.
    """

    def __init__(self, arguments: dict[str, Any], timeout_s: float) -> None:
        self._lock = threading.RLock()
        self._timeout_s = timeout_s
        self._waiting: dict[int, Future[Done | Failed]] = {}
        self._early: dict[int, Done | Failed] = {}
        self._uploader: ProcessUploader | None = None
        self._uploader = ProcessUploader(arguments, wake=self._collect)

    def do(self, job: AnyJob) -> Done | Failed:
        """Do one job and wait for its answer; from any thread."""
        future: Future[Done | Failed] = Future()
        assert self._uploader is not None
        with self._lock:
            number = self._uploader.submit(job)
            self._waiting[number] = future
        self._collect()
        while True:
            try:
                return future.result(_LOOK_S)
            except TimeoutError:
                self._end_silence()

    def _collect(self) -> None:
        with self._lock:
            if self._uploader is None:
                return  # it has just been made
            for answer in self._uploader.answers():
                self._early[answer.id] = answer
            for number in self._waiting.keys() & self._early.keys():
                self._waiting.pop(number).set_result(self._early.pop(number))

    def _end_silence(self) -> None:
        with self._lock:
            assert self._uploader is not None
            silent = self._uploader.silence(time.monotonic())
            if silent is not None and silent[1] > self._timeout_s:
                self._uploader.restart(f"nothing moved for {silent[1]:.0f} s")


class ClusterUploader(Uploader):
    """Gives pushes of checkpoints to the hosts that have them, and everything else to this one's uploader.

    Args:
        home: this host's.
        send: has a host that is not this one do a job on the files at a path, and its answer told, from any thread;
            False: they lie here.
        pause: waits so many seconds at most, until something was told.
    """

    def __init__(
        self,
        home: Uploader,
        send: Callable[[Path, AnyJob, Callable[[Done | Failed], None]], bool],
        pause: Callable[[float | None], None],
    ) -> None:
        self._home, self._send, self._pause = home, send, pause
        self.can, self.uri, self.beside = home.can, home.uri, home.beside
        self._numbers = itertools.count(-1, -1)  # those of `home` count upwards
        self._told: queue.SimpleQueue[tuple[int, Done | Failed]] = queue.SimpleQueue()
        self._answered = 0.0

    @property
    def heard_at(self) -> float:  # type: ignore[override]
        return max(self._home.heard_at, self._answered)

    @property
    def closed(self) -> bool:  # type: ignore[override]
        return self._home.closed

    def submit(self, job: AnyJob) -> int:
        if not isinstance(job, (PushPayload, PushManifest)):
            return self._home.submit(job)
        number = next(self._numbers)
        if self._send(Path(job.directory), job, lambda answer: self._told.put((number, answer))):
            return number
        return self._home.submit(job)

    def answers(self) -> list[Done | Failed]:
        found = self._home.answers()
        while not self._told.empty():  # nobody else takes from it
            number, answer = self._told.get()
            if isinstance(answer, Done):  # one that fails again and again is not waited for
                self._answered = time.monotonic()
            found.append(msgspec.structs.replace(answer, id=number))
        return found

    def call(self, job: AnyJob, *, timeout_s: float) -> bytes:
        return self._home.call(job, timeout_s=timeout_s)

    def silence(self, now: float) -> tuple[AnyJob, float] | None:
        # Of a job on another host nothing is heard before its end; that host looks for what hangs itself.
        return self._home.silence(now)

    def wait(self, timeout_s: float | None) -> None:
        self._pause(timeout_s)

    def restart(self, why: str) -> None:
        self._home.restart(why)

    def close(self) -> None:
        self._home.close()
