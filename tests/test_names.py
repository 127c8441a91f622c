"""One language: a class name and a module's base name mean one thing in the whole tree, and files stay small."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.test_floors import ROOT, modules

RAYS = {"RayTrainReportCallback", "TuneReportCallback", "TuneReportCheckpointCallback"}
"""Ray has these once for each library that it integrates."""
LINES, LINES_OF_THE_DRIVER = 350, 300
METHODS, ATTRIBUTES = 20, 15
LARGE = {
    "tuner.syncer.queue.Queue",  # pure, and one table of transitions: it is read from top to bottom
}


def file_of(module: str) -> Path:
    place = ROOT / module.replace(".", "/")
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def repeated(names: dict[str, list[str]]) -> str:
    return "\n".join(f"{name}: {', '.join(places)}" for name, places in sorted(names.items()) if len(places) > 1)


def test_a_class_name_means_one_thing() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name not in RAYS:
                found[node.name].append(module)
    assert not repeated(found)


def is_a_sibling(one: str, other: str) -> bool:
    """`tuner.a.X` and `tuner.b.X`; `tuner.X` and `trainables.X`; a library that Ray Tune and Ray Train both name."""
    a, b = one.split(".")[:-1], other.split(".")[:-1]
    return (len(a) == len(b) and a[:-1] == b[:-1]) or len(a) == len(b) == 1 or ["tuner", "integration"] in (a, b)


def test_a_modules_base_name_means_one_thing() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        if not file_of(module).name.startswith("__") and not module.startswith("tuner.cli."):
            found[module.split(".")[-1]].append(module)
    twice = {
        name: places
        for name, places in found.items()
        if not all(is_a_sibling(one, other) for one in places for other in places if one != other)
    }
    assert not repeated(twice)


def test_no_file_is_long() -> None:
    lines = {module: file_of(module).read_text("utf-8").count("\n") for module in modules()}
    limit = {module: LINES_OF_THE_DRIVER if module.startswith("tuner.driver") else LINES for module in lines}
    assert not [f"{module}: {count}" for module, count in lines.items() if count > limit[module]]


def methods_of(node: ast.ClassDef) -> int:
    """Those with a verb for a name: no properties, and nothing that Python itself calls."""
    return sum(
        isinstance(each, ast.FunctionDef)
        and not each.name.startswith("__")
        and not any("property" in ast.unparse(mark) or "setter" in ast.unparse(mark) for mark in each.decorator_list)
        for each in node.body
    )


def attributes_of(node: ast.ClassDef) -> int:
    return len(
        {
            each.attr
            for each in ast.walk(node)
            if isinstance(each, ast.Attribute)
            and isinstance(each.ctx, ast.Store)
            and isinstance(each.value, ast.Name)
            and each.value.id == "self"
        }
    )


@pytest.mark.parametrize(("count", "limit"), [(methods_of, METHODS), (attributes_of, ATTRIBUTES)])
def test_no_class_of_the_driver_knows_everything(count: Callable[[ast.ClassDef], int], limit: int) -> None:
    large = [
        f"{module}.{node.name}: {count(node)}"
        for module, tree in modules().items()
        if module.startswith(("tuner.driver", "tuner.syncer", "tuner.executors"))
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and f"{module}.{node.name}" not in LARGE and count(node) > limit
    ]
    assert not large
