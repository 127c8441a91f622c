"""What runs inside a trial: `report`, `Checkpoint`, `Trainable`, and the settings that describe a run.

`import trainables as train` stands where `from ray import train` stood. Names load on first use, so that importing the
package costs nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any

from trainables import address_finder

if TYPE_CHECKING:
    from trainables.addresses import CheckpointAddress
    from trainables.checkpoint import Checkpoint as Checkpoint
    from trainables.config import CheckpointConfig as CheckpointConfig
    from trainables.config import CheckpointStrategy as CheckpointStrategy
    from trainables.config import FailureConfig as FailureConfig
    from trainables.config import RunConfig as RunConfig
    from trainables.config import ScalingConfig as ScalingConfig
    from trainables.config import SyncConfig as SyncConfig
    from trainables.context import TrainContext as TrainContext
    from trainables.first_generation import Trainer as Trainer
    from trainables.result import Result as Result
    from trainables.session import checkpoint_dir as checkpoint_dir
    from trainables.session import get_checkpoint as get_checkpoint
    from trainables.session import get_context as get_context
    from trainables.session import load_checkpoint as load_checkpoint
    from trainables.session import local_rank as local_rank
    from trainables.session import report as report
    from trainables.session import save_checkpoint as save_checkpoint
    from trainables.session import should_save as should_save
    from trainables.session import world_rank as world_rank
    from trainables.session import world_size as world_size
    from trainables.trainable import Trainable as Trainable

_NAMES = {
    "checkpoint": "Checkpoint",
    "config": "CheckpointConfig CheckpointStrategy FailureConfig RunConfig ScalingConfig SyncConfig",
    "context": "TrainContext",
    "first_generation": "Trainer",
    "result": "Result",
    "session": "checkpoint_dir get_checkpoint get_context load_checkpoint local_rank report save_checkpoint "
    "should_save world_rank world_size",
    "trainable": "Trainable",
}
"""Module -> the public names that live in it."""
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

_MODULES = {"errors", "seeding", "session", "testing"}
"""Submodules that are reached as attributes: `train.session.report`."""

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    text = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(text, name=name, obj=sys.modules[__name__])  # with both, Python names the nearest


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


class _Finders:
    """Stands for the finders of Ray's names until a module of ours is looked for, so that an import alone is quick."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("trainables.") or name == "trainables.aliases":
            return None
        from trainables.aliases import install

        with contextlib.suppress(ValueError):  # another thread was first
            sys.meta_path.remove(self)
        return install(_table).find_spec(name, path)


def _table() -> Any:
    from trainables.door import names_of_ray  # of a package, an import from it would ask for the name first

    return names_of_ray()


def _checkpoint_at(address: CheckpointAddress) -> Any:
    from trainables.door import checkpoint_at

    return checkpoint_at(address)


sys.meta_path.insert(0, _Finders())
address_finder.install(_checkpoint_at)
