"""Slots leased from Ray: each runs one trial after another of the same request."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tuner.error import ResourceError
from tuner.executors.base import Resources
from tuner.executors.pool import Shape, fitting, shape_of
from tuner.executors.ray import connection, placement
from tuner.executors.ray.placement import Lease
from tuner.executors.remote.groups import Group, Meant, on_several

IDLE_S = 2.0
"""A lease that nobody used for so long goes back: others may be waiting for it."""


@dataclass(slots=True)
class _ShapeLeases:
    """Those of one request."""

    free: list[Lease] = field(default_factory=list)
    """The one that has been free longest comes first."""
    asked: list[Lease] = field(default_factory=list)
    used: int = 0
    had: bool = False
    """One was granted before."""


class Leases:
    """Asks for slots as they are wanted: twice as many each time that all were used. `SlotSource` of attempts.

    Args:
        granted: called from any thread with what `on_granted` takes.
        clock: monotonic seconds.
    """

    def __init__(self, granted: Callable[[Lease, Any], None], clock: Callable[[], float]) -> None:
        self._granted, self._clock = granted, clock
        self._shapes: defaultdict[Shape, _ShapeLeases] = defaultdict(_ShapeLeases)
        self._all: set[Lease] = set()
        """Neither given back nor lost."""
        self.owner = ""
        """Id of the generation whose slots they are."""
        self.meant: Meant = lambda resources: None
        """How a request may be laid over several nodes."""
        self._leaving: set[str] = set()
        self._numbers = itertools.count(1)

    def __contains__(self, lease: Lease) -> bool:
        """It is neither given back nor lost."""
        return lease in self._all

    def has_room(self, resources: Resources, promised: Iterable[Resources]) -> bool:
        """Whether a slot is free beside the promised ones; if not, more are asked for."""
        shape = shape_of(resources)
        taken = sum(shape_of(other) == shape for other in promised)
        mine = self._shapes[shape]
        if len(mine.free) > taken:
            return True
        if not mine.asked:
            self._drop_all(
                lease for other in self._shapes.values() if other is not mine for lease in [*other.free, *other.asked]
            )
            for _ in range(max(1, min(mine.used + taken, self._bound(shape, mine)))):
                mine.asked.append(self._ask(shape))
        return False

    def wanted(self) -> dict[str, float]:
        """What was asked for and is not there yet; empty when there is nothing."""
        return next((dict(shape) for shape, each in self._shapes.items() if each.asked), {})

    def take(self, resources: Resources) -> Lease:
        """A free slot; needs `has_room`."""
        mine = self._shapes[shape_of(resources)]
        lease = mine.free.pop()
        lease.used = True
        mine.used += 1
        return lease

    def put_back(self, lease: Lease) -> None:
        """Nothing runs in it any more."""
        if lease in self and lease.is_on(self._leaving):
            self._drop_all([lease])
        elif lease in self:
            self._no_longer_used(lease)
            self._add_free(lease)

    def on_granted(self, lease: Lease, answer: Any) -> bool:
        """Ray's answer to the request. True: the slot is there, on `lease.nodes`, and `free` hands it out."""
        if lease not in self:
            return False
        if isinstance(answer, BaseException):
            self._drop_all([lease])
            return False
        if lease.nodes:
            return not lease.holders or placement.found_gpus(lease, answer)
        placement.find_nodes(lease)
        if not all(lease.nodes) or lease.is_on(self._leaving):  # gone meanwhile, or about to go
            self._drop_all([lease])
            return False
        self._shapes[lease.shape].had = True
        if dict(lease.shape).get("gpu"):
            placement.hold_gpus(lease, partial(self._granted, lease))
            return False
        return True

    def free(self, lease: Lease) -> None:
        """The slot may be used: the agent of its node is ready."""
        if lease in self:
            self._shapes[lease.shape].asked.remove(lease)
            self._add_free(lease)

    def leave(self, node: str) -> None:
        """Nothing new is to run on that node."""
        self._leaving.add(node)
        self._drop_all(lease for lease in self._all if lease.is_on({node}) and not lease.used)

    def keep_away(self, lease: Lease) -> None:
        """Trials cannot run in that slot. It stays with us, so that Ray gives others."""
        if lease in self._shapes[lease.shape].asked:
            self._shapes[lease.shape].asked.remove(lease)

    def lost(self, node: str) -> None:
        """The node is gone, and with it the slots there. What was placed there is not moved elsewhere."""
        self._drop_all(lease for lease in self._all if lease.is_on({node}))

    def tidy(self) -> None:
        """Give back what was not used for a while."""
        before = self._clock() - IDLE_S
        for each in self._shapes.values():
            while each.free and each.free[0].free_since < before:
                self._drop_all(each.free[:1])

    def idle_until(self) -> float | None:
        """When `tidy` has something to do; None: it has not."""
        return min((each.free[0].free_since + IDLE_S for each in self._shapes.values() if each.free), default=None)

    def close(self) -> None:
        """Give all of them back."""
        self._drop_all(self._all)

    # --- within -----------------------------------------------------------------------------------------

    def _bound(self, shape: Shape, mine: _ShapeLeases) -> int:
        """How many of that shape the whole cluster may hold beside those that are used.

        Raises ResourceError where no node can hold one.
        """
        nodes = connection.nodes()
        room = sum(fitting(node.resources, shape) for node in nodes)
        if (group := self._on_several(shape, nodes)) is not None:
            room = group.fitting([node.resources for node in nodes])
        if not room and mine.had:
            return 1  # the node that had room is gone; another may come
        if not room:
            largest = max((dict(node.resources) for node in nodes), key=lambda each: each.get("cpu", 0.0), default={})
            raise ResourceError(
                f"a trial asks for {dict(shape)}, and no node of the cluster has that much; the largest has {largest}"
            )
        return room - mine.used

    def _ask(self, shape: Shape) -> Lease:
        several = self._on_several(shape, connection.nodes())
        bundles = (dict(shape),) if several is None else several.bundles
        strategy = "STRICT_PACK" if several is None else several.strategy
        lease = placement.ask(f"tuner-{self.owner}-{next(self._numbers)}", shape, bundles, strategy)
        self._all.add(lease)
        placement.wait(lease, partial(self._granted, lease))
        return lease

    def _on_several(self, shape: Shape, nodes: Sequence[connection.Node]) -> Group | None:
        """How a request is laid over several nodes; None: it is placed on one."""
        return on_several(self.meant(dict(shape)), [node.resources for node in nodes], dict(shape))

    def _no_longer_used(self, lease: Lease) -> None:
        if lease.used:
            lease.used = False
            self._shapes[lease.shape].used -= 1

    def _add_free(self, lease: Lease) -> None:
        lease.free_since = self._clock()
        self._shapes[lease.shape].free.append(lease)

    def _drop_all(self, leases: Iterable[Lease]) -> None:
        for lease in list(leases):
            self._no_longer_used(lease)
            self._all.discard(lease)
            mine = self._shapes[lease.shape]
            for waiting in (mine.free, mine.asked):
                if lease in waiting:
                    waiting.remove(lease)
            placement.give_back(lease)
