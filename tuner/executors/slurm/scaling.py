"""How many jobs there are: as many as those that wait need, and none that nobody uses."""

from __future__ import annotations

import math
from collections.abc import Callable

from tuner.clock import Clock
from tuner.error import ResourceError
from tuner.executors.base import Resources
from tuner.executors.slurm.job_queue import JobQueue
from tuner.executors.slurm.job_shape import JobShape
from tuner.executors.slurm.paces import Paces
from tuner.executors.slurm.rooms import AgentRoom, AgentRooms, slots_on

IDLE_S = 10.0
"""A job that nobody used for so long is cancelled, and one that has not begun when nobody waits."""


class Scaling:
    """It belongs to the driver's thread.

    Args:
        most: so many jobs there are at once.
        submit: has so many more submitted.
        cancel: gives up the agents of a job, which is cancelled.
        leave: has the trials of an agent save, and go on elsewhere.
    """

    def __init__(
        self,
        rooms: AgentRooms,
        jobs: JobQueue,
        shape: JobShape,
        paces: Paces,
        clock: Clock,
        *,
        most: int,
        submit: Callable[[int], None],
        cancel: Callable[[str, list[AgentRoom]], None],
        leave: Callable[[AgentRoom, str], None],
    ) -> None:
        self._rooms, self._jobs, self._shape, self._paces, self._clock = rooms, jobs, shape, paces, clock
        self._most, self._submit, self._cancel, self._leave = most, submit, cancel, leave
        self.expected: float = math.inf
        """So many attempts more may begin at once."""
        self._asked_at = -math.inf

    def turn(self) -> None:
        """What is to be done in each turn of the loop."""
        now = self._clock.time()
        for room in list(self._rooms.by_node.values()):
            if room.left_s(now) <= self._paces.leave_s(room.lasts_s):
                self._leave(room, f"it ends in {max(0.0, room.left_s(now)):.0f} s")
        wanted, self._rooms.wanted = self._rooms.wanted, None
        if self._rooms.asked:
            self._asked_at, self._rooms.asked = self._clock.monotonic(), False
        quiet = self._clock.monotonic() - self._asked_at >= IDLE_S  # else what is free may be about to be used
        if wanted is not None:
            count = min(self._missing(wanted), self._most - len(self._jobs))
            if count > 0 and not self._jobs.paused_s:
                self._submit(count)
        elif quiet:
            self._jobs.cancel_awaited()
        self._give_back(quiet)
        self._jobs.look()

    def next_turn_s(self) -> float:
        """In how many seconds `turn` has something to do, if nothing happens before."""
        now, monotonic = self._clock.time(), self._clock.monotonic()
        waits = [self._jobs.look() if len(self._jobs) else math.inf]
        if self._jobs.paused_s:
            waits.append(self._jobs.paused_s)
        for room in self._rooms.by_node.values():
            if not room.leaving:
                waits.append(room.left_s(now) - self._paces.leave_s(room.lasts_s))
            if not room.used:
                waits.append(max(room.free_since, self._asked_at) + IDLE_S - monotonic)
        return max(0.05, min(waits))

    def awaits_room(self) -> bool:
        """Jobs were asked for, or are about to be."""
        starting = any(not room.ready for room in self._rooms.by_node.values())
        return self._rooms.wanted is not None or self._jobs.awaited > 0 or starting or self._jobs.paused_s > 0

    def _missing(self, wanted: Resources) -> int:
        """How many jobs more those that wait need. Raises ResourceError where no job has room for one."""
        self._check_holds(wanted)
        self._shape.grow(wanted, self._rooms.meant)
        node, nodes = self._shape.node(), self._shape.options.nodes
        used = sum(room.used for room in self._rooms.by_node.values())
        waiting = int(self.expected) if math.isfinite(self.expected) else max(1, used)
        starting = sum(not room.ready for room in self._rooms.by_node.values())
        coming = self._jobs.awaited + starting // nodes
        if per_job := slots_on(wanted, [node] * nodes, self._rooms.meant):
            return math.ceil(waiting / per_job) - coming
        group = self._rooms.meant(wanted)
        bundles = () if group is None else group.bundles
        per_node = max(1, slots_on(bundles[-1], [node], lambda resources: None)) if bundles else 1
        return waiting * math.ceil(len(bundles) / (per_node * nodes)) - coming

    def _check_holds(self, wanted: Resources) -> None:
        """Of memory, and of GPUs whose number is given, a job may have less than was thought before there was one."""
        options = self._shape.options
        rooms = [room for room in self._rooms.by_node.values() if room.ready]
        if self._jobs.awaited or not rooms or self._rooms.meant(wanted) is not None:
            return
        for name, said in (("memory", "mem"), ("gpu", "gpus_per_node")):
            most = max(room.hello.resources.get(name, 0.0) for room in rooms)
            if wanted.get(name, 0.0) > most and (name == "memory" or options.gpus is not None):
                raise ResourceError(
                    f"a trial asks for {wanted[name]:g} {name}, and a node of the jobs has {most:g}: say "
                    f"SlurmExecutor({said}=...)"
                )

    def _give_back(self, quiet: bool) -> None:
        """Cancel jobs that nobody uses."""
        by_job: dict[str, list[AgentRoom]] = {}
        for room in self._rooms.by_node.values():
            by_job.setdefault(room.hello.job, []).append(room)
        before = self._clock.monotonic() - IDLE_S
        for id, rooms in by_job.items():
            if any(room.used or not room.ready for room in rooms):
                continue
            idle = quiet and all(room.free_since <= before for room in rooms)
            if idle or any(room.leaving for room in rooms):
                self._cancel(id, rooms)
