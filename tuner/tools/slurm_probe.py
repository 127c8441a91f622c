"""What `tuner doctor` runs in a job of Slurm: looks at its node, and tells the doctor.

    python -m tuner.tools.slurm_probe FILE

FILE says what to look at and where the doctor listens; where it cannot be reached, what was seen goes beside the file.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import Any

from trainables.net import handshake
from trainables.store import fs
from tuner import knobs
from tuner.clock import SystemClock
from tuner.executors.slurm.agent_job import describe
from tuner.tools.machine import MachineFacts, TriedDirectory, look

_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class ProbedJob:
    """What a job has on one of its nodes."""

    id: str
    hostname: str
    resources: Mapping[str, float]
    """As an agent there would count them."""
    facts: MachineFacts
    problem: str = ""
    """Why it did not reach the doctor; "": it did."""


def main(arguments: Sequence[str]) -> int:
    """Look, tell, and say the time as often as the doctor asks."""
    file = Path(arguments[0])
    said = json.loads(file.read_text("utf-8"))
    hello = describe(knobs.slurm_job(), 0)
    facts = look(Path(said["storage"]), said["packages"], mark=said["mark"], place=said["place"])
    seen = {"id": hello.job, "hostname": hello.hostname, "resources": hello.resources, "facts": asdict(facts)}
    try:
        ip, port = said["address"]
        with handshake.connect((ip, port), bytes.fromhex(said["key"]), within_s=_CONNECT_S) as sock:
            sock.settimeout(_CONNECT_S)
            sock.sendall(_line(seen))
            while sock.recv(1):
                sock.sendall(_line(SystemClock().time()))
    except (OSError, EOFError, AuthenticationError) as error:
        text = json.dumps({**seen, "problem": str(error) or repr(error)}, default=str)
        fs.replace_file(file.with_name(f"{hello.job}.{socket.gethostname()}.seen"), text.encode())
    return 0


def read(said: Mapping[str, Any]) -> ProbedJob:
    """What was told, as the doctor gets it. Raises KeyError and TypeError for what no probe says."""
    facts = dict(said["facts"])
    for name in ("storage", "temporary"):
        tried = dict(facts[name])
        facts[name] = TriedDirectory(**tried | {"path": Path(tried["path"]), "tried": Path(tried["tried"])})
    facts["rights"] = [(str(what), str(why)) for what, why in facts["rights"]]
    return ProbedJob(**{**said, "facts": MachineFacts(**facts)})


def _line(value: Any) -> bytes:
    return json.dumps(value, default=str).encode() + b"\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
