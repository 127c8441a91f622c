"""A deputy: on each further node of a group the process that starts and watches its ranks, for the leader."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from trainables.group.file_transfer import LeaderFiles, met, reach
from trainables.group.framework import Framework
from trainables.group.leader import be_rank
from trainables.group.rank import Rank
from trainables.group.rank_messages import Flags, FromRank, Hello, Raised, Returned
from trainables.group.rank_session import RankSetup
from trainables.group.remote_nodes import (
    FlagsSeen,
    LaunchFailed,
    Leave,
    NodeJoined,
    Noticed,
    RankExited,
    RankSaid,
    StartRanks,
    ToRank,
    first_ranks,
)
from trainables.job import Job
from trainables.store import fs, staging


class NodeLauncher:
    """Runs the ranks of one node until the leader's line is closed, and ends what is left of them then.

    Args:
        job: the attempt's, with where the leader listens.
        backend: how ranks are started, and what each sets up.
        size: how many ranks the whole group has.
        threads: threads for the libraries of each rank.
        metadata: what the ranks' `get_context().get_metadata()` returns.
        collects: what ranks return is asked for.
    """

    def __init__(
        self,
        job: Job,
        backend: Framework,
        *,
        size: int,
        threads: int = 1,
        metadata: Mapping[str, Any] | None = None,
        collects: bool = False,
    ) -> None:
        assert job.group_nodes is not None
        self._job, self._across, self._backend = job, job.group_nodes, backend
        self._size, self._threads, self._metadata, self._collects = size, threads, metadata or {}, collects
        self._launcher = backend.launcher(size)
        firsts, node = first_ranks(job), job.group_nodes.number
        self._ranks = {number: Rank(number) for number in range(firsts[node], firsts[node + 1])}
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._over = False
        self._shared = False
        self._noticed = False
        self._ended = threading.Event()
        """No process of the ranks is left."""

    def run(self, function: Callable[[], Any]) -> None:
        """Run `function` in every rank of this node. What comes of it is the leader's to say."""
        directory = Path(tempfile.mkdtemp(prefix="group-"))
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            try:
                address = (self._across.nodes[0][0], self._across.port)
                self._line: Connection = stack.enter_context(reach(address, self._across.key))
                self._line.send(NodeJoined(self._across.number))
                begin: StartRanks = self._line.recv()
            except (EOFError, OSError):
                return  # the leader is gone
            self._watch(self._line.fileno(), self._hear_leader)
            self._wakeup = self._open_wakeup(stack)
            place = self._open(directory, begin, stack)
            try:
                self._listen()
                entry = partial(self._be_rank, partial(be_rank, place=place, function=function, backend=self._backend))
                self._launcher.start(len(self._ranks), entry, self._no_process_left, self._backend.spot)
                while not self._over:
                    self._serve()
            except Exception as error:
                self._tell(LaunchFailed(f"{type(error).__name__}: {error}"))
                raise
            finally:
                self._end()

    # ------------------------------------------------------------ starting

    def _be_rank(self, entry: Callable[[int], bool], rank: int) -> bool:
        self._line.close()  # it ends with this node's deputy, however long a rank lives
        return entry(rank)

    def _open_wakeup(self, stack: contextlib.ExitStack) -> int:
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, read)
        self._watch(read, lambda: self._woken(read))
        return write  # stays open: a handler or the launcher's thread may come late

    def _open(self, directory: Path, begin: StartRanks, stack: contextlib.ExitStack) -> RankSetup:
        """What the ranks are told; afterwards they can connect."""
        self._backend.spot = begin.spot
        self._shared = (self._job.directory / begin.probe).exists()
        self._flags = Flags(directory / "flags", self._size, create=True)
        stack.callback(self._flags.close)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        address = f"\0trial-{os.getpid()}-{secrets.token_hex(8)}"
        listener.bind(address)
        listener.listen(len(self._ranks))
        self._watch(listener.fileno(), lambda: self._accept(listener))
        home = LeaderFiles(
            address=(self._across.nodes[0][0], self._across.port),
            key=self._across.key,
            start=begin.start,
            here=self._job.checkpoint_path,
            directory=directory / "checkpoints",
        )
        return RankSetup(
            job=self._job,
            size=self._size,
            address=address,
            key=self._across.key,
            flags=directory / "flags",
            leader=os.getpid(),
            threads=self._threads,
            next_save=begin.next_save,
            metadata=self._metadata,
            collects=self._collects,
            here=len(self._ranks),
            spot=begin.spot,
            home=None if self._shared else home,
        )

    def _accept(self, listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        line = met(accepted, self._across.key)
        if line is None:
            return
        hello = line.recv()
        assert isinstance(hello, Hello)
        rank = self._ranks[hello.rank]
        rank.met(line, hello.pid)
        self._tell(RankSaid(rank.number, hello, 0))
        self._watch(line.fileno(), lambda: self._hear(rank))
        self._watch(rank.pidfd, lambda: self._died(rank))

    # ------------------------------------------------------------ the loop

    def _serve(self) -> None:
        """Wait until something happens, and deal with it. Lines come before deaths: a last word is heard first."""
        processes = {rank.pidfd for rank in self._ranks.values()}
        for fd in sorted((fd for fd, _ in self._poll.poll()), key=lambda fd: fd in processes):
            if fd in self._handlers:
                self._handlers[fd]()

    def _hear_leader(self) -> None:
        try:
            message = self._line.recv()
        except (EOFError, OSError):
            self._over = True
            return
        if isinstance(message, ToRank):
            self._ranks[message.rank].answer(message.message)
        elif isinstance(message, Leave):
            self._flags.leave()
            self._tell(FlagsSeen({number: self._looked(number) for number in self._ranks}))

    def _hear(self, rank: Rank) -> None:
        assert rank.line is not None
        try:
            message = rank.line.recv()
        except (EOFError, OSError):
            self._unwatch(rank.line.fileno())  # its process is ending: that is told by its own descriptor
            return
        self._pass_on(rank, message)

    def _pass_on(self, rank: Rank, message: FromRank) -> None:
        if isinstance(message, Returned | Raised):
            rank.last = message
        self._tell(RankSaid(rank.number, message, self._looked(rank.number)))

    def _died(self, rank: Rank) -> None:
        self._unwatch(rank.pidfd)
        rank.gone = True
        with contextlib.suppress(EOFError, OSError):
            while rank.line is not None and rank.line.poll():  # what is still unread
                self._pass_on(rank, rank.line.recv())
        status = rank.status()
        if rank.last is None and status is None:  # the launcher was faster, and knows
            self._kill()
            status = self._launcher.status(rank.number)
        self._tell(RankExited(rank.number, status))

    def _looked(self, number: int) -> int:
        return self._flags.word(number)

    def _tell(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # a leader that is gone is told by its line
            self._line.send(message)

    # ------------------------------------------------------------ what comes from outside

    def _listen(self) -> None:
        """A notice to this process is one to the whole group; Ctrl-C is the driver's business."""
        me = os.getpid()

        def notice(number: int, frame: FrameType | None) -> None:
            if os.getpid() == me:
                self._noticed = True
                self._wake()

        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, notice)
        signal.signal(signal.SIGINT, lambda number, frame: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT))

    def _no_process_left(self) -> None:
        self._ended.set()
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wakeup, b"!")

    def _woken(self, read: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(read, 4096)
        if self._noticed:
            self._noticed = False
            self._tell(Noticed())
        if self._ended.is_set():
            silent = [rank for rank in self._ranks.values() if rank.line is None]
            if silent:
                why = self._launcher.join()
                status = self._launcher.status(silent[0].number)
                how = "" if status is None else f" (its process ended with {status})"
                self._tell(LaunchFailed(f"{silent[0]}{how}" + (f": {why}" if why else "")))

    # ------------------------------------------------------------ the end

    def _kill(self) -> None:
        for rank in self._ranks.values():
            if not rank.gone:
                rank.kill()
        self._launcher.kill()
        self._launcher.join()

    def _end(self) -> None:
        self._kill()
        for rank in self._ranks.values():
            rank.close()
        if not self._shared:
            for left in self._job.directory.glob(f"{staging.PREFIX}*-rank*"):
                fs.remove_quietly(left)

    # ------------------------------------------------------------ descriptors

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def _unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)
