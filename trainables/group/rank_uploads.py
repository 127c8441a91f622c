"""What a rank saved goes to the run's replica from that rank: behind the training, by a process of the rank's own.

It goes under the checkpoint's own key, where nobody sees it before the manifest is there. The driver puts that, once it
has sent what is missing, and removes what comes to nothing; until the rank has said `RankUploaded` it does neither.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from trainables.errors import CheckpointError, TrainablesError
from trainables.group.rank_messages import RankUploaded, Upload
from trainables.job import Job
from trainables.starting import start_thread
from trainables.store import file_tree, fs, staging
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import transfer_jobs
from trainables.transfer.client import START_S, ProcessClient
from trainables.transfer.transfer_jobs import JobFailed

_log = logging.getLogger(__name__)

_PARTING_S = 60.0
"""A rank that has come to its end waits for its last upload as long as something moves, and so long beyond."""
_STILL_S = 300.0
"""An upload of which nothing has moved for so long is given up, and left to the driver."""
_END_S = 5.0
"""So long an upload that was given up may take to end."""


class RankUploads:
    """The uploads of one rank: one runs, one waits, and a newer one takes the place of that which waits.

    Args:
        tell: what is called with the outcome of each, from any thread.
    """

    def __init__(self, job: Job, rank: int, tell: Callable[[RankUploaded], None]) -> None:
        assert job.replicated is not None
        self._job, self._replicated, self._rank, self._tell = job, job.replicated, rank, tell
        self._changed = threading.Condition()
        self._waiting: tuple[Upload, Path] | None = None
        self._busy = self._closing = False
        self._thread: threading.Thread | None = None
        self._client: ProcessClient | None = None
        self._unkept = ""

    def keep(self, staged: Path) -> Path | None:
        """Second names for what the rank has staged, which others will move or remove; None: there can be none."""
        kept = None
        try:
            found = staging.settle(staged)
            kept = staging.new_directory(staged.parent, f"upload-rank{self._rank}")
            for name in found.directories:
                fs.mkdir(kept / name)
            for file in found.files:
                fs.link(file.source, kept / file.name)
        except (CheckpointError, OSError) as error:
            # What cannot be in a checkpoint keeps it from being saved too, and is told of that; what the disk did not
            # take here may be saved all the same.
            disk = isinstance(error, OSError)
            self._unkept = f"{staged.parent}: {error.__cause__ or error}" if disk else ""
            if kept is not None:
                fs.remove_quietly(kept)
            return None
        return kept

    def take(self, upload: Upload | None, kept: Path | None) -> None:
        """Begin with it, now or when the one before it is done; None: nothing is to be uploaded."""
        if upload is None or kept is None:
            if kept is not None:
                fs.remove_quietly(kept)
            if upload is not None:
                self._tell(RankUploaded(upload.save, {}, self._unkept))
            return
        with self._changed:
            passed, self._waiting = self._waiting, (upload, kept)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = start_thread(self._work, name="trial-upload")
        if passed is not None:
            fs.remove_quietly(passed[1])
            self._tell(RankUploaded(passed[0].save, {}))

    def finish(self) -> None:
        """Wait until everything is there, or nothing has moved for a while."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            begun = time.monotonic()
            while self._busy or self._waiting is not None:
                heard = begun if self._client is None else max(begun, self._client.heard_at)
                left = heard + _PARTING_S - time.monotonic()
                if left < -_END_S:
                    break  # whatever holds it up ends with this process
                if left <= 0 and self._client is not None:
                    self._client.restart("the rank has come to its end")  # which its thread hears
                self._changed.wait(max(left, 1.0))
        if self._client is not None:
            self._client.close()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting is not None or self._closing)
                if self._waiting is None:
                    return
                (upload, kept), self._waiting, self._busy = self._waiting, None, True
            sent, problem = self._upload(upload, kept)
            fs.remove_quietly(kept)
            self._tell(RankUploaded(upload.save, sent, problem))

    def _upload(self, upload: Upload, kept: Path) -> tuple[dict[str, str], str]:
        part = upload.part
        try:
            names = [file.name for file in file_tree.scan(kept, follow=False).files if part.has(file.name)]
            job = transfer_jobs.PushPart(
                directory=str(kept),
                key="/".join(filter(None, (self._replicated.directory, upload.checkpoint, part.under))),
                names=[name for name in names if part.named(name) != MANIFEST_NAME],
                witness=self._replicated.witness,
                guard=self._replicated.guard,
            )
            if self._client is None:
                # A relative place is relative to where the driver runs.
                self._client = ProcessClient(
                    self._replicated.arguments,
                    cwd=self._job.original_cwd,
                    start_s=min(START_S, self._replicated.timeout_s),
                )
            answer = self._client.do(job, timeout_s=min(_STILL_S, self._replicated.timeout_s))
        except (TrainablesError, OSError) as error:
            return {}, str(error)
        except Exception as error:
            _log.error("uploading %s met a bug", upload.checkpoint, exc_info=error)
            return {}, f"{type(error).__name__}: {error}"
        if isinstance(answer, JobFailed):
            return {}, answer.message
        sent = msgspec.json.decode(answer.data, type=dict[str, str])
        return {part.named(name): digest for name, digest in sent.items()}, ""
