"""The results of a group: what all ranks reported becomes one of the trial, what all saved one checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointNotFoundError, PublishError
from trainables.group.failures import packed
from trainables.group.merging import merge
from trainables.group.rank import Rank
from trainables.group.rank_messages import End, Go, RankReport, Refused
from trainables.group.upload_tracker import GroupSave, UploadTracker
from trainables.runtime.attempt import Attempt
from trainables.runtime.saving_session import TrialExit
from trainables.store import fs

SAVE_NUMBER = "checkpoint_id"
"""Where the manifest of a group's checkpoint keeps its number."""


class GroupResults:
    """Delivers a result once every rank has reported, and answers them all.

    Args:
        collects: what all ranks report is part of the result, as a list under `_ranks`.
    """

    def __init__(self, attempt: Attempt, ranks: Sequence[Rank], *, collects: bool) -> None:
        self._attempt, self._ranks, self._collects = attempt, ranks, collects
        self.next_save = _first_save(attempt)
        """The number that the next save of the group has."""
        self.uploads = UploadTracker(attempt.uploaded)
        self._save = GroupSave(self.next_save)

    def deliver(self) -> Go | End | Refused:
        """One result of what all ranks reported; what they are to be told."""
        self._save = GroupSave(self.next_save)
        try:
            self._deliver([rank.report for rank in self._ranks if rank.report is not None])
        except TrialExit:
            return End()
        except Exception as error:
            return Refused(packed(error))
        return Go(self._attempt.should_save_next(), self.next_save)

    def answer(self, answer: Go | End | Refused) -> None:
        """Tell all ranks, and each what of the checkpoint it copies to the replica."""
        uploads = {} if isinstance(answer, Refused) else self._save.uploads()
        for rank in self._ranks:
            rank.report = None
            upload = uploads.get(rank.number)
            if upload is None or isinstance(answer, Refused):
                rank.answer(answer)
            else:
                rank.answer(msgspec.structs.replace(answer, upload=upload))
        if self._save.ref is not None:
            self.uploads.begin(self._save, set(uploads))

    def _deliver(self, reports: list[RankReport]) -> None:
        """Rank 0's metrics, and everybody's files."""
        failures = [report.failure for report in reports if report.failure is not None]
        failure = failures[0] if failures and isinstance(failures[0], PublishError) else None
        saves = [(number, report.staged) for number, report in enumerate(reports) if report.staged is not None]
        save, job = self._save, self._attempt.job
        if saves and failure is None:
            try:
                path, save.parts = merge(saves, job.directory, keep_all_ranks=job.keep_all_ranks)
                uploading = job.replicated is not None
                save.staged = self._attempt.saver.adopt(path, {SAVE_NUMBER: save.number}, uploading=uploading)
            except PublishError as error:
                failure = error
        if save.staged is None:
            for _, staged in saves:
                fs.remove_quietly(staged)
        else:
            self.next_save += 1
        metrics = reports[0].metrics
        if self._collects:
            metrics = {**metrics, session.ALL_RANKS: [report.metrics for report in reports]}
        self._attempt.report_staged(metrics, save.staged, failure)


def _first_save(attempt: Attempt) -> int:
    """The number of the group's first save: after an own checkpoint the next, after another's that very number."""
    path = attempt.job.checkpoint_path
    if path is None:
        return 0
    try:
        content = Checkpoint(str(path)).manifest
    except CheckpointNotFoundError:
        return 0
    restored = 0 if content is None else content.extra.get(SAVE_NUMBER)
    if not isinstance(restored, int):
        return 0
    return restored if attempt.job.checkpoint is None else restored + 1
