"""Slots leased from Ray: a placement group each, which runs one trial after another of the same request."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.error import ResourceError
from tuner.executors.base import Resources
from tuner.executors.ray import connection
from tuner.executors.ray.groups import Group, Meant, on_several

IDLE_S = 2.0
"""A lease that nobody used for so long goes back: others may be waiting for it."""

Shape = tuple[tuple[str, float], ...]


def shape_of(resources: Resources) -> Shape:
    """A request, as leases are told apart by it."""
    return tuple(sorted((name, float(amount)) for name, amount in resources.items() if amount))


@dataclass(slots=True, eq=False)
class Lease:
    """One slot, from its request to its return."""

    shape: Shape
    group: Any
    bundles: tuple[Resources, ...]
    """What it consists of: each of these is on one node."""
    holders: list[Any] = field(default_factory=list)
    """Actors that hold the slot's GPUs, so that Ray says which they are."""
    nodes: tuple[str, ...] = ()
    """Id of the node of each bundle; empty: not granted yet."""
    gpus: dict[str, list[str]] = field(default_factory=dict)
    """Ids of its GPUs on each of its nodes."""
    answers: int = 0
    """Of the holders."""
    used: bool = False
    """A trial runs in it."""
    free_since: float = 0.0
    waiting: list[Any] = field(default_factory=list)

    @property
    def node(self) -> str:
        """Where its trial's first process is; "": not granted yet."""
        return self.nodes[0] if self.nodes else ""

    def is_on(self, nodes: Collection[str]) -> bool:
        """Any part of it is on one of these."""
        return not set(nodes).isdisjoint(self.nodes)


