"""The transfer agent: a process that moves bytes to and from one place, so that neither driver nor trial does.

A client (`transfer.client`) starts one per place, sends it jobs over a socket and gets one answer for each, with word
of bytes that moved in between. What hangs in here is killed with the process and loses nothing: every job may be done
again.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import cloudpickle

from trainables.decoding import decode
from trainables.net.frames import FrameSocket
from trainables.store import owned_directory
from trainables.threads import Threads
from trainables.transfer import transfer_jobs
from trainables.transfer.job_worker import JobWorker
from trainables.transfer.open import open_backend
from trainables.transfer.transfer_jobs import AnyJob, JobFailed

THREADS = 6
"""So many jobs at once; each of them may move several files at a time."""
SMALL_THREADS = 2
"""Beside them, for small files: an owner's sign of life must not wait until something large has moved."""
PROGRESS_BYTES = 1024 * 1024
"""Word of progress is sent each time that much has moved."""
_TEMPORARY = "tuner-copying-"


class _Progress:
    """Adds up what moved of one job, and says so now and then."""

    def __init__(self, id: int, line: FrameSocket) -> None:
        self._id, self._line, self._sum, self._lock = id, line, 0, threading.Lock()

    def __call__(self, moved: int) -> None:
        with self._lock:
            self._sum += moved
            if self._sum < PROGRESS_BYTES:
                return
            told, self._sum = self._sum, 0
        self._line.send(transfer_jobs.Moved(self._id, told))


def serve(sock: socket.socket, at_end: Callable[[], None] = lambda: None) -> None:
    """Read what place is meant, open it, then do jobs until the other end closes; `at_end` is called before the end."""
    line = FrameSocket(sock)
    bodies = line.bodies()
    if (opening := next(bodies, None)) is None:
        return
    worker: JobWorker | None = None
    greeting: transfer_jobs.PlaceOpened | JobFailed
    try:
        worker = _open(decode(opening, transfer_jobs.OpenPlace))
        greeting = transfer_jobs.PlaceOpened(dataclasses.asdict(worker.backend.can), worker.backend.uri)
    except Exception as error:  # said to the client, which raises it
        greeting = JobFailed.of(error)
    try:
        line.send(greeting)
    except OSError:
        return  # the client was killed meanwhile
    if worker is None:
        return
    with (
        Threads(THREADS, thread_name_prefix="transfer") as pool,
        Threads(SMALL_THREADS, thread_name_prefix="small") as small,
    ):
        for body in bodies:
            job = transfer_jobs.decode_job(body)
            (small if isinstance(job, (transfer_jobs.Put, transfer_jobs.Read)) else pool).submit(
                _answer, worker, job, line
            )
        at_end()
        os._exit(0)  # the client is gone: what is under way may hang, and may be done again


def _answer(worker: JobWorker, job: AnyJob, line: FrameSocket) -> None:
    line.send(transfer_jobs.Begun(job.id))
    line.send(worker.do(job, _Progress(job.id, line)))


def _open(place: transfer_jobs.OpenPlace) -> JobWorker:
    sys.path.extend(entry for entry in place.path if entry not in sys.path)
    arguments = cloudpickle.loads(place.pickled)
    backend = open_backend(**arguments)
    if place.check:
        backend.check()
    gc.collect()  # opening leaves more behind than the agent needs for its work
    return JobWorker(backend, arguments)


def main(arguments: Sequence[str]) -> None:
    """`python -m trainables.transfer.agent FD`: serve the socket of that number until its other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's: it may want to finish
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with _temporary_directory() as remove:
        serve(socket.socket(fileno=int(arguments[0])), at_end=remove)


@contextmanager
def _temporary_directory() -> Iterator[Callable[[], None]]:
    """What is made with `tempfile` meanwhile lies in a directory of its own; yields what removes it before the end.

    Killed, it leaves that to the next one of this user on this host.
    """
    try:
        owned = owned_directory.make(_TEMPORARY)
    except OSError:
        yield lambda: None  # whoever needs it says what is wrong with it
        return
    tempfile.tempdir = str(owned.path)
    try:
        yield owned.remove
    finally:
        owned.remove()


if __name__ == "__main__":
    main(sys.argv[1:])
