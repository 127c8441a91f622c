"""The process that starts and watches the ranks of a further node of a group, for the leader on the first one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trainables.group import remote_nodes
from trainables.group.event_loop import EventLoop
from trainables.group.file_transfer import LeaderFiles
from trainables.group.framework import GroupSpec
from trainables.group.local_ranks import LocalRanks, remove_staged
from trainables.group.rank import Rank
from trainables.group.rank_messages import Flags, FromRank, Hello, Raised, Returned
from trainables.group.rank_session import RankSetup, be_rank
from trainables.group.remote_nodes import first_ranks
from trainables.job import Job
from trainables.net import handshake
from trainables.runtime.notice import listen


class NodeLauncher:
    """Runs the ranks of one node until the leader's line is closed, and ends what is left of them then.

    Args:
        job: the attempt's, with where the leader listens.
        group: how many ranks there are in all, and what they set up.
    """

    def __init__(self, job: Job, group: GroupSpec) -> None:
        assert job.group_nodes is not None
        self._job, self._nodes, self._group = job, job.group_nodes, group
        firsts, node = first_ranks(job), self._nodes.number
        self._ranks = [Rank(number) for number in range(firsts[node], firsts[node + 1])]
        self._leader = (self._nodes.nodes[0][0], self._nodes.port)
        self._over = self._shared = self._noticed = False

    def run(self, function: Callable[[], Any]) -> None:
        """Run `function` in every rank of this node. What comes of it is the leader's to say."""
        launcher = self._group.framework.launcher(self._group.size)
        directory = Path(tempfile.mkdtemp(prefix="group-"))
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            try:
                sock = handshake.connect(self._leader, self._nodes.key)
                self._line: Connection = stack.enter_context(Connection(sock.detach()))
                self._line.send(remote_nodes.NodeJoined(self._nodes.number))
                begin: remote_nodes.StartRanks = self._line.recv()
            except (EOFError, OSError):
                return  # the leader is gone
            self._loop = EventLoop(time, self._woken)
            stack.callback(self._loop.close)
            self._loop.watch(self._line.fileno(), self._hear_leader)
            self._group.framework.node = begin.node
            self._flags = Flags(directory / "flags", self._group.size, create=True)
            stack.callback(self._flags.close)
            key = self._nodes.key
            self._local = LocalRanks(self._ranks, launcher, self._loop, key=key, heard=self._pass_on, died=self._died)
            try:
                listen(self._notice)
                entry = partial(be_rank, setup=self._setup(directory, begin), function=function)
                self._local.start(partial(self._be_rank, entry), begin.node)
                while not self._over:
                    self._local.serve()
            except Exception as error:
                self._tell(remote_nodes.LaunchFailed(f"{type(error).__name__}: {error}"))
                raise
            finally:
                self._end()

    def _be_rank(self, entry: Callable[[int], bool], rank: int) -> bool:
        self._line.close()  # it ends with this node's launcher, however long a rank lives
        return entry(rank)

    def _setup(self, directory: Path, begin: remote_nodes.StartRanks) -> RankSetup:
        self._shared = (self._job.directory / begin.probe).exists()
        files = LeaderFiles(
            address=self._leader,
            key=self._nodes.key,
            start=begin.start,
            local_start=self._job.checkpoint_path,
            directory=directory / "checkpoints",
        )
        return RankSetup(
            job=self._job,
            group=self._group,
            node=begin.node,
            address=self._local.address,
            key=self._nodes.key,
            flags=directory / "flags",
            leader=os.getpid(),
            next_save=begin.next_save,
            leader_files=None if self._shared else files,
        )

    # ------------------------------------------------------------ what is said

    def _hear_leader(self) -> None:
        try:
            message = self._line.recv()
        except (EOFError, OSError):
            self._over = True
            return
        if isinstance(message, remote_nodes.ToRank):
            self._ranks[message.rank - self._ranks[0].number].answer(message.message)
        elif isinstance(message, remote_nodes.Leave):
            self._flags.leave()
            self._tell(remote_nodes.FlagsSeen({rank.number: self._flags.word(rank.number) for rank in self._ranks}))

    def _pass_on(self, rank: Rank, message: FromRank) -> None:
        if isinstance(message, Returned | Raised):
            rank.last = message
        flags = 0 if isinstance(message, Hello) else self._flags.word(rank.number)
        self._tell(remote_nodes.RankSaid(rank.number, message, flags))

    def _died(self, rank: Rank, unread: list[FromRank]) -> None:
        for message in unread:
            self._pass_on(rank, message)
        status = rank.status() if rank.last is not None else self._local.status(rank)
        self._tell(remote_nodes.RankExited(rank.number, status))

    def _tell(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # a leader that is gone is told by its line
            self._line.send(message)

    # ------------------------------------------------------------ what comes from outside

    def _notice(self) -> None:
        """One to this process is one to the whole group."""
        self._noticed = True
        self._loop.wake()

    def _woken(self) -> None:
        if self._noticed:
            self._noticed = False
            self._tell(remote_nodes.Noticed())
        if self._local.none_left:
            silent = [rank for rank in self._ranks if rank.send is None]
            if (dead := self._local.not_started(silent)) is not None:
                self._tell(remote_nodes.LaunchFailed(f"{dead[0]}{dead[1]}"))

    # ------------------------------------------------------------ the end

    def _end(self) -> None:
        self._local.kill()
        self._local.close()
        for rank in self._ranks:
            rank.close()
        if not self._shared:
            remove_staged(self._job.directory)
