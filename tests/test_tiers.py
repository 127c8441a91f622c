"""The lists of tiers name tests that exist, and the list of offenders is short."""

from __future__ import annotations

import ast
import datetime
import os
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import KINDS, REAL, names_of, slow_ones_first, tier

ROOT = Path(__file__).parents[1]


@cache
def functions(file: Path) -> set[str]:
    """Return the test functions of a file, as pytest names them."""
    found = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        within = [(f"{node.name}::", each) for each in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
        found |= {f"{prefix}{each.name}" for prefix, each in within if isinstance(each, ast.FunctionDef)}
    return found


def is_there(line: str) -> bool:
    file, _, function = line.partition("[")[0].partition("::")
    path = ROOT / file
    return path.exists() and path.is_dir() == line.endswith("/") and (not function or function in functions(path))


def test_what_is_listed_is_there() -> None:
    assert [line for line in sorted(REAL | KINDS) if not is_there(line)] == []


def test_kinds_are_among_those_that_start_something() -> None:
    assert [line for line in sorted(KINDS) if REAL.isdisjoint(names_of(line))] == []


def test_a_test_is_of_one_tier() -> None:
    assert tier("tests/test_tiers.py::test_a_test_is_of_one_tier") == "in_process"
    assert tier("tests/test_ci.py::test_any[a::b]") == "kind"
    assert tier("tests/campaign/test_campaign.py::test_any") == "wide"


class Item:
    """A test of a module, with a time limit."""

    def __init__(self, module: str, limit_s: float) -> None:
        self.path, self.mark = Path(module), pytest.mark.timeout(limit_s).mark

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [self.mark]


def test_each_worker_begins_with_slow_modules() -> None:
    items: list[Any] = [Item(f"m{number // 4}", 400 if number in (30, 50, 51, 70) else 60) for number in range(100)]
    ordered = slow_ones_first(items, 3)
    assert sorted(map(id, ordered)) == sorted(map(id, items))
    begins = [[item.path.name for item in ordered[start : start + 4]] for start in (0, 33, 66)]
    assert begins == [["m7"] * 4, ["m12"] * 4, ["m17"] * 4]
    assert slow_ones_first(items[:3], 3) == items[:3]


def test_offenders_are_few_and_each_says_what_is_known() -> None:
    rows = tomllib.loads((ROOT / "tests" / "offenders.toml").read_text("utf-8")).get("test", [])
    assert len(rows) <= 15
    for row in rows:
        assert is_there(row["name"]) and row["known"] and isinstance(row["date"], datetime.date), row


def test_a_test_in_process_that_starts_something_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ("tests.tiers",)\n')
    (tmp_path / "test_it.py").write_text(
        "import subprocess\ndef test_starts():\n    subprocess.run(['true'])\ndef test_starts_nothing():\n    pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-W", "ignore", "-p", "no:cacheprovider", tmp_path]
    told = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert "2 passed, 1 error" in told.stdout
    assert "belongs into tests/real.txt: subprocess.Popen" in told.stdout
