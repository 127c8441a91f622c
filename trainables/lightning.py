"""Lightning: a callback that reports epochs with the trainer's checkpoint, and a trainer that leaves the saving to it.

`lightning` and `pytorch_lightning` will both do; the one that is imported already is used.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import InvalidSettingError
from trainables.reporting import Metrics, checked_metrics, chosen, events, library, not_here
from trainables.validation import invalid

_NAMES = sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: name not in sys.modules)
_lightning = library(*_NAMES, extra="lightning")
_Callback: Any = _lightning.Callback
_Environment: Any = importlib.import_module(f"{_lightning.__name__}.plugins.environments").LightningEnvironment
_ModelCheckpoint: Any = importlib.import_module(f"{_lightning.__name__}.callbacks").ModelCheckpoint
_DDPStrategy: Any = importlib.import_module(f"{_lightning.__name__}.strategies").DDPStrategy

__all__ = [
    "LightningEventCallback",
    "RayDDPStrategy",
    "RayLightningEnvironment",
    "RayTrainReportCallback",
    "ReportCallback",
    "prepare_trainer",
]

_OTHER = 'RayDDPStrategy is; sharded models go with TorchTrainer and prepare_model(parallel_strategy="fsdp")'
__getattr__ = not_here(__name__, dict.fromkeys(("RayFSDPStrategy", "RayDeepSpeedStrategy"), _OTHER))

_RANDOM = "random_states"
"""Key of the ranks' random states in the trainer's checkpoint."""
_NO_TIME = {"on_exception", "on_save_checkpoint", "on_load_checkpoint"}
EVENTS = frozenset(name[3:] for name in dir(_Callback) if name.startswith("on_") and name not in _NO_TIME)
"""What a callback can be called at: Lightning's hooks without `on_`."""


class RandomStateCallback(_Callback):  # type: ignore[misc] # its package may be absent
    """Keeps the states of the random generators in the trainer's checkpoints, which Lightning does not: each rank's.

    They are restored before the first batch, so that the order of the data and what layers draw go on.
    """

    _restored: Any = None

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Add them; every rank calls this."""
        from trainables.torch.train_state import random_state

        checkpoint[_RANDOM] = gathered(random_state())

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Remember them: what is loaded after this may draw."""
        states = checkpoint.get(_RANDOM)
        rank = trainer.global_rank
        self._restored = states[rank if rank < len(states) else 0] if states else None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        super().on_fit_start(trainer, pl_module)
        self._restore()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Training goes on: from here on nothing is restored."""
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        self._restored = None

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Restore them once more at the end of an epoch whose last batch had come: its loader was begun in vain."""
        super().on_train_epoch_end(trainer, pl_module)
        self._restore()

    def _restore(self) -> None:
        if self._restored is not None:
            from trainables.torch.train_state import set_random_state

            set_random_state(self._restored)


