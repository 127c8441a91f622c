"""How an agent finds its driver, and what it says of itself first: a file of the experiment, and one message."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = ".slurm"
"""In the experiment's directory: what driver and jobs need of each other."""
_FILE = "driver.json"

UNSEEN = 41
"""Exit status of a job that does not see the experiment's directory."""
UNOWNED = 42
"""Exit status of a job that found no owner of its generation."""
FOUND_S = 12.0
"""So long a job that has started looks for its driver."""

LEAVING = 0
"""The number of the message which says that the job is about to end; answers have that of their call."""
STAY = "stay"
"""A call: the driver goes, and another one comes until that time."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The driver that agents are to connect to."""

    generation: int
    ip: str
    port: int
    key: bytes


@dataclass(frozen=True, slots=True)
class AgentHello:
    """The first word of an agent."""

    job: str
    """Its id as `squeue -r` shows it."""
    hostname: str
    generation: int
    """That of the driver which submitted the job."""
    life: str
    """Tells this process from others of that job on that node: a requeued job has several, one after another."""
    resources: dict[str, float]
    """What the job has on this node."""
    gpus: tuple[str, ...]
    """Their ids, as `CUDA_VISIBLE_DEVICES` spells them."""
    nodes: int = 1
    """Of the job: so many agents say hello."""
    end: float | None = None
    """When Slurm ends the job, in seconds since the epoch; None: it does not say."""

    @property
    def node(self) -> str:
        """The id of the agent's node for the driver: no other life of this or another job has the same."""
        return f"{self.job}.{self.hostname}.{self.life}"


def owner_file(root: Path) -> Path:
    """Where the driver of the experiment at `root` says where it is."""
    return root / DIRECTORY / _FILE


def write_owner(path: Path, owner: Owner) -> None:
    """Tell agents where the driver is. Only this user can read the file: it has the key."""
    said = {"generation": owner.generation, "address": [owner.ip, owner.port], "key": owner.key.hex()}
    beside = path.with_name(f".{secrets.token_hex(4)}")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(json.dumps(said))
        file.flush()
        os.fsync(fd)
    os.replace(beside, path)


def read_owner(path: Path) -> Owner | None:
    """What the file says; None: there is none, or no driver any more. Raises OSError where it cannot be read."""
    try:
        said = json.loads(path.read_bytes())
        ip, port = said["address"]
        return Owner(int(said["generation"]), str(ip), int(port), bytes.fromhex(said["key"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
