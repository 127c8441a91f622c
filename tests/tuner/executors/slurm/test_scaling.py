"""How many jobs there are, without any Slurm: what those that wait need, and none that nobody uses."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.tuner.executors.slurm.harness import hello, join
from tuner.clock import VirtualClock
from tuner.error import ResourceError
from tuner.executors.slurm.batch_options import BatchOptions
from tuner.executors.slurm.job_shape import JobShape
from tuner.executors.slurm.paces import Paces
from tuner.executors.slurm.rooms import AgentRoom, AgentRooms
from tuner.executors.slurm.scaling import IDLE_S, Scaling

ONE = {"cpu": 1.0}


@dataclass
class Queue:
    """What `Scaling` sees of a `JobQueue`."""

    awaited: int = 0
    there: int = 0
    given_up: int = 0
    paused_s: float = 0.0

    def __len__(self) -> int:
        return self.awaited + self.there

    def cancel_awaited(self) -> None:
        self.given_up, self.awaited = self.given_up + self.awaited, 0

    def look(self) -> float:
        return 10.0


@dataclass
class Turns:
    """A `Scaling` with all around it."""

    most: int = 8
    cpus: int = 2
    clock: VirtualClock = field(default_factory=VirtualClock)
    queue: Queue = field(default_factory=Queue)
    cancelled: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        paces = Paces()
        self.rooms = AgentRooms(paces.begin_s, self.clock)
        self.scaling = Scaling(
            self.rooms,
            self.queue,  # type: ignore[arg-type]
            JobShape(BatchOptions(cpus_per_task=self.cpus)),
            paces,
            self.clock,
            most=self.most,
            submit=self.submit,
            cancel=self.cancel,
            leave=lambda room, why: self.left.append(room.hello.job),
        )

    def submit(self, count: int) -> None:
        self.queue.awaited += count

    def cancel(self, id: str, rooms: list[AgentRoom]) -> None:
        self.cancelled.append(id)
        for room in rooms:
            self.rooms.lost(room.node)

    def come(self, job: str, end: float | None = None) -> AgentRoom:
        self.queue.awaited, self.queue.there = self.queue.awaited - 1, self.queue.there + 1
        return join(self.rooms, hello(job, cpus=self.cpus, end=end))

    def ask(self, waiting: float) -> bool:
        """What the loop does before a turn."""
        self.scaling.expected = waiting
        there = self.rooms.has_room(ONE, ())
        self.scaling.turn()
        return there


def test_as_many_jobs_as_those_that_wait_need_and_no_more_than_allowed() -> None:
    turns = Turns()
    assert not turns.ask(5)
    assert turns.queue.awaited == 3  # two trials fit into each
    assert not turns.ask(5)
    assert turns.queue.awaited == 3
    assert not turns.ask(100)
    assert turns.queue.awaited == 8
    turns = Turns()
    assert not turns.ask(float("inf"))  # nobody knows: one, and then as many as are used
    assert turns.queue.awaited == 1


def test_jobs_that_nobody_uses_are_given_back() -> None:
    turns = Turns()
    turns.ask(4)
    turns.come("1")
    assert turns.ask(1)
    slot = turns.rooms.take(ONE)
    turns.clock.advance(IDLE_S)
    turns.scaling.turn()
    assert turns.queue.given_up == 1
    assert turns.cancelled == []
    turns.rooms.put_back(slot)
    turns.clock.advance(IDLE_S - 1)
    assert turns.ask(1)  # somebody is about to use it
    turns.clock.advance(IDLE_S - 1)
    turns.scaling.turn()
    assert turns.cancelled == []
    assert 0 < turns.scaling.next_turn_s() <= 1.0
    turns.clock.advance(1)
    turns.scaling.turn()
    assert turns.cancelled == ["1"]


def test_a_trial_that_no_job_can_hold_is_an_error() -> None:
    turns = Turns()
    turns.ask(1)
    turns.come("1")
    turns.scaling.expected = 1
    assert not turns.rooms.has_room({"cpu": 1.0, "memory": 5e9}, ())
    with pytest.raises(ResourceError, match=r"asks for 5e\+09 memory, and a node of the jobs has 4e\+09: say .*mem="):
        turns.scaling.turn()


def test_before_its_end_a_job_is_left_and_then_cancelled() -> None:
    turns = Turns()
    turns.ask(1)
    room = turns.come("1", end=turns.clock.time() + 100.0)
    turns.ask(1)
    slot = turns.rooms.take(ONE)
    turns.scaling.turn()
    assert turns.left == []
    turns.clock.advance(turns.scaling.next_turn_s())
    turns.clock.advance(96.0)
    turns.scaling.turn()
    assert turns.left == ["1"]
    room.leaving = True
    turns.rooms.put_back(slot)
    turns.scaling.turn()
    assert turns.cancelled == ["1"]
