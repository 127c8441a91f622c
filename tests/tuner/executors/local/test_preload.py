"""What the fork server does once so that no trial has to."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import trainables.runtime.worker  # noqa: F401  as the server has it
from trainables.runtime import function
from tuner.executors.local import preload
from tuner.executors.local.executor import LocalExecutor

COUNTS = """
import os, sys
seen = set()

def begins():
    seen.clear()
    sys.setprofile(lambda frame, event, _: seen.add(frame.f_code) if event == "call" else None)

os.register_at_fork(after_in_child=begins)

def train(config):
    sys.setprofile(None)
    from trainables.session import report
    report({"functions": len(seen)})
"""


def test_few_functions_run_in_a_trial_before_its_own_code(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that runs for the first time after the fork copies about three pages: it was 144."""
    (tmp_path / "counts.py").write_text(COUNTS)
    monkeypatch.syspath_prepend(tmp_path)
    driver = local(importlib.import_module("counts").train, kind=LocalExecutor)
    trial = driver.launch()
    assert driver.finish(trial).status == 0, driver.events
    assert driver.reports(trial)[0]["functions"] < 85


def test_what_a_function_takes_is_looked_up_before_the_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "_checked", None)  # put back afterwards

    def train(config: Any, reporter: Any) -> None: ...

    preload.prepare("trainables.runtime.worker", train)
    assert function._checked == (train, "reporter")
    assert function.check_signature(train) == "reporter"


def test_a_global_is_confirmed_by_its_value_in_this_process_alone() -> None:
    wanted = [
        ("tuner.executors.local.preload", "_FORK_SAFE", preload._FORK_SAFE),
        ("tuner.executors.local.preload", "_FORK_SAFE", ("other",)),
        ("tuner.executors.local.preload", "is_not_there", None),
        ("a.module.that.is.not.there", "x", None),
        ("tuner.executors.local.executor", "LocalExecutor.worker", "trainables.runtime.worker"),
        ("tuner.executors.local.executor", "LocalExecutor.is_not_there", None),
    ]
    assert preload.has_globals(wanted) == [0, 4]


def test_what_is_wrong_with_a_trainable_is_left_to_the_trial_to_say() -> None:
    def takes_nothing() -> None: ...

    preload.prepare("trainables.runtime.worker", takes_nothing)
    preload.prepare("a.worker.that.is.not.there", takes_nothing)
    preload.prepare("trainables.runtime.worker", None)
    with pytest.raises(function.InvalidSettingError, match="takes no config"):
        function.check_signature(takes_nothing)
