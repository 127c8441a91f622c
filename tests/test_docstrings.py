"""No public name without a docstring; what is exported at the top has an example."""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import trainables
import tuner
from tests.listings import ROOT

INNER = (
    "tuner.cli.",
    "tuner.compat.",
    "tuner.driver.",
    "tuner.experiment.journal",
    "tuner.progress.",
    "tuner.retention.",
)
"""Packages with an `__all__` for the rest of the house, which no user imports."""
HANDED_ON = {"time_attr", "total"}
"""What `delegates` adds to classes that wrap another one."""


def public_modules() -> list[ModuleType]:
    """Those with an `__all__`."""
    found = []
    for package in ("tuner", "trainables"):
        for file in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            if "\n__all__ = " in file.read_text("utf-8") and not f"{name}.".startswith(INNER):
                found.append(importlib.import_module(name))
    return found


def methods_of(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class defines for its users: methods and properties, not what Python calls."""
    for name, value in vars(kind).items():
        inner = getattr(value, "__func__", getattr(value, "fget", value))
        if not name.startswith("_") and inspect.isfunction(inner):
            yield name, inner


def inherited(kind: type, name: str) -> bool:
    return any(getattr(getattr(base, name, None), "__doc__", None) for base in kind.__mro__[1:])


def without_docstring() -> Iterator[str]:
    for module in public_modules():
        for name in module.__all__:
            value = getattr(module, name)
            home = str(getattr(value, "__module__", ""))
            if not home.startswith(("tuner", "trainables")):
                continue  # a constant, or a literal type
            if not value.__doc__ or (inspect.isclass(value) and not vars(value).get("__doc__")):
                yield f"{module.__name__}.{name}"
            if inspect.isclass(value) and not issubclass(value, enum.Enum):
                for method, inner in methods_of(value):
                    if not inner.__doc__ and not inherited(value, method) and method not in HANDED_ON:
                        yield f"{home}.{name}.{method}"


@pytest.fixture(autouse=True)
def _keras_has_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")


def test_every_public_name_has_a_docstring() -> None:
    assert sorted(set(without_docstring())) == []


def test_what_is_exported_at_the_top_has_an_example() -> None:
    lacking = set()
    for package in (tuner, trainables):
        for name in package.__all__:
            value = getattr(package, name)
            if callable(value) and ">>>" not in (value.__doc__ or ""):
                lacking.add(f"{value.__module__}.{value.__qualname__}")
    assert sorted(lacking) == []
