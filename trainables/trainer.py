"""`BaseTrainer`: what all trainers share: they are given settings, become a trainable, and `fit()`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainables.checkpoint import Checkpoint
from trainables.config import RunConfig, ScalingConfig
from trainables.errors import TrainingFailedError
from trainables.places import is_elsewhere
from trainables.settings import instance_of, invalid

if TYPE_CHECKING:
    from trainables.result import Result

T = TypeVar("T", bound="BaseTrainer")


class BaseTrainer:
    """One training, of as many processes as `scaling_config` says. `Tuner(trainer)` runs many.

    Args:
        scaling_config: how many workers there are, and what each gets; None: one worker with one CPU.
        run_config: name, storage, checkpoints, failures, callbacks.
        resume_from_checkpoint: what `get_checkpoint()` returns at first.
        metadata: what `get_context().get_metadata()` returns in the workers.

    Subclasses say in `as_trainable` what a trial of theirs runs.
    """

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
        self._restored: tuple[str, dict[str, Any]] | None = None

    @property
    def param_space(self) -> dict[str, Any]:
        """What `fit()` runs with; a Tuner's own space is laid over it."""
        return {}

    def as_trainable(self) -> Callable[[Mapping[str, Any]], Any]:
        """The function that a trial runs: its config may hold what the trainer was given, to be overridden."""
        raise NotImplementedError(f"{type(self).__name__} needs a method as_trainable() that returns what a trial runs")

    def fit(self) -> Result:
        """Train to the end; return the result.

        Raises TrainingFailedError when the training failed more than `max_failures` times, with the last failure as its
        cause, and what `Tuner.fit` raises before anything was started.
        """
        from tuner.tuner import Tuner  # the one door upstairs: only when it is called

        if self._restored is not None:
            path, how = self._restored
            tuner = Tuner.restore(path, self, **how)
        else:
            tuner = Tuner(self, param_space=self.param_space, run_config=self.run_config)
        result: Result = tuner.fit()[0]
        if result.error is not None:
            raise TrainingFailedError(
                f"the training failed: {result.error}\nWhat it has saved is in {result.path}; "
                f"{type(self).__name__}.restore({self._place(result)!r}, ...) goes on"
            ) from result.error
        return result

    def _place(self, result: Result) -> str:
        """Where the experiment lies, to be restored from there: the place elsewhere that was named, if one was."""
        from trainables.transfer.open import shown

        here = Path(result.path or "").parent
        if self._restored is not None:
            return shown(self._restored[0])
        storage = self.run_config.storage_path or self.run_config.local_dir
        if storage is None or not is_elsewhere(storage):
            return str(here)
        return f"{shown(os.fspath(storage)).rstrip('/')}/{here.name}"

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """True if there is an experiment at `path`, here or elsewhere ("s3://...")."""
        from tuner.tuner import Tuner

        return Tuner.can_restore(path)  # type: ignore[arg-type]

    @classmethod
    def restore(cls: type[T], path: str | os.PathLike[str], *arguments: Any, **settings: Any) -> T:
        """A trainer whose `fit()` continues what was begun at `path`, also after a failure.

        Args:
            path: the experiment's directory or URI: `<storage_path>/<name>`.
            arguments, settings: those of the constructor again: experiments do not store code. Without `run_config`
                the stored settings hold.
        """
        trainer = cls(*arguments, **settings)
        how: dict[str, Any] = {"resume_errored": True, "param_space": trainer.param_space}
        if settings.get("run_config") is not None:
            how["run_config"] = trainer.run_config
        trainer._restored = (os.fspath(path), how)
        return trainer
