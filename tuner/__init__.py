"""Hyperparameter tuning with trial checkpointing: `import tuner as tune` stands where `from ray import tune` stood.

Everything public loads on first use (PEP 562), so that importing this package costs next to nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "BasicVariantGenerator": "tuner.search.variants",
    "Budget": "trainables.config",
    "CLIReporter": "tuner.progress_reporter",
    "Callback": "tuner.callback",
    "Checkpoint": "trainables.checkpoint",
    "CheckpointConfig": "trainables.config",
    "CombinedStopper": "tuner.stopper",
    "Experiment": "tuner.experiment.definition",
    "ExperimentAnalysis": "tuner.analysis",
    "FailureConfig": "trainables.config",
    "FunctionStopper": "tuner.stopper",
    "Interrupted": "tuner.error",
    "JupyterNotebookReporter": "tuner.progress_reporter",
    "PlacementGroupFactory": "tuner.resources",
    "ProgressReporter": "tuner.progress_reporter",
    "Result": "trainables.result",
    "ResultGrid": "tuner.analysis",
    "ResumeConfig": "tuner.resume_config",
    "RunConfig": "trainables.config",
    "Stopper": "tuner.stopper",
    "SyncConfig": "trainables.config",
    "Trainable": "trainables.trainable",
    "TuneConfig": "tuner.tuner",
    "TuneContext": "trainables.context",
    "TuneError": "tuner.error",
    "Tuner": "tuner.tuner",
    "at_least": "tuner.stopper",
    "at_most": "tuner.stopper",
    "checkpoint_dir": "trainables.session",
    "choice": "tuner.search.sample",
    "create_scheduler": "tuner.schedulers",
    "create_searcher": "tuner.search",
    "get_checkpoint": "trainables.session",
    "get_context": "trainables.session",
    "get_trial_dir": "trainables.session",
    "get_trial_id": "trainables.session",
    "get_trial_name": "trainables.session",
    "get_trial_resources": "trainables.session",
    "grid_search": "tuner.search.sample",
    "lograndint": "tuner.search.sample",
    "loguniform": "tuner.search.sample",
    "open_experiment": "tuner.opened_experiment",
    "qlograndint": "tuner.search.sample",
    "qloguniform": "tuner.search.sample",
    "qrandint": "tuner.search.sample",
    "qrandn": "tuner.search.sample",
    "quniform": "tuner.search.sample",
    "randint": "tuner.search.sample",
    "randn": "tuner.search.sample",
    "register_env": "tuner.registry",
    "register_trainable": "tuner.registry",
    "report": "trainables.session",
    "run": "tuner.run",
    "run_experiments": "tuner.run",
    "sample_from": "tuner.search.sample",
    "syncConfig": "trainables.config",
    "uniform": "tuner.search.sample",
    "with_parameters": "trainables.parameters",
    "with_resources": "tuner.resources",
    "wrap_function": "trainables.runtime.function_trainable",
}

_RENAMED = {"TuneContext": "TrainContext", "syncConfig": "SyncConfig"}

_MODULES = frozenset(
    {
        "analysis",
        "callback",
        "error",
        "experiment",
        "logger",
        "preemption",
        "progress_reporter",
        "registry",
        "result",
        "schedulers",
        "search",
        "stopper",
        "syncer",
        "utils",
    }
)

__all__ = sorted([*_EXPORTS, "__version__"])


def __getattr__(name: str) -> Any:
    try:
        module = _EXPORTS.get(name)
        if module is not None:
            value = getattr(importlib.import_module(module), _RENAMED.get(name, name))
            globals()[name] = value
            return value
        if name in _MODULES:
            return importlib.import_module(f"tuner.{name}")
        if not name.startswith("__"):
            with contextlib.suppress(KeyError):
                return _aliases().look_up(__name__, name)
    except KeyboardInterrupt as stop:  # the first `tune.run` imports for half a second: no frame of that says anything
        stop.__traceback__, stop.__suppress_context__ = None, True
        raise
    here = sys.modules[__name__]
    called = "ray.tune" if getattr(sys.modules.get("ray"), "tune", None) is here else __name__
    text = f"module {called!r} has no attribute {name!r}{_elsewhere(name)}"
    try:
        raise AttributeError(text, name=name, obj=here)  # with both, Python names the nearest
    except AttributeError as error:
        error.__traceback__ = None
        raise  # bare: this frame, which is not the user's, is not added again


def _elsewhere(name: str) -> str:
    """Where a class lies that is looked for here."""
    for place in ("schedulers", "search", "executors", "logger", "stopper", "syncer") if name[:1].isupper() else ():
        if name in getattr(importlib.import_module(f"tuner.{place}"), "__all__", ()):
            return f"; it is in a module of its own: from tuner.{place} import {name}"
    return ""


class _Package(ModuleType):
    """Keeps `tuner.run` the function: importing the module of that name would put the module there."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not ((name in _EXPORTS or name == "tune") and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)  # trainables name it as a global, and are shipped


tune = sys.modules[__name__]
"""`from tuner import tune`, as a hand writes that has written `from ray import tune` for years."""

sys.modules[__name__].__class__ = _Package


class _Names:
    """Stands for the finders of Ray's names until a module of ours is looked for, so that an import alone is quick."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("tuner.") or name.startswith("tuner.compat"):
            return None
        finder = _aliases().install(_table)
        with contextlib.suppress(ValueError):  # another thread was first
            sys.meta_path.remove(self)
        return finder.find_spec(name, path)


def _table() -> ModuleType:
    from tuner.compat import table

    return table


def _aliases() -> Any:
    from trainables import aliases

    aliases.install(_table)
    return aliases


sys.meta_path.insert(0, _Names())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


if TYPE_CHECKING:
    from trainables.checkpoint import Checkpoint as Checkpoint
    from trainables.config import RunConfig as RunConfig
    from trainables.trainable import Trainable as Trainable
    from tuner.callback import Callback as Callback
    from tuner.run import run as run
    from tuner.tuner import TuneConfig as TuneConfig
    from tuner.tuner import Tuner as Tuner
