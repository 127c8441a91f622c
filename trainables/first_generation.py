"""Ray Train's first generation: `Trainer(backend="torch", num_workers=2)`, with `start`, `run` and `shutdown`."""

from __future__ import annotations

import os
import pickle
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.checkpoint_config import CheckpointStrategy
from trainables.config import FailureConfig, RunConfig, ScalingConfig
from trainables.data_parallel_trainer import DataParallelTrainer, GroupTrainable
from trainables.errors import InvalidSettingError, SessionError, TrainingFailedError
from trainables.group.framework import Framework
from trainables.runtime.attempt import Attempt
from trainables.settings import checked_arguments, checked_names, instance_of, invalid, whole_number
from trainables.starting import start_thread
from trainables.store import fs

RETURNED_FILE = "returned.pkl"
"""In the trial's directory: what the workers returned."""


@checked_names
class Trainer:
    """Runs functions in a group of processes; each run has a directory of its own.

    Args:
        backend: "torch", a `TorchConfig`, or a `Framework`.
        num_workers: processes.
        use_gpu: one GPU for each.
        resources_per_worker: {"CPU": 1, "GPU": 0.5}.
        logdir: where runs lie; None: `train_<date>_<time>` among the results.
        max_retries: how often a run starts again from its latest checkpoint after a failure; -1: always.

    Example:
        >>> def train_func():
        ...     for loss in (2, 4, 1, 3):
        ...         train.save_checkpoint(loss=loss)
        >>> trainer = Trainer(backend="torch", num_workers=2)
        >>> trainer.start()
        >>> trainer.run(train_func, checkpoint_strategy=CheckpointStrategy(2, "loss", "min"))
        >>> trainer.best_checkpoint_path.name
        'checkpoint_000003'
        >>> trainer.shutdown()
    """

    def __init__(
        self,
        backend: Any = "torch",
        num_workers: int = 1,
        use_gpu: bool = False,
        resources_per_worker: Mapping[str, float] | None = None,
        logdir: str | os.PathLike[str] | None = None,
        max_retries: int = 3,
    ) -> None:
        self._backend = _checked_backend(backend)
        workers = whole_number("Trainer: num_workers", num_workers, least=1)
        self._scaling = ScalingConfig(num_workers=workers, use_gpu=use_gpu, resources_per_worker=resources_per_worker)
        accepted = "-1 (for ever), 0 (never), or a whole number >= 1"
        self._retries = whole_number("Trainer: max_retries", max_retries, least=-1, accepted=accepted)
        self._wanted = None if logdir is None else Path(logdir).expanduser().absolute()
        self._logdir: Path | None = None
        self._started = False
        self._runs = 0
        self._run: _Run | None = None

    # ------------------------------------------------------------ its life

    def start(self, initialization_hook: Callable[[], None] | None = None) -> None:
        """Make ready to run. `initialization_hook` is called in each worker before the function of each run."""
        self._hook = initialization_hook
        self._started = True
        if self._logdir is None:
            self._logdir = _new_logdir() if self._wanted is None else self._wanted

    def shutdown(self) -> None:
        """Nothing runs any more; what was saved stays."""
        self._started = False

    @checked_arguments("Trainer.run")
    def run(
        self,
        train_func: Callable[..., Any],
        config: Mapping[str, Any] | None = None,
        callbacks: Sequence[Any] | None = None,
        dataset: None = None,
        checkpoint: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        checkpoint_strategy: CheckpointStrategy | None = None,
    ) -> list[Any]:
        """Run a function in every worker; return what each returned, by rank.

        Args:
            train_func: a function of no argument, or of the config.
            config: its config.
            callbacks: objects with `handle_result(results)`, and perhaps `start_training(logdir=, config=)` and
                `finish_training(error=)`; `results` has what each worker reported, by rank.
            dataset: must be None.
            checkpoint: what `load_checkpoint()` returns at first: a dict, or a checkpoint's path.
            checkpoint_strategy: which checkpoints stay; None: all.

        Raises TrainingFailedError, with the failure as its cause.
        """
        watching = _checked_callbacks(callbacks)
        run = self._next_run(train_func, config, dataset, checkpoint, checkpoint_strategy)
        _tell(watching, "start_training", logdir=str(run.directory), config=dict(config or {}))
        error: BaseException | None = None
        try:
            run.execute(lambda results: _tell(watching, "handle_result", results))
        except BaseException as raised:
            error = raised
            raise
        finally:
            _tell(watching, "finish_training", error=error is not None)
        return run.returned

    @checked_arguments("Trainer.run_iterator")
    def run_iterator(
        self,
        train_func: Callable[..., Any],
        config: Mapping[str, Any] | None = None,
        dataset: None = None,
        checkpoint: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        checkpoint_strategy: CheckpointStrategy | None = None,
    ) -> TrainingIterator:
        """Like `run`, but iterated over: each item has what every worker reported in one `report()`, by rank."""
        return TrainingIterator(self._next_run(train_func, config, dataset, checkpoint, checkpoint_strategy))

    def to_tune_trainable(self, train_func: Callable[..., Any], dataset: None = None) -> Callable[..., Any]:
        """A trainable for `tune.run`: each trial runs the function in a group of its own, with the trial's config."""
        _dataset(dataset)
        return _WholeConfig(self._trainer(train_func, None, None))

    # ------------------------------------------------------------ what there is

    @property
    def logdir(self) -> Path | None:
        """Where the runs lie; None before `start()`."""
        return self._logdir

    @property
    def latest_run_dir(self) -> Path | None:
        """The directory of the latest run: `<logdir>/run_001`."""
        return None if self._run is None else self._run.directory

    @property
    def latest_checkpoint_dir(self) -> Path | None:
        """The directory with the checkpoints of the latest run that are kept."""
        return None if self._run is None else self._run.directory / "checkpoints"

    @property
    def best_checkpoint_path(self) -> Path | None:
        """The best checkpoint of the latest run by its strategy; the latest, where that names no metric."""
        return None if self._run is None else self._run.best

    @property
    def latest_checkpoint(self) -> dict[str, Any] | None:
        """What the latest run saved last, also when the strategy has removed it from the disk."""
        return None if self._run is None else self._run.latest()

    # ------------------------------------------------------------ inside

    def _next_run(
        self, train_func: Any, config: Any, dataset: None, checkpoint: Any, strategy: CheckpointStrategy | None
    ) -> _Run:
        if not self._started or self._logdir is None:
            raise SessionError("this Trainer is not started: call start() before run(), and shutdown() at the end")
        if strategy is not None:
            instance_of("Trainer: checkpoint_strategy", strategy, (CheckpointStrategy,))
        given: Checkpoint | None = None
        if isinstance(checkpoint, Mapping):
            given = Checkpoint.from_dict(checkpoint)
        elif checkpoint is not None:
            given = Checkpoint(checkpoint)
        _dataset(dataset)
        trainer = self._trainer(train_func, config, self._hook)
        name = self._next_name()
        self._run = _Run(
            trainer,
            self._logdir / name,
            RunConfig(
                name=name,
                storage_path=str(self._logdir),
                checkpoint_config=strategy or CheckpointStrategy(),
                failure_config=FailureConfig(max_failures=self._retries),
                verbose=0,
            ),
            given,
        )
        return self._run

    def _next_name(self) -> str:
        """`run_001` and so on: of a directory that was used before, what lies there stays."""
        assert self._logdir is not None
        while True:
            self._runs += 1
            name = f"run_{self._runs:03d}"
            if not (self._logdir / name).exists():
                return name

    def _trainer(self, train_func: Any, config: Any, hook: Callable[[], None] | None) -> DataParallelTrainer:
        backend = self._backend
        arguments: dict[str, Any] = {"train_loop_config": config, "scaling_config": self._scaling}
        if isinstance(backend, Framework):
            trainer = DataParallelTrainer(train_func, backend_config=backend, **arguments)
        else:
            from trainables.torch.torch_trainer import TorchTrainer

            trainer = TorchTrainer(train_func, torch_config=backend, **arguments)
        trainer.before = hook
        return trainer


