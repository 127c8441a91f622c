"""Ray's placement groups: asked for, waited for with the GPUs that they have, and given back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.executors.base import Resources
from tuner.executors.pool import Shape
from tuner.executors.ray import connection

Answered = Callable[[Any], None]
"""Called from any thread with what Ray says, or the exception that it raises."""


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

    def is_on(self, nodes: set[str]) -> bool:
        """Any part of it is on one of these."""
        return not nodes.isdisjoint(self.nodes)


def ask(name: str, shape: Shape, bundles: tuple[Resources, ...], strategy: str) -> Lease:
    """Ask for a slot; it is granted when `wait` says so."""
    group = connection.load().util.placement_group(
        [connection.to_ray(bundle) for bundle in bundles], strategy=strategy, name=name
    )
    return Lease(shape, group, bundles)


def wait(lease: Lease, answered: Answered) -> None:
    """Have `answered` called when the slot is there."""
    _wait(lease, lease.group.ready(), answered)


def find_nodes(lease: Lease) -> None:
    """Fill in where a slot is that is there; "" for what is gone already."""
    placed = connection.load().util.placement_group_table(lease.group)["bundles_to_node_id"]
    lease.nodes = tuple(str(placed.get(number) or "") for number in range(len(lease.bundles)))


def hold_gpus(lease: Lease, answered: Answered) -> None:
    """Have `answered` called with what `found_gpus` takes, once for each bundle with GPUs."""
    ray = connection.load()
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    for number, bundle in enumerate(lease.bundles):
        if count := bundle.get("gpu"):
            where = PlacementGroupSchedulingStrategy(lease.group, number)
            options = {"num_cpus": 0, "num_gpus": count, "scheduling_strategy": where}
            lease.holders.append(ray.remote(GpuHolder).options(**options).remote(number))
    for holder in lease.holders:
        _wait(lease, holder.gpus.remote(), answered)


def found_gpus(lease: Lease, answer: tuple[int, list[str]]) -> bool:
    """Note which GPUs a bundle has; True: that was the last."""
    number, ids = answer
    held = lease.gpus.setdefault(lease.nodes[number], [])
    held += [id for id in ids if id not in held]
    lease.answers += 1
    return lease.answers == len(lease.holders)


def give_back(lease: Lease) -> None:
    """Let go of the slot, and of whatever runs there."""
    ray = connection.load()
    for holder in lease.holders:
        ray.kill(holder)
    ray.util.remove_placement_group(lease.group)


def end_older(owners: Sequence[str]) -> None:
    """Give back what these had: Ray does so when a driver has ended, but not while it is only stopped."""
    if not owners:
        return
    ray = connection.load()
    from ray._raylet import PlacementGroupID
    from ray.util.placement_group import PlacementGroup

    for id, group in ray.util.placement_group_table().items():
        if group["state"] != "REMOVED" and group["name"].startswith(tuple(f"tuner-{owner}-" for owner in owners)):
            ray.util.remove_placement_group(PlacementGroup(PlacementGroupID.from_hex(id)))


class GpuHolder:
    """Holds the GPUs of a bundle of a slot; an actor."""

    def __init__(self, bundle: int) -> None:
        self._bundle = bundle

    def gpus(self) -> tuple[int, list[str]]:
        """The bundle, and their ids, as `CUDA_VISIBLE_DEVICES` spells them."""
        ids = connection.load().get_runtime_context().get_accelerator_ids()
        return self._bundle, [str(id) for id in ids.get("GPU", [])]


def _wait(lease: Lease, ref: Any, answered: Answered) -> None:
    lease.waiting.append(ref)  # an answer that nobody refers to is thrown away
    ref.future().add_done_callback(lambda done: answered(done.exception() or done.result()))
