"""Hyperparameter tuning with trial checkpointing: `import tuner as tune` stands where `from ray import tune` stood.

Everything public loads on first use (PEP 562), so that importing this package costs next to nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from importlib.machinery import PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "BasicVariantGenerator": "tuner.search.variants",
    "Budget": "trainables.config",
    "CLIReporter": "tuner.progress_reporter",
    "Callback": "tuner.callback",
    "Command": "trainables.command.command",
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
    "open_session": "tuner.asking",
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
    "should_save": "trainables.session",
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
        # `from tuner import module` asks for a module so, and imports it then.
        if not name.startswith("__") and PathFinder.find_spec(f"{__name__}.{name}", __path__) is None:
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
    from trainables.command.command import Command as Command
    from trainables.config import Budget as Budget
    from trainables.config import CheckpointConfig as CheckpointConfig
    from trainables.config import FailureConfig as FailureConfig
    from trainables.config import RunConfig as RunConfig
    from trainables.config import SyncConfig as SyncConfig
    from trainables.context import TrainContext
    from trainables.parameters import with_parameters as with_parameters
    from trainables.result import Result as Result
    from trainables.runtime.function_trainable import wrap_function as wrap_function
    from trainables.session import checkpoint_dir as checkpoint_dir
    from trainables.session import get_checkpoint as get_checkpoint
    from trainables.session import get_context as get_context
    from trainables.session import get_trial_dir as get_trial_dir
    from trainables.session import get_trial_id as get_trial_id
    from trainables.session import get_trial_name as get_trial_name
    from trainables.session import get_trial_resources as get_trial_resources
    from trainables.session import report as report
    from trainables.session import should_save as should_save
    from trainables.trainable import Trainable as Trainable
    from tuner.analysis import ExperimentAnalysis as ExperimentAnalysis
    from tuner.analysis import ResultGrid as ResultGrid
    from tuner.callback import Callback as Callback
    from tuner.error import Interrupted as Interrupted
    from tuner.error import TuneError as TuneError
    from tuner.experiment.definition import Experiment as Experiment
    from tuner.opened_experiment import open_experiment as open_experiment
    from tuner.progress_reporter import CLIReporter as CLIReporter
    from tuner.progress_reporter import JupyterNotebookReporter as JupyterNotebookReporter
    from tuner.progress_reporter import ProgressReporter as ProgressReporter
    from tuner.registry import register_env as register_env
    from tuner.registry import register_trainable as register_trainable
    from tuner.resources import PlacementGroupFactory as PlacementGroupFactory
    from tuner.resources import with_resources as with_resources
    from tuner.resume_config import ResumeConfig as ResumeConfig
    from tuner.run import run as run
    from tuner.run import run_experiments as run_experiments
    from tuner.schedulers import create_scheduler as create_scheduler
    from tuner.search import create_searcher as create_searcher
    from tuner.search.sample import choice as choice
    from tuner.search.sample import grid_search as grid_search
    from tuner.search.sample import lograndint as lograndint
    from tuner.search.sample import loguniform as loguniform
    from tuner.search.sample import qlograndint as qlograndint
    from tuner.search.sample import qloguniform as qloguniform
    from tuner.search.sample import qrandint as qrandint
    from tuner.search.sample import qrandn as qrandn
    from tuner.search.sample import quniform as quniform
    from tuner.search.sample import randint as randint
    from tuner.search.sample import randn as randn
    from tuner.search.sample import sample_from as sample_from
    from tuner.search.sample import uniform as uniform
    from tuner.search.variants import BasicVariantGenerator as BasicVariantGenerator
    from tuner.stopper import CombinedStopper as CombinedStopper
    from tuner.stopper import FunctionStopper as FunctionStopper
    from tuner.stopper import Stopper as Stopper
    from tuner.stopper import at_least as at_least
    from tuner.stopper import at_most as at_most
    from tuner.tuner import TuneConfig as TuneConfig
    from tuner.tuner import Tuner as Tuner

    TuneContext, syncConfig = TrainContext, SyncConfig
