"""Processes that have run an attempt and wait for another one (`reuse_actors=True`), as the driver knows them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping, Sequence

from trainables.quick_dataclass import dataclass
from tuner.executors.base import ExitReason, Launch, Resources
from tuner.executors.local.lines import TrialSocket
from tuner.executors.local.local_attempts import Deadlines, LocalAttempt
from tuner.executors.pool import Pool, Share

_GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(slots=True, eq=False)
class KeptProcess:
    """One of them. It holds its share, which is free all the same: it goes when somebody else needs that."""

    ran: Launch
    """The attempt that it has run last, without its config."""
    share: Share
    line: TrialSocket
    """The line of that attempt."""
    keeper: socket.socket
    leaving: bool = False
    """It was told to end, and gives back what it has."""
    over: bool = False

    def takes(self, launch: Launch) -> bool:
        """It may go on with that one: an attempt that asks for the same, and finds the same environment."""
        ran = self.ran
        return (
            not self.leaving
            and (launch.job.resources, launch.resources) == (ran.job.resources, ran.resources)
            and launch.environment == ran.environment
        )

    def shares_a_gpu(self, launch: Launch) -> bool:
        """They were given a GPU in common by somebody who leases them."""
        return not _gpus(self.ran.environment).isdisjoint(_gpus(launch.environment))

    def end(self, reason: ExitReason | None) -> None:
        """Its time is up: have its keeper end it."""
        with contextlib.suppress(ConnectionError):  # the keeper goes just now, and the process with it
            self.keeper.send(b"K")


class KeptProcesses:
    """All of them, the one that has waited longest first.

    There are never more processes, running and kept, than there have been attempts at once: what is kept takes no more
    memory than what ran.
    """

    def __init__(self, pool: Pool, deadlines: Deadlines, idle_s: float | None) -> None:
        self._pool, self._deadlines, self._idle_s = pool, deadlines, idle_s
        self.all: list[KeptProcess] = []
        self._most = 0

    def add(self, attempt: LocalAttempt, keeper: socket.socket) -> KeptProcess:
        """The process of an attempt stays."""
        attempt.main.hush()
        kept = KeptProcess(attempt.launch, attempt.share, attempt.main, keeper)
        kept.leaving = attempt.reason is not None  # its keeper was told to end it, and does
        self.all.append(kept)
        if self._idle_s is not None:
            self._deadlines.add(self._idle_s, _Waited(kept, self), None)
        return kept

    def began(self, running: int) -> None:
        """So many attempts run at once."""
        self._most = max(self._most, running)

    def remove(self, kept: KeptProcess) -> None:
        """It is gone, or has an attempt."""
        kept.over = True
        self.all.remove(kept)
        kept.line.close()

    def gone(self, kept: KeptProcess) -> None:
        """It has ended, and what it held is free."""
        self.remove(kept)
        self._pool.give_back(kept.share)

    def fitting(self, launch: Launch) -> KeptProcess | None:
        """The one that is to go on with an attempt: that which ran the same trial, else the last one that came."""
        found = [kept for kept in self.all if kept.takes(launch)]
        same = (kept for kept in found if kept.ran.job.trial_id == launch.job.trial_id)
        return next(same, found[-1] if found else None)

    def would_fit(self, resources: Resources) -> bool:
        """Whether there is room when all of them have gone."""
        for kept in self.all:
            self._pool.give_back(kept.share)
        fits = self._pool.fits(resources)
        for kept in self.all:
            self._pool.hold(kept.share)
        return fits

    def make_way(self, launch: Launch, running: int) -> bool:
        """Have those leave that a fresh process for `launch` cannot stand beside; False: it has to wait for that.

        `running`: attempts beside it.
        """
        sharing = [kept for kept in self.all if kept.shares_a_gpu(launch)]
        self.let_go(sharing)
        staying = [kept for kept in self.all if not kept.leaving]
        self.let_go(staying[: max(0, running + 1 + len(staying) - self._most)])
        if not self._pool.fits(launch.resources) and not any(kept.leaving for kept in self.all):
            self.let_go(self.all[:1])
        return not sharing

    def let_go(self, some: Sequence[KeptProcess]) -> None:
        """Have them end in order; one that takes longer than its grace time is ended."""
        for kept in some:
            if not kept.leaving:
                kept.leaving = True
                kept.line.end()
                self._deadlines.add(kept.ran.job.grace_s, kept, None)


@dataclass(slots=True, eq=False)
class _Waited:
    """That a process waits, and for how long it may."""

    kept: KeptProcess
    among: KeptProcesses

    @property
    def over(self) -> bool:
        return self.kept.over or self.kept.leaving

    def end(self, reason: ExitReason | None) -> None:
        self.among.let_go([self.kept])


def _gpus(environment: Mapping[str, str]) -> set[str]:
    return {name for name in environment.get(_GPUS, "").split(",") if name}