class Leases:
    """Asks for slots as they are wanted: twice as many each time that all were used.

    Args:
        granted: called from any thread with what `on_granted` takes.
        clock: monotonic seconds.
    """

    def __init__(self, granted: Callable[[Lease, Any], None], clock: Callable[[], float]) -> None:
        self._granted, self._clock = granted, clock
        self._free: dict[Shape, list[Lease]] = {}
        """The one that has been free longest comes first."""
        self._asked: dict[Shape, list[Lease]] = {}
        self._used: Counter[Shape] = Counter()
        self._all: set[Lease] = set()
        self.owner = ""
        """Id of the generation whose slots they are."""
        self.meant: Meant = lambda resources: None
        """How a request may be laid over several nodes."""
        self._leaving: set[str] = set()
        self._had: set[Shape] = set()
        """Requests that were granted before."""
        self._numbers = itertools.count(1)

    def end_older(self, owners: Sequence[str]) -> None:
        """Give back what these had: Ray does so when a driver has ended, but not while it is only stopped."""
        if not owners:
            return
        ray = connection.load()
        from ray._raylet import PlacementGroupID
        from ray.util.placement_group import PlacementGroup

        for id, group in ray.util.placement_group_table().items():
            if group["state"] != "REMOVED" and group["name"].startswith(tuple(f"tuner-{owner}-" for owner in owners)):
                ray.util.remove_placement_group(PlacementGroup(PlacementGroupID.from_hex(id)))

    def has_room(self, resources: Resources, promised: Iterable[Resources]) -> bool:
        """Whether a slot is free beside the promised ones; if not, more are asked for."""
        shape = shape_of(resources)
        taken = sum(shape_of(other) == shape for other in promised)
        if len(self._free.get(shape, ())) > taken:
            return True
        asked = self._asked.setdefault(shape, [])
        if not asked:
            self._give_back_others(shape)
            for _ in range(max(1, min(self._used[shape] + taken, self._bound(shape)))):
                asked.append(self._ask(shape))
        return False

    @property
    def asked(self) -> bool:
        """A slot was asked for and is not there yet."""
        return any(self._asked.values())

    def wanted(self) -> dict[str, float]:
        """What was asked for and is not there yet; empty when there is nothing."""
        return next((dict(shape) for shape, asked in self._asked.items() if asked), {})

    def take(self, resources: Resources) -> Lease:
        """A free slot; needs `has_room`."""
        shape = shape_of(resources)
        lease = self._free[shape].pop()
        lease.used = True
        self._used[shape] += 1
        return lease

    def put_back(self, lease: Lease) -> None:
        """Nothing runs in it any more."""
        if lease in self._all:
            self._no_longer_used(lease)
            if lease.is_on(self._leaving):
                self._drop(lease)
                return
            lease.free_since = self._clock()
            self._free.setdefault(lease.shape, []).append(lease)

    def on_granted(self, lease: Lease, answer: Any) -> bool:
        """Ray's answer to the request. True: the slot is there, on `lease.nodes`, and `free` hands it out."""
        if lease not in self._all:
            return False
        ray = connection.load()
        if isinstance(answer, BaseException):
            self._drop(lease)
            return False
        if not lease.node:
            placed = ray.util.placement_group_table(lease.group)["bundles_to_node_id"]
            lease.nodes = tuple(str(placed.get(number) or "") for number in range(len(lease.bundles)))
            if not all(lease.nodes) or lease.is_on(self._leaving):  # gone meanwhile, or about to go
                self._drop(lease)
                return False
            self._had.add(lease.shape)
            if dict(lease.shape).get("gpu"):
                self._hold_gpus(lease)
                return False
        elif lease.holders:
            number, ids = answer
            held = lease.gpus.setdefault(lease.nodes[number], [])
            held += [id for id in ids if id not in held]
            lease.answers += 1
            return lease.answers == len(lease.holders)
        return True

    def free(self, lease: Lease) -> None:
        """The slot may be used: the agent of its node is ready."""
        if lease in self._all:
            self._asked[lease.shape].remove(lease)
            lease.free_since = self._clock()
            self._free.setdefault(lease.shape, []).append(lease)

    def leave(self, node: str) -> None:
        """Nothing new is to run on that node."""
        self._leaving.add(node)
        for shape, free in self._free.items():
            self._return([lease for lease in free if lease.is_on([node])], shape)
        for asked in self._asked.values():
            for lease in [lease for lease in asked if lease.is_on([node])]:
                self._drop(lease)

    def __contains__(self, lease: Lease) -> bool:
        """It is neither given back nor lost."""
        return lease in self._all

    def keep_away(self, lease: Lease) -> None:
        """Trials cannot run in that slot. It stays with us, so that Ray gives others."""
        if lease in self._asked.get(lease.shape, ()):
            self._asked[lease.shape].remove(lease)

    def lost(self, node: str) -> None:
        """The node is gone, and with it the slots there. What was placed there is not moved elsewhere."""
        for lease in [lease for lease in self._all if lease.is_on([node])]:
            free = self._free.get(lease.shape, [])
            if lease in free:
                free.remove(lease)
            if lease.used:
                self._no_longer_used(lease)
            self._drop(lease)

    def tidy(self) -> None:
        """Give back what was not used for a while."""
        before = self._clock() - IDLE_S
        for free in self._free.values():
            while free and free[0].free_since < before:
                self._drop(free.pop(0))

    def idle_until(self) -> float | None:
        """When `tidy` has something to do; None: it has not."""
        return min((free[0].free_since + IDLE_S for free in self._free.values() if free), default=None)

    def close(self) -> None:
        for lease in list(self._all):
            self._drop(lease)

    # --- within -----------------------------------------------------------------------------------------

    def _bound(self, shape: Shape) -> int:
        """How many of that shape the whole cluster may hold beside those that are used.

        Raises ResourceError where no node can hold one.
        """
        nodes = connection.nodes()
        room = sum(fitting(node.resources, shape) for node in nodes)
        if (group := self._on_several(shape, nodes)) is not None:
            room = group.fitting([node.resources for node in nodes])
        if not room and shape in self._had:
            return 1  # the node that had room is gone; another may come
        if not room:
            largest = max((dict(node.resources) for node in nodes), key=lambda each: each.get("cpu", 0.0), default={})
            raise ResourceError(
                f"a trial asks for {dict(shape)}, and no node of the cluster has that much; the largest has {largest}"
            )
        return room - self._used[shape]

    def _ask(self, shape: Shape) -> Lease:
        ray = connection.load()
        several = self._on_several(shape, connection.nodes())
        bundles = (dict(shape),) if several is None else several.bundles
        group = ray.util.placement_group(
            [connection.to_ray(bundle) for bundle in bundles],
            strategy="STRICT_PACK" if several is None else several.strategy,
            name=f"tuner-{self.owner}-{next(self._numbers)}",
        )
        lease = Lease(shape, group, bundles)
        self._all.add(lease)
        self._wait(lease, group.ready())
        return lease

    def _on_several(self, shape: Shape, nodes: Sequence[connection.Node]) -> Group | None:
        """How a request is laid over several nodes; None: it is placed on one."""
        return on_several(self.meant(dict(shape)), [node.resources for node in nodes], dict(shape))

    def _wait(self, lease: Lease, ref: Any) -> None:
        lease.waiting.append(ref)  # an answer that nobody refers to is thrown away
        ref.future().add_done_callback(lambda done: self._granted(lease, done.exception() or done.result()))

    def _hold_gpus(self, lease: Lease) -> None:
        ray = connection.load()
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        wanted = [(number, bundle["gpu"]) for number, bundle in enumerate(lease.bundles) if bundle.get("gpu")]
        for number, count in wanted:
            where = PlacementGroupSchedulingStrategy(lease.group, number)
            lease.holders.append(
                ray.remote(Holder).options(num_cpus=0, num_gpus=count, scheduling_strategy=where).remote(number)
            )
        for holder in lease.holders:
            self._wait(lease, holder.gpus.remote())

    def _give_back_others(self, shape: Shape) -> None:
        for other, free in self._free.items():
            if other != shape:
                self._return(list(free), other)
        for other, asked in self._asked.items():
            if other != shape:
                for lease in list(asked):
                    self._drop(lease)

    def _no_longer_used(self, lease: Lease) -> None:
        lease.used = False
        self._used[lease.shape] -= 1

    def _return(self, leases: Sequence[Lease], shape: Shape) -> None:
        for lease in leases:
            self._free[shape].remove(lease)
            self._drop(lease)

    def _drop(self, lease: Lease) -> None:
        ray = connection.load()
        self._all.discard(lease)
        asked = self._asked.get(lease.shape, [])
        if lease in asked:
            asked.remove(lease)
        for holder in lease.holders:
            ray.kill(holder)
        ray.util.remove_placement_group(lease.group)


class Holder:
    """Holds the GPUs of a bundle of a slot."""

    def __init__(self, bundle: int) -> None:
        self._bundle = bundle

    def gpus(self) -> tuple[int, list[str]]:
        """The bundle, and their ids, as `CUDA_VISIBLE_DEVICES` spells them."""
        ids = connection.load().get_runtime_context().get_accelerator_ids()
        return self._bundle, [str(id) for id in ids.get("GPU", [])]


def fitting(there: Resources, shape: Shape) -> int:
    """How many slots of that shape a node holds in all."""
    return min((int(there.get(name, 0.0) / amount + 1e-6) for name, amount in shape), default=0)
