"""`ray.util` and its modules: scripts import from them for a cluster, and mostly do not use them on one machine.

Each of their names can be imported, and says when it is used that no Ray runs.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tuner.compat.missing import NotHere

INSTEAD = (
    "trials are processes of this machine, and no Ray runs: ray.init(address=...) connects to one, and loads all of Ray"
)


_MARKS = frozenset({"Deprecated", "DeveloperAPI", "PublicAPI"})
"""Decorators that say of a class or function whom it is for, with arguments or without."""


def mark(*marked: Any, **said: Any) -> Any:
    """A decorator that leaves alone what it marks."""
    return marked[0] if len(marked) == 1 and callable(marked[0]) and not said else mark


class UtilityModule(ModuleType):
    """A module of Ray's that has whatever it is asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "Stands for a module of Ray's.")
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _MARKS:
            return mark
        return NotHere(self.__name__, name, INSTEAD)


class _EmptyLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return UtilityModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def find(fullname: str) -> ModuleSpec | None:
    """Where such a module comes from; None for others."""
    if fullname != "ray.util" and not fullname.startswith("ray.util."):
        return None
    return ModuleSpec(fullname, _EmptyLoader(), is_package=True)


def forget() -> None:
    """Leave their names to Ray's own modules."""
    for name in [name for name, module in sys.modules.items() if isinstance(module, UtilityModule)]:
        del sys.modules[name]
