"""Fakes that are supported API: run a trial without a driver.

Example:
    >>> import tempfile
    >>> def train(config):
    ...     yield {"loss": config["x"] / 2}
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     link = run_trial(train, Path(directory), config={"x": 1})
    >>> link.results[0]["loss"], link.end
    (0.5, Finished())
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainables import tagged, wire
from trainables.automatic import TimeSource
from trainables.job import Job


class MemoryLink(wire.DriverLink):
    """A driver in memory: answers from a function, remembers every message in the order of arrival.

    Args:
        answer: Called with each `Report`; None answers "continue".
        durable: False holds every checkpoint back until `make_durable` is called.
    """

    def __init__(self, answer: Callable[[wire.Report], wire.Answer] | None = None, *, durable: bool = True) -> None:
        self.messages: list[wire.FromTrial] = []
        self.gone = False
        """Set it, and every call fails as if the driver had died."""
        self._answer = answer or (lambda report: wire.Answer())
        self._everything_durable = durable
        self._durable = -1
        self._halted = False
        self._decided: wire.Decided | None = None
        self._tell_halt: Callable[[], None] = wire.nothing
        self._changed = threading.Condition()

    # ------------------------------------------------------------ what tests say

    def halt(self) -> None:
        """The experiment ends early."""
        self._halted = True
        self._tell_halt()

    def decide(self, decided: wire.Decided) -> None:
        """Say something of a result that has not waited."""
        self._decided = decided

    def make_durable(self, iteration: int) -> None:
        """The journal has the results up to that iteration."""
        with self._changed:
            self._durable = max(self._durable, iteration)
            self._changed.notify_all()

    def wait_for(self, kind: type, count: int = 1) -> None:
        """Block until `count` messages of a kind have arrived."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.of(kind)) >= count)

    # ------------------------------------------------------------ what tests read

    def of(self, kind: type) -> list[Any]:
        """All messages of a kind."""
        return [message for message in self.messages if isinstance(message, kind)]

    @property
    def results(self) -> list[dict[str, Any]]:
        """The reported results, decoded."""
        return [tagged.loads(bytes(report.metrics)) for report in self.of(wire.Report)]

    @property
    def published(self) -> list[wire.CheckpointRef]:
        """The checkpoints that reached the disk."""
        return [message.ref for message in self.of(wire.SavePublished)]

    @property
    def end(self) -> wire.Finished | wire.AttemptErrored | wire.Preempted:
        """How the trial ended; fails unless it said so exactly once."""
        (end,) = (
            message
            for message in self.messages
            if isinstance(message, (wire.Finished, wire.AttemptErrored, wire.Preempted))
        )
        return end

    # ------------------------------------------------------------ what the trial calls

    def call(self, report: wire.Report, meanwhile: Callable[[], None] = wire.nothing) -> wire.Answer:
        self._hear(report)
        meanwhile()
        answer = self._answer(report)
        if answer.should_stop:
            self._halted = True
        return answer

    def tell(self, report: wire.Report) -> None:
        self._hear(report)

    def decided(self) -> wire.Decided | None:
        decided, self._decided = self._decided, None
        return decided

    def send(self, message: wire.Finished | wire.AttemptErrored | wire.Preempted) -> None:
        self._hear(message)

    def post(self, message: wire.SideMessage) -> None:
        self._hear(message)

    def wait_durable(self, iteration: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._everything_durable or self._durable >= iteration or self.gone)
            if self.gone:
                raise ConnectionError("the driver is gone")

    def halted(self) -> bool:
        return self._halted or self.gone

    def watch(self, changed: Callable[[], None]) -> None:
        self._tell_halt = changed

    def vanish(self) -> None:
        """The driver dies."""
        with self._changed:
            self.gone = True
            self._changed.notify_all()

    def _hear(self, message: wire.FromTrial) -> None:
        if self.gone:
            raise ConnectionError("the driver is gone")
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()


def example_job(root: Path, config: Mapping[str, Any] | None = None, **changes: Any) -> Job:
    """A job for a trial under `root`, whose directory is made. `changes` are other fields of `Job`."""
    fields: dict[str, Any] = {
        "trial_id": "t1",
        "trial_name": "train_t1",
        "experiment_name": "experiment",
        "index": 0,
        "directory": root / "train_t1",
        "temporary": root / ".tmp",
        "config": dict(config or {}),
        "attempt": 1,
        "generation": 1,
        "seed": 0,
    }
    job = Job(**(fields | changes))
    job.directory.mkdir(parents=True, exist_ok=True)
    return job


def run_trial(
    trainable: Any,
    root: Path,
    *,
    config: Mapping[str, Any] | None = None,
    link: MemoryLink | None = None,
    clock: TimeSource = time,
    **changes: Any,
) -> MemoryLink:
    """Run one attempt of a trainable in this process; return the link, with everything that it said."""
    from trainables.runtime.worker import run_job

    link = link or MemoryLink()
    run_job(example_job(root, config, **changes), trainable, link, clock=clock, own_process=False)
    return link