def gathered(value: Any) -> list[Any]:
    """What each rank has, by rank. Called by all of them."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return [value]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


class RayTrainReportCallback(RandomStateCallback):
    """Reports `trainer.callback_metrics`, `epoch` and `step` at the end of each training epoch, with a checkpoint.

    A trial that was interrupted goes on from it, with the order of the data and the draws that it would have had:

        >>> trainer = prepare_trainer(Trainer(max_epochs=10, callbacks=[RayTrainReportCallback()]))
        >>> checkpoint = train.get_checkpoint()
        >>> with checkpoint.as_directory() if checkpoint else nullcontext() as directory:
        ...     trainer.fit(model, ckpt_path=directory and f"{directory}/{RayTrainReportCallback.CHECKPOINT_NAME}")

    In a group every rank calls it, and rank 0's checkpoint is reported.

    Args:
        checkpoint_upload_mode, validation: Have no effect.
    """

    CHECKPOINT_NAME: ClassVar[str] = "checkpoint.ckpt"

    def __init__(self, checkpoint_upload_mode: Any = None, validation: Any = False) -> None:
        super().__init__()
        for name, value in (("checkpoint_upload_mode", checkpoint_upload_mode), ("validation", validation)):
            if value:
                session.warn_once(f"RayTrainReportCallback({name}=) has no effect")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        metrics = {**_metrics(trainer), "epoch": trainer.current_epoch, "step": trainer.global_step}
        report_trainer(trainer, metrics, self.CHECKPOINT_NAME)


class LightningEventCallback(_Callback):  # type: ignore[misc] # its package may be absent
    """Base of a callback: `_handle(trainer, pl_module)` is called at the hooks that `on` names, without `on_`.

    Raises InvalidSettingError for a hook that Lightning has not.
    """

    def __init__(self, on: str | list[str] = "validation_end") -> None:
        super().__init__()
        self._on = events(on, EVENTS, type(self).__name__)

    def _handle(self, trainer: Any, pl_module: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} needs a method _handle(trainer, pl_module)")


def _at(event: str) -> Any:
    def hook(self: LightningEventCallback, trainer: Any, pl_module: Any = None, *more: Any, **named: Any) -> None:
        if event in self._on:
            self._handle(trainer, pl_module)

    return hook


for _event in EVENTS:
    setattr(LightningEventCallback, f"on_{_event}", _at(_event))


class ReportCallback(RandomStateCallback, LightningEventCallback):
    """Reports `trainer.callback_metrics` whenever one of the hooks named by `on` is called, but in the sanity check.

    Args:
        metrics: Which to report; a dict renames; None for all. One that is not logged yet is left out, with one
            warning.
        filename: Name of the trainer's checkpoint; None: none is saved.
        on: Names of Lightning's hooks, without `on_`.
    """

    def __init__(self, metrics: Metrics, filename: str | None, on: str | list[str]) -> None:
        super().__init__(on)
        self._metrics = checked_metrics(type(self).__name__, metrics)
        self._filename = filename

    def _handle(self, trainer: Any, pl_module: Any) -> None:
        if trainer.sanity_checking:
            return
        metrics = chosen(self._metrics, _metrics(trainer), "trainer.callback_metrics", strict=False)
        if self._filename is None:
            session.report(metrics)
        else:
            report_trainer(trainer, metrics, self._filename)


def _metrics(trainer: Any) -> dict[str, Any]:
    return {name: value.item() if hasattr(value, "item") else value for name, value in trainer.callback_metrics.items()}


def report_trainer(trainer: Any, metrics: dict[str, Any], filename: str) -> None:
    """Report with a checkpoint of the trainer: model, optimizers, schedulers, loops, other callbacks' states."""
    with tempfile.TemporaryDirectory(prefix="saving_") as directory:
        trainer.save_checkpoint(Path(directory) / filename)  # by every rank: its strategy gathers and waits
        mine = session.get_world_rank() == 0
        session.report(metrics, checkpoint=Checkpoint.from_directory(directory, move=True) if mine else None)


def prepare_trainer(trainer: Any) -> Any:
    """The trainer, without a `ModelCheckpoint` that has no `dirpath`, such as Lightning adds: the callback saves.

    One with a `dirpath` stays: somebody wants those files.

    Raises InvalidSettingError in a group whose ranks the trainer does not know: each would train for itself.
    """
    if not hasattr(trainer, "callbacks") or not hasattr(trainer, "world_size"):
        raise invalid("prepare_trainer: trainer", trainer, "a Trainer of Lightning")
    trainer.callbacks = [callback for callback in trainer.callbacks if not _saves_somewhere(callback)]
    if session.get_world_size() != trainer.world_size:
        raise InvalidSettingError(
            f"this Trainer has {trainer.world_size} processes, the group {session.get_world_size()}: "
            "Trainer(strategy=RayDDPStrategy(), plugins=[RayLightningEnvironment()]) takes the group's"
        )
    return trainer


def _saves_somewhere(callback: Any) -> bool:
    return isinstance(callback, _ModelCheckpoint) and callback.dirpath is None


class RayLightningEnvironment(_Environment):  # type: ignore[misc] # its package may be absent
    """Tells Lightning the ranks of the group that a trainer of ours started."""

    @property
    def creates_processes_externally(self) -> bool:
        """The group is there already."""
        return True

    def world_size(self) -> int:
        """Workers in the group."""
        return session.get_world_size()

    def global_rank(self) -> int:
        """This worker among all."""
        return session.get_world_rank()

    def local_rank(self) -> int:
        """This worker on its host."""
        return session.get_local_rank()

    def node_rank(self) -> int:
        """This host in the group."""
        return session.get_node_rank()

    def set_world_size(self, size: int) -> None:
        """The group has its size."""

    def set_global_rank(self, rank: int) -> None:
        """The worker has its rank."""

    def teardown(self) -> None:
        """The group ends with the trial."""


class RayDDPStrategy(_DDPStrategy):  # type: ignore[misc] # its package may be absent
    """Lightning's DDP on the device and with the ranks of the group that `TorchTrainer` started."""

    @property
    def root_device(self) -> Any:
        """This worker's device."""
        from trainables.torch import get_device

        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """Each rank takes its part of the data."""
        return {"num_replicas": self.world_size, "rank": self.global_rank}
