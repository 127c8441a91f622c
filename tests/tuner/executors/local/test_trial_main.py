"""The main module of a trial: names of the user's script are found in it, by the trial and by processes it starts."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import tuner as tune
from tuner.cli.load_object import load_object
from tuner.executors.local import trial_main
from tuner.executors.local.pickled import pickle_job, write_trainable
from tuner.executors.local.preload import unpickle

SCRIPT = """
import enum, functools, pickle
from collections import namedtuple

class Net:
    class Layer:
        pass
    def method(self, config):
        return copy(Net())

class Other:
    pass

class Kind(enum.Enum):
    FIRST = 1

class Trainable:
    def __call__(self, config):
        return copy(Net())

Point = namedtuple("Point", "x y")
REGISTRY = {"other": Other, "layer": Net.Layer, "kind": lambda: Kind.FIRST, "point": lambda: Point(1, 2)}

def copy(value):
    return pickle.loads(pickle.dumps(value))

def decorate(function):
    @functools.wraps(function)
    def wrapper(*arguments, **more):
        return function(*arguments, **more)
    return wrapper

@functools.lru_cache(maxsize=7)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

@decorate
def decorated(config):
    return copy(decorated), copy(Net())

def train(config, data=None):
    return copy(Net())

def registered(config):
    return [copy(make()) for make in REGISTRY.values()]

def layer(config, kind=Net.Layer):
    return copy(kind()), copy(kind)

def cached(config):
    return copy(fibonacci)(30), fibonacci.cache_parameters()["maxsize"]

def closure():
    kind = Other
    def inner(config):
        return copy(kind())
    return inner

def late(config):
    global Late
    class Late:
        pass
    return copy(Late())

def configured(config):
    return copy(config["class"]()), copy(config["function"]) is config["function"]
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The user's script as the driver's main module."""
    main = types.ModuleType("__main__")
    main.__file__ = "/scripts/train.py"
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setitem(sys.modules, "__mp_main__", main)
    monkeypatch.setattr(trial_main, "_names", None)
    monkeypatch.setattr(trial_main, "_names_script", None)
    exec(SCRIPT, vars(main))
    return main


WAYS: dict[str, Any] = {
    "function": lambda script: script.train,
    "with_resources": lambda script: tune.with_resources(script.train, {"cpu": 1}),
    "with_parameters": lambda script: tune.with_parameters(script.train, data=[1]),
    "both": lambda script: tune.with_resources(tune.with_parameters(script.train, data=[1]), {"cpu": 1}),
    "partial": lambda script: script.functools.partial(script.train, data=1),
    "bound method": lambda script: script.Net().method,
    "object": lambda script: script.Trainable(),
    "registry": lambda script: script.registered,
    "nested class": lambda script: script.layer,
    "closure": lambda script: script.closure(),
    "decorated": lambda script: script.decorated,
    "cache": lambda script: script.cached,
    "class made by the trial": lambda script: script.late,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_trial_has_of_the_script_can_be_pickled(way: str, script: Any, tmp_path: Path) -> None:
    written = write_trainable(WAYS[way](script), tmp_path)
    trial_main.install(str(written.path), None)
    trainable = unpickle(str(written.path))
    trainable = getattr(trainable, "__wrapped__", trainable) if way == "both" else trainable
    assert trainable({}) is not None
    assert sys.modules["__main__"] is not script


def test_a_function_in_a_config_is_the_one_that_the_trainable_uses(script: Any, tmp_path: Path) -> None:
    written = write_trainable(script.train, tmp_path)
    copy = types.FunctionType(script.copy.__code__, dict(vars(script)), "copy")  # as a config from the journal has it
    copy.__module__ = "__main__"
    job = pickle_job({"class": script.Other, "function": copy}, "the config")
    configured = pickle_job(script.configured, "the function")
    trial_main.install(str(written.path), None)
    train = unpickle(str(written.path))
    config = trial_main.load_job(job)
    assert config["function"] is train.__globals__["copy"] is vars(sys.modules["__main__"])["copy"]
    assert type(pickle.loads(pickle.dumps(config["class"]()))) is config["class"]
    assert trial_main.load_job(configured)(config)[1]


def test_functions_of_the_script_share_one_namespace_and_their_own_file(script: Any, tmp_path: Path) -> None:
    written = write_trainable(script.train, tmp_path)
    trial_main.install(str(written.path), None)
    train, main = unpickle(str(written.path)), sys.modules["__main__"]
    assert train.__globals__ is vars(main) is train.__globals__["copy"].__globals__
    assert train.__globals__["__file__"] == "/scripts/train.py"
    assert Path(main.__file__ or "").parent == tmp_path
    assert pickle.loads(pickle.dumps(main)) is main


@pytest.mark.parametrize("importable", [True, False])
def test_a_file_that_a_config_names_is_a_module_of_the_trial(
    importable: bool, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "named_by_a_config.py").write_text(SCRIPT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    train = load_object("named_by_a_config.py:train", tmp_path)
    written = write_trainable(train, tmp_path)
    cloudpickle.unregister_pickle_by_value(sys.modules["named_by_a_config"])
    monkeypatch.delitem(sys.modules, "named_by_a_config")
    if importable:  # then the fork server has imported it
        importlib.import_module("named_by_a_config")
    else:
        sys.path.remove(str(tmp_path))
    trial_main.install(str(written.path), None)
    unpickled = unpickle(str(written.path))
    net = unpickled({})
    assert type(net) is vars(sys.modules["named_by_a_config"])["Net"]
    path = str(sys.modules["__main__"].__file__)
    del sys.modules["named_by_a_config"]
    child(path, monkeypatch)
    assert ("named_by_a_config" in sys.modules) is not importable  # a child imports it when it is needed
    sys.modules.pop("named_by_a_config", None)


def test_another_process_keeps_its_main_module(script: Any, tmp_path: Path) -> None:
    written = write_trainable(script.train, tmp_path)
    before = dict(vars(script))
    assert unpickle(str(written.path)).__globals__ is not vars(script)
    assert vars(script) == before


# --- processes that a trial starts -----------------------------------------------------------------------------


def child(path: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a generated script as multiprocessing does."""
    monkeypatch.setattr(trial_main, "_names", None)
    names: dict[str, Any] = {"__name__": "__mp_main__", "__file__": path}
    exec(Path(path).read_text(), names)
    return names


