"""Deletes checkpoints beside the loop, and never in its way.

A delete may be slow, fail, or hang on a dead mount: nothing waits for it. What fails is tried again with growing
pauses and in the end is listed as "could not delete" (`failures`).
"""

from __future__ import annotations

import heapq
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainables.errors import LimitError
from trainables.net.backoff import pause_s
from trainables.quick_dataclass import dataclass
from trainables.starting import start_thread
from trainables.store import delete as store_delete
from trainables.wire import CheckpointRef
from tuner.experiment import events as ev

log = logging.getLogger(__name__)

Delete = Callable[[Path], bool]
"""Deletes the checkpoint at a path. False: it is open and was left alone, ask again later. Missing is no error; must be
idempotent."""

ATTEMPTS = 8
QUIET_S = 0.5
"""A wait for deletions that is shorter is not said."""


@dataclass(frozen=True, slots=True)
class CouldNotDelete:
    """What is left on disk, and why."""

    ref: CheckpointRef
    path: Path
    reason: str
    attempts: int

    def __str__(self) -> str:
        tries = f" ({self.attempts} attempts)" if self.attempts else ""
        return f"{self.path}: {self.reason}{tries}"


@dataclass(slots=True)
class _Job:
    ref: CheckpointRef
    path: Path
    attempts: int = 0
    error: Exception | None = None
    last_chance: bool = False

    def left(self, reason: str) -> CouldNotDelete:
        return CouldNotDelete(self.ref, self.path, reason, self.attempts)


