"""Ray's part of leases and nodes, played here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tuner.executors.ray.leases import Leases
from tuner.executors.ray.placement import Lease

ONE, TWO = {"cpu": 1.0}, {"cpu": 2.0}


class Groups:
    """Placement groups: all on one node, none granted before `grant`."""

    def __init__(self) -> None:
        self.node = "a"
        self.there: dict[Any, Any] = {}

    def placement_group(self, bundles: Any, **settings: Any) -> Any:
        waiting = SimpleNamespace(future=lambda: SimpleNamespace(add_done_callback=lambda then: None))
        group = SimpleNamespace(ready=lambda: waiting)
        self.there[id(group)] = group
        return group

    def remove_placement_group(self, group: Any) -> None:
        del self.there[id(group)]  # a KeyError: it was removed before

    def placement_group_table(self, group: Any) -> dict[str, Any]:
        return {"bundles_to_node_id": {0: self.node}}


def asked(leases: Leases) -> list[Lease]:
    return [lease for each in leases._shapes.values() for lease in each.asked]


def grant(leases: Leases) -> None:
    for lease in asked(leases):
        if leases.on_granted(lease, None):
            leases.free(lease)


def use(leases: Leases, count: int) -> list[Lease]:
    used = []
    while len(used) < count:
        if leases.has_room(ONE, ()):
            used.append(leases.take(ONE))
        else:
            grant(leases)
    return used
