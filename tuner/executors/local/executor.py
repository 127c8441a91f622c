"""LocalExecutor: the driver's end of everything, on one epoll and one thread."""

from __future__ import annotations

import itertools
import logging
import marshal
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from trainables.errors import LimitError
from trainables.starting import no_process
from trainables.wire import Answer, AttemptErrored, Finished, Preempted, Report, ToTrial, decode_from_trial, frame
from tuner.clock import Clock, SystemClock
from tuner.error import TuneError
from tuner.executors.base import Dispatch, Event, Executor, Exited, Launch, Message, Resources, Started
from tuner.executors.local.attempt_process import BLOCKS, HELLO
from tuner.executors.local.forkserver import NUMBER
from tuner.executors.local.keeper import CANNOT_FORK, EXITED
from tuner.executors.local.lines import Line, Shown, Tee, terminal
from tuner.executors.local.pickled import Shipped, pack, ship
from tuner.executors.local.process_tree import start_time
from tuner.executors.local.server import ForkServer, describe
from tuner.executors.local.slots import Attempt, Deadlines, Keeper
from tuner.executors.pool import Pool, Share, detect, together

log = logging.getLogger(__name__)

_LAST_WORDS = (Finished, AttemptErrored, Preempted)
_ENDED_BY_US = -signal.SIGKILL
_MAX_FALSE_STARTS = 3