def test_a_child_gets_the_names_of_trainable_and_config(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = write_trainable(script.train, tmp_path)
    job = pickle_job({"class": script.Other}, "the config")
    trial_main.install(str(written.path), None)
    unpickle(str(written.path))
    main: Any = sys.modules["__main__"]
    first = main.__file__
    assert main.__file__ == first
    trial_main.load_job(job)
    assert main.__file__ != first
    assert {"train", "copy", "Net"} <= child(first, monkeypatch).keys()
    monkeypatch.setattr(trial_main, "_names", None)
    names = child(max(tmp_path.glob("names-*.py"), key=lambda path: path != Path(first)).as_posix(), monkeypatch)
    assert {"train", "copy", "Net", "Other"} <= names.keys()
    assert names["__name__"] == "__mp_main__" and names["train"].__globals__["__file__"] == "/scripts/train.py"


def test_a_child_runs_a_guarded_script_where_it_was_started(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "size.txt").write_text("3")
    file = tmp_path / "train.py"
    file.write_text("import pathlib\nsize = int(pathlib.Path('size.txt').read_text())\n" + SCRIPT)
    written = write_trainable(script.train, tmp_path)
    trial_main.install(str(written.path), (str(file), "", str(tmp_path)))
    unpickle(str(written.path))
    path, before = str(sys.modules["__main__"].__file__), os.getcwd()
    names = child(path, monkeypatch)
    assert names["size"] == 3 and names["train"].__module__ == "__mp_main__"
    assert os.getcwd() == before
    (tmp_path / "size.txt").unlink()
    for _ in range(2):
        assert child(path, monkeypatch)["train"].__module__ == "__main__"  # of the pickle
    assert capfd.readouterr().err.count("FileNotFoundError") == 1


def test_a_child_that_cannot_load_the_names_prints_it_once(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    written = write_trainable(script.train, tmp_path)
    trial_main.install(str(written.path), None)
    unpickle(str(written.path))
    path = str(sys.modules["__main__"].__file__)
    written.path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(SystemExit):
            child(path, monkeypatch)
    printed = capfd.readouterr().err
    assert printed.startswith("a process started by this trial cannot load the functions and classes of the script")
    assert printed.count("EOFError") == 1
