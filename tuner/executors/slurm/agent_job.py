"""What a job starts on each of its nodes: finds its driver, says what it has, and is a host agent from then on.

    python -m tuner.executors.slurm.agent_job FILE GENERATION [UNTIL]

FILE says where the driver is (`meeting`). Without UNTIL it ends when no driver of that generation is found; with it, it
waits until then (seconds since the epoch) for the driver of a later one.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import AuthenticationError
from pathlib import Path
from types import FrameType

from tuner.clock import SystemClock
from tuner.executors.slurm.meeting import FOUND_S, UNOWNED, UNSEEN, AgentHello, Owner, read_owner
from tuner.knobs import slurm_job  # not the module: `tuner` would look for that name in tables that take a while

_CONNECT_S = 5.0
_LOOK_S = 0.25


def main(arguments: Sequence[str]) -> int:
    """Be the agent of this job on this node; returns the exit status when there is no driver."""
    file, generation = Path(arguments[0]), int(arguments[1])
    until = float(arguments[2]) if arguments[2:] else None
    found = _find(file, generation, until)
    if isinstance(found, int):
        return found
    sock, owner = found
    from trainables.runtime.notice import notices
    from tuner.executors.slurm.agent_server import AgentServer  # takes a while, and who finds no driver needs it not

    hello = describe(slurm_job(), generation if until is None else owner.generation)
    served = AgentServer(sock, hello)

    def told(number: int, frame: FrameType | None) -> None:
        served.leaving(number)

    for number in notices():
        signal.signal(number, told)
    if (again := served.serve()) is None:
        return 0
    os.execv(sys.executable, [*_command(), str(file), str(owner.generation), str(again)])


def describe(said: Mapping[str, str], generation: int) -> AgentHello:
    """What this agent is, by the environment that Slurm gives it."""
    array, task = said.get("SLURM_ARRAY_JOB_ID"), said.get("SLURM_ARRAY_TASK_ID")
    job = f"{array}_{task}" if array and task else said.get("SLURM_JOB_ID", "0")
    gpus = next((said[name] for name in _GPU_LISTS if said.get(name)), "")
    ids = tuple(part.strip() for part in gpus.split(",") if part.strip())
    cpus = float(said.get("SLURM_CPUS_ON_NODE") or len(os.sched_getaffinity(0)))
    resources = {"cpu": cpus, "gpu": float(len(ids)), "memory": _memory(said, cpus)}
    end = said.get("SLURM_JOB_END_TIME", "")
    nodes = int(said.get("SLURM_STEP_NUM_NODES") or said.get("SLURM_JOB_NUM_NODES") or 1)
    return AgentHello(
        job,
        socket.gethostname(),
        generation,
        secrets.token_hex(4),
        resources,
        ids,
        nodes,
        float(end) if end.isdecimal() else None,
    )


_GPU_LISTS = ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""With cgroups the first differs from the others, and is right."""


def _memory(said: Mapping[str, str], cpus: float) -> float:
    """Bytes that the job may use on this node."""
    if (node := said.get("SLURM_MEM_PER_NODE", "")).isdecimal() and int(node):
        return float(node) * 2**20
    if (each := said.get("SLURM_MEM_PER_CPU", "")).isdecimal() and int(each):
        return float(each) * cpus * 2**20
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _find(file: Path, generation: int, until: float | None) -> tuple[socket.socket, Owner] | int:
    """A connection to the driver, and what it is; or why there is none, as an exit status."""
    from trainables.net import handshake

    clock = SystemClock()
    end = clock.time() + FOUND_S if until is None else until
    if not file.parent.is_dir():
        _say(f"{socket.gethostname()} does not see {file.parent}")
        return UNSEEN
    while True:
        owner = read_owner(file)
        if owner is not None and owner.generation > generation and until is None:
            break  # this job is of a driver that is gone
        if owner is not None and (owner.generation == generation) == (until is None):
            try:
                return handshake.connect((owner.ip, owner.port), owner.key, within_s=_CONNECT_S), owner
            except (OSError, EOFError, AuthenticationError) as error:
                _say(f"no driver at {owner.ip}:{owner.port}: {error!r}")
        if clock.time() >= end:
            break
        clock.sleep(_LOOK_S)
    _say(f"no driver of generation {generation} is there: this job ends")
    return UNOWNED


def _say(line: str) -> None:
    """Into the job's output."""
    sys.stderr.write(f"{line}\n")


def _command() -> list[str]:
    return [sys.executable, "-m", "tuner.executors.slurm.agent_job"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
