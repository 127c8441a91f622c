"""The jobs of a replica that its agent works on: who gets each answer, what is said of failures, and of silence."""

from __future__ import annotations

import logging

from trainables.places import child_of
from trainables.transfer import transfer_jobs
from trainables.transfer.client import TransferClient
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed
from tuner.clock import Clock
from tuner.syncer.streams.stream import Answer, OnAnswer

log = logging.getLogger(__name__)

SILENT_S = 30.0
"""An operation of which nothing was heard for so long is spoken of."""
TELL_AGAIN_S = 60.0


class AgentJobs:
    """What one replica has under way.

    Args:
        uri: how messages call the replica.
        timeout_s: seconds without progress after which an operation is given up and done again.
    """

    def __init__(self, uploader: TransferClient, *, uri: str, clock: Clock, timeout_s: float) -> None:
        self.trouble = ""
        """What was said last when something failed."""
        self.silence_at = 0.0
        """Until that monotonic time nobody looks for silence."""
        self._uploader, self._uri, self._clock, self._timeout_s = uploader, uri, clock, timeout_s
        self._running: dict[int, tuple[AnyJob, OnAnswer]] = {}
        self._moved_at = clock.monotonic()
        self._told: tuple[str, float] = ("", 0.0)
        self._spoken_of = 0

    def submit(self, job: AnyJob, answered: OnAnswer) -> int:
        """Have a job done; `answered` gets its answer. Returns the number of both."""
        number = self._uploader.submit(job)
        self._running[number] = (job, answered)
        return number

    def ended(self, answer: Answer) -> None:
        """Give an answer to who asked."""
        job, answered = self._running.pop(answer.id, (None, None))
        if isinstance(answer, Done) and not isinstance(job, transfer_jobs.Put):  # with a heartbeat nothing arrives
            self.moved()
        if answered is not None:
            answered(answer)

    def complain(self, answer: JobFailed) -> None:
        """Say what is wrong once, and again when it is something else or lasts."""
        self.trouble, now = answer.message, self._clock.monotonic()
        if answer.id in self._running and (self._told[0] != answer.message or now - self._told[1] >= TELL_AGAIN_S):
            self._told = (answer.message, now)
            again = "" if answer.unusable else "; tried again"
            log.warning("%s: %s%s", self._uri, answer.message, again)

    def moved(self) -> None:
        """From now on it counts how long nothing moves."""
        self._moved_at = self._clock.monotonic()

    @property
    def stalled(self) -> bool:
        """Nothing has moved for so long that it is not waited for; or nothing moves while somebody waits."""
        heard = max(self._moved_at, self._uploader.heard_at)
        return not self._uploader.beside or self._clock.monotonic() - heard >= self._timeout_s

    def due_at(self, now: float) -> list[float]:
        """When it is to be looked for silence although nothing happens before."""
        return [now + SILENT_S / 2] if self._running else []

    def look_for_silence(self, now: float) -> None:
        """Speak of an operation of which nothing is heard, and end the agent when that lasts."""
        if now < self.silence_at:
            return
        self.silence_at = now + 1.0
        silent = self._uploader.silence(now)
        if silent is None:
            return
        job, seconds = silent
        if seconds > self._timeout_s:
            self._uploader.restart(f"{self._uri}: {_what(job)} made no progress for {seconds:.0f} s")
        elif seconds > SILENT_S and self._spoken_of != job.id:
            self._spoken_of = job.id
            log.warning("%s: %s has made no progress for %.0f s", self._uri, _what(job), seconds)


def _what(job: AnyJob) -> str:
    match job:
        case transfer_jobs.PushPayload() | transfer_jobs.PushManifest():
            return f"copying {job.directory}"
        case transfer_jobs.CopyPayload() | transfer_jobs.CopyManifest():
            return f"copying {child_of(job.place, job.source)}"
        case transfer_jobs.FetchCheckpoint():
            return f"fetching {job.key}"
        case transfer_jobs.DeleteCheckpoint():
            return f"deleting {job.key}"
        case transfer_jobs.Push():
            return f"copying {', '.join(prefix for _, prefix, _ in job.groups[:3]) or 'the journal'}"
        case transfer_jobs.Put():
            return f"writing {job.key}"
        case _:
            return "an operation"
