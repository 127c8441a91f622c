"""A rank of a group: what `report` and its relatives act on in its process, and its life from first line to last."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables import knobs, session
from trainables.automatic import TimeSource
from trainables.checkpoint import Checkpoint
from trainables.context import TrainContext
from trainables.errors import PublishError
from trainables.group import rank_messages
from trainables.group.file_transfer import LeaderFiles
from trainables.group.framework import GroupSpec
from trainables.group.launcher import NodeRanks
from trainables.group.rank_messages import Flags, FromRank
from trainables.job import Job
from trainables.net import handshake
from trainables.pickling import PICKLED_LIMIT, pickled
from trainables.runtime.notice import listen
from trainables.runtime.saving import Staged
from trainables.runtime.saving_session import SavingSession, TrialExit
from trainables.runtime.seeding import seed_everything
from trainables.runtime.tracebacks import message_of, user_traceback
from trainables.store import fs, staging
from trainables.store.delete import pins
from trainables.user_frames import ELSEWHERE

if TYPE_CHECKING:
    from trainables.group.rank_uploads import RankUploads

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RankSetup:
    """Where a rank finds who has started it, and what it is told."""

    job: Job
    group: GroupSpec
    node: NodeRanks
    address: str
    key: bytes
    flags: Path
    leader: int
    """The pid of who has started it: a notice to a rank is one to the trial."""
    next_save: int
    """The number that the first save of the group has."""
    leader_files: LeaderFiles | None = None
    """Where the leader's files are; None: this host sees its directory."""


def be_rank(rank: int, *, setup: RankSetup, function: Callable[[], Any]) -> bool:
    """Be a rank: run the user's function, and tell the leader how it ended. True if it ended well."""
    ours, job, group = RankSession(setup, rank, clock=time), setup.job, setup.group
    listen(partial(_pass_on, setup))
    knobs.limit_threads(group.threads)  # a part of the whole trial's share, which the libraries were told
    knobs.limit_loaded(group.threads)
    pins.on_change = ours.held
    ours.seed = seed_everything(job.seed, job.index, job.start_iteration, rank)
    with session.activated(ours):
        try:
            value = group.framework.around(rank, function)
            ours.flush()
        except TrialExit:
            value = None
        except BaseException as error:
            if not (isinstance(error, SystemExit) and error.code in (None, 0)):
                ours.tell(_raised(error, rank, group))
                return False
            value = None
    returned = pickled(value, limit=None if group.collects else PICKLED_LIMIT)
    if returned is None and value is not None and group.collects:
        _log.warning("what rank %d returned, a %s, cannot be pickled: it is None", rank, type(value).__qualname__)
    ours.tell(rank_messages.Returned(returned))
    ours.finish()
    return True


