"""`BaseTrainer`: base of all trainers: holds settings, becomes a trainable, and runs with `fit()`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainables.door import driver
from trainables.errors import TrainingFailedError
from trainables.places import child_of, is_elsewhere
from trainables.tunable_trainer import TunableTrainer
from trainables.user_frames import from_the_call

if TYPE_CHECKING:
    from trainables.result import Result

T = TypeVar("T", bound="BaseTrainer")


class BaseTrainer(TunableTrainer):
    """One training, of as many processes as `scaling_config` says. `Tuner(trainer)` runs many.

    Args:
        scaling_config: how many workers there are, and what each gets; None: one worker with one CPU.
        run_config: name, storage, checkpoints, failures, callbacks.
        resume_from_checkpoint: what `get_checkpoint()` returns at first.
        metadata: what `get_context().get_metadata()` returns in the workers.

    Subclasses say in `as_trainable` what a trial of theirs runs.
    """

    _restored: tuple[str, dict[str, Any]] | None = None

    @from_the_call
    def fit(self) -> Result:
        """Train to the end; return the result.

        Raises TrainingFailedError when the training failed more than `max_failures` times, with the last failure as its
        cause, and what `Tuner.fit` raises before anything was started.
        """
        if self._restored is not None:
            path, how = self._restored
            tuner = driver().Tuner.restore(path, self, **how)
        else:
            tuner = driver().Tuner(self, param_space=self.param_space, run_config=self.run_config)
        result: Result = driver().fit_trainer(tuner, type(self))[0]
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
        return child_of(shown(os.fspath(storage)), here.name)

    @classmethod
    @from_the_call
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """True if there is an experiment at `path`, here or elsewhere ("s3://...")."""
        return driver().Tuner.can_restore(path)  # type: ignore[arg-type]

    @classmethod
    @from_the_call
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
