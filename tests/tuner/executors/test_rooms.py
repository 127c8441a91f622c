"""The rooms of the executors: agents of hosts know nothing of who starts them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def modules() -> dict[str, Path]:
    root = ROOT / "tuner" / "executors"
    return {file.relative_to(root).with_suffix("").as_posix(): file for file in root.rglob("*.py")}


@pytest.mark.parametrize(
    ("room", "closed"),
    [
        ("local", {"host_agent", "remote", "ray"}),
        ("host_agent", {"remote", "ray"}),
        ("remote", {"ray"}),
    ],
)
def test_a_room_imports_nothing_of_those_above_it(room: str, closed: set[str]) -> None:
    wrong = []
    for name, file in modules().items():
        if name.startswith(f"{room}/"):
            for node in ast.walk(ast.parse(file.read_text())):
                imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module:
                    imported = [f"{node.module}.{alias.name}" for alias in node.names]
                wrong += [
                    f"{name} imports {module}"
                    for module in imported
                    if module.split(".")[0] == "ray"
                    or any(f"{module}.".startswith(f"tuner.executors.{above}.") for above in closed)
                ]
    assert wrong == []
