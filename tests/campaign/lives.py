"""Runs one experiment of the campaign, life after life, with the blows that its plan says, and keeps what was seen."""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from after_cut import problems_after_cut
from places import Places
from plans import Blow, Plan, to_json
from victims import MARK, end_all, marked, send, strike, survivors

from tests.servers.powered import Disk
from tests.soak.counts import count

HERE = Path(__file__).parent
_libc = ctypes.CDLL(None)
LIFE_S = 180.0
"""Longer than any life takes on a machine with a load of ten."""
GONE_S = 20.0
QUIET_S, START_S = 3.0, 20.0
"""How long the next step is waited for, and the first one of a life."""
SPARE_LIVES = 4
"""How many starts after the last blow may end unwell for a reason that the settings allow."""


@dataclass
class Life:
    """One start of the script."""

    number: int
    status: int = 0
    blows: list[str] = field(default_factory=list)
    lost: bool = False
    """Its disk is gone."""
    hung: bool = False
    generations: list[int] = field(default_factory=list)
    """What it claimed."""
    kept_there: dict[str, list[str]] = field(default_factory=dict)
    """Of a lost one: trial directory -> names of the complete checkpoints that the replica had."""


@dataclass
class Seen:
    """An experiment from beginning to end."""

    plan: Plan
    base: Path
    storage: Path
    lives: list[Life] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.storage / "e"

    @property
    def output(self) -> str:
        path = self.base / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def steps(self) -> int:
        path = self.base / "told"
        return path.read_bytes().count(b'"kind": "step"') if path.exists() else 0