class Deleter:
    """Runs deletions on threads of its own, or inline.

    Deletions of one trial are done one after another, in the order in which they were submitted.

    Args:
        delete: does one; called from a thread. An OSError is tried again, any other exception ends that deletion.
        wake: called from a thread when `finished` has something.
        inline: delete within `submit`, once, and again within `drain`; for runs that must be deterministic.
        is_pinned: True while a path may not be deleted; asked on the thread. What is pinned or open is put aside
            without holding up others, and looked at again with the next submission and in `drain`.
        attempts: how often one is tried before it is given up.
        backoff: seconds to wait after the n-th failure.
        threads: as many trials' deletions run side by side, so that one that hangs does not hold up the others.
        clock: monotonic seconds.

    Threads are daemons and start with the first submission: a delete that hangs does not keep the process.
    """

    def __init__(
        self,
        delete: Delete = store_delete.delete,
        *,
        wake: Callable[[], None] = lambda: None,
        inline: bool = False,
        is_pinned: Callable[[Path], bool] | None = None,
        attempts: int = ATTEMPTS,
        backoff: Callable[[int], float] = pause_s,
        threads: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._delete, self._inline = delete, inline
        self._wake = wake
        self._gone: queue.SimpleQueue[CheckpointRef] = queue.SimpleQueue()
        self._is_pinned = is_pinned if is_pinned is not None else lambda path: False
        self._attempts, self._backoff, self._clock = attempts, backoff, clock
        self._wanted_threads = threads
        self._threads: list[threading.Thread] = []
        self._change = threading.Condition()
        self._lanes: dict[str, deque[_Job]] = {}
        self._due: list[tuple[float, int, str]] = []
        """(when, number, trial): a lane is in here exactly once while it has jobs and none of them runs."""
        self._numbers = 0
        self._running: set[str] = set()
        self._pinned: list[_Job] = []
        self._failed: list[_Job] = []
        self._ended = 0
        """Deletions that were done or given up."""
        self._closed = False

    def submit(self, ref: CheckpointRef, path: Path) -> None:
        """Queue one. Never blocks (inline: does it now)."""
        with self._change:
            if self._closed:
                raise RuntimeError("the deleter is closed")
            self._look_again_at_pinned()
            self._queue(_Job(ref, path))
            if not self._inline:
                self._start_thread()
                self._change.notify_all()
        if self._inline:
            self._work(wait=False)

    def finished(self) -> list[ev.CheckpointDeleted]:
        """What was deleted since the last call."""
        facts = []
        while not self._gone.empty():  # nobody else takes from it
            facts.append(ev.CheckpointDeleted(self._gone.get_nowait()))
        return facts

    @property
    def pending(self) -> int:
        """How many are queued or running; those that are pinned or given up are not."""
        with self._change:
            return sum(len(lane) for lane in self._lanes.values())

    def drain(self, timeout: float | None = None, *, patient: bool = False) -> bool:
        """Wait until nothing is queued, at most `timeout` seconds. True: nothing is left running or waiting.

        With `patient` the time starts again with each deletion that ends: what is slow is waited for, not what hangs.

        Pauses are cut short, and what was given up or pinned is tried once more; `failures` then says what is left.
        """
        with self._change:
            failed, self._failed = self._failed, []
            for job in failed:
                job.last_chance = True
                self._queue(job)
            self._look_again_at_pinned()
            self._due = [(0.0, number, lane) for _, number, lane in self._due]
            heapq.heapify(self._due)
            if not self._inline and self._lanes:
                self._start_thread()
            self._change.notify_all()
        if self._inline:
            self._work(wait=False)
        with self._change:
            while self._lanes and not self._closed:
                if not self._change.wait_for(partial(self._moved, self._ended if patient else None), timeout):
                    return False
            return not self._lanes

    def failures(self, *, unfinished: bool = False) -> list[CouldNotDelete]:
        """What was given up and what is pinned; with `unfinished` also what is queued or hangs."""
        with self._change:
            found = [job.left(str(job.error)) for job in self._failed]
            found += [job.left("it is in use") for job in self._pinned]
            if unfinished:
                for lane in self._lanes.values():
                    for job in lane:
                        found.append(job.left(str(job.error or "it is not done yet")))
            return found

    def close(self, timeout: float | None, *, patient: bool = False) -> list[ev.CheckpointDeleted]:
        """Wait for deletions that are under way, at most `timeout` seconds; warn of what could not be deleted.

        With `patient` the time starts again with each that ends. A wait that can be noticed is said. What was not
        deleted is deleted by the next start (the journal knows).
        """
        quiet = QUIET_S if timeout is None else min(QUIET_S, timeout)
        if not self.drain(quiet):
            left = self.failures(unfinished=True)
            bound = "" if timeout is None or patient else f" up to {timeout:g} s"
            log.warning("waiting%s for %d deletions, %s first", bound, len(left), left[0].path if left else "one")
            self.drain(timeout if patient or timeout is None else max(0.0, timeout - quiet), patient=patient)
        for failure in self.failures(unfinished=True):
            log.warning("could not delete %s; the next start tries again", failure)
        self.stop()
        return self.finished()

    def stop(self) -> None:
        """Start nothing more. Does not wait."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    # --- within, all under the condition except where said ------------------------------------------

    def _queue(self, job: _Job) -> None:
        name = job.ref.trial_id
        lane = self._lanes.setdefault(name, deque())
        lane.append(job)
        if len(lane) == 1 and name not in self._running:
            self._schedule(name, 0.0)

    def _schedule(self, lane: str, when: float) -> None:
        self._numbers += 1
        heapq.heappush(self._due, (when, self._numbers, lane))

    def _look_again_at_pinned(self) -> None:
        pinned, self._pinned = self._pinned, []
        for job in pinned:
            self._queue(job)

    def _start_thread(self) -> None:
        if len(self._threads) < min(self._wanted_threads, len(self._lanes)):
            try:
                self._threads.append(start_thread(self._work, name=f"deleter-{len(self._threads)}"))
            except LimitError:
                if not self._threads:
                    raise  # else those that there are do it all

    def _next(self, *, wait: bool) -> _Job | None:
        """The next job that is due; without `wait`, None when none is. The lane is running from then on."""
        while not self._closed:
            if self._due:
                pause = self._due[0][0] - self._clock()
                if pause <= 0:
                    _, _, lane = heapq.heappop(self._due)
                    self._running.add(lane)
                    return self._lanes[lane][0]
                if not wait:
                    return None
                self._change.wait(pause)
            elif wait:
                self._change.wait()
            else:
                return None
        return None

    def _moved(self, ended: int | None) -> bool:
        """Nothing is left, or, when `ended` counts them, more have ended."""
        return self._closed or not self._lanes or (ended is not None and self._ended != ended)

    def _settle(self, job: _Job, error: Exception | None, *, pinned: bool) -> None:
        """After a try: what becomes of the job and of its lane."""
        name = job.ref.trial_id
        lane = self._lanes[name]
        self._running.discard(name)
        when = 0.0
        job.error = error
        if pinned:
            self._pinned.append(lane.popleft())
        elif error is None:
            lane.popleft()
        elif self._inline or job.last_chance or job.attempts >= self._attempts or not isinstance(error, OSError):
            self._failed.append(lane.popleft())
        else:
            when = self._clock() + self._backoff(job.attempts)
        self._ended += when == 0.0
        if lane:
            self._schedule(name, when)
        else:
            del self._lanes[name]

    def _try(self, job: _Job) -> None:
        """One try, without the condition held."""
        error: Exception | None = None
        pinned = False
        try:
            pinned = self._is_pinned(job.path)
            if not pinned:
                job.attempts += 1
                pinned = not self._delete(job.path)
        except FileNotFoundError:
            pass  # gone already
        except Exception as raised:
            error = raised  # kept with the job; `failures` tells
        if error is None and not pinned:
            self._gone.put(job.ref)  # before the job counts as done: who has drained has heard of all
            self._wake()
        with self._change:
            self._settle(job, error, pinned=pinned)
            self._change.notify_all()

    def _work(self, *, wait: bool = True) -> None:
        while True:
            with self._change:
                job = self._next(wait=wait)
            if job is None:
                return
            self._try(job)
