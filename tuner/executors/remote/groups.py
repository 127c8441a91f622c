"""Trials of several processes over several nodes: what each bundle asks for, and who runs where."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainables.job import GroupNodes, Job
from tuner.error import ResourceError
from tuner.executors.base import Resources
from tuner.executors.pool import check_fits_nodes, fitting, shape_of

_NODE = "#"
"""Between a trial's id and the number of the node, in the ids of the processes on further nodes."""


@dataclass(frozen=True, slots=True)
class Group:
    """A request in parts, each of which needs one node."""

    bundles: tuple[Mapping[str, float], ...]
    strategy: str
    """Ray's: PACK, SPREAD or STRICT_SPREAD."""

    def fitting(self, nodes: Sequence[Resources]) -> int:
        """How many of them the nodes hold in all."""
        free, found = [dict(node) for node in nodes], 0
        while self._place(free):
            found += 1
        return found

    def _place(self, free: list[dict[str, float]]) -> bool:
        alone = self.strategy == "STRICT_SPREAD"
        taken: set[int] = set()
        for bundle in self.bundles:
            rooms = (n for n, node in enumerate(free) if not (alone and n in taken) and fitting(node, shape_of(bundle)))
            if not bundle or (room := next(rooms, None)) is None:
                return False
            taken.add(room)
            for name, amount in bundle.items():
                free[room][name] -= amount
        return True


Meant = Callable[[Resources], Group | None]


def meant_by(trainable: Any) -> Meant:
    """How requests of a trainable may be laid over several nodes; None: they may not."""
    bundles = getattr(trainable, "bundles", None)

    def meant(resources: Resources) -> Group | None:
        found = None if bundles is None else bundles(resources)
        if found is None or len(found) < 2:
            return None
        return Group(tuple({name: part for name, part in each.items() if part} for each in found), trainable.strategy)

    return meant


def on_several(group: Group | None, nodes: Sequence[Resources], resources: Resources) -> Group | None:
    """The group, unless it is to be on one node: where it fits there, and is not to be spread."""
    if group is None or (group.strategy == "PACK" and any(fitting(node, shape_of(resources)) for node in nodes)):
        return None
    return group


def check_fits(asked: Resources, nodes: Sequence[Resources], trainable: Any) -> None:
    """Raise ResourceError, naming the numbers, if these nodes can never hold what a trial asks for."""
    group = on_several(meant_by(trainable)(asked), nodes, asked)
    if group is None:
        check_fits_nodes(asked, nodes)
    elif not group.fitting(nodes):
        apart = ", each on a node of its own" if group.strategy == "STRICT_SPREAD" else ""
        have = "; ".join(str(dict(node)) for node in nodes)
        raise ResourceError(
            f"a trial asks for {len(group.bundles)} workers with {dict(group.bundles[-1])} each{apart}, and the nodes "
            f"of the cluster have less. Available, node by node: {have}"
        )


def across(job: Job, nodes: Sequence[str], addresses: Mapping[str, str]) -> Job:
    """The job of the process that leads, where its bundles are on several nodes.

    Args:
        nodes: each bundle's, by id.
    """
    ranks = Counter(nodes)
    if len(ranks) < 2:
        return job
    return replace(
        job,
        group_nodes=GroupNodes(
            tuple((addresses[node], count) for node, count in ranks.items()), 0, secrets.token_bytes(16)
        ),
    )


def launcher_job(job: Job, number: int, port: int) -> Job:
    """The job of the process that a further node runs for a trial."""
    assert job.group_nodes is not None
    there = replace(job.group_nodes, number=number, port=port)
    return replace(job, trial_id=f"{job.trial_id}{_NODE}{number}", group_nodes=there)


def trial_of(process: str) -> str:
    """The id of the trial to which a process belongs."""
    return process.partition(_NODE)[0]