class Runner:
    """Starts, strikes, waits, starts again."""

    def __init__(
        self,
        plan: Plan,
        base: Path,
        places: Places,
        disk: Disk | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.plan, self.base, self.places, self.disk = plan, base, places, disk
        self.environment = dict(environment or {})
        self.name = f"s{plan.seed}-{os.getpid()}"
        self.mark = f"{self.name}-{time.monotonic_ns()}"
        self.rng = random.Random(f"strikes:{plan.seed}")
        self.storage = (disk.seen if disk is not None else base) / "storage"
        inside = (disk.place if disk is not None else base) / "storage"
        self.seen = Seen(plan, base, self.storage)
        self.blows = list(plan.blows)
        self.upload_dir = places.uri(plan.replica, self.name, base)
        for directory in (self.storage, base / "tmp", base / "home", base / "books"):
            directory.mkdir()
        given = {**to_json(plan), "told": str(base / "told"), "found": str(base / "found.json")}
        given |= {"storage": str(inside), "upload_dir": self.upload_dir}
        (base / "plan.json").write_text(json.dumps(given))

    def run(self) -> Seen:
        """Live until a life ends well, without a blow to come."""
        try:
            for number in range(1, len(self.blows) + SPARE_LIVES + 1):
                life = self.live(number)
                self.seen.lives.append(life)
                if life.hung or (life.status == 0 and not life.lost):
                    return self.seen
            self.seen.flags.append(f"it never came to an end: {[life.status for life in self.seen.lives]}")
            return self.seen
        finally:
            if left := survivors(self.mark, GONE_S):
                self.seen.flags.append(f"processes are left: {left}")
            end_all(self.mark)

    def again(self) -> int:
        """The finished experiment once more."""
        with self._started(99) as process:
            return process.wait(LIFE_S)

    def live(self, number: int) -> Life:
        life, before = Life(number), self._generations()
        with self._started(number) as process:
            end = time.monotonic() + LIFE_S
            while self.blows and self._moment(process, self.blows[0], end):
                self._hit(process, life, self.blows.pop(0))
            try:
                life.status = process.wait(max(1.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                life.hung = True
                self._say_where(process)
                self.seen.flags.append(f"life {number} hangs")
        life.generations = sorted(self._generations() - before)
        self._keep_books(number)
        self._judge(life)
        if life.lost:
            self._lose(life)
        return life

    def _moment(self, process: subprocess.Popen[bytes], blow: Blow, end: float) -> bool:
        """Wait for the moment of a blow; False: the script ended before."""
        began = before = self.seen.steps
        wanted, quiet = began + blow.steps, time.monotonic()
        while (steps := self.seen.steps) < wanted and time.monotonic() < end:
            if steps != before:
                quiet, before = time.monotonic(), steps
            if process.poll() is not None:
                return False
            if time.monotonic() - quiet > (QUIET_S if before > began else START_S):  # no more are to come, or it hangs
                break
            time.sleep(0.002)
        due = time.monotonic() + blow.after_s
        while process.poll() is None and time.monotonic() < due:
            time.sleep(0.002)
        return process.poll() is None

    def _hit(self, process: subprocess.Popen[bytes], life: Life, blow: Blow) -> None:
        if blow.victim == "power":
            self._cut(process, life)
            return
        number = getattr(signal, f"SIG{blow.signal}")
        hit = strike(process.pid, self.mark, blow.victim, number, self.rng)
        life.blows.append(f"{blow.signal} {blow.victim} {hit} at step {self.seen.steps}")
        if blow.signal == "STOP":
            time.sleep(blow.pause_s)
            for pid in hit:
                send(pid, signal.SIGCONT)
        elif blow.victim in ("driver", "all") and blow.loses:
            life.lost = bool(hit)

    def _cut(self, process: subprocess.Popen[bytes], life: Life) -> None:
        """The power fails, and comes back on an empty machine with the same disk."""
        assert self.disk is not None
        for pid in marked(self.mark):
            send(pid, signal.SIGSTOP)  # nobody gets to say that the disk is gone
        self.disk.cut()
        count("power cuts")
        end_all(self.mark)
        process.wait()
        life.blows.append(f"CUT power at step {self.seen.steps}")
        self.disk.come_back()
        shutil.rmtree(self.base / "tmp")
        (self.base / "tmp").mkdir()
        self.seen.flags += [f"after a power cut: {problem}" for problem in problems_after_cut(self.seen.root)]

    def _judge(self, life: Life) -> None:
        """Whether it ended as what happened to it allows."""
        told = [text.split()[:2] for text in life.blows]
        hit = {(name, who) for name, who in told if who in ("driver", "all", "power")}
        allowed = {0}
        if any(name in ("KILL", "CUT") for name, _ in hit):
            allowed.add(-signal.SIGKILL)
        if any(name == "TERM" for name, _ in hit):
            allowed |= {143, -signal.SIGTERM}
        if self.plan.max_failures == 0 and life.blows:
            allowed.add(1)
        if not life.hung and life.status not in allowed:
            self.seen.flags.append(f"life {life.number} ended with {life.status} after {life.blows}")

    def _lose(self, life: Life) -> None:
        end_all(self.mark)
        there = self.places.look(self.plan.replica, self.name, self.base / "there")
        for path in there.glob("e/*/*/.manifest.json"):
            life.kept_there.setdefault(path.parent.parent.name, []).append(path.parent.name)
        for directory in (self.storage, self.base / "tmp", self.base / "home"):
            shutil.rmtree(directory)
            directory.mkdir()

    def _generations(self) -> set[int]:
        return {int(path.stem) for path in (self.seen.root / "generations").glob("[0-9]*.json")}

    def _keep_books(self, number: int) -> None:
        """A copy of the journal as this life left it: the next one may compact it."""
        if (journal := self.seen.root / "journal").is_dir():
            shutil.copytree(journal, self.base / "books" / f"{number:02d}", ignore_dangling_symlinks=True)

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **self.places.environment(self.plan.replica),
            MARK: self.mark,
            "CAMPAIGN_LIFE": str(number),
            "TMPDIR": str(self.base / "tmp"),
            "HOME": str(self.base / "home"),
            "PYTHONPATH": str(HERE.parents[1]),
            "PYTHONFAULTHANDLER": "1",
            "TUNE_GRACE_S": "10",
            **self.environment,
        }
        enter = [] if self.disk is None else self.disk.command(self.base)
        with open(self.base / "output", "ab") as output, self.places.network(self.plan.replica):
            output.write(f"--- life {number}\n".encode())
            output.flush()
            return subprocess.Popen(
                [*enter, sys.executable, str(HERE / "campaign_script.py"), str(self.base / "plan.json")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.base,
                env=environment,
                start_new_session=True,
                preexec_fn=lambda: _libc.prctl(1, signal.SIGKILL),  # PR_SET_PDEATHSIG: it ends with the tests
            )

    def _say_where(self, process: subprocess.Popen[bytes]) -> None:
        """Let all that hangs write down where."""
        with open(self.base / "output", "ab") as output:
            output.write(f"processes: {survivors(self.mark, 0.0)}\n".encode())
        send(process.pid, signal.SIGABRT)
        process.wait()
        end_all(self.mark)
