"""`FunctionTrainable`: a function as a class, for programs that want one; and `wrap_function`, which makes it."""

from __future__ import annotations

import functools
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from trainables import session, tagged, wire
from trainables.checkpoint import Checkpoint, TrainingResult
from trainables.errors import CheckpointError
from trainables.job import Job
from trainables.runtime.attempt import Attempt
from trainables.runtime.function import check_signature, run_function
from trainables.runtime.saving_session import TrialExit
from trainables.starting import start_thread
from trainables.trainable import NOTE, Trainable, note_of, save_of

RESULT_DUPLICATE = "__duplicate__"


class FunctionTrainable(Trainable):
    """Base of what `wrap_function` returns. In a trial the function itself runs; alone, `train` gives result by result.

    Alone, the function runs in a thread that waits in `report` until `train` is called again.

    Example:
        >>> def count(config):
        ...     for x in range(config["n"]):
        ...         yield {"x": x}
        >>> counting = wrap_function(count)({"n": 2})
        >>> counting.train()["x"], counting.train()["x"], counting.train()["done"]
        (0, 1, True)
    """

    _name = "func"
    function: ClassVar[Callable[..., Any] | None] = None
    """What was wrapped."""
    _run: _SteppedRun | None = None
    _start: tuple[Path, int, float] | None = None

    def _trainable_func(self, config: dict[str, Any]) -> Any:
        """Train; a subclass that wraps no function defines it."""
        raise NotImplementedError(f"{type(self).__name__} needs a method _trainable_func(config)")

    @classmethod
    def as_function(cls) -> Callable[..., Any]:
        """What a trial runs."""
        return functools.partial(_train, cls) if cls.function is None else cls.function

    def step(self) -> dict[str, Any]:
        """The next result that the function reports; with `done` and `__duplicate__` the last once more, at its end."""
        if self._run is None:
            self._run = _SteppedRun(self._job_alone(), type(self).function or self._trainable_func)
            self._keys = self._run.attempt.keys
        result = self._run.next_result()
        return {**(self._last_result or {}), "done": True, RESULT_DUPLICATE: True} if result is None else result

    def train(self) -> dict[str, Any]:
        """Run the function to its next report and return that result, complete. What the function raises is raised."""
        result = self.step()
        if RESULT_DUPLICATE not in result:
            result["config"] = self.config
            self._last_result = result
            self.log_result(result)
        return result

    def save(self, checkpoint_dir: str | os.PathLike[str] | None = None) -> TrainingResult:
        """The newest checkpoint that the function has reported, or a copy of it in `checkpoint_dir`.

        Raises CheckpointError when there is none.
        """
        newest = None if self._run is None else self._run.newest()
        if newest is None:
            raise CheckpointError(f"{type(self).__name__} has not reported a checkpoint: there is nothing to save")
        if checkpoint_dir is not None:
            newest = Checkpoint(newest.to_directory(checkpoint_dir))
            newest.update_metadata({NOTE: {"iteration": self.iteration, "time_total_s": self._time_total}})
        return TrainingResult(newest.path, self._last_result or {})

    def restore(self, checkpoint_path: str | os.PathLike[str] | Checkpoint, checkpoint_node_ip: Any = None) -> None:
        """Start the function anew, with this as its checkpoint."""
        self.cleanup()
        given = save_of(checkpoint_path)
        note = note_of(given)
        metrics = given.metrics or {}
        iteration = given.iteration or note.get("iteration", 0)
        spent = metrics.get("time_total_s") or note.get("time_total_s", 0.0)
        path = given.to_directory() if given.in_memory else given.fetched().path
        self._start = Path(path), iteration, spent
        self._keys.iteration, self._keys.time_total_s = iteration, spent

    def execute(self, fn: Callable[[FunctionTrainable], Any]) -> Any:
        """`fn(self)`."""
        return fn(self)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """End the function; `train` starts it with the new config."""
        self.cleanup()
        self._start = None
        return True

    def cleanup(self) -> None:
        """End the function where it waits, in `report`."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def _job_alone(self) -> Job:
        path, iteration, spent = self._start or (None, 0, 0.0)
        directory = Path(self.logdir)
        directory.mkdir(parents=True, exist_ok=True)
        return Job(
            trial_id=self.trial_id,
            trial_name=self.trial_name,
            experiment_name="default",
            index=0,
            directory=directory,
            temporary=directory,
            config=self.config,
            attempt=1,
            generation=1,
            seed=None,
            checkpoint_path=path,
            start_iteration=iteration,
            start_time_total_s=spent,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config!r})"


def is_class_api(trainable: Any) -> bool:
    """Whether a trainable is driven step by step: a class, and none of a function."""
    kind = trainable if isinstance(trainable, type) else object
    return issubclass(kind, Trainable) and not issubclass(kind, FunctionTrainable)


def function_of(trainable: Any) -> Any:
    """What a trial of a function runs: the function, also where a class stands for it."""
    if isinstance(trainable, type) and issubclass(trainable, FunctionTrainable):
        return trainable.as_function()
    return trainable


def _train(kind: type[FunctionTrainable], config: dict[str, Any]) -> Any:
    made = kind(config)
    return made._trainable_func(made.config)


def wrap_function(
    train_func: Callable[..., Any], warn: bool = True, name: str | None = None
) -> type[FunctionTrainable]:
    """A class of a function. Nobody needs it for a run, which takes functions as they are.

    Args:
        train_func: f(config), f(config, checkpoint_dir=None) or f(config, reporter).
        warn: accepted, without effect.
        name: of the class; None: the function's.

    Raises:
        InvalidSettingError: a signature that is not accepted.

    Example:
        >>> tune.wrap_function(train).__name__
        'train'
    """
    check_signature(train_func)
    known = name or str(getattr(train_func, "__name__", "func"))
    members = {
        "_name": known,
        "function": staticmethod(train_func),
        "__module__": getattr(train_func, "__module__", __name__),
        "__doc__": train_func.__doc__,
    }
    return type(known, (FunctionTrainable,), members)


class _SteppedRun:
    """A function in a thread that runs while somebody waits for its next result, and at no other time."""

    def __init__(self, job: Job, function: Callable[..., Any]) -> None:
        self.attempt = _SteppedAttempt(job)
        self._function = function
        self._thread: threading.Thread | None = None
        self._over = False

    def next_result(self) -> dict[str, Any] | None:
        """Let it run to its next report; None: it has ended. What it raises is raised."""
        if self._over:
            return None
        said = self._go_on(stop=False)
        if isinstance(said, dict):
            return said
        self._end()
        if said is not None:
            raise said
        return None

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint: the function waits, or has ended, and nothing is on its way after this."""
        self.attempt.saver.wait()
        return self.attempt.get_checkpoint()

    def stop(self) -> None:
        """Unwind it where it waits."""
        if self._thread is not None and not self._over:
            self._go_on(stop=True)
        if not self._over:
            self._end()

    def _go_on(self, *, stop: bool) -> dict[str, Any] | BaseException | None:
        with session.activated(self.attempt):
            if self._thread is None:
                self._thread = start_thread(self._work, name="function")
            else:
                self.attempt.go_on.put(stop)
            return self.attempt.said.get()

    def _end(self) -> None:
        self._over = True
        if self._thread is not None:
            self._thread.join()
        self.attempt.saver.close()

    def _work(self) -> None:
        try:
            run_function(self.attempt, self._function)
        except BaseException as error:  # it is raised where the next result is waited for
            self.attempt.said.put(error)
        else:
            self.attempt.said.put(None)


