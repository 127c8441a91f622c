"""`DataParallelTrainer`: runs one function in every worker process of a group."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from trainables.checkpoint import Checkpoint
from trainables.config import RunConfig, ScalingConfig
from trainables.errors import InvalidSettingError
from trainables.group.framework import Framework
from trainables.group.group_trainable import GroupTrainable, check_scaling, check_train_loop
from trainables.trainer import BaseTrainer
from trainables.validation import checked_names, instance_of, invalid


@checked_names
class DataParallelTrainer(BaseTrainer):
    """Runs `train_loop_per_worker` in `scaling_config.num_workers` processes that report together.

    Each calls `report(metrics, checkpoint=)` equally often; the metrics of rank 0 count, and what ranks save is merged
    into one checkpoint: of files with equal names rank 0's stays. When one fails, dies or does not come, all are ended,
    and start again from the newest checkpoint as often as `FailureConfig(max_failures)` says.

    Args:
        train_loop_per_worker: a function of no argument, or of the config.
        train_loop_config: its config; in a Tuner `param_space={"train_loop_config": {...}}` is laid over it.
        backend_config: None, or a `Framework`: what sets up each rank.
        scaling_config: how many workers there are, and what each gets.
        run_config: name, storage, checkpoints, failures.
        resume_from_checkpoint: what `get_checkpoint()` returns at first.
        metadata: what `get_context().get_metadata()` returns in the workers.

    Raises InvalidSettingError. What more resources than there are come to is seen when it runs.

    Example:
        >>> def train_func(config):
        ...     for epoch in range(config["epochs"]):
        ...         train.report({"loss": 1 / (epoch + 1)})
        >>> trainer = DataParallelTrainer(
        ...     train_func, train_loop_config={"epochs": 3}, scaling_config=ScalingConfig(num_workers=2)
        ... )
        >>> trainer.fit().metrics["loss"]
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        backend_config: Any = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: Mapping[str, Any] | None = None,
        datasets: None = None,
    ) -> None:
        super().__init__(
            scaling_config=scaling_config,
            run_config=run_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
        )
        name = type(self).__name__
        check_train_loop(name, train_loop_per_worker)
        if train_loop_config is not None and not isinstance(train_loop_config, Mapping):
            raise invalid(f"{name}: train_loop_config", train_loop_config, "None, or a dict")
        if datasets is not None:
            raise InvalidSettingError(
                f"{name}: datasets= is not accepted: make the dataset in the training function, where "
                "prepare_data_loader() gives each worker its share"
            )
        check_scaling(name, self.scaling_config)
        self.train_loop_per_worker = train_loop_per_worker
        self.train_loop_config = train_loop_config
        self.backend_config = backend_config
        self.before: Callable[[], None] | None = None
        """Called in each worker before the function."""
        self.trainable_kind: type[GroupTrainable] | None = None
        """What a trial runs; None: a `GroupTrainable`."""
        self.backend_of(self.scaling_config)  # what is wrong with it is said now

    @property
    def param_space(self) -> dict[str, Any]:
        return {} if self.train_loop_config is None else {"train_loop_config": dict(self.train_loop_config)}

    def backend_of(self, scaling: ScalingConfig) -> Framework:
        """What sets up the ranks. Raises InvalidSettingError."""
        if self.backend_config is None:
            return Framework()
        instance_of(f"{type(self).__name__}: backend_config", self.backend_config, (Framework,))
        made: Framework = self.backend_config
        return made

    def as_trainable(self) -> Callable[[Mapping[str, Any]], Any]:
        return (self.trainable_kind or GroupTrainable)(self.without_settings())

    def without_settings(self) -> DataParallelTrainer:
        """A copy that says what runs, and nothing of where and how often: it travels to the trials."""
        made = copy.copy(self)
        made.run_config, made.resume_from_checkpoint = RunConfig(), None
        return made
