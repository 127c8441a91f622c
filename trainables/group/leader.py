"""The leader of a group, in the trial's own process: to the driver it is one trial, to its ranks it is the driver."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import select
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointNotFoundError, PublishError, RanksError
from trainables.group.framework import Framework
from trainables.group.merging import merge
from trainables.group.rank import Rank, add_line, exception_of, failed_waiting, names, tell_alone, times
from trainables.group.rank_messages import (
    CHECKPOINT,
    STOP,
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
    RankUploaded,
    Refused,
    Returned,
    StopAt,
    Stopping,
    Welcome,
)
from trainables.group.rank_session import RankSetup, run_rank
from trainables.group.remote_nodes import (
    FlagsSeen,
    LaunchFailed,
    Noticed,
    RankExited,
    RankSaid,
    RelayedLine,
    RemoteNode,
    RemoteNodes,
)
from trainables.group.upload_tracker import Saved, UploadTracker
from trainables.net.handshake import met
from trainables.runtime.attempt import Attempt, TrialExit
from trainables.store import fs, staging
from trainables.wire import nothing

SAVE_NUMBER = "checkpoint_id"
"""Where the manifest of a group's checkpoint keeps its number."""
_START_S = 300.0
"""How long ranks may take to say hello."""
_HELLO_S = 60.0
"""How long one that has connected may take to show that it is a rank."""
_PARTING_S = 10.0
"""How long ranks on other nodes may take to end when all have returned."""
_CAUSE_S = 3.0
"""How long an error of a rank that waited for others is held back for the death of one that may have caused it."""


