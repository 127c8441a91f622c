"""Tests mirror the packages: a larger module has a test file of its name, or a row here says which one covers it."""

from __future__ import annotations

from functools import cache
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("trainables", "tuner")
LARGE = 120
"""Lines, above which a module is to have tests of its own. What an `__init__` names is held by `test_exports.py`."""

COVERED_BY = {
    # driver, opening, executors, syncer, experiment, tools, cli
    "tuner/cli/config_file": "tests/tuner/cli/test_cli_config.py",
    "tuner/cli/show": "tests/tuner/cli/test_cli_verbs.py",
    "tuner/cli/verify": "tests/tuner/cli/test_cli_verbs.py",
    "tuner/syncer/relation": "tests/tuner/opening/test_decide.py",
    "tuner/syncer/sink": "tests/tuner/syncer/test_replica.py",
    "tuner/syncer/views": "tests/tuner/test_elsewhere.py",
    "tuner/tools/copy": "tests/tuner/cli/test_cli_elsewhere.py",
    "tuner/tools/doctor": "tests/tuner/cli/test_cli_doctor.py",
    "tuner/tools/machine": "tests/tuner/cli/test_cli_doctor.py",
    "tuner/tools/prove/compare_files": "tests/tuner/tools/prove/test_differences.py",
    "tuner/tools/prove/run_watch": "tests/tuner/tools/prove/test_prove.py",
    "tuner/tools/sync": "tests/tuner/cli/test_cli_elsewhere.py",
    # the rest of tuner
    # trainables
}


@cache
def large() -> frozenset[str]:
    """The larger modules, as `tuner/driver/loop`."""
    return frozenset(
        file.relative_to(ROOT).with_suffix("").as_posix()
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if file.name != "__init__.py" and len(file.read_text("utf-8").splitlines()) > LARGE
    )


def has_its_own(module: str) -> bool:
    """There is a `test_` file of its name in the folder that mirrors its own, or in one above that."""
    path = PurePosixPath(module)
    return any((ROOT / "tests" / folder / f"test_{path.name}.py").is_file() for folder in path.parents[:-1])


def test_every_larger_module_has_tests_under_its_name_or_a_row() -> None:
    alone = {module for module in large() if not has_its_own(module)}
    assert sorted(alone - set(COVERED_BY)) == [], "without tests: write tests/<package>/.../test_<module>.py"
    assert sorted(set(COVERED_BY) - alone) == [], "rows that nothing needs any more"


@pytest.mark.parametrize("file", sorted(set(COVERED_BY.values())))
def test_a_row_names_a_file_of_tests(file: str) -> None:
    assert PurePosixPath(file).name.startswith("test_")
    assert (ROOT / file).is_file()
