"""What jobs have, and what of it trials use: counted without any Slurm."""

from __future__ import annotations

from tests.tuner.executors.slurm.harness import hello, join
from tuner.clock import VirtualClock
from tuner.executors.remote.groups import Group
from tuner.executors.slurm.rooms import AgentRooms

ONE, TWO = {"cpu": 1.0}, {"cpu": 2.0}


def new_rooms(clock: VirtualClock, rest_s: float = 0.0) -> AgentRooms:
    return AgentRooms(lambda lasts_s: rest_s, clock)


def test_slots_are_what_is_free_beside_what_is_promised() -> None:
    rooms = new_rooms(VirtualClock())
    assert not rooms.has_room(ONE, ())
    assert rooms.wanted == ONE
    join(rooms, hello("1"))
    assert rooms.has_room(TWO, ())
    assert rooms.has_room(ONE, [ONE])
    assert not rooms.has_room(ONE, [ONE, ONE])
    assert not rooms.has_room(TWO, [ONE])
    slot = rooms.take(TWO)
    assert not rooms.has_room(ONE, ())
    rooms.put_back(slot)
    assert rooms.has_room(TWO, ())
    assert rooms.wanted is None


def test_jobs_with_trials_come_first_so_that_others_can_be_given_back() -> None:
    rooms = new_rooms(VirtualClock())
    join(rooms, hello("1"))
    join(rooms, hello("2", host="n2"))
    assert rooms.take(ONE).nodes == rooms.take(ONE).nodes
    assert len({*rooms.take(ONE).nodes, *rooms.take(ONE).nodes}) == 1


def test_nothing_begins_where_the_rest_is_too_short_or_the_job_leaves() -> None:
    clock = VirtualClock()
    rooms = new_rooms(clock, rest_s=30.0)
    room = join(rooms, hello("1", end=clock.time() + 100.0))
    assert rooms.has_room(ONE, ())
    clock.advance(75.0)
    assert not rooms.has_room(ONE, ())
    room.end = clock.time() + 100.0  # it was given more time
    assert rooms.has_room(ONE, ())
    room.leaving = True
    assert not rooms.has_room(ONE, ())


def test_trials_get_the_gpus_of_their_job_and_none_where_they_ask_for_none() -> None:
    rooms = new_rooms(VirtualClock())
    join(rooms, hello("1", gpus=("3", "5")))
    first, second = rooms.take({"cpu": 1.0, "gpu": 1.0}), rooms.take({"cpu": 1.0})
    (node,) = first.nodes
    assert first.gpus == {node: ["3"]}
    assert second.gpus == {node: []}


def test_a_group_lies_over_several_jobs() -> None:
    rooms = new_rooms(VirtualClock())
    rooms.meant = lambda resources: Group(({"cpu": 1.0},) * 3, "PACK")
    join(rooms, hello("1"))
    assert not rooms.has_room({"cpu": 3.0}, ())
    join(rooms, hello("2"))
    slot = rooms.take({"cpu": 3.0})
    assert len(slot.nodes) == 3
    assert len(set(slot.nodes)) == 2
    rooms.put_back(slot)
    rooms.meant = lambda resources: Group(({"cpu": 1.0},) * 2, "STRICT_SPREAD")
    assert not rooms.has_room({"cpu": 2.0}, ())  # both jobs are on one host
    join(rooms, hello("3", host="n2"))
    assert rooms.has_room({"cpu": 2.0}, ())
