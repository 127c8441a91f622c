"""Copies to a replica, made by the host that has the checkpoint: nothing of it passes the driver."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from trainables.transfer.client import TransferClient
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed, PushManifest, PushPayload


class ClusterUploader(TransferClient):
    """Gives pushes of checkpoints to the hosts that have them, and everything else to this one's uploader.

    Args:
        home: this host's.
        send: has a host that is not this one do a job on the files at a path, and its answer told, from any thread;
            False: they lie here.
        pause: waits so many seconds at most, until something was told.
    """

    def __init__(
        self,
        home: TransferClient,
        send: Callable[[Path, AnyJob, Callable[[Done | JobFailed], None]], bool],
        pause: Callable[[float | None], None],
    ) -> None:
        self._home, self._send, self._pause = home, send, pause
        self.can, self.uri, self.beside = home.can, home.uri, home.beside
        self._numbers = itertools.count(-1, -1)  # those of `home` count upwards
        self._told: queue.SimpleQueue[tuple[int, Done | JobFailed]] = queue.SimpleQueue()
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

    def answers(self) -> list[Done | JobFailed]:
        found = self._home.answers()
        while not self._told.empty():  # nobody else takes from it
            number, answer = self._told.get()
            if isinstance(answer, Done):  # one that fails again and again is not waited for
                self._answered = time.monotonic()
            found.append(msgspec.structs.replace(answer, id=number))
        return found

    def do(self, job: AnyJob, *, timeout_s: float) -> Done | JobFailed:
        return self._home.do(job, timeout_s=timeout_s)

    def silence(self, now: float) -> tuple[AnyJob, float] | None:
        # Of a job on another host nothing is heard before its end; that host looks for what hangs itself.
        return self._home.silence(now)

    def wait(self, timeout_s: float | None) -> None:
        self._pause(timeout_s)

    def restart(self, why: str) -> None:
        self._home.restart(why)

    def close(self) -> None:
        self._home.close()
