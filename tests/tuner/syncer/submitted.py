"""What a stream has submitted, and answers for it: a replica without an agent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from trainables.config import SyncConfig
from trainables.net.failed import FailureKind
from trainables.transfer.backend import Can
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed
from tuner.clock import VirtualClock
from tuner.experiment.paths import ExperimentPaths
from tuner.syncer.streams.stream import OnAnswer, ReplicaContext, Stream


class Submitted:
    """Keeps jobs until they are ended."""

    def __init__(
        self, paths: ExperimentPaths, *, journal: Any = None, generation: int = 1, config: SyncConfig | None = None
    ) -> None:
        self.jobs: list[AnyJob] = []
        self._waiting: list[OnAnswer] = []
        self.clock = VirtualClock()
        self.clock.advance(1.0)
        self.journal = SimpleNamespace(last_seq=9, packed=0) if journal is None else journal
        uri = f"held://{paths.root.name}"
        self.context = ReplicaContext(
            uri, config or SyncConfig(), paths, self.journal, generation, Can(), self.clock, self._submit
        )

    def _submit(self, job: AnyJob, answered: OnAnswer) -> int:
        self.jobs.append(job)
        self._waiting.append(answered)
        return len(self.jobs)

    def end(self, data: bytes = b"", *, failed: FailureKind | None = None, transient: bool = False) -> AnyJob:
        """End the job that was submitted first, well or with that failure; returns it."""
        job, answered = self.jobs.pop(0), self._waiting.pop(0)
        answered(JobFailed(failed, "no answer", transient, id=1) if failed else Done(1, data))
        return job

    def starts(self, stream: Stream) -> list[AnyJob]:
        """What the stream submits now."""
        before = len(self.jobs)
        assert stream.start_jobs(self.clock.monotonic()) == (len(self.jobs) > before)
        return self.jobs[before:]
