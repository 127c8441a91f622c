"""The examples in the docstrings of what is exported at the top run as they stand, and say what they show.

Each runs in an empty directory with `tune`, `train` (a function that reports a loss, in examples of `trainables` the
package) and what its module has; trials run in this process. What is shown of a value is compared, and where nothing is
shown anything may come.
"""

from __future__ import annotations

import doctest
import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trainables
import tuner as tune
from tuner.driver import build

PACKAGES = {"tuner": tune, "trainables": trainables}


def train(config: dict[str, Any]) -> None:
    if Path("fails").exists():
        raise RuntimeError("as it is told")
    for epoch in (1, 2):
        tune.report({"loss": config.get("lr", 1) / epoch}, checkpoint=tune.Checkpoint.from_dict({"epoch": epoch}))


class Maze:
    """What an example makes of its config."""

    def __init__(self, size: int) -> None:
        self.size = size


def a_run() -> None:
    """There is an experiment in the working directory."""
    tune.run(train, name="my_run", storage_path=".", verbose=0)


def a_run_that_failed() -> None:
    """There is one whose trial failed, and would not now."""
    Path("fails").touch()
    tune.run(train, name="first", verbose=0, raise_on_failed_trial=False)
    Path("fails").unlink()


BEFORE: dict[str, Callable[[], None]] = {"ExperimentAnalysis": a_run, "ResumeConfig": a_run_that_failed}
"""What an example takes for given."""
WITHIN = {
    "checkpoint_dir", "get_checkpoint", "get_trial_dir", "get_trial_resources", "report", "should_save",
    "load_checkpoint", "local_rank", "save_checkpoint", "world_rank", "world_size",
}  # fmt: skip
"""Names whose examples are lines of a trial's function."""
ELSEWHERE = {"open_experiment", "open_session"}
"""Examples about a driver that runs beside them: docs/orders.md and docs/sessions.md have the same, with one."""
FORKS = {"Trainer"}
"""Examples whose trial forks ranks, which it may not beside threads of other tests: it gets a process of its own."""
EXAMPLES = [
    pytest.param(package, name, id=f"{package}.{name}")
    for package, module in PACKAGES.items()
    for name in module.__all__
    if callable(getattr(module, name)) and name not in ELSEWHERE and (package == "tuner" or not hasattr(tune, name))
]


class ShownOnly(doctest.OutputChecker):
    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


@pytest.fixture(autouse=True)
def _a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setenv("TUNE_RESULT_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    chosen = build.default.chosen
    if request.node.callspec.params["name"] not in FORKS:  # processes would take seconds
        monkeypatch.setattr(build.default, "chosen", lambda executor: chosen(executor or "inline"))


def names_for(package: str, value: Any) -> dict[str, Any]:
    own = vars(importlib.import_module(value.__module__)) if hasattr(value, "__module__") else {}
    common = {"tune": tune, "trainables": trainables, "os": os, "time": time, "Path": Path, "Maze": Maze}
    return {**vars(trainables), **vars(tune), **own, **common, "train": train if package == "tuner" else trainables}


@pytest.mark.parametrize(("package", "name"), EXAMPLES)
def test_an_example_does_what_it_shows(package: str, name: str) -> None:
    value = getattr(PACKAGES[package], name)
    (found,) = [
        test
        for test in doctest.DocTestFinder(recurse=False).find(value, name, globs=names_for(package, value))
        if test.examples
    ]
    said: list[str] = []

    def run() -> int:
        return doctest.DocTestRunner(ShownOnly(), optionflags=doctest.ELLIPSIS).run(found, out=said.append).failed

    BEFORE.get(name, lambda: None)()
    failed = run() if name not in WITHIN else in_a_trial(run)
    assert not failed, "".join(said)


def in_a_trial(run: Callable[[], int]) -> int:
    """What comes of it in the first step of a trial."""
    failed: list[int] = []

    def reads(config: dict[str, Any]) -> dict[str, float]:
        failed.append(run())
        return {"loss": 0.0}

    tune.run(reads, name="around", verbose=0, raise_on_failed_trial=False)
    return failed[0]
