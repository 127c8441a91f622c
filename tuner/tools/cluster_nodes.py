"""Looks at every node of a cluster before a run, through a process of Ray there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.user_frames import last_said
from tuner.clock import SystemClock
from tuner.executors.base import Resources
from tuner.executors.ray import connection
from tuner.tools.machine import MachineFacts, look

_PATIENCE_S = 120.0
_ASKED = 5
"""So often for the time: the fastest answer says most."""


@dataclass(frozen=True, slots=True)
class ExaminedNode:
    """What was found out about a node."""

    ip: str
    resources: Resources
    here: bool
    """The driver's own node."""
    facts: MachineFacts | None = None
    clock_s: float = 0.0
    """How far its clock is ahead of the one here."""
    uncertain_s: float = 0.0
    problem: str = ""
    """Why it could not be looked at; "" where it could."""


class NodeExaminer:
    """One per node."""

    def look(
        self, storage: Path, packages: Mapping[str, str], mark: str, place: Mapping[str, Any] | None
    ) -> MachineFacts:
        return look(storage, packages, mark=mark, place=place)

    def time(self) -> float:
        return SystemClock().time()


def look_at_nodes(
    storage: Path,
    packages: Mapping[str, str],
    *,
    mark: str,
    place: Mapping[str, Any] | None,
    runtime_env: Mapping[str, Any] | None = None,
) -> list[ExaminedNode]:
    """Look at all of them at once; needs a connection. The arguments are those of `look`."""
    ray = connection.load()
    connection.check_environment(runtime_env, {})
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    own = ray.get_runtime_context().get_node_id()
    environment = {"runtime_env": dict(runtime_env)} if runtime_env else {}
    begun = []
    for node in connection.nodes():
        strategy = NodeAffinitySchedulingStrategy(node.id, soft=False)
        actor = ray.remote(NodeExaminer).options(num_cpus=0, scheduling_strategy=strategy, **environment).remote()
        begun.append((node, actor, actor.look.remote(storage, packages, mark, place)))
    found = []
    for node, actor, looking in begun:
        seen = {"ip": node.ip, "resources": node.resources, "here": node.id == own}
        try:
            facts = ray.get(looking, timeout=_PATIENCE_S)
            ahead, uncertain = _clock(ray, actor)
        except ray.exceptions.RayError as error:
            found.append(ExaminedNode(**seen, problem=last_said(str(error)).strip() or repr(error)))
        else:
            found.append(ExaminedNode(**seen, facts=facts, clock_s=ahead, uncertain_s=uncertain))
        ray.kill(actor)
    return found


def _clock(ray: Any, actor: Any) -> tuple[float, float]:
    """(how far it is ahead, how much of that may be the way there and back)."""
    clock, best = SystemClock(), (0.0, float("inf"))
    for _ in range(_ASKED):
        before, start = clock.time(), clock.monotonic()
        there = ray.get(actor.time.remote(), timeout=_PATIENCE_S)
        took = clock.monotonic() - start
        if took / 2 < best[1]:
            best = (there - before - took / 2, took / 2)
    return best
