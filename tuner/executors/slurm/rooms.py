"""What jobs have, and what of it trials use: slots are counted here, in the driver."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tuner.clock import Clock
from tuner.error import ResourceError
from tuner.executors.base import Resources
from tuner.executors.pool import Pool, Share
from tuner.executors.remote.groups import Group, Meant, on_several
from tuner.executors.slurm.meeting import AgentHello


@dataclass(eq=False)
class AgentRoom:
    """One node of a job, whose agent is there."""

    hello: AgentHello
    pool: Pool
    used: int = 0
    """Parts of slots on it."""
    ready: bool = False
    """Its agent has begun: trials may run there."""
    leaving: bool = False
    """Nothing new is to run there."""
    ending: bool = False
    """Slurm ends the job, or lets it wait in the queue again."""
    free_since: float = 0.0
    lasts_s: float = math.inf
    """Of its job, when the agent came."""
    end: float | None = None
    """When Slurm ends the job, in seconds since the epoch; None: that is not known."""
    queued_end: float | None = None
    """What the queue said of it last."""

    @property
    def node(self) -> str:
        return self.hello.node

    def left_s(self, now: float) -> float:
        """Of its job, at that time since the epoch."""
        return math.inf if self.end is None else self.end - now


@dataclass(eq=False)
class AgentSlot:
    """What one attempt has: `LeasedSlot`."""

    parts: list[tuple[AgentRoom, Share]]
    gpus: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def nodes(self) -> Sequence[str]:
        return [room.node for room, _ in self.parts]


class AgentRooms:
    """`SlotSource` of attempts. It belongs to the driver's thread.

    Args:
        rest: how many seconds a job that lasts so long in all has to have left for a trial to be begun there.
    """

    def __init__(self, rest: Callable[[float], float], clock: Clock) -> None:
        self._rest, self._clock = rest, clock
        self.by_node: dict[str, AgentRoom] = {}
        self.meant: Meant = lambda resources: None
        """How a request may be laid over several nodes."""
        self.asked = False
        """Somebody has asked for room since the last turn of the loop, and may be about to use it."""
        self.wanted: Resources | None = None
        """What somebody asked for since the last turn of the loop, and there was no room for."""

    def add(self, hello: AgentHello) -> AgentRoom:
        """An agent is there; trials run there once it is `ready`."""
        lasts_s = math.inf if hello.end is None else hello.end - self._clock.time()
        room = AgentRoom(hello, Pool(hello.resources, hello.gpus), lasts_s=lasts_s, end=hello.end)
        self.by_node[hello.node] = room
        return room

    def open(self, room: AgentRoom) -> None:
        """Its agent is ready."""
        room.ready, room.free_since = True, self._clock.monotonic()

    def lost(self, node: str) -> AgentRoom | None:
        """An agent is gone."""
        return self.by_node.pop(node, None)

    def has_room(self, resources: Resources, promised: Iterable[Resources]) -> bool:
        with self._held(promised) as all_there:
            there = all_there and self._place(resources) is not None
        self.asked, self.wanted = True, None if there else resources
        return there

    def take(self, resources: Resources) -> AgentSlot:
        slot = self._place(resources)
        if slot is None:
            raise ResourceError(f"no room for {dict(resources)} now")
        self._hold(slot)
        return slot

    def put_back(self, slot: AgentSlot) -> None:
        for room, share in slot.parts:
            room.pool.give_back(share)
            room.used -= 1
            room.free_since = self._clock.monotonic()

    def count(self, resources: Resources) -> int:
        """How many slots of that size the agents that are there hold in all, whoever uses them."""
        there = [room.hello.resources for room in self.by_node.values() if not room.leaving]
        return slots_on(resources, there, self.meant)

    # --- within -----------------------------------------------------------------------------------------

    @contextmanager
    def _held(self, promised: Iterable[Resources]) -> Iterator[bool]:
        taken: list[AgentSlot] = []
        try:
            for each in promised:
                if (slot := self._place(each)) is None:
                    yield False
                    return
                self._hold(slot)
                taken.append(slot)
            yield True
        finally:
            for slot in taken:
                for room, share in slot.parts:
                    room.pool.give_back(share)
                    room.used -= 1

    def _hold(self, slot: AgentSlot) -> None:
        for room, share in slot.parts:
            room.pool.hold(share)
            room.used += 1

    def _place(self, resources: Resources) -> AgentSlot | None:
        """Where a request would be put; nothing is taken."""
        now = self._clock.time()
        rooms = [
            room
            for room in self.by_node.values()
            if room.ready and not room.leaving and (room.end is None or room.left_s(now) > self._rest(room.lasts_s))
        ]
        # Jobs with trials first, so that others can be given back; of those the one that lasts longest.
        rooms.sort(key=lambda room: (not room.used, -room.left_s(now)))
        group = on_several(self.meant(resources), [room.hello.resources for room in rooms], resources)
        bundles = (resources,) if group is None else group.bundles
        parts: list[tuple[AgentRoom, Share]] = []
        try:
            for bundle in bundles:
                room = next((room for room in _order(rooms, parts, group) if room.pool.fits(bundle)), None)
                if room is None:
                    return None
                parts.append((room, room.pool.take(bundle)))
        finally:
            for room, share in parts:
                room.pool.give_back(share)
        gpus: dict[str, list[str]] = {}
        for room, share in parts:
            if room.hello.gpus:
                gpus.setdefault(room.node, []).extend(id for id in share.gpus if id not in gpus.get(room.node, []))
        return AgentSlot(parts, gpus)


def _order(
    rooms: Sequence[AgentRoom], parts: Sequence[tuple[AgentRoom, Share]], group: Group | None
) -> Iterable[AgentRoom]:
    """The rooms in the order in which the next bundle is tried there."""
    if group is None or "SPREAD" not in group.strategy:
        return rooms
    hosts = {room.hello.hostname for room, _ in parts}
    apart = [room for room in rooms if room.hello.hostname not in hosts]
    return apart if group.strategy == "STRICT_SPREAD" else [*apart, *rooms]


def slots_on(resources: Resources, nodes: Sequence[Resources], meant: Meant) -> int:
    """How many slots of that size nodes hold that are empty."""
    group = on_several(meant(resources), nodes, resources) or Group((resources,), "PACK")
    return group.fitting([dict(node) for node in nodes])