class Leader:
    """Runs one group from its start to its end.

    Args:
        attempt: the trial's, to which the group's results go.
        backend: how ranks are started, and what each sets up.
        size: how many ranks.
        threads: threads for the libraries of each rank.
        metadata: what the ranks' `get_context().get_metadata()` returns.
        collects: what all ranks report is part of the result, as a list under `_ranks`, and what they return is asked
            for, however large it is.
    """

    def __init__(
        self,
        attempt: Attempt,
        backend: Framework,
        *,
        size: int,
        threads: int = 1,
        metadata: Mapping[str, Any] | None = None,
        collects: bool = False,
    ) -> None:
        self._attempt, self._backend = attempt, backend
        self._launcher = backend.launcher(size)
        self._nodes = RemoteNodes.of(attempt.job, size)
        self._timeout_s, self._threads, self._metadata = backend.timeout_s, threads, metadata or {}
        self._collects = collects
        self._ranks = [Rank(number) for number in range(size)]
        self._next_save = _first_save(attempt)
        self._stop_at: int | None = None
        self._ended = False
        """The driver ended the trial; ranks unwind."""
        self._no_process_left = False
        self._replicating = UploadTracker(attempt.uploaded)
        self._due: float | None = None
        """When a rank that is missed is given up, on the monotonic clock."""
        self._wakeup = -1
        self._waking = threading.RLock()  # a signal handler may wake while its own thread does
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}

    def run(self, function: Callable[[], Any]) -> list[Any]:
        """Run `function` in every rank, until all have returned; what they returned, by rank.

        Raises the exception of the first rank that failed, RanksError when ranks disagree, hang or die, and
        TrialEnded where the driver ended the trial.
        """
        directory = Path(tempfile.mkdtemp(prefix="group-"))
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            place, listener = self._open(directory, stack)
            entry = partial(be_rank, place=place, function=function, backend=self._backend)
            try:
                self._start(entry, listener)
                self._gather()
                if self._uploaded():
                    self._part()
                else:
                    self._kill()  # they have returned, and what they wait for the driver does too
            except BaseException as error:
                self._kill()
                if isinstance(error, RanksError):
                    tell_alone(error)
                raise
            finally:
                self._launcher.join()
                self._nodes.close()
                self._remove_leftovers()
                for rank in self._ranks:
                    rank.close()
        if self._ended:
            raise TrialExit
        import cloudpickle

        values = [rank.last.value for rank in self._ranks if isinstance(rank.last, Returned)]
        return [None if value is None else cloudpickle.loads(value) for value in values]

    # ------------------------------------------------------------ starting

    def _open(self, directory: Path, stack: contextlib.ExitStack) -> tuple[RankSetup, socket.socket]:
        size = len(self._ranks)
        self._flags = Flags(directory / "flags", size, create=True)
        stack.callback(self._flags.close)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        # An abstract name: a path may be too long for a socket, and nothing is left of it. The key says who may speak.
        address = f"\0trial-{os.getpid()}-{secrets.token_hex(8)}"
        listener.bind(address)
        listener.listen(size)
        self._key = secrets.token_bytes(16)
        read, self._wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, read)
        stack.callback(self._sleep)
        stack.callback(self._attempt.watch, nothing)
        name = secrets.token_hex(8)
        if (port := stack.enter_context(self._nodes.listening(name))) is not None:
            self._attempt.listening(port)
        self._backend.spot = self._nodes.spot
        self._watch(read, lambda: self._woken(read))
        self._watch(listener.fileno(), lambda: self._accept(listener))
        place = RankSetup(
            job=self._attempt.job,
            size=size,
            address=address,
            key=self._key,
            flags=directory / "flags",
            leader=os.getpid(),
            threads=self._threads,
            next_save=self._next_save,
            metadata=self._metadata,
            collects=self._collects,
            here=self._nodes.here,
            spot=self._nodes.spot,
        )
        return place, listener

    def _start(self, entry: Callable[[int], bool], listener: socket.socket) -> None:
        """Start the ranks; return when all have said hello, and let them run."""

        def ended() -> None:
            self._no_process_left = True
            self._wake()

        self._due = self._attempt.clock.monotonic() + _START_S
        self._gather_deputies()
        self._launcher.start(self._nodes.here, entry, ended, self._nodes.spot)
        while silent := [rank for rank in self._ranks if rank.line is None]:
            self._serve(f"said hello; {names(silent)} did not start")
            if self._no_process_left:
                self._find_dead(self._launcher.join())
        self._due = None
        self._nodes.serve_files()
        for rank in self._ranks:
            # Not before all were forked: what the first ones set up makes threads of the launcher busy (its store
            # looks up who connects), and a rank that is forked then can have a lock that nobody opens.
            rank.answer(Welcome())
        self._poll.unregister(listener.fileno())
        # From here on, and not before: with another thread in it this process could not fork them.
        self._attempt.watch(self._wake)
        self._look_at_leaving()

    def _gather_deputies(self) -> None:
        if (listener := self._nodes.listener) is not None:
            self._watch(listener.fileno(), self._accept_deputy)
            while missing := self._nodes.missing:
                self._serve(f"said hello; {', '.join(map(str, missing))} did not come")
            self._unwatch(listener.fileno())

    def _accept_deputy(self) -> None:
        deputy = self._nodes.accept(self._next_save)
        if deputy is not None and deputy.line is not None:
            self._watch(deputy.line.fileno(), lambda: self._hear_deputy(deputy))

    def _accept(self, listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        line = met(accepted, self._key, within_s=_HELLO_S)
        if line is None:
            return
        hello = line.recv()
        assert isinstance(hello, Hello)
        rank = self._ranks[hello.rank]
        rank.met(line, hello.pid)
        self._watch(line.fileno(), lambda: self._hear(rank))
        self._watch(rank.pidfd, lambda: self._died(rank))

    # ------------------------------------------------------------ the loop

    def _gather(self) -> None:
        while not all(rank.last for rank in self._ranks):
            self._serve("")

    def _uploaded(self) -> bool:
        """Wait until what ranks saved last is in the replica, as far as they can bring it; False: there is no time."""
        self._due = None
        while self._replicating:
            if self._attempt.leaving():
                return False
            self._serve("")
        return True

    def _part(self) -> None:
        """Ranks on other nodes end by themselves, as those here do, before their deputies are told to go."""
        self._due = self._attempt.clock.monotonic() + _PARTING_S
        with contextlib.suppress(RanksError, TrialExit):
            while any(rank.where and not rank.gone for rank in self._ranks):
                self._serve("")

    def _serve(self, late: str) -> None:
        """Wait until something happens, and deal with it. Lines come before deaths: a last word is heard first."""
        timeout = None
        if self._due is not None:
            timeout = max(0.0, self._due - self._attempt.clock.monotonic()) * 1000
        ready = [fd for fd, _ in self._poll.poll(timeout)]
        if not ready and self._due is not None:
            raise TrialExit if self._ended else RanksError(self._late(late))
        processes = {rank.pidfd for rank in self._ranks}
        for fd in sorted(ready, key=lambda fd: fd in processes):
            if fd in self._handlers:
                self._handlers[fd]()

    def _hear(self, rank: Rank) -> None:
        assert rank.line is not None
        try:
            message: FromRank = rank.line.recv()
        except (EOFError, OSError):
            self._unwatch(rank.line.fileno())  # its process is ending: that is told by its own descriptor
            return
        self._heard(rank, message)

    def _hear_deputy(self, deputy: RemoteNode) -> None:
        assert deputy.line is not None
        try:
            message = deputy.line.recv()
        except (EOFError, OSError):
            self._unwatch(deputy.line.fileno())
            for number in deputy.ranks:
                self._gone(self._ranks[number])
            if any(self._ranks[number].last is None for number in deputy.ranks):
                raise deputy.lost() from None
            return
        if isinstance(message, RankSaid):
            rank = self._ranks[message.rank]
            self._flags.copy(rank.number, message.looked)
            if isinstance(message.message, Hello):
                rank.met_elsewhere(RelayedLine(deputy, rank.number), message.message.pid, deputy.address)
            else:
                self._heard(rank, message.message)
        elif isinstance(message, RankExited):
            if (how := self._how_died_elsewhere(message)) is not None:
                raise RanksError(how)
        elif isinstance(message, FlagsSeen):
            for number, looked in message.at.items():
                self._flags.copy(number, looked)
            deputy.looked = True
            self._decide_stop()
        elif isinstance(message, Noticed):
            self._attempt.notice()
        elif isinstance(message, LaunchFailed):
            raise RanksError(f"the ranks on {deputy} could not be started: {message.why}")

    def _how_died_elsewhere(self, dead: RankExited) -> str | None:
        rank = self._ranks[dead.rank]
        self._gone(rank)
        return None if rank.last is not None else rank.how_it_died(dead.status)

    def _heard(self, rank: Rank, message: FromRank) -> None:
        if isinstance(message, Held):
            rank.hold(message)
        elif isinstance(message, RankUploaded):
            self._replicating.heard(rank.number, str(rank), message)
        elif isinstance(message, Newest):
            newest = self._attempt.get_checkpoint()
            rank.answer(Found(None if newest is None else Path(newest.path)))
        elif isinstance(message, Stopping):
            rank.asks = message.call
            self._decide_stop()
        elif isinstance(message, RankReport):
            rank.report, rank.reports = message, rank.reports + 1
            self._look_at_reports()
        elif isinstance(message, Returned):
            rank.last = message
            if self._due is None:
                self._due = self._attempt.clock.monotonic() + self._timeout_s  # for the others to come to their end
            self._decide_stop()
            self._look_at_reports()
        elif isinstance(message, Raised):
            rank.last = message
            self._fail(rank, message)

    # ------------------------------------------------------------ results

    def _look_at_reports(self) -> None:
        """Deliver a result once every rank has come; complain at once when one never will."""
        waiting = [rank for rank in self._ranks if rank.report is not None]
        if not waiting:
            return
        if returned := [rank for rank in self._ranks if isinstance(rank.last, Returned)]:
            if self._ended:
                return
            raise RanksError(
                f"{names(returned)} returned after {times(returned[0].reports)} of report(), while {names(waiting)} "
                f"{'is' if len(waiting) == 1 else 'are'} in number {waiting[0].reports}: every rank has to call "
                "report() equally often"
            )
        if len(waiting) == len(self._ranks):
            self._due = None
            self._deliver()
        elif self._due is None:
            self._due = self._attempt.clock.monotonic() + self._timeout_s

    def _deliver(self) -> None:
        reports = [rank.report for rank in self._ranks if rank.report is not None]
        self._attempt.looked_at_stop |= self._flags.any_looked(STOP)
        self._attempt.looked_at_checkpoint |= self._flags.any_looked(CHECKPOINT)
        answer: Go | End | Refused
        save, saved = self._next_save, Saved()
        try:
            self._take(reports, saved)
            answer = Go(self._attempt.answer.should_checkpoint, self._next_save)
        except TrialExit:
            self._ended, answer = True, End()
            self._due = self._attempt.clock.monotonic() + min(self._attempt.job.grace_s, self._timeout_s)
        except Exception as error:
            answer = Refused(_packed(error))
        self._look_at_leaving()
        uploads = saved.uploads(save)
        for rank in self._ranks:
            rank.report = None
            upload = uploads.get(rank.number)
            told = answer
            if upload is not None and not isinstance(told, Refused):
                told = dataclasses.replace(told, upload=upload)
            rank.answer(told)
        if saved.ref is not None:
            self._replicating.begin(save, saved.ref, set() if isinstance(answer, Refused) else set(uploads))

    def _take(self, reports: list[RankReport], saved: Saved) -> None:
        """One result of what all ranks reported: rank 0's metrics, and everybody's files."""
        failures = [report.failure for report in reports if report.failure is not None]
        failure = failures[0] if failures and isinstance(failures[0], PublishError) else None
        saves = [(number, report.staged) for number, report in enumerate(reports) if report.staged is not None]
        staged, job = None, self._attempt.job
        if saves and failure is None:
            try:
                path, saved.parts = merge(saves, job.directory, keep_all_ranks=job.keep_all_ranks)
                uploading = job.replicated is not None
                staged = self._attempt.saver.adopt(path, {SAVE_NUMBER: self._next_save}, uploading=uploading)
                saved.staged = staged
            except PublishError as error:
                failure = error
        if staged is None:
            self._drop_saves()
        else:
            self._next_save += 1
        metrics = reports[0].metrics
        if self._collects:
            metrics = {**metrics, session.ALL_RANKS: [report.metrics for report in reports]}
        self._attempt.report_staged(metrics, staged, failure)

    def _remove_leftovers(self) -> None:
        """Remove what dead ranks were staging. What was adopted is published by then, or gone."""
        self._attempt.saver.wait()
        directory = self._attempt.job.directory
        for left in directory.glob(f"{staging.PREFIX}*-rank*"):
            fs.remove_quietly(left)

    def _drop_saves(self) -> None:
        for rank in self._ranks:
            if rank.report is not None and rank.report.staged is not None:
                fs.remove_quietly(rank.report.staged)

    def _gone(self, rank: Rank) -> None:
        """Its process is dead, and copies nothing."""
        rank.gone = True
        self._replicating.gone(rank.number)

    # ------------------------------------------------------------ leaving

    def _woken(self, read: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(read, 4096)
        self._look_at_leaving()

    def _look_at_leaving(self) -> None:
        if not self._flags.leaving and self._attempt.leaving():
            self._flags.leave()
            self._nodes.leave()

    def _decide_stop(self) -> None:
        """The call from which on all ranks are told to stop: the first that none of them has gone by.

        Nobody is waited for: a rank that looked before the notice may wait for the others now, in `report()` or in a
        collective call, and looks again only when they have come.
        """
        asking = [rank for rank in self._ranks if rank.asks is not None]
        if self._stop_at is None and asking:
            if not self._nodes.all_looked:
                return  # the other hosts' flags are set a moment later
            going = [rank for rank in self._ranks if rank.last is None]
            self._stop_at = max(
                self._flags.calls(rank.number) + 1 if rank.asks is None else rank.asks for rank in going
            )
            self._attempt.looked_at_stop = True
            self._attempt.preempted = True  # a function that returns after this is to be continued
        if self._stop_at is not None:
            for rank in asking:
                rank.asks = None
                rank.answer(StopAt(self._stop_at))

    # ------------------------------------------------------------ failures

    def _late(self, late: str) -> str:
        if late:
            come = [rank for rank in self._ranks if rank.line is not None]
            return f"after {_START_S:g} s {names(come) or 'no rank'} {late}"
        waiting = [rank for rank in self._ranks if rank.report is not None]
        if not waiting:
            missing = [rank for rank in self._ranks if rank.last is None]
            returned = [rank for rank in self._ranks if rank.last is not None]
            return (
                f"{names(missing)} did not come to the end of the training function within {self._timeout_s:g} s after "
                f"{names(returned)}; a longer wait is TorchConfig(timeout_s=...)"
            )
        missing = [rank for rank in self._ranks if rank.report is None]
        return (
            f"{names(missing)} did not come to report() number {waiting[0].reports} within {self._timeout_s:g} s; "
            f"{names(waiting)} waited there. Every rank has to call report() equally often; a longer wait is "
            "TorchConfig(timeout_s=...)"
        )

    def _died(self, rank: Rank) -> None:
        """A process has ended. Its line may hold a last word that is still unread."""
        self._unwatch(rank.pidfd)
        rank.gone = True
        for message in rank.unread():
            if isinstance(message, RankUploaded | Returned | Raised):
                self._heard(rank, message)
        if rank.last is None:
            raise RanksError(self._how_died(rank))
        self._gone(rank)

    def _how_died(self, rank: Rank) -> str:
        status = rank.status()
        if status is None:  # the launcher was faster, and knows
            self._kill()
            self._launcher.join()
            status = self._launcher.status(rank.number)
        return rank.how_it_died(status)

    def _find_dead(self, why: str | None) -> None:
        """All processes are gone and some never said hello."""
        for rank in self._ranks:
            if rank.line is None:
                status = self._launcher.status(rank.number)
                how = "" if status is None else f" (its process ended with {status})"
                raise RanksError(f"{rank} could not be started{how}" + (f": {why}" if why else ""))

    def _fail(self, rank: Rank, raised: Raised) -> None:
        """Raise what a rank raised; unless another one was killed, of which this is only what the others saw."""
        others = [other for other in self._ranks if other is not rank and other.last is None and not other.gone]
        poll = select.poll()
        for other in others:
            if other.pidfd >= 0:
                poll.register(other.pidfd, select.POLLIN)
        error, waited = exception_of(raised), failed_waiting(raised)
        if others:
            dead = [fd for fd, _ in poll.poll(_CAUSE_S * 1000 if waited else 0)]
            for other in others:
                if other.pidfd in dead and other.last_word() is None:
                    raise RanksError(self._how_died(other)) from error
            cause = self._nodes.cause(_CAUSE_S if waited and not dead else 0, self._how_died_elsewhere)
            if cause is not None:
                raise RanksError(cause) from error
        if others and waited:
            add_line(error, "the others meanwhile: " + "; ".join(other.whereabouts() for other in others))
        raise error

    def _kill(self) -> None:
        """End all ranks now: those that wait for a dead one would wait for ever."""
        self._nodes.close()
        for rank in self._ranks:
            rank.kill()
        self._launcher.kill()

    # ------------------------------------------------------------ descriptors

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def _unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _wake(self) -> None:
        """From any thread, and from signal handlers."""
        with self._waking:
            if self._wakeup >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._wakeup, b"!")

    def _sleep(self) -> None:
        """Whoever still wakes does nothing: the number of the descriptor will be another's."""
        with self._waking:
            os.close(self._wakeup)
            self._wakeup = -1


def be_rank(rank: int, *, place: RankSetup, function: Callable[[], Any], backend: Framework) -> bool:
    """The first line of a rank."""
    return run_rank(place, rank, partial(backend.around, rank, function), backend.clean)


def _first_save(attempt: Attempt) -> int:
    """The number of the group's first save: after an own checkpoint the next, after another's that very number."""
    path = attempt.job.checkpoint_path
    if path is None:
        return 0
    try:
        content = Checkpoint(str(path)).manifest
    except CheckpointNotFoundError:
        return 0
    restored = 0 if content is None else content.extra.get(SAVE_NUMBER)
    if not isinstance(restored, int):
        return 0
    return restored if attempt.job.checkpoint is None else restored + 1


def _packed(error: Exception) -> bytes:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(error)
    except Exception:
        data = cloudpickle.dumps(RanksError(f"{type(error).__name__}: {error}"))
    return data
