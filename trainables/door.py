"""The door upstairs: the one place where `trainables` reaches the driver: to run a trainer, for Ray's names, and for
the checkpoint that an address in an experiment means.

No module of `tuner` imports this one, nor one that imports it (but for the package itself, which does when a name is
looked for that it does not have): what the driver needs of trainers lies in `trainables.tunable_trainer` and
`trainables.group.group_trainable`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainables.addresses import CheckpointAddress
    from tuner.analysis import ResultGrid
    from tuner.callback import Callback
    from tuner.tuner import Tuner


@dataclass(frozen=True)
class Driver:
    """What trainers use of `tuner`."""

    Tuner: type[Tuner]
    fit_trainer: Callable[[Any, type], ResultGrid]
    Callback: type[Callback]
    default_storage: Callable[[], Path]


def driver() -> Driver:
    """The parts of `tuner` that a trainer's `fit()`, `run()` and `restore()` need, imported at this call.

    A trial's process never calls it: what runs inside a trial does without the driver's code.
    """
    from tuner.callback import Callback
    from tuner.experiment.paths import default_storage
    from tuner.tuner import Tuner, fit_trainer

    return Driver(Tuner, fit_trainer, Callback, default_storage)


def names_of_ray() -> ModuleType:
    """The table of Ray's names, imported at this call: a script has looked for what `trainables` does not have."""
    from tuner.compat import table

    return table


def checkpoint_at(address: CheckpointAddress) -> Any:
    """The checkpoint that EXPERIMENT@TAG means, for which a journal is read; None: it names no experiment.

    A trial's process comes here too where its code uses such an address.
    """
    from tuner.addresses import checkpoint_at

    found = checkpoint_at(address)
    return None if found is None else found.checkpoint
