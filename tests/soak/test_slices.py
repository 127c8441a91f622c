"""The soak in slices: each test is in exactly one of them, and a slice that was cut off goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.soak.slices import chosen, lines, passed, slice_of

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import os, signal
import pytest
from tests.soak.counts import count

@pytest.mark.parametrize("seed", range(30))
def test_some(seed, record_property):
    assert not os.path.exists(f"fails-{seed}"), "it is ill"
    if os.path.exists(f"dies-{seed}"):
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 7:
        pytest.skip("not here")
    count("kills", 2)
    count("kills of nobody", 0)
    record_property("memory MB", 1.5)

def count_outside():
    count("kills", 100)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "test_these.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def soak(place: Path, part: str = "1/1", *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.soak.slices", "--soak-slice", part]
    search = os.pathsep.join([str(ROOT), *sys.path])
    environment = {**os.environ, "PYTHONPATH": search, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take a second
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(
        [*command, "--soak-results", "kept/soak.jsonl", *more],
        cwd=place, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def ended(place: Path) -> list[dict[str, Any]]:
    return [line for line in lines(place / "kept" / "soak.jsonl") if "test" in line]


@pytest.mark.parametrize("workers", ["", "2"])
def test_every_test_is_in_exactly_one_slice(place: Path, workers: str) -> None:
    for number in (1, 2):
        said = soak(place, f"{number}/2", *(["-p", "xdist.plugin", "-n", workers] if workers else []))
        assert said.returncode == 0, said.stderr
        names = {line["test"] for line in ended(place)}
        assert all(slice_of(name, 2) <= number for name in names)
    assert Counter(line["test"].rpartition("::")[2] for line in ended(place)) == Counter(
        f"test_some[{seed}]" for seed in range(30)
    )


def test_a_slice_has_the_same_tests_whatever_else_there_is(place: Path) -> None:
    soak(place, "2/3")
    before = {line["test"] for line in ended(place)}
    (place / "kept" / "soak.jsonl").unlink()
    (place / "test_more.py").write_text(TESTS)
    soak(place, "2/3", "--deselect", "test_these.py::test_some[1]")
    after = {line["test"] for line in ended(place) if line["test"].startswith("test_these.py")}
    assert before - {"test_these.py::test_some[1]"} == after
    assert 5 < len(before) < 15  # a third of them, about


def test_a_line_says_what_was_run_where_and_what_came_of_it(place: Path) -> None:
    (place / "fails-3").touch()
    soak(place, "1/1")
    head, *found = lines(place / "kept" / "soak.jsonl")
    assert set(head) == {"run", "version", "commit", "machine", "slice"} and "cores" in head["machine"]
    by_seed = {int(line["test"].rpartition("[")[2][:-1]): line for line in found}
    assert {line["run"] for line in found} == {head["run"]}
    assert {seed: line["outcome"] for seed, line in by_seed.items() if line["outcome"] != "passed"} == {
        3: "failed",
        7: "skipped",
    }
    assert "it is ill" in by_seed[3]["said"] and "not here" in by_seed[7]["said"]
    assert by_seed[5]["counts"] == {"memory MB": 1.5, "kills": 2} and by_seed[5]["seconds"] >= 0


def test_a_slice_that_was_killed_goes_on_with_what_has_not_passed(place: Path) -> None:
    (place / "dies-20").touch()
    (place / "fails-3").touch()
    assert soak(place).returncode == -signal.SIGKILL
    assert len(ended(place)) == 20
    with (place / "kept" / "soak.jsonl").open("ab") as file:
        file.write(b'{"run": "torn by a kill", "te')
    (place / "dies-20").unlink()
    (place / "fails-3").unlink()
    assert soak(place).returncode == 0
    times = Counter(line["test"].partition("[")[2][:-1] for line in ended(place))
    assert times == Counter({str(seed): 2 if seed in (3, 7) else 1 for seed in range(30)})
    assert ended(place)[20]["test"].endswith("[3]") and ended(place)[20]["outcome"] == "passed"
    (place / "test_these.py").write_text(TESTS.replace("range(30)", "[0]"))
    assert "1 deselected" in soak(place).stdout
    assert len(ended(place)) == 32


def test_what_passed_with_another_version_runs_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    written = [
        {"run": "a", "version": "1"},
        {"run": "b", "version": "2"},
        {"run": "a", "test": "old", "outcome": "passed"},
        {"run": "b", "test": "new", "outcome": "passed"},
        {"run": "b", "test": "ill", "outcome": "failed"},
    ]
    kept.write_text("".join(json.dumps(line) + "\n" for line in written))
    assert passed(kept, "2") == {"new"} and passed(kept, "3") == set() and passed(tmp_path / "none", "2") == set()


@pytest.mark.parametrize("part", ["0/3", "4/3", "3", "a/b", "-1/3", "1/0", "²/3"])
def test_a_slice_that_there_is_not_is_refused(part: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"SLICE='{part}'"):
        chosen(part)


def test_it_is_refused_before_anything_is_run(place: Path) -> None:
    said = soak(place, "4/3")
    assert said.returncode == 4 and "SLICE='4/3': the slices of 3 have the numbers 1 to 3" in said.stderr
    assert not (place / "kept").exists()
