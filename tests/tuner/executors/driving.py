"""A driver without a loop: launches attempts, answers every report, remembers every event."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainables.job import Job
from trainables.wire import Answer, AttemptErrored, Report
from tuner.executors.base import Event, Executor, Exited, Launch, Message
from tuner.executors.local.executor import LocalExecutor

PATIENCE_S = 30.0
TESTS = Path(__file__).parents[2]
SCRIPTS = TESTS / "scripts"


class StandInExecutor(LocalExecutor):
    worker = "standin_worker"


class Driver:
    def __init__(self, executor: Executor, directory: Path) -> None:
        self.executor = executor
        self.directory = Path(directory)
        self.events: list[Event] = []
        self.answer: Callable[[Report], Answer] = lambda report: Answer()
        self.launched = 0

    def launch(
        self, config: dict[str, Any] | None = None, *, resources: dict[str, float] | None = None, **more: Any
    ) -> str:
        trial_id = f"t{self.launched}"
        job_keys = {key: more.pop(key) for key in ("index", "seed", "attempt", "grace_s", "publish") if key in more}
        directory = self.directory / trial_id
        directory.mkdir(exist_ok=True)
        job = Job(
            trial_id=trial_id,
            trial_name=trial_id,
            experiment_name="experiment",
            directory=directory,
            temporary=self.directory,
            config=config or {},
            generation=1,
            original_cwd=Path.cwd(),
            **{"index": self.launched, "attempt": 1, "seed": 1, **job_keys},
        )
        self.launched += 1
        self.executor.launch(Launch(job, resources or {"cpu": 1.0}, **more))
        return trial_id

    def dispatch(self, events: Sequence[Event]) -> None:
        self.events += events
        for event in events:
            if isinstance(event, Message) and isinstance(event.body, Report):
                self.executor.tell(event.trial_id, self.answer(event.body))

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            left = deadline - time.monotonic()
            assert left > 0, f"nothing came of it in time; events so far: {self.events}"
            self.executor.run_once(self.dispatch, left)

    def exits(self, trial_id: str | None = None) -> list[Exited]:
        return [e for e in self.events if isinstance(e, Exited) and trial_id in (None, e.trial_id)]

    def finish(self, trial_id: str) -> Exited:
        self.until(lambda: bool(self.exits(trial_id)))
        return self.exits(trial_id)[-1]

    def finish_all(self) -> list[Exited]:
        self.until(lambda: len(self.exits()) == self.launched)
        return self.exits()

    def reports(self, trial_id: str) -> list[dict[str, Any]]:
        return [
            json.loads(bytes(e.body.metrics))
            for e in self.events
            if isinstance(e, Message) and e.trial_id == trial_id and isinstance(e.body, Report)
        ]

    def first_report(self, trial_id: str) -> dict[str, Any]:
        self.until(lambda: bool(self.reports(trial_id)) or bool(self.exits(trial_id)))
        assert self.reports(trial_id), self.events
        return self.reports(trial_id)[0]

    def errors(self, trial_id: str) -> list[AttemptErrored]:
        return [
            e.body
            for e in self.events
            if isinstance(e, Message) and e.trial_id == trial_id and isinstance(e.body, AttemptErrored)
        ]


class Watched:
    """A process that was seen alive, told apart from a later one with the same pid."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def gone(self, within_s: float = 0.0) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(within_s * 1000))

    def close(self) -> None:
        os.close(self._fd)


def start_stubborn() -> int:
    """The pid of a process that has left session and parent, and ignores SIGTERM."""
    starter = subprocess.Popen([sys.executable, "-S", SCRIPTS / "stubborn.py"], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    starter.wait()
    return pid


def leaves_a_stubborn_one(config: dict[str, Any], talk: Any) -> None:
    """A trainable that starts such a process, and ends as its config says."""
    talk.report(pids=[os.getpid(), start_stubborn()])
    end = config["end"]
    if end == "crash":
        os.abort()
    if end == "raise":
        raise ValueError("on purpose")
    if end == "stop":
        talk.report()
    if end == "wait":
        while True:
            signal.pause()


def script_environment() -> dict[str, str]:
    """For scripts of `tests/scripts` that drive an executor by this module."""
    path = [str(Path(__file__).parent), str(TESTS.parent)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
