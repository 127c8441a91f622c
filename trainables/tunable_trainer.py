"""`TunableTrainer`: settings, search space and trainable of a trainer, as the driver sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainables.checkpoint import Checkpoint
from trainables.config import RunConfig, ScalingConfig
from trainables.validation import instance_of, invalid


class TunableTrainer:
    """The part of `BaseTrainer` that the driver sees; it cannot start a run by itself."""

    def __init__(
        self,
        *,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        name = type(self).__name__
        for setting, value, kind in (
            ("scaling_config", scaling_config, ScalingConfig),
            ("run_config", run_config, RunConfig),
            ("resume_from_checkpoint", resume_from_checkpoint, Checkpoint),
        ):
            if value is not None:
                instance_of(f"{name}: {setting}", value, (kind,))
        if metadata is not None and not isinstance(metadata, Mapping):
            raise invalid(f"{name}: metadata", metadata, "None, or a dict")
        self.scaling_config = ScalingConfig() if scaling_config is None else scaling_config
        self.run_config = RunConfig() if run_config is None else run_config
        self.resume_from_checkpoint = resume_from_checkpoint
        self.metadata = dict(metadata or {})

    @property
    def param_space(self) -> dict[str, Any]:
        """What `fit()` runs with; a Tuner's own space is laid over it."""
        return {}

    def as_trainable(self) -> Callable[[Mapping[str, Any]], Any]:
        """The function that a trial runs: its config may hold what the trainer was given, to be overridden."""
        raise NotImplementedError(f"{type(self).__name__} needs a method as_trainable() that returns what a trial runs")
