"""The process that trials are forked from: exec'd fresh, single threaded, with the trainable's imports loaded.

It forks one keeper per slot, tells the driver when one died, and ends the orphans of a dead one first.
Messages to and from the driver are packets of one socket; a number stands for a slot:

    driver -> server   K <number> + socket     fork a keeper that listens there
    server -> driver   P <number> <pid>        it runs
                       D <number>              it died, and nothing is left of its trial
                       U <s> NUL <module> NUL <why>  this module is not preloaded; importing it took so many seconds
                       W <why>                 it is preloaded, though forking is not safe with it
                       G <i> <i> ...           these of `globals` are here what their modules assign
                       R                       everything is preloaded

It ends, descendants first, when the driver's end of the socket closes or the driver dies.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from trainables.runtime.notice import ignores_hangup
from tuner.executors.local import preload, process_tree, trial_main
from tuner.executors.local.attempt_process import Preloaded
from tuner.executors.local.keeper import Keeper, SignalPipe

NUMBER = struct.Struct("<cII")
BOOT = (  # the main module of the server; marshal, because this runs before sys.path is known
    "import os, sys, marshal;"
    "init = marshal.loads(os.pread({fd}, os.fstat({fd}).st_size, 0)); os.close({fd});"
    "sys.path[:] = init['path'];"
    "from tuner.executors.local.forkserver import main; main(init)"
)
LIMITS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}
"""Set while modules are preloaded: otherwise importing numpy or torch starts threads. Trials get their own numbers."""
ALLOCATORS = ("JE_ARROW_MALLOC_CONF", "_RJEM_MALLOC_CONF")
"""Settings of the jemalloc inside pyarrow, and inside libraries written in Rust, such as polars."""
_NO_THREAD = "background_thread:false"
_PATIENCE_MS = 10_000


def preloading_environment(users: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which modules are preloaded, so that importing them starts no threads."""
    conf = {name: f"{users[name]},{_NO_THREAD}" if users.get(name) else _NO_THREAD for name in ALLOCATORS}
    return {**LIMITS, **conf}


def write_init(init: dict[str, Any]) -> int:
    """A descriptor from which `BOOT` reads."""
    fd = os.memfd_create("tuner-init")
    data = memoryview(marshal.dumps(init))
    while data:
        data = data[os.write(fd, data) :]
    return fd


def main(init: dict[str, Any]) -> NoReturn:
    """Preload, then serve until the driver is gone."""
    status = 1
    try:
        _main(init)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _main(init: dict[str, Any]) -> None:
    with socket.socket(fileno=init["control"]) as control:
        _prepare_and_serve(init, control)


def _prepare_and_serve(init: dict[str, Any], control: socket.socket) -> None:
    parent = init["parent"]

    def on_term(*_: Any) -> None:
        if os.getppid() != parent:  # else it was meant for the driver, who decides
            process_tree.end_children()
            os._exit(0)

    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not ignores_hangup():
        signal.signal(signal.SIGHUP, lambda *_: None)  # keepers inherit it: the driver decides when trials end
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    process_tree.adopt_orphans()
    process_tree.die_with_parent(parent, signal.SIGTERM)
    sys.argv[:] = init["argv"]
    trial_main.install(init["trainable"], init["script"])
    trainable = None
    try:
        preload.preload([(init["worker"], []), *init["modules"]], set(init["skip"]))
        if "" not in init["skip"]:
            trainable = preload.load(init["trainable"])
            preload.prepare(init["worker"], trainable)
    except preload.UnsafeToFork as unsafe:
        if unsafe.module not in ("site", init["worker"]):
            control.send(f"U{unsafe.seconds:.1f}\0{unsafe.module}\0{unsafe.why}".encode())
            _again(init, unsafe.module)
        control.send(f"Wimporting {unsafe.module} {unsafe.why}".encode())
    if changed := preload.has_globals(init["globals"]):
        control.send(b"G" + " ".join(map(str, changed)).encode())
    preload.settle()
    control.send(b"R")
    shared = Preloaded(trainable, init["trainable"], init["worker"], init["environment"], LIMITS)
    _Server(control, parent, shared).serve()


def _again(init: dict[str, Any], module: str) -> NoReturn:
    """Become a fresh server that does without `module`. exec ends the threads."""
    init["skip"].append(module)
    fd = write_init(init)
    os.set_inheritable(fd, True)
    os.set_inheritable(init["control"], True)
    process_tree.end_children()
    os.execv(sys.executable, [sys.executable, *init["flags"], "-c", BOOT.format(fd=fd)])


class _Server:
    def __init__(self, control: socket.socket, parent: int, shared: Preloaded) -> None:
        self._control = control
        self._parent = parent
        self._shared = shared
        self._keepers: dict[int, int] = {}
        self._dead: list[int] = []
        self._wakeups = SignalPipe()
        # held open by this process alone: keepers see its end when this process ends
        self._alive, self._life = os.pipe()

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakeups.fd, select.POLLIN)
        while os.getppid() == self._parent:
            ready = dict(poll.poll())
            if self._wakeups.fd in ready:
                self._wakeups.clear()
                self._reap()
            if self._control.fileno() in ready:
                try:
                    data, fds, _, _ = socket.recv_fds(self._control, 64, 4)
                except ConnectionError:
                    break
                if not data:
                    break
                self._fork_keeper(NUMBER.unpack(data)[1], fds[0])
        self._leave()

    def _fork_keeper(self, number: int, control: int) -> None:
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(control)
            self._tell(b"D", number)
            return
        if pid == 0:
            try:
                self._control.close()
                os.close(self._life)
                self._wakeups.close()
                Keeper(control, self._alive, server, self._shared).serve()
            finally:
                os._exit(1)
        os.close(control)
        self._keepers[pid] = number
        self._tell(b"P", number, pid)

    def _reap(self) -> None:
        for pid, _, _ in process_tree.dead_children():
            if pid in self._keepers:
                self._dead.append(self._keepers.pop(pid))
        if self._dead:
            orphans = [pid for pid in process_tree.children(os.getpid()) if pid not in self._keepers]
            for pid in orphans:
                process_tree.kill(pid)  # each one's end brings us here again
            if not orphans:
                dead, self._dead = self._dead, []
                for number in dead:
                    self._tell(b"D", number)

    def _tell(self, kind: bytes, number: int, pid: int = 0) -> None:
        with contextlib.suppress(OSError):  # the driver is gone; the next poll says so
            self._control.send(NUMBER.pack(kind, number, pid))

    def _leave(self) -> None:
        """Let the keepers end their trials, then make sure."""
        os.close(self._life)
        poll = select.poll()
        poll.register(self._wakeups.fd, select.POLLIN)
        self._reap()
        while self._keepers and poll.poll(_PATIENCE_MS):
            self._wakeups.clear()
            self._reap()
        process_tree.end_children()
