"""Inside the fork server: load once what every trial would load.

A module that leaves a thread or a GPU context behind is not safe to fork from. The server checks after each import,
names the thread, and starts itself anew without the module.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tuner.executors.local import trial_main
from tuner.executors.local.process_tree import other_threads

_FORK_SAFE = ("jemalloc_bg_thd",)
"""Threads of a library that handles a fork itself: jemalloc locks its arenas before it, and starts the thread anew."""
_MISSING = object()
_ENDING_S = 0.1
"""A thread that the import has joined may be in /proc for a moment longer."""


class UnsafeToFork(Exception):
    """Forking is not safe any more.

    Attributes:
        module: what was loaded last; "" for the trainable itself.
        why: what importing it did, as a predicate.
        seconds: how long importing it took.
    """

    def __init__(self, module: str, why: str, seconds: float = 0.0) -> None:
        super().__init__(module, why, seconds)
        self.module = module
        self.why = why
        self.seconds = seconds


def check(module: str, seconds: float = 0.0) -> None:
    """Raise `UnsafeToFork` if this process has a GPU context, or threads whose libraries do not handle a fork."""
    if threads := _unsafe_threads():
        started = "a thread" if len(threads) == 1 else f"{len(threads)} threads"
        raise UnsafeToFork(module, f"started {started} ({', '.join(threads)})", seconds)
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the listing's own
        if target.startswith("/dev/nvidia"):
            raise UnsafeToFork(module, "opened a GPU", seconds)


def _unsafe_threads() -> list[str]:
    deadline = time.monotonic() + _ENDING_S
    while unsafe := {tid: name for tid, name in other_threads().items() if name not in _FORK_SAFE}:
        if time.monotonic() >= deadline:
            break
        time.sleep(0.002)
    in_python = {thread.native_id: thread.name for thread in threading.enumerate()}
    return [in_python.get(tid, name) for tid, name in sorted(unsafe.items())]


def preload(modules: list[tuple[str, list[str]]], skip: set[str]) -> None:
    """Import modules, each with the names wanted from it. One that cannot be imported is left to the trials."""
    check("site")  # a .pth file may have started something before us
    for name, names in modules:
        if name not in skip:
            begun = time.monotonic()
            _quietly(lambda name=name, names=names: __import__(name, {}, {}, names, 0))  # type: ignore[misc]
            check(name, time.monotonic() - begun)


def load(path: str) -> Any:
    """The trainable, shared by all trials through copy-on-write; None if each has to load it."""
    begun = time.monotonic()
    trainable = _quietly(lambda: unpickle(path))
    check("", time.monotonic() - begun)
    return trainable


def prepare(worker: str, trainable: Any) -> None:
    """Do what each trial would do first with a trainable, and find what it would look for."""
    ready = getattr(sys.modules.get(worker), "prepare", None)
    if ready is not None and trainable is not None:
        _quietly(lambda: ready(trainable))
    for name in ("tuner", "trainables"):
        getattr(sys.modules.get(name), "report", None)  # which a module looks up when it is first used


def unpickle(path: str) -> Any:
    """Load a trainable. `__main__` gets the classes and functions of the script that it uses."""
    with open(path, "rb") as file:
        unpickler = trial_main.unpickler_of(file)
        unpickler.load()
        return unpickler.load()


def has_globals(wanted: list[tuple[str, str, Any]]) -> list[int]:
    """Return which of the globals (module, name, value) are that value in this process, by index."""
    found = []
    for index, (module, name, value) in enumerate(wanted):
        owner: Any = sys.modules.get(module, _MISSING)
        for part in name.split("."):
            owner = getattr(owner, "__dict__", {}).get(part, _MISSING)
        if is_same(owner, value):
            found.append(index)
    return found


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal, or two plain ones look the same: NaN does not equal itself."""
    try:
        return type(one) is type(other) and bool(one == other or repr(one) == repr(other))
    except Exception:
        return False  # an object of the user's


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
