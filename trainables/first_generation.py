"""Ray Train's first generation: `Trainer(backend="torch", num_workers=2)`, with `start`, `run` and `shutdown`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainables.checkpoint import Checkpoint
from trainables.checkpoint_config import CheckpointStrategy
from trainables.config import FailureConfig, RunConfig, ScalingConfig
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.door import driver
from trainables.errors import InvalidSettingError, SessionError
from trainables.group.framework import Framework
from trainables.store import fs
from trainables.training_run import TrainingIterator, TrainingRun, WholeConfigTrainable
from trainables.validation import checked_arguments, checked_names, instance_of, invalid, whole_number


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
        self._run: TrainingRun | None = None

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
        begun: list[bool] = []

        def begin() -> None:
            if not begun:  # the directory is the run's until then: what lies in it is refused
                begun.append(True)
                _tell(watching, "start_training", logdir=str(run.directory), config=dict(config or {}))

        def handle(results: list[dict[str, Any]]) -> None:
            begin()
            _tell(watching, "handle_result", results)

        error: BaseException | None = None
        try:
            run.execute(handle)
        except BaseException as raised:
            error = raised
            raise
        finally:
            begin()
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
        return WholeConfigTrainable(self._trainer(train_func, None, None))

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

    def _next_run(
        self, train_func: Any, config: Any, dataset: None, checkpoint: Any, strategy: CheckpointStrategy | None
    ) -> TrainingRun:
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
        self._run = TrainingRun(
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


def _checked_backend(backend: Any) -> Any:
    from trainables.torch.torch_config import TorchConfig

    if backend == "torch":
        return TorchConfig()
    if isinstance(backend, TorchConfig | Framework):
        return backend
    raise invalid("Trainer: backend", backend, "'torch', a TorchConfig, or a Framework")


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
    base = path = driver().default_storage() / time.strftime("train_%Y-%m-%d_%H-%M-%S")
    number = 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}_{number}")
    fs.make_dirs(path)
    return path
