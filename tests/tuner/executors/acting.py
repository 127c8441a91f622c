"""A trainable that does, in each method, what its config says: what trials of a reused process are tried with."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from typing import Any

from driving import start_stubborn

from trainables import session
from trainables.errors import SessionError
from trainables.trainable import Trainable

TWICE = 2
"""Steps of a trial."""


def say(path: str, *words: object) -> None:
    with open(path, "a") as file:
        file.write(" ".join(map(str, words)) + "\n")


class Told(Trainable):
    """Does in each method what its config says, by name; `log` says what was called."""

    def setup(self, config: dict[str, Any]) -> None:
        self.object_number = os.getpid()
        self.log = config["log"]
        say(self.log, "setup", os.getpid())
        self.act("setup")

    def reset_config(self, new_config: dict[str, Any]) -> Any:
        say(self.log, "reset", os.getpid())
        return self.act("reset_config") is not False

    def step(self) -> dict[str, Any]:
        told = self.act("step") if self.iteration == 0 else None
        return {"said": told, "pid": os.getpid(), "same": self.object_number, "done": self.iteration + 1 >= TWICE}

    def cleanup(self) -> None:
        say(self.log, "cleanup", os.getpid())
        self.act("cleanup")

    def act(self, method: str) -> Any:
        action = self.config.get(method)
        return None if action is None else ACTIONS[action](self)


ACTIONS: dict[str, Any] = {}


def action(function: Any) -> Any:
    ACTIONS[function.__name__] = function
    return function


LATE: dict[str, Any] = {"go": threading.Event(), "said": []}


def capturing() -> bool:
    """Whether `logging.captureWarnings(True)` does what it says."""
    before = warnings.showwarning
    logging.captureWarnings(True)
    try:
        return warnings.showwarning is not before
    finally:
        logging.captureWarnings(False)


@action
def whole_state(trainable: Told) -> dict[str, Any]:
    """What a trial finds around itself."""
    context = session.get_context()
    import numpy as np

    handlers = {number: str(signal.getsignal(number)) for number in signal.valid_signals()}
    return {
        "cwd": os.path.basename(os.getcwd()),
        "environment": {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"},
        "umask": os.umask(0o022),
        "path": sys.path,
        "temporary": tempfile.gettempdir() != tempfile.tempdir or tempfile.tempdir,
        "random": [random.random(), random.gauss(0, 1), float(np.random.normal()), float(np.random.random())],
        "signals": {str(n): h.partition(" at 0x")[0] for n, h in handlers.items() if n not in range(34, 65)},
        "mask": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "root": [logging.root.level, [type(each).__name__ for each in logging.root.handlers]],
        "logger": [logging.getLogger("x.y").handlers == [], logging.getLogger("trainables.session").level],
        "hooks": [sys.excepthook.__name__, threading.excepthook.__name__, warnings.showwarning.__name__],
        "interpreter": [sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), gc.get_threshold()],
        "processors": sorted(os.sched_getaffinity(0)),
        "arguments": sys.argv,
        "zone": [time.tzname, time.localtime(0).tm_hour],
        "captured": capturing(),
        "stdout": [type(sys.stdout).__name__, sys.stdout is sys.__stdout__, sys.stdout.fileno()],
        "trial": [context.get_trial_id(), trainable.trial_id, trainable.trial_name, trainable.iteration],
        "directory": [os.path.basename(trainable.logdir), os.path.basename(context.get_trial_dir() or "")],
        "resources": [trainable.trial_resources, context.get_trial_resources()],
        "seed": context.get_seed(),
        "config": {key: value for key, value in trainable.config.items() if key != "log"},
        "checkpoint": session.get_checkpoint() is None,
    }


@action
def make_a_mess(trainable: Told) -> None:
    os.environ["MINE"] = "of the old trial"
    os.environ["PATH"] = "/nowhere"
    os.environ.pop("HOME", None)
    os.chdir("/")
    os.umask(0o077)
    sys.path.insert(0, "/nowhere")
    tempfile.tempdir = "/nowhere"
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    signal.setitimer(signal.ITIMER_REAL, 1000)
    logging.root.addHandler(logging.FileHandler(os.path.join(trainable.logdir, "own.log")))
    logging.getLogger("x.y").addHandler(logging.StreamHandler())
    logging.root.setLevel(logging.DEBUG)
    logging.getLogger("trainables.session").setLevel(logging.CRITICAL)
    sys.excepthook = lambda *_: None
    threading.excepthook = lambda *_: None
    warnings.showwarning = lambda *_, **__: None  # type: ignore[assignment]
    logging.captureWarnings(True)
    sys.stdout = open(os.devnull, "w")
    sys.setrecursionlimit(5000)
    sys.setswitchinterval(1)
    sys.argv.append("--of-the-old-trial")
    gc.disable()
    gc.set_threshold(1)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    random.seed(1)
    random.gauss(0, 1)
    trainable.config["more"] = 1


BUFFER = ctypes.create_string_buffer(4096)


@action
def print_in_all_ways(trainable: Told) -> None:
    name = trainable.config["name"]
    print(f"python {name}", end="")  # no new line: it waits in a buffer
    print(f"errors {name}", file=sys.stderr, end="")
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), BUFFER, 0, len(BUFFER))  # whatever PYTHONUNBUFFERED says
    libc.printf(f" C {name}".encode())  # and this one in C's
    logging.getLogger().error("logged %s", name)


@action
def leave_a_thread(trainable: Told) -> None:
    def report_late() -> None:
        LATE["go"].wait()
        try:
            session.report({"late": 1})
        except BaseException as error:
            LATE["said"].append(type(error))
            LATE["text"] = str(error)

    LATE["thread"] = threading.Thread(target=report_late, name="stray")
    LATE["thread"].start()


@action
def let_it_report(trainable: Told) -> Any:
    LATE["go"].set()
    LATE["thread"].join()
    return [*(kind.__name__ for kind in LATE["said"]), LATE["text"]]


@action
def report_too_early(trainable: Told) -> None:
    for call in (lambda: session.report(x=1), lambda: session.checkpoint_dir().__enter__()):
        try:
            call()
        except SessionError as error:
            assert "reset_config" in str(error)
        else:
            raise AssertionError("it was taken")
    assert session.get_context().get_trial_id() == trainable.trial_id == "t1"
    assert session.get_checkpoint() is None


@action
def start_a_stubborn_one(trainable: Told) -> int:
    return start_stubborn()


@action
def vanish(trainable: Told) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@action
def fail(trainable: Told) -> None:
    raise ValueError("on purpose")


@action
def refuse(trainable: Told) -> bool:
    return False


@action
def hang(trainable: Told) -> None:
    threading.Event().wait()


@action
def what_it_holds(trainable: Told) -> Any:
    gc.collect()
    kinds = ("Attempt", "_LaterAttempt", "Saver", "SocketLink", "_LaterLink", "Job", "Notice", "Reading")
    alive = sum(type(each).__name__ in kinds for each in gc.get_objects())
    return len(os.listdir("/proc/self/fd")), threading.active_count(), alive, len(sys.meta_path)


@action
def visible_gpus(trainable: Told) -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


@action
def loaded(trainable: Told) -> list[str]:
    return [name for name in ("reused_process", "process_state") if f"tuner.executors.local.{name}" in sys.modules]
