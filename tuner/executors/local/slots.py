"""What the driver knows of a running attempt, of a keeper, and when somebody's time is up."""

from __future__ import annotations

import heapq
import itertools
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tuner.executors.base import Launch
from tuner.executors.local.lines import Line, Tee
from tuner.executors.local.server import ForkServer
from tuner.executors.pool import Share


@dataclass(slots=True, eq=False)
class Keeper:
    """One keeper process, idle when it has no attempt."""

    number: int
    control: socket.socket
    server: ForkServer
    pid: int = 0
    attempt: Attempt | None = None
    gone: bool = False


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt from its launch to its exit."""

    launch: Launch
    share: Share
    main: Line
    side: Line
    ends: list[socket.socket]
    tees: list[Tee]
    trial_id: str = field(init=False)
    number: int = field(init=False)
    keeper: Keeper | None = None
    pid: int = 0
    reason: str | None = None
    """Why it was told to end."""
    over: bool = False

    def __post_init__(self) -> None:
        self.trial_id = self.launch.job.trial_id
        self.number = self.launch.job.attempt

    def hand_over(self) -> None:
        """Close our copies of the trial's ends. Kept until its keeper lives: a server may die before it forks one."""
        for end in self.ends:
            end.close()
        for tee in self.tees:
            tee.close_pipe()


class Deadlines:
    """When running attempts are to be ended, and why; what is over is forgotten on the way."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Attempt, str | None]] = []
        self._order = itertools.count()

    def add(self, when: float, attempt: Attempt, reason: str | None) -> None:
        heapq.heappush(self._heap, (when, next(self._order), attempt, reason))

    def next(self) -> float | None:
        """The earliest that still matters."""
        heap = self._heap
        while heap and heap[0][2].over:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def passed(self, now: Callable[[], float]) -> Iterator[tuple[Attempt, str | None]]:
        """Take out those that have passed."""
        while (when := self.next()) is not None and when <= now():
            _, _, attempt, reason = heapq.heappop(self._heap)
            yield attempt, reason