class TrainingIterator:
    """The results of a run that goes on while it is iterated over; given up, it ends at its next result."""

    def __init__(self, run: _Run) -> None:
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


class _Run:
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
        from tuner.callback import Callback  # the door upstairs
        from tuner.tuner import Tuner

        run = self

        class Watcher(Callback):
            changes_results = False

            def on_trial_result(self, *, result: dict[str, Any], **info: Any) -> None:  # type: ignore[override]
                if session.SAVE_ONLY not in result:
                    sink(result[session.ALL_RANKS])

            def on_checkpoint(self, *, checkpoint: Checkpoint, **info: Any) -> None:  # type: ignore[override]
                run._latest = checkpoint.to_bytes()

        settings = self._settings
        settings.callbacks = [Watcher()]
        settings.stop = lambda trial_id, result: self.closed.is_set()
        self._trainer.resume_from_checkpoint, self._trainer.trainable_kind = self._start, _Collecting
        space = self._trainer.param_space
        try:
            result = Tuner(self._trainer, param_space=space, run_config=settings).fit()[0]
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


class _Collecting(GroupTrainable):
    collects = True

    def __call__(self, config: Mapping[str, Any]) -> None:
        returned = self.lead(config)
        attempt = session.current()
        assert isinstance(attempt, Attempt)
        (attempt.job.directory / RETURNED_FILE).write_bytes(pickle.dumps(returned))


