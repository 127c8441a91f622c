"""Inside the fork server: load once what every trial would load.

A module that leaves a thread or a GPU context behind is not safe to fork from. The server notices after each import,
names it, and starts itself anew without it.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

from tuner.executors.local.process_tree import thread_count


class UnsafeToFork(Exception):
    """Forking is not safe any more.

    Attributes:
        module: what was loaded last; "" for the trainable itself.
    """

    def __init__(self, module: str, why: str) -> None:
        super().__init__(module, why)
        self.module = module
        self.why = why


def check(module: str) -> None:
    """Raise `UnsafeToFork` unless this process has one thread and no GPU context."""
    threads = thread_count()
    if threads > 1:
        raise UnsafeToFork(module, f"{threads - 1} more thread{'s' if threads > 2 else ''} running after its import")
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the listing's own
        if target.startswith("/dev/nvidia"):
            raise UnsafeToFork(module, "a GPU is in use after its import")


def preload(modules: list[tuple[str, list[str]]], skip: set[str]) -> None:
    """Import modules, each with the names wanted from it. One that cannot be imported is left to the trials."""
    check("site")  # a .pth file may have started something before us
    for name, names in modules:
        if name not in skip:
            _quietly(lambda name=name, names=names: __import__(name, {}, {}, names, 0))  # type: ignore[misc]
            check(name)


def load(path: str) -> Any:
    """The trainable, shared by all trials through copy-on-write; None if each has to load it."""
    trainable = _quietly(lambda: unpickle(path))
    check("")
    return trainable


def prepare(worker: str, trainable: Any) -> None:
    """Do what each trial would do first with a trainable, and find what it would look for."""
    ready = getattr(sys.modules.get(worker), "prepare", None)
    if ready is not None and trainable is not None:
        _quietly(lambda: ready(trainable))
    for name in ("tuner", "trainables"):
        getattr(sys.modules.get(name), "report", None)  # which a module looks up when it is first used


def unpickle(path: str) -> Any:
    """Load a trainable and let `__main__` look as its script's did, as far as the trainable uses it."""
    with open(path, "rb") as file:
        for module in pickle.load(file):
            importlib.import_module(module)
        trainable = pickle.load(file)
    _fill_main(trainable)
    return trainable


def settle() -> None:
    """Last step before the first fork: what is there now is not to be touched by the children's collectors."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it is None where the driver was started without
            stream.flush()
    gc.collect()
    gc.freeze()


def _quietly(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except BaseException:  # whatever is wrong, a trial will run into it and report it with its traceback
        return None


def _fill_main(trainable: Any) -> None:
    """Put what functions and classes of the user's `__main__` refer to into ours.

    Otherwise `pickle` (of a model, or for a pool of processes) does not find them there.
    """
    main = sys.modules["__main__"]
    todo, seen = [trainable], set()
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            if value.__globals__.get("__name__") == "__main__" and id(value.__globals__) not in seen:
                seen.add(id(value.__globals__))
                todo.extend(value.__globals__.values())
                for name, part in value.__globals__.items():
                    if not name.startswith("__"):
                        setattr(main, name, part)
        elif isinstance(value, type):
            todo.extend(part for part in vars(value).values() if isinstance(part, types.FunctionType))
        if isinstance(value, (type, types.FunctionType)):
            if value.__module__ == "__main__" and value.__qualname__.isidentifier():
                setattr(main, value.__qualname__, value)
