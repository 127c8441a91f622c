"""Checkpoints on their way here from a replica: one job for each, whoever asks, until it is here or cannot be."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from trainables.errors import (
    AccessRefusedError,
    CheckpointCorruptError,
    CheckpointNotFoundError,
    ObjectNotFoundError,
    PublishError,
    TransferCorruptError,
)
from trainables.runtime.saving import DISK
from trainables.transfer.agent import Done, Failed, FetchCheckpoint
from tuner.experiment.events import ErrorInfo
from tuner.syncer.queue import Patience
from tuner.syncer.sink import Then

_NOT_WHOLE = {
    error.__name__
    for error in (CheckpointCorruptError, CheckpointNotFoundError, ObjectNotFoundError, TransferCorruptError)
}
"""Errors that say of the checkpoint over there that it is missing, or not what was published."""


@dataclass(slots=True)
class _Wanted:
    job: FetchCheckpoint
    asked: list[Then]
    number: int = 0
    """Of the job that runs; 0: none does."""
    refused: bool = False
    """The last try was refused, and credentials have been read anew since."""
    patience: Patience = field(default_factory=Patience)

    def again(self, answer: Failed) -> bool:
        return answer.transient or (answer.type == AccessRefusedError.__name__ and not self.refused)


class CheckpointFetches:
    """What is being fetched. What may pass is tried again after a pause, longer each time."""

    def __init__(self) -> None:
        self._all: dict[str, _Wanted] = {}

    def ask(self, job: FetchCheckpoint, then: Then) -> None:
        """Have it brought to its target; who asks for one that is on its way hears of that one."""
        self._all.setdefault(job.target, _Wanted(job, [])).asked.append(then)

    @property
    def due_at(self) -> float | None:
        """When `start` has something to do, in monotonic seconds; None: not by itself."""
        return min((fetch.patience.until for fetch in self._all.values() if not fetch.number), default=None)

    def start(self, now: float, submit: Callable[[FetchCheckpoint], int]) -> bool:
        """Submit the jobs that are to run now, each until `ended`; False: there are none."""
        ready = [fetch for fetch in self._all.values() if not fetch.number and fetch.patience.until <= now]
        for fetch in ready:
            fetch.number = submit(fetch.job)
        return bool(ready)

    def gives_up(self, answer: Failed) -> bool:
        """A fetch ends with this failure: who asked for it is told, and it is not tried again."""
        return any(fetch.number == answer.id and not fetch.again(answer) for fetch in self._all.values())

    def ended(self, target: str, answer: Done | Failed, now: float) -> None:
        """A job has ended: it is tried again later, or all who asked are told."""
        fetch = self._all[target]
        fetch.number = 0
        if isinstance(answer, Failed) and fetch.again(answer):
            fetch.refused = answer.type == AccessRefusedError.__name__
            fetch.patience.ended(now, well=False)
            return
        del self._all[target]
        problem = _problem(answer) if isinstance(answer, Failed) else None
        for then in fetch.asked:
            then(problem)


def _problem(answer: Failed) -> str | ErrorInfo:
    if answer.type in _NOT_WHOLE:
        return answer.message
    full = any(os.strerror(code) in answer.message for code in DISK)
    return ErrorInfo(answer.type, answer.message, disk=full or answer.type == PublishError.__name__)