class _WholeConfig(GroupTrainable):
    """The trial's config is the function's."""

    def __init__(self, trainer: DataParallelTrainer) -> None:
        super().__init__(trainer.without_settings())

    def checked_space(self, space: Mapping[str, Any]) -> dict[str, Any]:
        return dict(space)

    def resources_for(self, config: Mapping[str, Any]) -> None:
        """What all get: a `scaling_config` in it is the function's own."""

    def __call__(self, config: Mapping[str, Any]) -> None:
        self.lead({"train_loop_config": dict(config)})


def _checked_backend(backend: Any) -> Any:
    from trainables.torch.torch_config import TorchConfig

    if backend == "torch":
        return TorchConfig()
    if isinstance(backend, TorchConfig | Framework):
        return backend
    raise invalid("Trainer: backend", backend, "'torch', a TorchConfig, or a Backend")


def _checked_callbacks(callbacks: Any) -> list[Any]:
    """The callbacks of a run. Raises InvalidSettingError."""
    if callbacks is None:
        return []
    methods = ("start_training", "handle_result", "finish_training")
    accepted = "None, or a list of objects with handle_result(results)"
    if not isinstance(callbacks, Sequence):
        raise invalid("Trainer.run: callbacks", callbacks, accepted)
    for callback in callbacks:
        if isinstance(callback, type) or not any(hasattr(callback, name) for name in methods):
            raise invalid("Trainer.run: callbacks", callback, accepted)
    return list(callbacks)


def _dataset(dataset: Any) -> None:
    if dataset is not None:
        raise InvalidSettingError(
            "Trainer: dataset= is not accepted: make the dataset in the training function, where "
            "prepare_data_loader() gives each worker its share"
        )


def _tell(callbacks: Sequence[Any], name: str, *arguments: Any, **named: Any) -> None:
    for callback in callbacks:
        method = getattr(callback, name, None)
        if method is not None:
            method(*arguments, **named)


def _new_logdir() -> Path:
    """`train_<date>_<time>` among the results, made unique."""
    import time as calendar

    from tuner.clock import SystemClock
    from tuner.experiment.paths import default_storage

    now = calendar.localtime(SystemClock().time())
    base = path = default_storage() / calendar.strftime("train_%Y-%m-%d_%H-%M-%S", now)
    number = 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}_{number}")
    fs.make_dirs(path)
    return path
