"""Data-parallel training with torch: samplers, saving, sharded data, metrics. Usable on their own under `torchrun`.

`import trainables.torch` stands where `import ray.train.torch` stood, and `from trainables.torch import ...` where
`from cycling_utils import ...` did. Names load on first use: importing the package does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainables.errors import AdvancedTooFarError as AdvancedTooFarError
    from trainables.errors import HasNotResetProgressError as HasNotResetProgressError
    from trainables.torch.atomic_directory import AtomicDirectory as AtomicDirectory
    from trainables.torch.atomic_save import atomic_torch_save as atomic_torch_save
    from trainables.torch.grouped import (
        InterruptableDistributedGroupedBatchSampler as InterruptableDistributedGroupedBatchSampler,
    )
    from trainables.torch.metrics_tracker import MetricsTracker as MetricsTracker
    from trainables.torch.prepare import accelerate as accelerate
    from trainables.torch.prepare import backward as backward
    from trainables.torch.prepare import enable_reproducibility as enable_reproducibility
    from trainables.torch.prepare import get_device as get_device
    from trainables.torch.prepare import get_devices as get_devices
    from trainables.torch.prepare import prepare_data_loader as prepare_data_loader
    from trainables.torch.prepare import prepare_model as prepare_model
    from trainables.torch.prepare import prepare_optimizer as prepare_optimizer
    from trainables.torch.samplers import InterruptableDistributedSampler as InterruptableDistributedSampler
    from trainables.torch.samplers import InterruptableSampler as InterruptableSampler
    from trainables.torch.samplers import InterruptibleSampler as InterruptibleSampler
    from trainables.torch.sharded import DistributedShardedDataset as DistributedShardedDataset
    from trainables.torch.sharded_state import async_save as async_save
    from trainables.torch.sharded_state import load_sharded as load_sharded
    from trainables.torch.sharded_state import save_sharded as save_sharded
    from trainables.torch.timing import TimestampedTimer as TimestampedTimer
    from trainables.torch.torch_checkpoint import TorchCheckpoint as TorchCheckpoint
    from trainables.torch.torch_config import TorchConfig as TorchConfig
    from trainables.torch.torch_trainer import TorchTrainer as TorchTrainer
    from trainables.torch.train_state import TrainState as TrainState

_NAMES = {
    "trainables.errors": "AdvancedTooFarError HasNotResetProgressError",
    "trainables.torch.atomic_directory": "AtomicDirectory",
    "trainables.torch.atomic_save": "atomic_torch_save",
    "trainables.torch.grouped": "InterruptableDistributedGroupedBatchSampler",
    "trainables.torch.metrics_tracker": "MetricsTracker",
    "trainables.torch.prepare": "accelerate backward enable_reproducibility get_device get_devices prepare_data_loader "
    "prepare_model prepare_optimizer",
    "trainables.torch.samplers": "InterruptableDistributedSampler InterruptableSampler InterruptibleSampler",
    "trainables.torch.sharded": "DistributedShardedDataset",
    "trainables.torch.sharded_state": "async_save load_sharded save_sharded",
    "trainables.torch.timing": "TimestampedTimer",
    "trainables.torch.torch_checkpoint": "TorchCheckpoint",
    "trainables.torch.torch_config": "TorchConfig",
    "trainables.torch.torch_trainer": "TorchTrainer",
    "trainables.torch.train_state": "TrainState",
}
"""Module -> the public names that live in it."""
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
