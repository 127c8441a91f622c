"""Finds modules that Ray has and that are no files here, as `tuner.tune_config`, and gives ours the names they lack.

The finders are installed when the first module of ours is looked for; the table of Ray's names, which is the driver's,
is asked for when something is looked for that is not there.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # each start of a program pays for what is imported here
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
else:
    Loader = object

COMPLETED = frozenset(
    """
    trainables
    trainables.checkpoint
    trainables.collective
    trainables.config
    trainables.context
    trainables.huggingface
    trainables.huggingface.transformers
    trainables.lightgbm
    trainables.lightning
    trainables.session
    trainables.sklearn
    trainables.torch
    trainables.trainer
    trainables.xgboost
    tuner.analysis
    tuner.callback
    tuner.error
    tuner.experiment
    tuner.experiment.trial
    tuner.integration.keras
    tuner.integration.lightgbm
    tuner.integration.xgboost
    tuner.logger.csv
    tuner.logger.json
    tuner.progress_reporter
    tuner.resources
    tuner.schedulers.pb2
    tuner.schedulers.pbt
    tuner.search
    tuner.search.ax
    tuner.search.bayesopt
    tuner.search.hyperopt
    tuner.search.nevergrad
    tuner.search.optuna
    tuner.search.searcher
    tuner.stopper.stopper
    tuner.syncer
    tuner.utils
    """.split()
)
"""Modules of ours that lack names, or modules below them, which Ray's have at the same path: a test holds them."""


_table: list[Callable[[], ModuleType]] = []
"""How the table of Ray's names is reached: said at `install`."""


class NameFinder:
    """The last to be asked: what nobody else has found is looked for in the table of Ray's modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(("tuner.", "trainables.")):
            return None
        table = _table[0]()
        theirs = [module for module in table.theirs_of(fullname) if table.is_known(module)]
        return ModuleSpec(fullname, _AliasLoader(theirs), is_package=True) if theirs else None


class _Completing:
    """The first to be asked: of modules that lack names, all are loaded as ever, and then get a way to those."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in COMPLETED:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _CompletingLoader(spec.loader)
        return spec


class _CompletingLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        complete(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # get_data, get_source, ...


def complete(module: ModuleType) -> None:
    """Let a module look up in the table what it does not have itself, modules below it among them."""
    own = vars(module).get("__getattr__")
    vars(module).setdefault("__path__", [])

    def __getattr__(name: str) -> Any:
        if own is not None:
            try:
                return own(name)
            except AttributeError as error:
                problem = error
        else:
            problem = AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        path = vars(module)["__path__"]
        if path and PathFinder.find_spec(f"{module.__name__}.{name}", path) is not None:
            raise problem  # `from package import module` asks for it so, and imports it then
        try:
            return look_up(module.__name__, name)
        except KeyError:
            raise problem from None

    setattr(__getattr__, "completes", own)  # noqa: B010 - a function that a type checker knows has no such attribute
    vars(module)["__getattr__"] = __getattr__


def look_up(ours: str, name: str) -> Any:
    """What a name is that Ray's module has, and ours at the same path has not. Raises KeyError."""
    table = _table[0]()
    for theirs in table.theirs_of(ours) if not name.startswith("__") else ():
        if theirs in table.sections():
            try:
                return table.look_up(theirs, name)
            except KeyError:
                continue
    raise KeyError(name)


class _AliasLoader(Loader):
    """Makes a module of what the table says."""

    def __init__(self, theirs: Sequence[str]) -> None:
        self._theirs = theirs

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return AliasModule(spec.name, self._theirs)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


class AliasModule(ModuleType):
    """A module of Ray's, whose names are elsewhere here."""

    def __init__(self, name: str, theirs: Sequence[str]) -> None:
        super().__init__(name, f"Ray's ray.{theirs[0]}: its names are elsewhere here, or say what to use instead.")
        self.__path__: list[str] = []
        self._theirs = theirs

    def __getattr__(self, name: str) -> Any:
        table = _table[0]()
        if name == "__all__":
            return self.__dir__()
        if name.startswith("__"):
            raise AttributeError(name)
        for theirs in self._theirs:
            if table.is_known(f"{theirs}.{name}") and name not in table.names_of(theirs):
                return importlib.import_module(f"{self.__name__}.{name}")
            if theirs in table.sections():
                try:
                    return table.look_up(theirs, name)
                except KeyError:
                    continue
        raise AttributeError(table.unknown(self._theirs[0], name))

    def __dir__(self) -> list[str]:
        table = _table[0]()
        return sorted({name for theirs in self._theirs for name in table.names_of(theirs)})


def install(table: Callable[[], ModuleType]) -> _Completing:
    """Find such modules from now on; returns the finder that is asked first. Doing it twice changes nothing.

    Args:
        table: gives `tuner.compat.table`, when it is first needed.
    """
    there = next((finder for finder in sys.meta_path if isinstance(finder, _Completing)), None)
    if there is not None:
        return there
    _table.append(table)
    first = _Completing()
    sys.meta_path.insert(0, first)
    sys.meta_path.append(NameFinder())
    for name in COMPLETED & sys.modules.keys():
        complete(sys.modules[name])
    return first
