"""`Experiment`: the arguments of one `tune.run` as a value (Ray's name for it)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from trainables.config import CheckpointConfig, SyncConfig
from trainables.places import child_of
from tuner.experiment.paths import as_local_path, default_storage, is_elsewhere
from tuner.registry import register_trainable, resolve_trainable
from tuner.search.experiment_spec import ExperimentSpec

_RENAMED = {"checkpoint_frequency": "checkpoint_freq", "num_to_keep": "keep_checkpoints_num"}


class Experiment(ExperimentSpec):
    """A name, a trainable, and arguments of `tune.run`, which takes it in the trainable's place.

    Args:
        name: the experiment's name; None: the trainable's.
        run: a trainable, or a registered name.
        arguments: any argument of `tune.run`.

    Example:
        >>> tune.run(tune.Experiment("first", train, config={"lr": tune.uniform(0, 1)}, num_samples=4))
    """

    def __init__(self, name: str | None, run: Any, **arguments: Any) -> None:
        super().__init__(name, run, **{_RENAMED.get(key, key): value for key, value in arguments.items()})
        if isinstance(sync := self.arguments.get("sync_config"), dict):
            self.arguments["sync_config"] = SyncConfig(**sync)

    @property
    def stopper(self) -> Callable[..., Any] | list[Any] | None:
        """What `stop=` ends trials with, where that is no dict of criteria, which `spec["stop"]` has."""
        stop = self.arguments.get("stop")
        return None if isinstance(stop, dict) else stop

    @property
    def dir_name(self) -> str:
        """The name of its directory."""
        return self.name

    @property
    def local_dir(self) -> str:
        """Where experiments lie on this machine."""
        place = self.arguments.get("storage_path") or self.arguments.get("local_dir")
        return str(default_storage() if place is None or is_elsewhere(place) else as_local_path(place))

    @property
    def local_path(self) -> str:
        """Its directory on this machine."""
        return os.path.join(self.local_dir, self.dir_name)

    path = checkpoint_dir = local_path

    @property
    def remote_path(self) -> str | None:
        """Where copies of it go; None: nowhere."""
        sync = self.arguments.get("sync_config")
        place = getattr(sync, "upload_dir", None)
        if place is None and is_elsewhere(self.arguments.get("storage_path") or ""):
            place = self.arguments["storage_path"]
        return None if place is None else child_of(place, self.dir_name)

    remote_checkpoint_dir = remote_path

    @property
    def checkpoint_config(self) -> CheckpointConfig:
        """Which checkpoints are made and stay."""
        return self.arguments.get("checkpoint_config") or CheckpointConfig()

    @classmethod
    def get_trainable_name(cls, run_object: Any) -> str:
        """The name that trials of a trainable have."""
        return resolve_trainable(run_object)[1]

    @classmethod
    def register_if_needed(cls, run_object: Any) -> str:
        """Register a trainable under its own name, unless it is the name of one; returns the name."""
        if isinstance(run_object, str):
            return run_object
        name = cls.get_trainable_name(run_object)
        register_trainable(name, run_object)
        return name


def experiments_of(experiments: Any) -> list[ExperimentSpec]:
    """A list of the experiments in any of the forms that `run_experiments` accepts; of None an empty one."""
    return Experiment.several(experiments)
