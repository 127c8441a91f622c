"""The page 'Evidence' says what the file of results holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"
KILLS, LIFE = "tests/crash/test_real_kills.py::test_x[1]", "tests/soak/test_long_life.py::test_y"


@pytest.fixture(scope="module")
def evidence() -> Any:
    sys.path.insert(0, str(DOCS))
    from made import evidence

    yield evidence
    sys.path.remove(str(DOCS))


def line(test: str, outcome: str, seconds: float, **counts: float) -> dict[str, Any]:
    return {"run": "r", "test": test, "outcome": outcome, "seconds": seconds, "counts": counts}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    told = [
        {"run": "r", "version": "0.1.0", "commit": "abc", "machine": "2 cores", "slice": "3/20"},
        line(KILLS, "failed", 100, **{"kills of driver": 1}),
        line(KILLS, "passed", 720, **{"kills of driver": 2}),
        line(KILLS.replace("1", "2"), "passed", 1080, **{"kills of driver": 1500, "kills of trial": 1}),
        line("tests/elsewhere.py::test_z", "failed", 0),
        line(LIFE, "passed", 3600, **{"memory MB": 55.5}),
    ]
    path = tmp_path / "soak.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in told) + '{"torn')
    return path


def test_a_row_adds_up_the_last_lines_of_its_tests(evidence: Any, results: Path) -> None:
    rows = evidence.table(results).splitlines()
    (kills,) = [row for row in rows if row.startswith("| Driver, trial")]
    assert kills.endswith("| 2 | 2 passed | 1,502 kills of driver, 1 kills of trial | 0.50 |")
    (life,) = [row for row in rows if row.startswith("| One long life")]
    assert life.endswith("| 1 | 1 passed | - | 1.00 |")
    assert "| everything else | 1 | 1 failed | - | 0.00 |" in rows
    assert "| **all** | 4 | 3 passed, 1 failed | - | 1.50 |" in rows
    assert rows[-1].startswith("Nothing of these was run: ") and "Hostile files" in rows[-1]


def test_what_was_measured_what_failed_and_where_stand_by_themselves(evidence: Any, results: Path) -> None:
    assert "| memory MB | 55.5 |" in evidence.figures(results) and LIFE in evidence.figures(results)
    assert evidence.failures(results) == "- `tests/elsewhere.py::test_z`"
    assert "| r | 3/20 | 0.1.0, abc | 2 cores |" in evidence.runs(results)


def test_nothing_is_said_of_a_file_that_is_not_there(evidence: Any, tmp_path: Path) -> None:
    assert "| **all** | 0 |" in evidence.table(tmp_path / "none") and evidence.figures(tmp_path / "none") == "None yet."
    assert evidence.failures(tmp_path / "none") == "None."


def test_each_kind_has_tests_and_faults_are_sentences(evidence: Any) -> None:
    for title, kind in evidence.kinds().items():
        for begins in kind["tests"]:
            assert list(ROOT.glob(f"{begins}*")) or (ROOT / begins).is_dir(), (title, begins)
        assert all(isinstance(fault, str) and " " in fault for fault in kind.get("found", [])), title
