"""Users' scripts in processes of their own, and how a test talks with what runs inside them: through pipes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

from tests.soak.counts import count

PATIENCE_S = 40.0

_TALK = '''
"""For a script under test: lines to the test, and gates that it opens."""
import os

def tell(*words):
    fd = os.open(os.environ["TALK"] + "/news", os.O_WRONLY)
    os.write(fd, (" ".join(map(str, words)) + "\\n").encode())
    os.close(fd)

def gate(name="gate"):
    """Wait until the test lets one through."""
    fd = os.open(os.environ["TALK"] + "/" + name, os.O_RDONLY)
    os.read(fd, 1)
    os.close(fd)
'''


class Script:
    """One start of a script: its process leads a process group and a session of its own."""

    def __init__(self, stage: Stage, process: subprocess.Popen[bytes], output: Path) -> None:
        self.stage, self.process, self._output = stage, process, output
        self._exit = os.pidfd_open(process.pid)

    @property
    def output(self) -> str:
        """What it has printed so far, both streams."""
        return self._output.read_text()

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def send_to_all(self, number: int) -> None:
        """As a terminal does it: to every process of the group."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        count("kills of driver", self.process.wait() == -signal.SIGKILL)

    def wait(self, within_s: float = PATIENCE_S) -> int:
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the script did not end within {within_s} s:\n{self.output}") from None

    def ends_well(self) -> str:
        assert self.wait() == 0, self.output
        return self.output

    def hear(self, wanted: str, times: int = 1) -> list[str]:
        """Read the news until `times` lines began with `wanted`; returns all the lines read."""
        return self.stage.hear(wanted, times, self)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        os.close(self._exit)


class Stage:
    """A directory with scripts, pipes and results. Use it as a context: what runs still is killed at its end."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.results = place / "results"
        self._pipes: dict[str, int] = {}
        self._heard = b""
        self._scripts: list[Script] = []
        (place / "talk.py").write_text(_TALK)
        self._pipe("news")

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        for script in self._scripts:
            script.close()
        for fd in self._pipes.values():
            os.close(fd)

    def _pipe(self, name: str) -> int:
        if name not in self._pipes:
            os.mkfifo(self.place / name)
            self._pipes[name] = os.open(self.place / name, os.O_RDWR | os.O_CLOEXEC)
        return self._pipes[name]

    def gate(self, *names: str) -> None:
        """Make gates; nobody passes until `let`."""
        for name in names or ("gate",):
            self._pipe(name)

    def let(self, number: int = 1, name: str = "gate") -> None:
        """Let so many through a gate, now or when they come."""
        os.write(self._pipe(name), b"." * number)

    def write(self, text: str, name: str = "script.py") -> Path:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import tuner as tune\nfrom talk import gate, tell\n{text}")
        return path

    def start(
        self,
        script: Path | str = "script.py",
        *arguments: object,
        nohup: bool = False,
        terminal: int | None = None,
        **environment: str,
    ) -> Script:
        """Start a script.

        Args:
            nohup: It ignores SIGHUP.
            terminal: Its controlling terminal, which gets its output.
        """

        def prepare() -> None:
            if nohup:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            if terminal is not None:
                fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

        output = self.place / f"output-{len(self._scripts)}"
        search = os.pathsep.join([str(self.place), *sys.path])
        variables = {**os.environ, "TALK": str(self.place), "HOME": str(self.place), "PYTHONPATH": search}
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, str(self.place / script), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=file if terminal is None else terminal,
                stderr=file if terminal is None else terminal,
                cwd=self.place,
                env={**variables, "RESULTS": str(self.results), **environment},
                start_new_session=True,
                preexec_fn=prepare if nohup or terminal is not None else None,
            )
        started = Script(self, process, output)
        self._scripts.append(started)
        return started

    def run(self, script: Path | str = "script.py", *arguments: object, **environment: str) -> str:
        """Run a script to its good end; returns what it printed."""
        return self.start(script, *arguments, **environment).ends_well()

    def hear(self, wanted: str, times: int = 1, of: Script | None = None) -> list[str]:
        poll = select.poll()
        poll.register(self._pipes["news"], select.POLLIN)
        if of is not None:
            poll.register(of._exit, select.POLLIN)
        deadline = time.monotonic() + PATIENCE_S
        lines: list[str] = []
        while times:
            while b"\n" in self._heard and times:
                line, _, self._heard = self._heard.partition(b"\n")
                lines.append(line.decode())
                times -= lines[-1].startswith(wanted)
            if not times:
                break
            ready = {fd for fd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)}
            if self._pipes["news"] in ready:
                self._heard += os.read(self._pipes["news"], 65536)
                continue
            what = "ended" if ready else "is silent"
            raise AssertionError(
                f"{wanted!r} never came, the script {what}; heard: {lines}; it printed:\n{of and of.output}"
            )
        return lines

    def unread(self) -> list[str]:
        """What was told and not heard yet."""
        poll = select.poll()
        poll.register(self._pipes["news"], select.POLLIN)
        while poll.poll(0):
            self._heard += os.read(self._pipes["news"], 65536)
        lines, self._heard = self._heard.decode().splitlines(), b""
        return lines


def rows(trial: Any) -> list[dict[str, Any]]:
    """A trial's rows in result.json."""
    path = Path(trial.path, "result.json")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def iterations(trial: Any) -> list[int]:
    return [row["training_iteration"] for row in rows(trial)]


def kept(trial: Any) -> list[str]:
    """The names of the checkpoints on disk."""
    return sorted(name for name in os.listdir(trial.path) if name.startswith("checkpoint_"))


def contents(root: Path) -> dict[str, str]:
    """Every file below a directory with the hash of its content and its mtime: equal means untouched."""
    return {
        str(path.relative_to(root)): f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}"
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
