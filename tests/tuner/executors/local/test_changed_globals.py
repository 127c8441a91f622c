"""Globals of imported modules that the script changed, and that trials do not see."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from tuner.executors.local.changed_globals import changed_globals

cloudpickle.register_pickle_by_value(sys.modules[__name__])

LIBRARY = """
import functools, os, sys, time

me = sys.modules[__name__]

CONFIG = None
SIZES = []
NAMES = dict(
    a=1,
)
WIDTH: int = 8 * 2
DEPTH = WIDTH
ARGS = None
STARTED = time.time()
PID = os.getpid()
FILLED = []
FILLED.append("at import")
CACHE = {}
COUNT = 0
UNUSED = 1

class Settings:
    depth = [
        1,
    ]

    class Inner:
        lr = 0.1

    width = 1

    def show(self):
        width = 2
        return width

def train(config):
    global COUNT
    Settings.width, Settings.depth, Settings.Inner.lr, me.me
    COUNT += 1
    CACHE[str(config)] = helper()
    return CONFIG, SIZES, NAMES, ARGS, STARTED, PID

def helper():
    return WIDTH, DEPTH

def wrapped(function):
    return functools.wraps(function)(lambda config: function(config))

@wrapped
def decorated(config):
    return CONFIG

class Trains:
    @staticmethod
    def make():
        return SIZES

def made():
    def inner(config):
        return CONFIG
    return inner
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of a user, just imported."""
    (tmp_path / "changed_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("changed_library")
    yield module
    del sys.modules["changed_library"]


def found(*code: Any) -> list[str]:
    return [str(each).removeprefix("changed_library.") for each in changed_globals(code)]


def test_what_the_script_left_alone_is_not_reported(library: Any) -> None:
    assert found(library.train, library.decorated, library.Trains, library.made()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: setattr(m, "CONFIG", {"width": 7}), "CONFIG is {'width': 7} in the script and None in the trials"),
        (lambda m: m.SIZES.append(3), "SIZES is [3] in the script and [] in the trials"),
        (lambda m: m.NAMES.update(a=2), "NAMES is {'a': 2} in the script and {'a': 1} in the trials"),
        (lambda m: setattr(m, "WIDTH", 4), "WIDTH is 4 in the script and 16 in the trials"),
        (lambda m: setattr(m, "DEPTH", 16.0), "DEPTH is 16.0 in the script and 16 in the trials"),
        (
            lambda m: setattr(m.Settings, "width", 3),
            "Settings.width is 3 in the script and 1 in the trials",
        ),
        (
            lambda m: m.Settings.depth.append(2),
            "Settings.depth is [1, 2] in the script and [1] in the trials",
        ),
        (
            lambda m: setattr(m, "ARGS", argparse.Namespace(lr=0.1)),
            "ARGS is Namespace(lr=0.1) in the script and None in the trials",
        ),
    ],
)
def test_a_changed_global_is_reported_with_both_values(library: Any, change: Callable[[Any], None], said: str) -> None:
    change(library)
    assert found(library.train) == [said]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda m: setattr(m, "UNUSED", 2), id="not loaded"),
        pytest.param(lambda m: setattr(m, "STARTED", time.time()), id="differs by time"),
        pytest.param(lambda m: setattr(m, "PID", os.getppid()), id="differs by process"),
        pytest.param(lambda m: m.train({}), id="the trainable's own state"),
        pytest.param(lambda m: setattr(m.Settings, "other", 1), id="not in the source"),
        pytest.param(lambda m: setattr(m, "CONFIG", object()), id="no plain value"),
        pytest.param(lambda m: setattr(m, "CONFIG", [0] * 100_000), id="large"),
    ],
)
def test_what_may_differ_is_not_reported(library: Any, change: Callable[[Any], None]) -> None:
    change(library)
    assert found(library.train) == []


def test_every_way_to_the_global_is_followed(library: Any) -> None:
    library.CONFIG, library.SIZES = 1, [1]

    def by_attribute(config: Any) -> Any:
        return library.CONFIG

    def by_import(config: Any) -> Any:
        import changed_library  # type: ignore[import-not-found]

        return changed_library.CONFIG

    def by_name(config: Any) -> Any:
        from changed_library import SIZES

        return SIZES

    config = "CONFIG is 1 in the script and None in the trials"
    sizes = "SIZES is [1] in the script and [] in the trials"
    assert found(by_attribute) == found(by_import) == found(library.decorated) == [config]
    assert found(by_name) == found(library.Trains) == [sizes]


def test_what_goes_along_with_the_trainable_is_not_reported(library: Any) -> None:
    library.CONFIG = 1
    assert found(library.made()) == []  # a function within another is pickled with the globals that it loads


def test_an_assignment_that_is_not_to_be_read_is_not_reported(library: Any) -> None:
    Path(library.__file__).write_text("CONFIG = (\n")
    library.CONFIG = 1
    assert found(library.decorated) == []
    Path(library.__file__).unlink()
    assert found(library.decorated) == []


def test_the_driver_warns_of_what_a_fresh_import_confirms(
    local: Any, library: Any, caplog: pytest.LogCaptureFixture
) -> None:
    library.CONFIG, library.Settings.width = "changed", 3
    library.FILLED = ["changed"]  # a fresh import has not what the source assigns: it may differ by process

    def trainable(config: Any, talk: Any) -> None:
        talk.report(config=str(library.CONFIG), filled=library.FILLED, width=library.Settings.width)

    driver = local(trainable)
    trial = driver.launch()
    assert driver.first_report(trial) == {"config": "None", "filled": ["at import"], "width": 1}
    driver.finish(trial)
    said, width = [record.getMessage() for record in caplog.records]
    assert said == (
        "Trials do not see a global that the script changed: changed_library.CONFIG is 'changed' in the script and "
        "None in the trials, because trials import the module anew. "
        "Pass the value in config or with tune.with_parameters"
    )
    assert "changed_library.Settings.width is 3 in the script and 1 in the trials" in width
