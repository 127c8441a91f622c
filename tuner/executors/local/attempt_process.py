"""The process of one attempt, from its fork to its exit.

At its end the process does what an interpreter does: it joins the trial's threads that are not daemons, ends its
`multiprocessing` children, runs the `atexit` functions that the trial registered, flushes its output, and leaves with
`os._exit`. Handlers and finalizers that the fork server inherited from preloaded modules belong to the server and do
not run: what they clean up is shared with all other trials.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import traceback
import weakref
from collections.abc import Container
from functools import partial
from typing import Any, NoReturn

import trainables.job  # noqa: F401  loaded before the fork: every trial unpickles one
from trainables.knobs import limit_loaded
from trainables.quick_dataclass import dataclass
from trainables.runtime.notice import DEFAULT, ignores_hangup, set_handler
from trainables.runtime.tracebacks import message_of, writable
from trainables.socket_link import SocketLink
from trainables.wire import AttemptErrored
from tuner import knobs
from tuner.executors.local.first_words import HELLO, receive
from tuner.executors.local.preload import unpickle
from tuner.executors.local.process_tree import die_with_parent
from tuner.executors.local.trial_main import load_job


@dataclass(slots=True)
class Preloaded:
    """What trials inherit from the server."""

    trainable: Any
    path: str
    """The trainable's pickle, for when `trainable` is None."""
    worker: str
    """Module that has `run_job`."""
    environment: dict[str, str | None]
    """Variables that the server runs with other values, as they were before."""
    thread_limits: Container[str]
    """Those of them that default to the trial's cpus."""


def run(fds: list[int], keeper: int, shared: Preloaded) -> NoReturn:
    """Be the process of an attempt. `fds`: main, side, and for `tee` the pipes for stdout and stderr."""
    status = 1
    try:
        die_with_parent(keeper, signal.SIGKILL)
        os.setsid()  # its own group: a signal to the driver's terminal is the driver's business
        for signum in (signal.SIGCHLD, signal.SIGTERM):
            set_handler(signum, DEFAULT)
        if not ignores_hangup():
            set_handler(signal.SIGHUP, DEFAULT)
        set_handler(signal.SIGINT, signal.default_int_handler)
        _own_exit_handlers()
        main = socket.socket(fileno=fds[0])
        main.sendall(HELLO.pack(os.getpid()))
        setup, job = receive(main)
        link = SocketLink(main, socket.socket(fileno=fds[1]))
        if setup.get("reuse"):
            from tuner.executors.local.reused_process import serve  # nobody else pays for it

            status = serve(main, partial(_run, shared=shared), setup, job, link, fds[2:])
        else:
            status = _run(setup, job, link, fds[2:], shared)
        _finish()
    except SystemExit as leaving:
        status = _status(leaving)
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        _flush()
        os._exit(status)


def _run(
    setup: dict[str, Any], packed: bytes, link: SocketLink, pipes: list[int], shared: Preloaded, **more: Any
) -> int:
    """Run one attempt to its last word; `more` is for `run_job`. Returns the exit status that the user's code wants."""
    try:
        _redirect(setup, pipes)
        _environment(setup, shared)
        if shared.trainable is None:
            shared.trainable = unpickle(shared.path)
        job = load_job(packed)
        worker: Any = sys.modules.get(shared.worker) or importlib.import_module(shared.worker)
    except BaseException as error:
        link.send(AttemptErrored(type(error).__name__, message_of(error), writable(traceback.format_exc())))
        raise
    try:
        worker.run_job(job, shared.trainable, link, **more)
    except SystemExit as leaving:
        return _status(leaving)
    return 0


def _redirect(setup: dict[str, Any], pipes: list[int]) -> None:
    for target, path in ((1, setup["stdout"]), (2, setup["stderr"])):
        if pipes:
            os.dup2(pipes[target - 1], target)  # the driver writes the file and shows it as well
            os.close(pipes[target - 1])
        elif path is not None:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            os.dup2(fd, target)
            os.close(fd)
        if path is not None:
            _renew("stdout" if target == 1 else "stderr", target)
    if faulthandler.is_enabled() or setup["stderr"] is not None:
        faulthandler.enable(2)  # a crash in C leaves a line of Python in the trial's own file


def _renew(name: str, fd: int) -> None:
    """A text stream for what the descriptor is now; the old one remembers whether it could seek."""
    encoding = getattr(getattr(sys, name), "encoding", None)
    stream = open(fd, "w", buffering=1, encoding=encoding, errors="backslashreplace", closefd=False)
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _environment(setup: dict[str, Any], shared: Preloaded) -> None:
    cpus = max(1, int(setup["cpus"]))
    for name, users in shared.environment.items():
        knobs.set_variable(name, str(cpus) if users is None and name in shared.thread_limits else users)
    for name, value in setup["environment"].items():
        knobs.set_variable(name, value)
    try:
        threads = knobs.openmp_threads()
    except ValueError:
        threads = cpus
    if threads > 1:
        limit_loaded(threads)  # which was under the server's limits


def _own_exit_handlers() -> None:
    """Forget what preloaded modules registered; keep the machinery of the standard library for what the trial adds."""
    atexit._clear()
    atexit.register(logging.shutdown)
    finalize: Any = weakref.finalize
    for inherited in list(finalize._registry):
        inherited.atexit = False
    if finalize._registered_with_atexit:
        atexit.register(finalize._exitfunc)
    children: Any = sys.modules.get("multiprocessing.util")
    if children is not None:
        children._finalizer_registry.clear()
        children._run_after_forkers()


def _finish() -> None:
    threading._shutdown()  # type: ignore[attr-defined]
    children: Any = sys.modules.get("multiprocessing.util")
    if children is not None:
        children._exit_function()
    atexit._run_exitfuncs()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a full disk, or the user closed it: nobody is left to tell
            if stream is not None:
                stream.flush()


def _status(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return (leaving.code or 0) & 0xFF
    if sys.stderr is not None:
        sys.stderr.write(f"{leaving.code}\n")  # as the interpreter does
    return 1
