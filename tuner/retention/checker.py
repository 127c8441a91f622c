"""The checker: hashes checkpoints beside the loop before a trial gets them, and removes what dead saves left."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainables.errors import CheckpointCorruptError, CheckpointError, CheckpointNotFoundError
from trainables.starting import start_thread
from trainables.store import fs, verify
from trainables.store.manifest import Published
from tuner.experiment import events as ev
from tuner.syncer.sink import Problem, Then

Answer = Callable[[], object]
"""What is done on the loop's thread when a job has ended."""
Job = Callable[[], Answer | None]


class Checker:
    """Looks into the checkpoints of this host.

    Args:
        inline: do everything at once on the caller's thread (inline executor, crash harness).
        wake: called from the thread when `finished` has something.
        virtual: there is nothing to look into: what the journal says is whole.
    """

    def __init__(self, *, inline: bool = False, wake: Callable[[], None] = lambda: None, virtual: bool = False) -> None:
        self._inline, self._wake, self._virtual = inline, wake, virtual
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def check(self, path: Path, digest: str, then: Then) -> None:
        """Hash a checkpoint before a trial gets it; a broken one is quarantined. `finished` calls `then(problem)`.

        What `then` is told is said in `tuner.syncer.sink.Then`: of one that cannot be read just now an error.
        """
        if self._virtual:
            then(None)
        else:
            self.beside(lambda: partial(then, _checked(path, digest)))

    def beside(self, job: Job) -> None:
        """Do what takes long beside the loop, in order; `finished` does what it returns. It must not raise."""
        if self._inline:
            if (answer := job()) is not None:
                answer()
            return
        if self._thread is None:
            self._thread = start_thread(self._work, name="tuner-checker")
        self._jobs.put(job)

    def after_death(self, directory: Path) -> list[Published]:
        """What a process that died left in its trial's directory: its checkpoints; what it staged is removed."""
        if self._virtual:
            return []
        leftovers = verify.leftovers(directory)
        if leftovers:
            self.beside(partial(_remove, leftovers))
        return verify.list_checkpoints(directory)

    def finished(self) -> None:
        """Give the answers of the checks that have ended."""
        while not self._answers.empty():  # nobody else takes from it
            self._answers.get_nowait()()

    def close(self, timeout: float | None) -> None:
        """End the thread once it has done what was asked; wait for that at most so many seconds."""
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(timeout)
        self.finished()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if (answer := job()) is not None:
                self._answers.put(answer)
                self._wake()


def _remove(leftovers: list[Path]) -> None:
    for path in leftovers:
        fs.remove_quietly(path)


def _checked(path: Path, digest: str) -> Problem:
    try:
        return _check(path, digest)
    except Exception as error:  # a trial waits for the answer, and others for this thread
        return ev.ErrorInfo(type(error).__name__, str(error), traceback.format_exc())


def _check(path: Path, digest: str) -> Problem:
    try:
        verify.check(path, digest=digest or None)
    except (CheckpointCorruptError, CheckpointNotFoundError) as error:
        return _quarantined(path, str(error))
    except (CheckpointError, OSError) as error:
        # The disk did not give it, or a newer version wrote it: it may be whole.
        return ev.ErrorInfo(type(error).__name__, str(error), disk=True)
    return None


def _quarantined(path: Path, problem: str) -> str:
    try:
        verify.quarantine(path)
    except FileNotFoundError:
        pass  # nothing there to quarantine
    except OSError as error:
        return f"{problem}; to set it aside failed: {error}"
    return problem