class _SteppedAttempt(Attempt):
    """An attempt without a driver, whose `report` waits until it is to go on."""

    def __init__(self, job: Job) -> None:
        self.said: queue.SimpleQueue[dict[str, Any] | BaseException | None] = queue.SimpleQueue()
        """Complete results, and how it ended."""
        self.go_on: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Whether it is to stop."""
        self._complete: dict[str, Any] = {}
        super().__init__(job, _NoDriver(self._hear), clock=time)

    def report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> None:
        super().report(metrics, checkpoint)
        self.said.put(self._complete)
        if self.go_on.get():
            self._over = True
            raise TrialExit

    def _hear(self, report: wire.Report) -> None:
        self._complete = tagged.loads(bytes(report.metrics))


class _NoDriver(wire.DriverLink):
    """Has every trial go on."""

    def __init__(self, hear: Callable[[wire.Report], None]) -> None:
        self._hear = hear

    def call(self, report: wire.Report, meanwhile: Callable[[], None] = wire.nothing) -> wire.Answer:
        self._hear(report)
        meanwhile()
        return wire.Answer()

    def send(self, message: wire.Finished | wire.AttemptErrored | wire.Preempted) -> None:
        """Nobody listens."""

    def post(self, message: wire.SideMessage) -> None:
        """Nobody listens; `Attempt` raises by itself when saves fail."""

    def wait_durable(self, iteration: int) -> None:
        """There is no journal."""

    def halted(self) -> bool:
        return False
