"""Callers of a session as processes that a test steers and kills, and what the journal says of what they did."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.campaign import journal_by_hand
from tests.campaign.journal_by_hand import Fact, History
from tests.servers.cluster import RayHost
from tuner.experiment.processes import Processes

SCRIPT = Path(__file__).with_name("caller_script.py")
PATIENCE_S = 100.0


class Caller:
    """A process that has the session open, here or on a host; `env` comes on top of the environment there."""

    def __init__(
        self, storage: Path, *, host: RayHost | None = None, env: dict[str, str] | None = None, **settings: Any
    ) -> None:
        self._settings = {"storage_path": str(storage), **settings}
        command = [sys.executable, str(SCRIPT), json.dumps(self._settings)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process: subprocess.Popen[str]
        if host is not None:
            self.process = host.popen(command, env=env, **pipes, stderr=None)
            return
        here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **(env or {})}
        self.process = subprocess.Popen(command, **pipes, text=True, cwd=Path(__file__).parents[3], env=here)

    def begin(self, do: str, **more: Any) -> None:
        """Tell it to do something, and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self.process.stdin.flush()

    def end(self) -> Any:
        """What came of it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the caller has died: {self.process.wait()}"
        return json.loads(line)

    def do(self, do: str, **more: Any) -> Any:
        self.begin(do, **more)
        return self.end()

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


@contextmanager
def callers(storage: Path, *each: dict[str, Any]) -> Iterator[list[Caller]]:
    """Callers with these settings, all open; at the end all are closed, and the driver is gone."""
    started = [Caller(storage, **settings) for settings in each]
    try:
        for caller in started:
            assert caller.end() == "open"
        yield started
    finally:
        for caller in started:
            caller.close()
        until(lambda: not lives(storage))


def driver(storage: Path, name: str = "s") -> int:
    """The process id of the driver that there is, or was last."""
    return int(json.loads((storage / name / "generations" / "session.json").read_text())["owner"]["pid"])


def driver_host(storage: Path, name: str = "s") -> str:
    """The host of that one."""
    return str(json.loads((storage / name / "generations" / "session.json").read_text())["owner"]["host"])


def lives(storage: Path, name: str = "s") -> bool:
    """Whether the newest driver lives."""
    try:
        return Processes().start_time(driver(storage, name)) is not None
    except FileNotFoundError:
        return False


def kill_driver(storage: Path) -> int:
    """SIGKILL, and wait until it is gone."""
    pid = driver(storage)
    os.kill(pid, signal.SIGKILL)
    until(lambda: Processes().start_time(pid) is None)
    return pid


def until(holds: Any, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def history(storage: Path, name: str = "s") -> History:
    journal = storage / name / "journal"
    with tempfile.TemporaryDirectory() as packed:
        for pack in sorted((journal / "history").glob("*.gz")):
            index, _, rest = gzip.decompress(pack.read_bytes()).partition(b"\n")
            for entry in json.loads(index)["files"]:
                (Path(packed) / entry["name"]).write_bytes(rest[: entry["bytes"]])
                rest = rest[entry["bytes"] :]
        return journal_by_hand.read(journal, Path(packed), cut=True)


def judged(storage: Path, *, trials: int, iterations: int, name: str = "s") -> None:
    """Each config was finished once, and each attempt began at the newest checkpoint that there was."""
    found = history(storage, name)
    assert found.problems == []
    created = [fact["trial"] for fact in found.kind("created")]
    assert len(created) == len(set(created)) == trials
    configs = [json.dumps(fact["config"]) for fact in found.kind("created")]
    assert len(set(configs)) == trials
    for trial in created:
        _judge(found.of(trial), iterations)


def _judge(facts: list[Fact], iterations: int) -> None:
    reached, key, ended = 0, (0, 0), False
    newest: dict[str, Any] | None = None
    for fact in facts:
        kind = fact["kind"]
        assert not ended or kind in ("forgotten", "deleted", "copied"), (kind, facts)
        if kind == "attempt":
            now = (fact["generation"], fact["attempt"])
            if now == key:
                assert fact.get("iteration", 0) == reached  # its caller goes on
            else:
                assert fact.get("checkpoint") == newest
                assert fact.get("iteration", 0) == reached == (newest["iteration"] if newest else 0)
            key = now
        elif kind == "rolled_back":
            reached = fact["iteration"]
        elif kind == "result":
            assert fact["iteration"] == reached + 1, facts
            assert fact["metrics"]["total"] == sum(range(1, reached + 2))
            reached += 1
        elif kind == "published":
            order = [fact["ref"][name] for name in ("generation", "attempt", "index")]
            assert newest is None or order > [newest[name] for name in ("generation", "attempt", "index")]
            newest = fact["ref"]
        elif kind == "ended":
            assert (fact["status"], reached) == ("TERMINATED", iterations), facts
            ended = True
    assert ended, facts
