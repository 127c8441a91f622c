"""Transformers: a callback that reports what `Trainer` saves, and a trainer that saves into its trial's directory."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointNotFoundError
from trainables.reporting import library
from trainables.store import file_tree, fs, staging
from trainables.validation import invalid

_transformers = library("transformers", extra="transformers")
_Callback: Any = _transformers.TrainerCallback

__all__ = ["RayTrainReportCallback", "prepare_trainer"]


class RayTrainReportCallback(_Callback):  # type: ignore[misc] # its package may be absent
    """Reports the newest value of everything that was logged, with the checkpoint, whenever the `Trainer` saves.

    When that is, `TrainingArguments(save_strategy=, save_steps=)` say. A trial that was interrupted goes on from it:

        >>> trainer = prepare_trainer(Trainer(model, arguments, callbacks=[RayTrainReportCallback()], ...))
        >>> checkpoint = train.get_checkpoint()
        >>> with checkpoint.as_directory() if checkpoint else nullcontext() as directory:
        ...     trainer.train(directory and f"{directory}/{RayTrainReportCallback.CHECKPOINT_NAME}")

    What was saved is moved out of the trainer's `output_dir`, without a copy; with `metric_for_best_model` or
    `load_best_model_at_end` it is cloned, and stays there for the trainer. In a group rank 0 reports it.
    """

    CHECKPOINT_NAME: ClassVar[str] = "checkpoint"

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        metrics: dict[str, Any] = {}
        for logged in state.log_history:
            metrics |= logged
        metrics |= {"step": state.global_step, "epoch": state.epoch}
        _wait_for_all()  # every rank writes its own random state into it
        if session.get_world_rank() != 0:
            session.report(metrics)
            return
        source = Path(args.output_dir, f"checkpoint-{state.global_step}")
        if not source.is_dir():
            raise CheckpointNotFoundError(f"the Trainer saved no {source}; report with a callback of your own there")
        with tempfile.TemporaryDirectory(prefix="saving_") as directory:
            target = Path(directory, self.CHECKPOINT_NAME)
            if args.load_best_model_at_end or args.metric_for_best_model:
                fs.make_dirs(target)
                staging.copy_tree(file_tree.scan(source, follow=True), target)
            else:
                shutil.move(source, target)
            session.report(metrics, checkpoint=Checkpoint.from_directory(directory, move=True))


def _wait_for_all() -> None:
    import torch.distributed as dist

    if session.get_world_size() > 1 and dist.is_available() and dist.is_initialized():
        dist.barrier()


def prepare_trainer(trainer: Any) -> Any:
    """The trainer, saving into the trial's directory: into one `output_dir`, several trials would save at once.

    Its name stays: `output_dir="out"` becomes `<the trial's directory>/out`. Outside a trial nothing changes. Warns of
    `save_strategy="no"`, with which nothing is saved, so that nothing is reported.
    """
    if not hasattr(getattr(trainer, "args", None), "output_dir"):
        raise invalid("prepare_trainer: trainer", trainer, "a Trainer of Transformers")
    place = session.get_trial_dir()
    if place is not None and not Path(os.path.abspath(trainer.args.output_dir)).is_relative_to(place):
        trainer.args.output_dir = str(Path(place, Path(os.path.abspath(trainer.args.output_dir)).name))
    if getattr(trainer.args.save_strategy, "value", trainer.args.save_strategy) == "no":
        session.warn_once('save_strategy="no": the Trainer saves nothing, and RayTrainReportCallback reports nothing')
    return trainer
