"""Agents of jobs that never were, for what counts them."""

from __future__ import annotations

from tuner.executors.slurm.meeting import AgentHello
from tuner.executors.slurm.rooms import AgentRoom, AgentRooms


def hello(
    job: str, *, cpus: float = 2, gpus: tuple[str, ...] = (), host: str = "n1", end: float | None = None
) -> AgentHello:
    """The first word of an agent."""
    resources = {"cpu": cpus, "gpu": float(len(gpus)), "memory": 4e9}
    return AgentHello(job, host, 1, "life", resources, gpus, end=end)


def join(rooms: AgentRooms, said: AgentHello) -> AgentRoom:
    """Have an agent come, and be ready."""
    room = rooms.add(said)
    rooms.open(room)
    return room