class LocalExecutor(Executor):
    """Runs every attempt in a fresh process of this machine.

    Args:
        cpus: cores to hand out; default: those that this process may run on.
        gpus: GPUs to hand out, a whole number; default: all that are visible. A trial sees its own ones through
            `CUDA_VISIBLE_DEVICES`; fractions share one.
        resources: custom resources and their amounts, for example `{"licence": 2}`.
        clock: for deadlines.

    Example:
        >>> executor = LocalExecutor(cpus=4, resources={"licence": 1})
        >>> executor.total()["licence"]
        1.0
    """

    worker = "trainables.runtime.worker"
    """Module with `run_job`, as trials import it."""

    def __init__(
        self,
        cpus: float | None = None,
        gpus: float | None = None,
        *,
        resources: Mapping[str, float] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._total, self._gpus = detect(cpus=cpus, gpus=gpus, resources=resources)
        self._pool = Pool(self._total, self._gpus)
        self._hide_gpus = gpus != 0 and bool(self._gpus)
        self._clock: Clock = clock or SystemClock()
        self._shipped: Shipped | None = None
        self._server: ForkServer | None = None
        self._lock_fds: Sequence[int] = ()
        self._marker = ""
        self._unsafe: list[str] = []
        self._numbers = itertools.count(1)
        self._keepers: dict[int, Keeper] = {}
        self._idle: list[Keeper] = []
        self._attempts: dict[str, Attempt] = {}
        self._unplaced: list[Attempt] = []
        self._queued: list[Launch] = []
        self._soon: list[Event] = []
        self._false_starts = 0
        self._handlers: dict[int, Callable[[int, list[Event]], None]] = {}
        self._deadlines = Deadlines()
        self._epoll: select.epoll | None = None
        self._wake_fd = -1
        self._waking = threading.RLock()  # of a signal handler's thread too, which may hold it already

    # --- the contract -----------------------------------------------------------------------------------

    def total(self) -> Resources:
        return self._total

    def start(self, trainable: Any, *, lock_fds: Sequence[int] = (), marker: str = "", temporary: Path) -> None:
        self.start_shipped(ship(trainable, Path(temporary)), lock_fds=lock_fds, marker=marker)

    def start_shipped(self, shipped: Shipped, *, lock_fds: Sequence[int] = (), marker: str = "") -> None:
        """`start`, with a trainable that is on the disk already."""
        self._shipped = shipped
        self._lock_fds, self._marker = tuple(lock_fds), marker
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._watch(self._wake_fd, self._on_wake)
        self._start_server()

    def can_launch(self, resources: Resources, promised: Sequence[Resources] = ()) -> bool:
        if self._server is not None and self._server.gone:
            return False  # until what it left is ended
        return not self._queued and self._pool.fits(together(resources, promised))

    def awaits_room(self) -> bool:
        return self._server is not None and self._server.gone

    def launch(self, launch: Launch) -> None:
        if self._queued or not self._pool.fits(launch.resources):
            self._queued.append(launch)  # together several launches may need more than each alone
        else:
            self._launch(launch)

    def tell(self, trial_id: str, message: ToTrial) -> None:
        attempt = self._attempts.get(trial_id)
        if attempt is not None:
            (attempt.main if isinstance(message, Answer) else attempt.side).send(frame(message))

    def kill(self, trial_id: str) -> None:
        attempt = self._attempts.get(trial_id)
        if attempt is not None:
            self._kill(attempt, "killed")
            return
        for launch in [launch for launch in self._queued if launch.job.trial_id == trial_id]:
            self._queued.remove(launch)
            self._soon.append(Exited(trial_id, launch.job.attempt, _ENDED_BY_US, "killed"))

    def run_once(self, dispatch: Dispatch, timeout: float | None) -> None:
        assert self._epoll is not None, "start() comes first"
        self._place()
        events: list[Event] = []
        handlers = self._handlers
        for fd, mask in self._epoll.poll(self._patience(timeout)):
            handler = handlers.get(fd)
            if handler is not None:
                handler(mask, events)
        if self._soon:
            events += self._soon
            self._soon = []
        for attempt, reason in self._deadlines.passed(self._clock.monotonic):
            self._kill(attempt, reason)
        if events:
            dispatch(events)

    def wake(self) -> None:
        with self._waking:  # a number that was closed meanwhile may be another file's
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def owned_processes(self) -> list[tuple[int, int]]:
        pids = [keeper.pid for keeper in self._keepers.values() if keeper.pid and not keeper.gone]
        if self._server is not None and not self._server.gone:
            pids.insert(0, self._server.pid)
        return [(pid, started) for pid in pids if (started := start_time(pid)) is not None]

    def shutdown(self, *, grace_s: float = 0.0) -> None:
        if self._epoll is None:
            return
        deadline = self._clock.monotonic() + grace_s
        while self._attempts and (left := deadline - self._clock.monotonic()) > 0:
            self.run_once(lambda events: None, left)
        for keeper in self._keepers.values():
            keeper.control.close()
        if self._server is not None:
            self._server.end()
        for attempt in self._attempts.values():
            self._close(attempt)
        if self._shipped is not None:
            self._shipped.path.unlink(missing_ok=True)
        with self._waking:
            wake, self._wake_fd = self._wake_fd, -1
            os.close(wake)
        self._epoll.close()
        self._epoll = self._server = None
        self._handlers.clear()
        self._keepers.clear()
        self._attempts.clear()
        self._idle.clear()

    # --- starting ---------------------------------------------------------------------------------------

    def _start_server(self) -> None:
        assert self._shipped is not None
        self._server = ForkServer(
            self._shipped, worker=self.worker, lock_fds=self._lock_fds, marker=self._marker, skip=self._unsafe
        )
        self._watch(self._server.control.fileno(), self._on_server)

    def _launch(self, launch: Launch) -> None:
        assert self._epoll is not None
        job = launch.packed or pack(launch.job, f"the config of trial {launch.job.trial_id}")
        launch = replace(launch, job=replace(launch.job, config={}), packed=None)  # the process has it, once
        share = self._pool.take(launch.resources)
        setup = marshal.dumps(
            {
                "stdout": None if launch.stdout is None else os.fspath(launch.stdout),
                "stderr": None if launch.stderr is None else os.fspath(launch.stderr),
                "cpus": float(launch.resources.get("cpu", 1.0)),
                "environment": {**self._visible(share), **launch.environment},
            }
        )
        ours, theirs = socket.socketpair()
        our_side, their_side = socket.socketpair()
        main, side = Line(ours, self._epoll), Line(our_side, self._epoll)
        attempt = Attempt(launch, share, main, side, [theirs, their_side], [])
        if launch.tee and launch.stdout is not None and launch.stderr is not None:
            attempt.tees = [
                Tee(launch.stdout, self._shown(launch, "stdout"), self._epoll),
                Tee(launch.stderr, self._shown(launch, "stderr"), self._epoll),
            ]
        self._handlers[attempt.main.fd] = lambda mask, events: self._on_main(attempt, mask, events)
        self._handlers[attempt.side.fd] = lambda mask, events: self._on_side(attempt, mask, events)
        for tee in attempt.tees:
            self._handlers[tee.fd] = lambda mask, events, tee=tee: _pump_once(tee)  # type: ignore[misc]
        attempt.main.send(BLOCKS.pack(len(setup), len(job)) + setup + job)
        self._attempts[attempt.trial_id] = attempt
        if launch.timeout_s is not None:
            self._at(launch.timeout_s, attempt, "timeout")
        self._unplaced.append(attempt)
        self._place()

    def _shown(self, launch: Launch, name: Literal["stdout", "stderr"]) -> Shown | None:
        """Where the output of an attempt with `tee` goes beside its file."""
        return terminal(name)

    def _visible(self, share: Share) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ",".join(share.gpus)} if share.gpus or self._hide_gpus else {}

    def _place(self) -> None:
        """Give attempts that wait for one a keeper, and launches that wait for room the room that there is."""
        server = self._server
        if server is not None and server.gone:
            return
        while self._queued and self._pool.fits(self._queued[0].resources):
            self._launch(self._queued.pop(0))
        while self._unplaced:
            keeper = self._idle.pop() if self._idle else self._new_keeper()
            if keeper is None:
                return
            attempt = self._unplaced[0]
            pipes = [tee.pipe for tee in attempt.tees]
            try:
                socket.send_fds(keeper.control, [b"L"], [*(end.fileno() for end in attempt.ends), *pipes])
            except ConnectionError:  # no wider: a signal handler of the user's may raise an OSError right here
                continue  # it died just now and will be reported; the attempt has not begun
            self._unplaced.pop(0)
            keeper.attempt, attempt.keeper = attempt, keeper
            if keeper.pid:
                attempt.hand_over()
            if attempt.reason is not None:
                self._kill(attempt, attempt.reason)

    def _new_keeper(self) -> Keeper | None:
        if self._server is None:
            self._start_server()
        assert self._server is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        keeper = Keeper(next(self._numbers), ours, self._server)
        asked = self._server.fork_keeper(keeper.number, theirs)
        theirs.close()
        if not asked:
            ours.close()  # the server just died; its end is on the way
            return None
        self._keepers[keeper.number] = keeper
        ours.setblocking(False)
        self._watch(ours.fileno(), lambda mask, events: self._on_keeper(keeper, events))
        return keeper

    # --- what comes in ------------------------------------------------------------------------------------

    def _watch(self, fd: int, handler: Callable[[int, list[Event]], None]) -> None:
        assert self._epoll is not None
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def _forget(self, sock: socket.socket) -> None:
        assert self._epoll is not None
        if self._handlers.pop(sock.fileno(), None) is not None:
            self._epoll.unregister(sock.fileno())
        sock.close()

    def _on_wake(self, mask: int, events: list[Event]) -> None:
        os.eventfd_read(self._wake_fd)

    def _on_main(self, attempt: Attempt, mask: int, events: list[Event]) -> None:
        if mask & select.EPOLLOUT:
            attempt.main.flush()
        if mask & ~select.EPOLLOUT:
            self._read(attempt, attempt.main, events)

    def _on_side(self, attempt: Attempt, mask: int, events: list[Event]) -> None:
        if mask & select.EPOLLOUT:
            attempt.side.flush()
        if mask & ~select.EPOLLOUT:
            self._read(attempt, attempt.side, events)

    def _read(self, attempt: Attempt, line: Line, events: list[Event]) -> bool:
        """Read once from a line; False when there is nothing more to read now."""
        data = line.read()
        if not data:
            if data is not None:
                line.hush()
            return False
        is_main = line is attempt.main
        if is_main and not attempt.pid:
            attempt.pid = HELLO.unpack_from(data)[0]  # the first thing it writes, in one piece
            events.append(Started(attempt.trial_id, attempt.number, attempt.pid))
            data = data[HELLO.size :]
        try:
            for body in line.frames.feed(data):
                message = decode_from_trial(body)
                if is_main and (type(message) is not Report or message.saving is not None):
                    while self._read(attempt, attempt.side, events):  # said before this one
                        pass
                    if isinstance(message, _LAST_WORDS):
                        self._at(attempt.launch.job.grace_s, attempt, None)
                events.append(Message(attempt.trial_id, attempt.number, message))
        except msgspec.DecodeError as error:
            log.error("trial %s wrote into its driver's line and is ended: %s", attempt.trial_id, error)
            line.hush()
            self._kill(attempt, None)
            return False
        return True

    def _on_keeper(self, keeper: Keeper, events: list[Event]) -> None:
        while True:
            try:
                data = keeper.control.recv(64)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                break
            _, pid, status = EXITED.unpack(data)
            attempt, keeper.attempt = keeper.attempt, None
            self._idle.append(keeper)
            if attempt is not None:
                self._over(attempt, pid, status, attempt.reason, events)
        keeper.gone = True
        if keeper in self._idle:
            self._idle.remove(keeper)
        self._forget(keeper.control)
        if keeper.server.gone:
            self._after_server(events)

    def _on_server(self, mask: int, events: list[Event]) -> None:
        server = self._server
        assert server is not None
        while (data := server.receive()) is not None:
            kind = data[:1]
            if kind == b"R":
                server.ready = True
            elif kind == b"U":
                self._on_unsafe(data[1:])
            elif kind == b"P":
                _, number, pid = NUMBER.unpack(data)
                keeper = self._keepers[number]
                keeper.pid = pid
                if keeper.attempt is not None:
                    keeper.attempt.hand_over()
            elif kind == b"D":
                self._keeper_lost(self._keepers[NUMBER.unpack(data)[1]], events)
            else:
                server.gone = True
                self._forget(server.control)
                self._after_server(events)
                return

    def _on_unsafe(self, data: bytes) -> None:
        name, _, why = data.decode().partition("\0")
        if name in self._unsafe:
            return
        if name or not why.startswith("trials"):
            self._unsafe.append(name)
        if name:
            log.warning("module %s is not loaded ahead, each trial imports it itself: %s", name, why)
        else:
            log.warning("the trainable is not loaded ahead, each trial loads it itself: %s", why)

    # --- what goes --------------------------------------------------------------------------------------

    def _keeper_lost(self, keeper: Keeper, events: list[Event]) -> None:
        """The server says that a keeper died and that nothing is left below it."""
        if not keeper.gone:
            self._on_keeper(keeper, events)  # it may have said something before
        del self._keepers[keeper.number]
        attempt, keeper.attempt = keeper.attempt, None
        if attempt is not None and not keeper.pid and keeper.server.gone:
            attempt.keeper = None
            self._unplaced.append(attempt)  # it never began
        elif attempt is not None and not keeper.pid:
            self._over(attempt, 0, CANNOT_FORK, attempt.reason, events)
        elif attempt is not None:
            self._over(attempt, 0, _ENDED_BY_US, attempt.reason or "lost", events)

    def _after_server(self, events: list[Event]) -> None:
        """The server died. Its keepers end their trials and go; when the last one has, what is left is swept up."""
        server = self._server
        assert server is not None
        if any(not keeper.gone for keeper in self._keepers.values()):
            return
        server.process.wait()
        server.sweep()
        how = describe(server.process.returncode)
        log.warning("the fork server %s; another one is started", how)
        self._server = None
        if not server.ready:
            self._false_starts += 1
            if self._false_starts >= _MAX_FALSE_STARTS:
                raise TuneError(f"the process that trials are forked from does not start: it {how}; see its output")
            assert self._shipped is not None
            self._unsafe = [*self._shipped.imports, ""]  # whatever it was, the trials may do better
        for keeper in list(self._keepers.values()):
            self._keeper_lost(keeper, events)

    def _over(self, attempt: Attempt, pid: int, status: int, reason: str | None, events: list[Event]) -> None:
        """Nothing of the attempt is left: hear out what it had said, free what it held."""
        for line in (attempt.main, attempt.side):
            while self._read(attempt, line, events):
                pass
        for tee in attempt.tees:
            while tee.pump():
                pass
        if not attempt.pid and pid:
            events.append(Started(attempt.trial_id, attempt.number, pid))
        if status == CANNOT_FORK and not pid:
            why = str(no_process(f"trial {attempt.trial_id}"))
            events.append(Message(attempt.trial_id, attempt.number, AttemptErrored(LimitError.__name__, why, "")))
        if reason == "timeout" and status != _ENDED_BY_US:
            reason = None  # it ended by itself before the signal came
        attempt.over = True
        self._close(attempt)
        del self._attempts[attempt.trial_id]
        self._pool.give_back(attempt.share)
        events.append(Exited(attempt.trial_id, attempt.number, status, reason))

    def _close(self, attempt: Attempt) -> None:
        for line in (attempt.main, attempt.side):
            self._handlers.pop(line.fd, None)
            line.close()
        for tee in attempt.tees:
            self._handlers.pop(tee.fd, None)
            tee.close()
        attempt.hand_over()

    def _kill(self, attempt: Attempt, reason: str | None) -> None:
        attempt.reason = attempt.reason or reason
        keeper = attempt.keeper
        if keeper is None or keeper.gone:
            return  # done when it gets one; or the trial went with it
        try:
            keeper.control.send(b"K")
        except ConnectionError:
            pass  # the keeper goes just now, and the trial with it

    # --- deadlines ----------------------------------------------------------------------------------------

    def _at(self, seconds: float, attempt: Attempt, reason: str | None) -> None:
        self._deadlines.add(self._clock.monotonic() + seconds, attempt, reason)

    def _patience(self, timeout: float | None) -> float:
        """How long to wait for something to happen; -1 for ever."""
        if self._soon:
            return 0.0
        deadline = self._deadlines.next()
        if deadline is not None:
            left = max(0.0, deadline - self._clock.monotonic())
            return left if timeout is None else min(left, timeout)
        return -1 if timeout is None else max(0.0, timeout)


def _pump_once(tee: Tee) -> None:
    tee.pump()
