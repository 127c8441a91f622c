"""A rank of a group: what `report` and its relatives act on in its process, and its life from first line to last."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from trainables import knobs, session
from trainables.automatic import TimeSource
from trainables.checkpoint import Checkpoint
from trainables.context import TrainContext
from trainables.errors import PublishError, SessionError
from trainables.group.file_transfer import LeaderFiles
from trainables.group.launcher import ONE_NODE, NodeRanks
from trainables.group.rank_messages import (
    CHECKPOINT,
    End,
    Flags,
    Found,
    FromRank,
    Go,
    Held,
    Hello,
    Newest,
    Raised,
    RankReport,
    Refused,
    Returned,
    StopAt,
    Stopping,
)
from trainables.job import Job
from trainables.plain_metrics import plain_metrics
from trainables.runtime.attempt import TrialExit, step_number
from trainables.runtime.seeding import seed_everything
from trainables.runtime.tracebacks import ELSEWHERE, message_of, user_traceback
from trainables.store import fs, staging
from trainables.store.delete import pins

if TYPE_CHECKING:
    from trainables.group.rank_uploads import RankUploads

_log = logging.getLogger(__name__)

_PICKLED_LIMIT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RankSetup:
    """Where a rank finds its leader, and what it is told."""

    job: Job
    size: int
    """Ranks of the group."""
    address: str
    key: bytes
    flags: Path
    leader: int
    """The leader's pid: a notice to a rank is one to the trial."""
    threads: int
    """Threads that the libraries of a rank may use."""
    next_save: int
    """The number that the first save of the group has."""
    metadata: Mapping[str, Any]
    collects: bool = False
    """What ranks return is asked for."""
    here: int = 0
    """Ranks on this node."""
    spot: NodeRanks = ONE_NODE
    home: LeaderFiles | None = None
    """Where the leader's files are; None: this host sees its directory."""


def run_rank(
    place: RankSetup, rank: int, function: Callable[[], Any], clean: Callable[[Any], Any], *, clock: TimeSource = time
) -> bool:
    """Be rank `rank`: run `function`, and tell the leader how it ended. True if it ended well.

    Args:
        place: what the leader said.
        rank: from 0.
        function: the user's, with what it takes.
        clean: what becomes of the dict in a dict checkpoint before it is written.
        clock: where the time comes from.
    """
    member = RankSession(place, rank, clean, clock=clock)
    _listen(place)
    _limit_threads(place.threads)
    pins.on_change = member.held
    member.seed = seed_everything(place.job.seed, place.job.index, place.job.start_iteration, rank)
    with session.activated(member):
        try:
            value = function()
            member.flush()
        except TrialExit:
            value = None
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                member.tell(_raised(leaving, rank, place))
                return False
            value = None
        except BaseException as error:
            member.tell(_raised(error, rank, place))
            return False
    returned = _pickled(value, limit=None if place.collects else _PICKLED_LIMIT)
    if returned is None and value is not None and place.collects:
        _log.warning("what rank %d returned, a %s, cannot be pickled: it is None", rank, type(value).__qualname__)
    member.tell(Returned(returned))
    member.finish()
    return True


