"""The leader of a group, in the trial's own process: to the driver it is one trial, to its ranks it is the driver."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from trainables.errors import RanksError
from trainables.group import rank_messages, remote_nodes
from trainables.group.event_loop import EventLoop
from trainables.group.failures import add_line, exception_of, late, tell_alone, unequal
from trainables.group.framework import GroupSpec
from trainables.group.group_results import GroupResults
from trainables.group.local_ranks import LocalRanks, remove_staged
from trainables.group.rank import Rank, names
from trainables.group.rank_messages import Flags, FromRank
from trainables.group.rank_session import RankSetup, be_rank
from trainables.group.remote_nodes import RemoteNode, RemoteNodes
from trainables.group.stopping import StopCall
from trainables.runtime.attempt import Attempt
from trainables.runtime.saving_session import TrialExit
from trainables.wire import nothing

_START_S = 300.0
"""How long ranks may take to say hello."""
_PARTING_S = 10.0
"""How long ranks on other nodes may take to end when all have returned."""
_CAUSE_S = 3.0
"""How long an error of a rank that waited for others is held back for the death of one that may have caused it."""


class Leader:
    """Runs one group from its start to its end.

    Args:
        attempt: the trial's, to which the group's results go.
        group: how many ranks there are, and what they set up.
    """

    def __init__(self, attempt: Attempt, group: GroupSpec) -> None:
        self._attempt, self._group = attempt, group
        self._ranks = [Rank(number) for number in range(group.size)]
        self._nodes = RemoteNodes.of(attempt.job, group.size)
        self._results = GroupResults(attempt, self._ranks, collects=group.collects)
        self._ended = False
        """The driver ended the trial; ranks unwind."""

    def run(self, function: Callable[[], Any]) -> list[Any]:
        """Run `function` in every rank, until all have returned; what they returned, by rank.

        Raises the exception of the first rank that failed, RanksError when ranks disagree, hang or die, and
        TrialExit where the driver ended the trial.
        """
        directory = Path(tempfile.mkdtemp(prefix="group-"))
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            setup = self._open(directory, stack)
            try:
                self._start(partial(be_rank, setup=setup, function=function))
                while not all(rank.last for rank in self._ranks):
                    self._serve()
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
                self._local.close()
                self._nodes.close()
                self._attempt.saver.wait()  # what was adopted is published then, or gone
                remove_staged(self._attempt.job.directory)
                for rank in self._ranks:
                    rank.close()
        if self._ended:
            raise TrialExit
        import cloudpickle

        values = [rank.last.value for rank in self._ranks if isinstance(rank.last, rank_messages.Returned)]
        return [None if value is None else cloudpickle.loads(value) for value in values]

    # ------------------------------------------------------------ starting

    def _open(self, directory: Path, stack: contextlib.ExitStack) -> RankSetup:
        attempt, group, key = self._attempt, self._group, secrets.token_bytes(16)
        launcher = group.framework.launcher(group.size)
        self._flags = Flags(directory / "flags", group.size, create=True)
        stack.callback(self._flags.close)
        self._stop = StopCall(self._ranks, self._flags)
        self._loop = EventLoop(attempt.clock, self._look_at_leaving)
        stack.callback(self._loop.close)
        stack.callback(attempt.watch, nothing)
        if (port := stack.enter_context(self._nodes.listening(secrets.token_hex(8)))) is not None:
            attempt.listening(port)
        node = group.framework.node = self._nodes.node
        local = self._ranks[: node.ranks]
        self._local = LocalRanks(local, launcher, self._loop, key=key, heard=self._heard, died=self._died)
        return RankSetup(
            job=attempt.job,
            group=group,
            node=node,
            address=self._local.address,
            key=key,
            flags=directory / "flags",
            leader=os.getpid(),
            next_save=self._results.next_save,
        )

    def _start(self, entry: Callable[[int], bool]) -> None:
        """Start the ranks; return when all have said hello, and let them run."""
        self._loop.due_in(_START_S)
        self._gather_nodes()
        self._local.start(entry, self._nodes.node)
        while silent := [rank for rank in self._ranks if rank.send is None]:
            self._serve(f"{names(silent)} did not start")
            if self._local.none_left and (dead := self._local.not_started(r for r in silent if r.send is None)):
                raise RanksError(f"{dead[0]} could not be started{dead[1]}")
        self._loop.due_in(None)
        self._nodes.serve_files()
        for rank in self._ranks:
            # Not before all were forked: what the first ones set up makes threads of the launcher busy (its store
            # looks up who connects), and a rank that is forked then can have a lock that nobody opens.
            rank.answer(rank_messages.Welcome())
        self._local.complete()
        # From here on, and not before: with another thread in it this process could not fork them.
        self._attempt.watch(self._loop.wake)
        self._look_at_leaving()

    def _gather_nodes(self) -> None:
        if (listener := self._nodes.listener) is not None:
            self._loop.watch(listener.fileno(), self._accept_node)
            while missing := self._nodes.missing:
                self._serve(f"{', '.join(map(str, missing))} did not come")
            self._loop.forget(listener.fileno())

    def _accept_node(self) -> None:
        node = self._nodes.accept(self._results.next_save)
        if node is not None and node.line is not None:
            self._loop.watch(node.line.fileno(), lambda: self._hear_node(node))

    # ------------------------------------------------------------ the loop

    def _uploaded(self) -> bool:
        """Wait until what ranks saved last is in the replica, as far as they can bring it; False: there is no time."""
        self._loop.due_in(None)
        while self._results.uploads:
            if self._attempt.leaving():
                return False
            self._serve()
        return True

    def _part(self) -> None:
        """Ranks on other nodes end by themselves, as those here do, before their launchers are told to go."""
        self._loop.due_in(_PARTING_S)
        with contextlib.suppress(RanksError, TrialExit):
            while any(rank.where and not rank.gone for rank in self._ranks):
                self._serve()

    def _serve(self, not_come: str = "") -> None:
        """Wait until something happens, and deal with it; `not_come`: who is waited for at the start."""
        if self._local.serve():
            return
        if self._ended:
            raise TrialExit
        if not_come:
            come = [rank for rank in self._ranks if rank.send is not None]
            raise RanksError(f"after {_START_S:g} s {names(come) or 'no rank'} said hello; {not_come}")
        raise late(self._ranks, self._group.framework.timeout_s)

    def _hear_node(self, node: RemoteNode) -> None:
        assert node.line is not None
        try:
            message = node.line.recv()
        except (EOFError, OSError):
            self._loop.forget(node.line.fileno())
            for number in node.ranks:
                self._gone(self._ranks[number])
            if any(self._ranks[number].last is None for number in node.ranks):
                raise node.lost() from None
            return
        match message:
            case remote_nodes.RankSaid(number, said, flags):
                self._flags.copy(number, flags)
                if isinstance(said, rank_messages.Hello):
                    self._ranks[number].met_elsewhere(partial(node.send_to, number), said.pid, node.address)
                else:
                    self._heard(self._ranks[number], said)
            case remote_nodes.RankExited():
                if (how := self._how_died_elsewhere(message)) is not None:
                    raise RanksError(how)
            case remote_nodes.FlagsSeen(seen):
                for number, flags in seen.items():
                    self._flags.copy(number, flags)
                node.flags_seen = True
                self._decide_stop()
            case remote_nodes.Noticed():
                self._attempt.notice()
            case remote_nodes.LaunchFailed(why):
                raise RanksError(f"the ranks on {node} could not be started: {why}")

    def _heard(self, rank: Rank, message: FromRank) -> None:
        match message:
            case rank_messages.Held():
                rank.hold(message)
            case rank_messages.RankUploaded():
                self._results.uploads.heard(rank.number, str(rank), message)
            case rank_messages.Newest():
                newest = self._attempt.get_checkpoint()
                rank.answer(rank_messages.Found(None if newest is None else Path(newest.path)))
            case rank_messages.Stopping(call):
                rank.asks = call
                self._decide_stop()
            case rank_messages.RankReport():
                rank.report, rank.reports = message, rank.reports + 1
                self._look_at_reports()
            case rank_messages.Returned():
                rank.last = message
                self._wait_for_others()
                self._decide_stop()
                self._look_at_reports()
            case rank_messages.Raised():
                rank.last = message
                self._fail(rank, message)

    # ------------------------------------------------------------ results

    def _wait_for_others(self) -> None:
        if not self._loop.has_deadline:
            self._loop.due_in(self._group.framework.timeout_s)

    def _look_at_reports(self) -> None:
        """Deliver a result once every rank has come; complain at once when one never will."""
        waiting = [rank for rank in self._ranks if rank.report is not None]
        if not waiting:
            return
        if returned := [rank for rank in self._ranks if isinstance(rank.last, rank_messages.Returned)]:
            if not self._ended:
                raise unequal(returned, waiting)
        elif len(waiting) == len(self._ranks):
            self._loop.due_in(None)
            self._deliver()
        else:
            self._wait_for_others()

    def _deliver(self) -> None:
        attempt = self._attempt
        attempt.looked_at_stop |= self._flags.any_looked(rank_messages.STOP)
        attempt.looked_at_checkpoint |= self._flags.any_looked(rank_messages.CHECKPOINT)
        answer = self._results.deliver()
        if isinstance(answer, rank_messages.End):
            self._ended = True
            self._loop.due_in(min(attempt.job.grace_s, self._group.framework.timeout_s))
        self._look_at_leaving()
        self._results.answer(answer)

    # ------------------------------------------------------------ leaving

    def _look_at_leaving(self) -> None:
        if not self._flags.leaving and self._attempt.leaving():
            self._flags.leave()
            self._nodes.leave()

    def _decide_stop(self) -> None:
        # The flags of other hosts are set a moment later than those here.
        if self._nodes.flags_seen and self._stop.decide():
            self._attempt.looked_at_stop = True
            self._attempt.preempted = True  # a function that returns after this is to be continued

    # ------------------------------------------------------------ ends

    def _gone(self, rank: Rank) -> None:
        """Its process is dead, and copies nothing."""
        rank.gone = True
        self._results.uploads.gone(rank.number)

    def _died(self, rank: Rank, unread: list[FromRank]) -> None:
        """A process of this node has ended. A last word may be unread."""
        for message in unread:
            if isinstance(message, rank_messages.RankUploaded | rank_messages.Returned | rank_messages.Raised):
                self._heard(rank, message)
        if rank.last is None:
            raise RanksError(rank.how_it_died(self._local.status(rank)))
        self._gone(rank)

    def _how_died_elsewhere(self, exited: remote_nodes.RankExited) -> str | None:
        rank = self._ranks[exited.rank]
        self._gone(rank)
        return None if rank.last is not None else rank.how_it_died(exited.status)

    def _cause_in(self, message: rank_messages.GroupMessage) -> str | None:
        """How a rank elsewhere died, if the message tells that it did without a last word."""
        match message:
            case remote_nodes.RankSaid(number, rank_messages.Returned() | rank_messages.Raised() as last):
                self._ranks[number].last = last
            case remote_nodes.RankExited():
                return self._how_died_elsewhere(message)
        return None

    def _fail(self, rank: Rank, raised: rank_messages.Raised) -> None:
        """Raise what a rank raised; unless another one was killed, of which this is only what the others saw."""
        error, within_s = exception_of(raised), _CAUSE_S if raised.waited else 0.0
        others = [other for other in self._ranks if other is not rank and other.last is None and not other.gone]
        if others:
            poll = select.poll()
            for other in others:
                if other.pidfd >= 0:
                    poll.register(other.pidfd, select.POLLIN)
            dead = {fd for fd, _ in poll.poll(within_s * 1000)}
            for other in others:
                if other.pidfd in dead and other.last_word() is None:
                    raise RanksError(other.how_it_died(self._local.status(other))) from error
            cause = self._nodes.cause(0.0 if dead else within_s, self._cause_in)
            if cause is not None:
                raise RanksError(cause) from error
            if raised.waited:
                add_line(error, "the others meanwhile: " + "; ".join(other.whereabouts() for other in others))
        raise error

    def _kill(self) -> None:
        """End all ranks now: those that wait for a dead one would wait for ever."""
        self._nodes.close()
        self._local.kill()
