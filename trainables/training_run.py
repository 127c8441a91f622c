"""One run of the first generation's `Trainer`: an experiment of one trial, executed at once or iterated over."""

from __future__ import annotations

import os
import pickle
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.config import RunConfig
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.door import driver
from trainables.errors import SessionError, TrainingFailedError
from trainables.group.group_trainable import GroupTrainable
from trainables.runtime.attempt import Attempt
from trainables.starting import start_thread
from trainables.store import fs

RETURNED_FILE = "returned.pkl"
"""In the trial's directory: what the workers returned."""


class TrainingIterator:
    """The results of a run that goes on while it is iterated over; given up, it ends at its next result."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._results: queue.SimpleQueue[list[dict[str, Any]] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._over = False
        # The thread lives as long as the run: processes are ended when the thread that started them is.
        self._thread = start_thread(self._execute, name="trainer-run")

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        return self

    def __next__(self) -> list[dict[str, Any]]:
        results = None if self._over else self._results.get()
        if results is not None:
            return results
        self._over = True
        self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        raise StopIteration

    def is_finished(self) -> bool:
        """Whether the run has ended and all its results were seen."""
        return self._over

    def get_final_results(self, force: bool = False) -> list[Any]:
        """What each worker returned, by rank.

        Args:
            force: pass over the results that were not seen; else they are an error.
        """
        if not self._over and not force:
            raise SessionError("the run has not ended yet: iterate to the end, or get_final_results(force=True)")
        for _ in self:
            pass
        return self._run.returned

    def close(self) -> None:
        """End the run at its next result."""
        self._run.closed.set()
        for _ in self:
            pass

    def _execute(self) -> None:
        try:
            self._run.execute(self._results.put)
        except BaseException as error:
            self._error = error
        finally:
            self._results.put(None)


class TrainingRun:
    """One run: an experiment of one trial."""

    def __init__(
        self, trainer: DataParallelTrainer, directory: Path, settings: RunConfig, start: Checkpoint | None
    ) -> None:
        self.directory = directory
        self.closed = threading.Event()
        self.returned: list[Any] = []
        self.best: Path | None = None
        self._trainer, self._settings, self._start = trainer, settings, start
        self._latest: bytes | None = None

    def execute(self, sink: Callable[[list[dict[str, Any]]], None]) -> None:
        """Run to the end; every result goes to `sink`."""
        run, upstairs = self, driver()
        callback: Any = upstairs.Callback

        class Watcher(callback):  # type: ignore[misc]
            changes_results = False

            def on_trial_result(self, *, result: dict[str, Any], **info: Any) -> None:
                if session.SAVE_ONLY not in result:
                    sink(result[session.ALL_RANKS])

            def on_checkpoint(self, *, checkpoint: Checkpoint, **info: Any) -> None:
                run._latest = checkpoint.to_bytes()

        settings = self._settings
        settings.callbacks = [Watcher()]
        settings.stop = lambda trial_id, result: self.closed.is_set()
        self._trainer.resume_from_checkpoint, self._trainer.trainable_kind = self._start, CollectingTrainable
        space = self._trainer.param_space
        try:
            result = upstairs.Tuner(self._trainer, param_space=space, run_config=settings).fit()[0]
        finally:
            self._link_checkpoints()
        if result.best_checkpoints:
            self.best = self.directory / "checkpoints" / Path(result.best_checkpoints[-1][0].path).name
        if result.error is not None:
            raise TrainingFailedError(
                f"the run failed: {result.error}\nWhat it saved is in {self.directory}"
            ) from result.error
        returned = Path(result.path or "", RETURNED_FILE)
        if returned.exists():
            self.returned = pickle.loads(returned.read_bytes())

    def latest(self) -> dict[str, Any] | None:
        return None if self._latest is None else session.without_added(Checkpoint.from_bytes(self._latest).to_dict())

    def _link_checkpoints(self) -> None:
        """`<run>/checkpoints/checkpoint_000003`, where scripts look, leads to what lies in the trial's directory."""
        shown = self.directory / "checkpoints"
        if not self.directory.is_dir():
            return  # it was refused before anything was made
        fs.make_dirs(shown)
        for link in shown.iterdir():
            fs.unlink(link)
        for path in sorted(self.directory.glob("*/checkpoint_*")):
            if path.parent != shown:
                fs.symlink(os.path.relpath(path, shown), shown / path.name)


class CollectingTrainable(GroupTrainable):
    """Gathers every rank's results, and keeps what the workers return."""

    collects = True

    def __call__(self, config: Mapping[str, Any]) -> None:
        returned = self.lead(config)
        attempt = session.current()
        assert isinstance(attempt, Attempt)
        (attempt.job.directory / RETURNED_FILE).write_bytes(pickle.dumps(returned))


class WholeConfigTrainable(GroupTrainable):
    """The trial's config is the function's."""

    def __init__(self, trainer: DataParallelTrainer) -> None:
        super().__init__(trainer.without_settings())

    def checked_space(self, space: Mapping[str, Any]) -> dict[str, Any]:
        return dict(space)

    def resources_for(self, config: Mapping[str, Any]) -> None:
        """What all get: a `scaling_config` in it is the function's own."""

    def __call__(self, config: Mapping[str, Any]) -> None:
        self.lead({"train_loop_config": dict(config)})
