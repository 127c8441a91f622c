"""Writers of journals, owners of experiments and lives of drivers, for tests of what they leave on the disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tuner.clock import VirtualClock
from tuner.experiment.generations import GenerationRecord
from tuner.experiment.journal import JournalContents, JournalWriter, read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import Identity, Processes


def body(number: int, *, width: int = 0) -> bytes:
    return json.dumps({"kind": "result", "x": number, "pad": "x" * width}).encode()


def numbers(contents: JournalContents) -> list[int]:
    """The x of every fact that is no head of a generation, the snapshot's included."""
    found = list(json.loads(contents.snapshot)) if contents.snapshot else []
    return found + [fact["x"] for _, text in contents.bodies if "x" in (fact := json.loads(text))]


class Writers:
    """Makes the writers of one experiment and closes them at the end."""

    def __init__(self, paths: ExperimentPaths) -> None:
        self.paths = paths
        self.clock = VirtualClock()
        self.made: list[JournalWriter] = []

    def __call__(self, generation: int = 1, *, sync: Any = "inline", head: bool = True, **more: Any) -> JournalWriter:
        """A driver's start: read, open, name the parent."""
        contents = read_journal(self.paths)
        writer = JournalWriter(
            self.paths,
            generation,
            next_seq=contents.last_seq + 1,
            clock=self.clock,
            sync=sync,
            parents=contents.chain,
            **more,
        )
        if head:
            fact: dict[str, Any] = {"kind": "generation", "generation": generation}
            if contents.generation:
                fact |= {"parent": contents.generation, "parent_seq": contents.last_seq}
                if contents.generation_id:
                    fact["parent_id"] = contents.generation_id
            writer.append(json.dumps(fact).encode())
            writer.flush()
        self.made.append(writer)
        return writer


def write(writer: JournalWriter, *xs: int) -> None:
    for x in xs:
        writer.append(body(x))
    writer.flush()


ROOT = Path(__file__).parents[3]


SCRIPT = Path(__file__).parents[2] / "scripts" / "owner_on_orders.py"


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


class Driver:
    """A real process that owns experiments on orders."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=ENVIRONMENT,
        )
        self.pid = self.process.pid
        self.left: list[int] = []

    def send(self, do: str, **order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **order}) + "\n")

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def order(self, do: str, **order: Any) -> Any:
        self.send(do, **order)
        return self.answer()

    def start(self, *, marked: bool = True, recorded: bool = False, lock: bool = False, off: int = 0) -> int:
        pid = int(self.order("start", marked=marked, recorded=recorded, lock=lock, off=off)["pid"])
        self.left.append(pid)
        return pid

    def kill(self) -> None:
        """kill -9, and the zombie is collected."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        for pid in self.left:
            if b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes() if Path(f"/proc/{pid}").exists() else b"":
                os.kill(pid, signal.SIGKILL)


def lives(pid: int) -> bool:
    return Processes().start_time(pid) is not None


def write_record(paths: ExperimentPaths, number: int = 1, *, beat: int = 0, state: str = "held", **owner: Any) -> None:
    """A record as another host's driver would have left it."""
    identity = Identity(**{"host": "elsewhere", "boot": "b", "pid_namespace": 1, "pid": 7, "start": 9} | owner)
    paths.generations.mkdir(parents=True, exist_ok=True)
    record = GenerationRecord(number, f"id-{number}", identity, 0.0, state=state, heartbeat=beat)
    paths.generation(number).write_bytes(msgspec.json.encode(record))


def dead_here() -> dict[str, Any]:
    """An owner of this pid namespace that lives no more."""
    me = Processes().me()
    return {"host": me.host, "boot": me.boot, "pid_namespace": me.pid_namespace, "pid": me.pid, "start": me.start - 1}