class RankSession:
    """`trainables.session.Session` in a rank: the leader decides, and the driver behind it."""

    def __init__(self, place: RankSetup, rank: int, clean: Callable[[Any], Any], *, clock: TimeSource) -> None:
        self.place, self.rank = place, rank
        self.context = RankContext(self)
        self.seed: int | None = None
        self.should_checkpoint = False
        self.flags = Flags(place.flags, place.size)
        self._clean, self._clock = clean, clock
        self._next_save = place.next_save
        self._pid = os.getpid()
        self._calls = 0
        self._stop_at: int | None = None
        self._saves = 0
        self._over = False
        self._pending: Path | None = None
        self._last: Mapping[str, Any] = {}
        self._uploads: RankUploads | None = None
        if place.job.replicated is not None:
            from trainables.group.rank_uploads import RankUploads  # most groups need none of it

            self._uploads = RankUploads(place.job, rank, self.tell)
        self._asking, self._sending = threading.RLock(), threading.Lock()
        self._line: Connection = Client(place.address, family="AF_UNIX", authkey=place.key)
        self.tell(Hello(rank, self._pid))
        self._line.recv()  # Welcome: the leader has hold of this process while it lives

    # ------------------------------------------------------------ results

    def report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> None:
        """One result of this rank; returns when all ranks have reported theirs, and the driver has decided."""
        self._check_process()
        with self._asking:
            if self._over:
                raise TrialExit  # the function swallowed the first one
            plain = dict(plain_metrics(metrics))
            self._last = plain
            staged, failure = self._stage(checkpoint)
            kept = None if staged is None or self._uploads is None else self._uploads.keep(staged)
            if staged is not None and (home := self.place.home) is not None:
                try:
                    staged = home.send(staged, self._label())
                except PublishError as error:
                    staged, failure = None, error
            answer = self._ask(RankReport(plain, staged, failure))
            if self._uploads is not None:
                self._uploads.take(answer.upload if isinstance(answer, Go | End) else None, kept)
            if isinstance(answer, Refused):
                import cloudpickle

                raise cloudpickle.loads(answer.error)
            if isinstance(answer, End):
                self._over = True
                raise TrialExit
            assert isinstance(answer, Go)
            self.should_checkpoint, self._next_save = answer.should_checkpoint, answer.next_save

    def flush(self) -> None:
        """Report a `checkpoint_dir` that no report followed: it must not be lost."""
        if self._pending is not None:
            self.report(self._last)

    def finish(self) -> None:
        """Nothing more is reported: wait for what is on its way to the replica."""
        if self._uploads is not None:
            self._uploads.finish()

    @contextlib.contextmanager
    def checkpoint_dir(self, step: int | None = None) -> Iterator[str]:
        """A directory of this rank's to save into; the next report takes it, and the leader merges what ranks saved."""
        self._check_process()
        if step_number(step) is not None:
            session.warn_once("checkpoint_dir(step=) of a worker has no effect: its trial's result gives the number")
        path = self._new_directory()
        try:
            yield str(path)
        except BaseException:
            fs.remove_quietly(path)
            raise
        if self._pending is not None:
            _log.warning("checkpoint_dir() was used twice before a report: the earlier save is dropped")
            fs.remove_quietly(self._pending)
        self._pending = path

    def get_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint of the trial, the same at every rank; at first what it continues from."""
        found = self._ask(Newest())
        assert isinstance(found, Found)
        if found.path is None:
            return None
        home = self.place.home
        return Checkpoint(str(found.path if home is None else home.fetch(found.path)))

    def _stage(self, checkpoint: Checkpoint | None) -> tuple[Path | None, PublishError | None]:
        pending, self._pending = self._pending, None
        if checkpoint is None:
            return pending, None
        if pending is not None:
            _log.warning("report() got a checkpoint besides checkpoint_dir(): the latter is dropped")
            fs.remove_quietly(pending)
        try:
            if not checkpoint.in_memory:
                how = staging.hand_over if checkpoint.handed_over else staging.lend
                path = Path(checkpoint.fetched().path)
                return how(path, self.place.job.directory, self._label()), None
            path = self._new_directory()
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
        return checkpoint.with_dict({**self._clean(data), **added})

    def _new_directory(self) -> Path:
        return staging.new_directory(self.place.job.directory, self._label())

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
            answer = self._ask(Stopping(self._calls))
            assert isinstance(answer, StopAt)
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
            self.tell(Held(path, held))

    def _ask(self, message: FromRank) -> Any:
        self._check_process()
        with self._asking:
            self.tell(message)
            try:
                return self._line.recv()
            except (EOFError, OSError):
                self._over = True
                raise TrialExit from None  # the leader is gone, and the trial with it

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise SessionError(
                "report() was called in a child process of a worker: send the values to the worker's process, "
                "and report there"
            )


class RankContext(TrainContext):
    """The context of a rank."""

    def __init__(self, member: RankSession) -> None:
        super().__init__(member.place.job)
        self._member = member

    def get_world_size(self) -> int:
        return self._member.place.size

    def get_world_rank(self) -> int:
        return self._member.rank

    def get_local_rank(self) -> int:
        return self._member.rank - self._member.place.spot.first

    def get_local_world_size(self) -> int:
        return self._member.place.here

    def get_node_rank(self) -> int:
        return self._member.place.spot.node

    def get_metadata(self) -> dict[str, Any]:
        return dict(self._member.place.metadata)

    def get_seed(self) -> int | None:
        return self._member.seed

    def should_checkpoint(self) -> bool:
        self._member.flags.looked(self._member.rank, CHECKPOINT)
        return self._member.should_checkpoint

    def should_stop(self) -> bool:
        return self._member.should_stop()


def _listen(place: RankSetup) -> None:
    """A notice to a rank is one to the whole group; Ctrl-C is the driver's business."""
    me = os.getpid()

    def pass_on(number: int, frame: FrameType | None) -> None:
        if os.getpid() != me:  # a forked child of the user's: for it the signal means what it always means
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            with contextlib.suppress(OSError):
                os.kill(place.leader, signal.SIGUSR1)

    def overhear(number: int, frame: FrameType | None) -> None:
        if os.getpid() != me:
            raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, pass_on)
    signal.signal(signal.SIGINT, overhear)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT))


def _limit_threads(threads: int) -> None:
    """The libraries were told the whole trial's share; a rank has a part of it."""
    knobs.limit_threads(threads)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    if torch is not None or "numpy" in sys.modules:
        import threadpoolctl

        threadpoolctl.threadpool_limits(threads)


def _raised(error: BaseException, rank: int, place: RankSetup) -> Raised:
    error.add_note(f"in rank {rank} of {place.size} (pid {os.getpid()})")
    text = user_traceback(error)
    error.__dict__[ELSEWHERE] = text
    return Raised(type(error).__name__, message_of(error), text, _pickled(error) or b"")


def _pickled(value: Any, limit: int | None = _PICKLED_LIMIT) -> bytes | None:
    if value is None:
        return None
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(value)
        if limit is None or len(data) <= limit:
            cloudpickle.loads(data)
            return data
    except (Exception, SystemExit):  # whatever its __reduce__ does
        return None
    return None
