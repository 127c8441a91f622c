"""Checkpoints on their way here from a replica: one job for each, whoever asks, until it is here or cannot be."""

from __future__ import annotations

from dataclasses import field
from functools import partial

from trainables.net.backoff import BackOff
from trainables.net.failed import FailureKind
from trainables.quick_dataclass import dataclass
from trainables.transfer import transfer_jobs
from trainables.transfer.transfer_jobs import JobFailed
from tuner.experiment.events import ErrorInfo
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.syncer.sink import Then
from tuner.syncer.streams.stream import Answer, ReplicaContext, Stream

_NOT_WHOLE = {
    FailureKind.CHECKPOINT_CORRUPT,
    FailureKind.CHECKPOINT_NOT_FOUND,
    FailureKind.OBJECT_NOT_FOUND,
    FailureKind.TRANSFER_CORRUPT,
}
"""Failures that say of the remote checkpoint that it is missing, or not what was published."""


@dataclass(slots=True)
class _Wanted:
    job: transfer_jobs.FetchCheckpoint
    asked: list[Then]
    number: int = 0
    """Of the job that runs; 0: none does."""
    refused: bool = False
    """The last try was refused, and credentials have been read anew since."""
    back_off: BackOff = field(default_factory=BackOff)

    def again(self, answer: JobFailed) -> bool:
        return answer.transient or (answer.kind is FailureKind.ACCESS_REFUSED and not self.refused)


class CheckpointFetches(Stream):
    """Checkpoints that somebody waits for. What may pass is tried again after a pause, longer each time."""

    early = True
    drained = True  # whoever waits for one ends without it

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context
        self._all: dict[str, _Wanted] = {}

    def ask(self, trial: Trial, record: CheckpointRecord, then: Then) -> None:
        """Have it brought to its directory; who asks for one that is on its way hears of that one."""
        target, key = str(trial.directory / record.ref.name), self._context.key(trial.dirname, record.ref.name)
        job = transfer_jobs.FetchCheckpoint(key=key, target=target, digest=record.digest)
        self._all.setdefault(target, _Wanted(job, [])).asked.append(then)

    def due_at(self, now: float) -> float | None:
        return min((fetch.back_off.until for fetch in self._all.values() if not fetch.number), default=None)

    def start_jobs(self, now: float) -> bool:
        ready = [fetch for fetch in self._all.values() if not fetch.number and fetch.back_off.until <= now]
        for fetch in ready:
            fetch.number = self._context.submit(fetch.job, partial(self._ended, fetch))
        return bool(ready)

    def gives_up(self, answer: JobFailed) -> bool:
        """A fetch ends with this failure: who asked for it is told, and it is not tried again."""
        return any(fetch.number == answer.id and not fetch.again(answer) for fetch in self._all.values())

    def _ended(self, fetch: _Wanted, answer: Answer) -> None:
        fetch.number = 0
        if isinstance(answer, JobFailed) and fetch.again(answer):
            fetch.refused = answer.kind is FailureKind.ACCESS_REFUSED
            fetch.back_off.ended(self._context.clock.monotonic(), well=False)
            return
        del self._all[fetch.job.target]
        problem = _problem(answer) if isinstance(answer, JobFailed) else None
        for then in fetch.asked:
            then(problem)


def _problem(answer: JobFailed) -> str | ErrorInfo:
    if answer.kind in _NOT_WHOLE:
        return answer.message
    return ErrorInfo(answer.raised, answer.message, disk=answer.disk or answer.kind is FailureKind.PUBLISH)
