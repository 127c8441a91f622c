"""The rooms of the executors: agents of hosts know nothing of who starts them, and larger modules have their tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LARGE = 120
"""Lines, from which on a module has a test file of its name, or stands in the table."""

COVERED_BY = {
    "base": "tests/tuner/executors/test_local_trials.py",
    "host_agent/runner": "tests/tuner/executors/test_line.py",
    "host_agent/service": "tests/tuner/executors/test_line.py",
    "local/attempt_process": "tests/tuner/executors/test_local_trials.py",
    "local/executor": "tests/tuner/executors/test_local_trials.py",
    "local/forkserver": "tests/tuner/executors/test_local_trials.py",
    "local/keeper": "tests/tuner/executors/test_local_processes.py",
    "local/lines": "tests/tuner/executors/test_local_trials.py",
    "local/process_tree": "tests/tuner/executors/test_local_processes.py",
    "local/server": "tests/tuner/executors/test_local_processes.py",
    "local/slots": "tests/tuner/executors/test_local_processes.py",
    "ray/actor": "tests/tuner/executors/test_host.py",
    "ray/connection": "tests/tuner/executors/test_ray.py",
    "ray/executor": "tests/tuner/executors/test_ray.py",
    "ray/nodes": "tests/tuner/executors/test_leases.py",
    "remote/remote_attempts": "tests/tuner/executors/test_stores.py",
    "remote/hosts": "tests/tuner/executors/test_leases.py",
    "remote/remote_run": "tests/tuner/executors/test_stores.py",
    "remote/transfers": "tests/tuner/executors/test_stores.py",
}


def modules() -> dict[str, Path]:
    root = ROOT / "tuner" / "executors"
    return {file.relative_to(root).with_suffix("").as_posix(): file for file in root.rglob("*.py")}


def test_every_large_module_is_covered_by_a_test_file_of_its_name_or_by_one_in_the_table() -> None:
    tests = {file.name for file in Path(__file__).parent.glob("test_*.py")}
    large = {name for name, file in modules().items() if len(file.read_text().splitlines()) > LARGE}
    alone = {name for name in large if f"test_{Path(name).name}.py" not in tests}
    assert alone - set(COVERED_BY) == set(), "without tests"
    assert set(COVERED_BY) - large == set(), "no large modules"
    assert [file for file in COVERED_BY.values() if not (ROOT / file).is_file()] == []


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