class RankSession(SavingSession):
    """`trainables.session.Session` in a rank: the leader decides, and the driver behind it."""

    _process = "worker"

    def __init__(self, setup: RankSetup, rank: int, *, clock: TimeSource) -> None:
        super().__init__()
        self.setup, self.rank = setup, rank
        self.context = RankContext(self)
        self.seed: int | None = None
        self.should_checkpoint = False
        self.flags = Flags(setup.flags, setup.group.size)
        self._clock = clock
        self._next_save = setup.next_save
        self._calls = 0
        self._stop_at: int | None = None
        self._saves = 0
        self._uploads: RankUploads | None = None
        if setup.job.replicated is not None:
            from trainables.group.rank_uploads import RankUploads  # most groups need none of it

            self._uploads = RankUploads(setup.job, rank, self.tell)
        self._sending = threading.Lock()
        self._line: Connection = Connection(handshake.connect(setup.address, setup.key).detach())
        self.tell(rank_messages.Hello(rank, self._pid))
        self._line.recv()  # Welcome: the leader has hold of this process while it lives

    # ------------------------------------------------------------ results

    def _take(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None, pending: Staged | None) -> None:
        staged, failure = None if pending is None else pending.path, None
        if checkpoint is not None:
            staged, failure = self._stage(checkpoint)
        kept = None if staged is None or self._uploads is None else self._uploads.keep(staged)
        if staged is not None and (files := self.setup.leader_files) is not None:
            try:
                staged = files.send(staged, self._label())
            except PublishError as error:
                staged, failure = None, error
        answer = self._ask(rank_messages.RankReport(dict(metrics), staged, failure))
        if self._uploads is not None:
            self._uploads.take(
                answer.upload if isinstance(answer, rank_messages.Go | rank_messages.End) else None, kept
            )
        if isinstance(answer, rank_messages.Refused):
            import cloudpickle

            raise cloudpickle.loads(answer.error)
        if isinstance(answer, rank_messages.End):
            self._over = True
            raise TrialExit
        assert isinstance(answer, rank_messages.Go)
        self.should_checkpoint, self._next_save = answer.should_checkpoint, answer.next_save

    def finish(self) -> None:
        """Nothing more is reported: wait for what is on its way to the replica."""
        if self._uploads is not None:
            self._uploads.finish()

    def _open(self, number: int | None) -> Staged:
        if number is not None:
            session.warn_once("checkpoint_dir(step=) of a worker has no effect: its trial's result gives the number")
        return Staged(staging.new_directory(self.setup.job.directory, self._label()))

    def _drop(self, save: Staged) -> None:
        fs.remove_quietly(save.path)

    def get_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint of the trial, the same at every rank; at first what it continues from."""
        found = self._ask(rank_messages.Newest())
        assert isinstance(found, rank_messages.Found)
        if found.path is None:
            return None
        files = self.setup.leader_files
        return Checkpoint(str(found.path if files is None else files.fetch(found.path)))

    def _stage(self, checkpoint: Checkpoint) -> tuple[Path | None, PublishError | None]:
        try:
            if not checkpoint.in_memory:
                how = staging.hand_over if checkpoint.handed_over else staging.lend
                path = Path(checkpoint.fetched().path)
                return how(path, self.setup.job.directory, self._label()), None
            path = self._open(None).path
            with staging.disk_errors(path, remove=path):
                self._as_reported(checkpoint)._materialize(path)
            return path, None
        except PublishError as error:
            return None, error

    def _as_reported(self, checkpoint: Checkpoint) -> Checkpoint:
        """A dict checkpoint with the keys that a trainer adds; any other as it is."""
        data = checkpoint.in_memory_dict()
        if data is None:
            return checkpoint
        added = {
            "_timestamp": int(self._clock.time()),
            "_preprocessor": None,
            "_current_checkpoint_id": self._next_save,
        }
        return checkpoint.with_dict({**self.setup.group.framework.clean(data), **added})

    def _label(self) -> str:
        self._saves += 1
        return f"{self._saves}-rank{self.rank}"

    # ------------------------------------------------------------ what the context asks

    def should_stop(self) -> bool:
        """The same at every rank's call of the same number. Costs a byte's look until the trial is told to leave."""
        self._calls += 1
        if self._stop_at is None:
            # First the number, then the look: who sets the flag and reads the number after that knows whether this
            # call has seen it. The lock is a fence between the two.
            self.flags.called(self.rank, self._calls)
            with self._sending:
                if not self.flags.leaving:
                    return False
            answer = self._ask(rank_messages.Stopping(self._calls))
            assert isinstance(answer, rank_messages.StopAt)
            self._stop_at = answer.call
        return self._calls >= self._stop_at

    # ------------------------------------------------------------ the line

    def tell(self, message: FromRank) -> None:
        """Send; a leader that is gone takes this process with it soon."""
        with self._sending, contextlib.suppress(OSError):
            self._line.send(message)

    def held(self, path: Path, held: bool) -> None:
        """`pins` of this process has changed."""
        if os.getpid() == self._pid:
            self.tell(rank_messages.Held(path, held))

    def _ask(self, message: FromRank) -> Any:
        self._check_process()
        with self._reporting:
            self.tell(message)
            try:
                return self._line.recv()
            except (EOFError, OSError):
                self._over = True
                raise TrialExit from None  # the leader is gone, and the trial with it


class RankContext(TrainContext):
    """The context of a rank."""

    def __init__(self, rank: RankSession) -> None:
        super().__init__(rank.setup.job)
        self._rank = rank

    def get_world_size(self) -> int:
        return self._rank.setup.group.size

    def get_world_rank(self) -> int:
        return self._rank.rank

    def get_local_rank(self) -> int:
        return self._rank.rank - self._rank.setup.node.first

    def get_local_world_size(self) -> int:
        return self._rank.setup.node.ranks

    def get_node_rank(self) -> int:
        return self._rank.setup.node.number

    def get_metadata(self) -> dict[str, Any]:
        return dict(self._rank.setup.group.metadata)

    def get_seed(self) -> int | None:
        return self._rank.seed

    def should_checkpoint(self) -> bool:
        self._rank.flags.looked(self._rank.rank, rank_messages.CHECKPOINT)
        return self._rank.should_checkpoint

    def should_stop(self) -> bool:
        return self._rank.should_stop()


def _pass_on(setup: RankSetup) -> None:
    """A notice to a rank is one to the whole group."""
    with contextlib.suppress(OSError):
        os.kill(setup.leader, signal.SIGUSR1)


def _raised(error: BaseException, rank: int, group: GroupSpec) -> rank_messages.Raised:
    error.add_note(f"in rank {rank} of {group.size} (pid {os.getpid()})")
    text, waited = user_traceback(error), group.framework.waited(error)
    error.__dict__[ELSEWHERE] = text
    return rank_messages.Raised(type(error).__name__, message_of(error), text, pickled(error) or b"", waited)
