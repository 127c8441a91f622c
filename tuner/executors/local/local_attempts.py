"""A running attempt as the driver of its process knows it, and when somebody's time is up."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import socket
from collections.abc import Iterator
from dataclasses import field
from typing import Protocol

from trainables.quick_dataclass import dataclass
from tuner.clock import Clock
from tuner.executors.base import ExitReason, Launch
from tuner.executors.local.lines import OutputPipe, TrialSocket
from tuner.executors.pool import Share


@dataclass(slots=True, eq=False)
class LocalAttempt:
    """One attempt from its launch to its exit."""

    launch: Launch
    share: Share
    main: TrialSocket = field(init=False)
    side: TrialSocket = field(init=False)
    ends: list[socket.socket] = field(default_factory=list)
    """The trial's ends of its sockets."""
    outputs: list[OutputPipe] = field(default_factory=list)
    trial_id: str = field(init=False)
    number: int = field(init=False)
    keeper: socket.socket | None = None
    """The way to the keeper that runs it; None: it has none yet, or that is gone."""
    pid: int = 0
    reason: ExitReason | None = None
    """Why it was told to end."""
    over: bool = False
    later: bool = False
    """A process that has run others is to take it, and has not said yet that it does."""

    def __post_init__(self) -> None:
        self.trial_id = self.launch.job.trial_id
        self.number = self.launch.job.attempt

    @property
    def fds(self) -> list[int]:
        """What its process gets: its ends of the sockets, and of the pipes for its output."""
        main, side = self.ends
        return [main.fileno(), side.fileno(), *[output.pipe for output in self.outputs]]

    def hand_over(self) -> None:
        """Close our copies of the trial's ends. Kept until its keeper lives: a server may die before it forks one."""
        for end in self.ends:
            end.close()
        for output in self.outputs:
            output.close_pipe()

    def end(self, reason: ExitReason | None) -> None:
        """Have its keeper end it, as soon as it has one."""
        self.reason = self.reason or reason
        if self.keeper is not None:
            with contextlib.suppress(ConnectionError):  # the keeper goes just now, and the trial with it
                self.keeper.send(b"K")

    def close(self, *, main: bool = True) -> None:
        """It is over: let go of every descriptor of it, or of all but the main line."""
        self.over = True
        if main:
            self.main.close()
        self.side.close()
        for output in self.outputs:
            output.close()
        self.hand_over()


class Endable(Protocol):
    """Whatever has a deadline."""

    @property
    def over(self) -> bool:
        """The deadline matters no more."""

    def end(self, reason: ExitReason | None) -> None:
        """Its time is up."""


class Deadlines:
    """When running attempts are to be ended, and why; what is over is forgotten on the way."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._heap: list[tuple[float, int, Endable, ExitReason | None]] = []
        self._order = itertools.count()

    def add(self, seconds: float, attempt: Endable, reason: ExitReason | None) -> None:
        """So many seconds from now."""
        heapq.heappush(self._heap, (self._now() + seconds, next(self._order), attempt, reason))

    def bound(self, timeout: float | None) -> float | None:
        """How long to wait for something else, at most `timeout`; None: for ever."""
        if (deadline := self._next()) is None:
            return timeout
        left = max(0.0, deadline - self._now())
        return left if timeout is None else min(left, timeout)

    def passed(self) -> Iterator[tuple[Endable, ExitReason | None]]:
        """Take out those that have passed."""
        while (deadline := self._next()) is not None and deadline <= self._now():
            _, _, attempt, reason = heapq.heappop(self._heap)
            yield attempt, reason

    def _next(self) -> float | None:
        """The earliest that still matters."""
        heap = self._heap
        while heap and heap[0][2].over:
            heapq.heappop(heap)
        return heap[0][0] if heap else None
