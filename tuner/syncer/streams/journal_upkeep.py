"""The journal that a replica has already: what compaction removed here is removed, what is damaged sent again."""

from __future__ import annotations

import json
import logging
import re
from functools import partial
from typing import TypeGuard

import msgspec
from blake3 import blake3

from trainables.store import fs
from trainables.transfer import transfer_jobs
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed
from tuner.experiment import journal_format as form
from tuner.experiment.paths import parse_snapshot
from tuner.syncer.streams.experiment_files import ExperimentFiles
from tuner.syncer.streams.journal_stream import JournalStream
from tuner.syncer.streams.stream import Answer, OnAnswer, ReplicaContext, Stream

log = logging.getLogger(__name__)

_HASH = re.compile(rb"[0-9a-f]{64}")


class JournalUpkeep(Stream):
    """Removes after each push, and compares once.

    Args:
        files: they bring the history there of what is removed.
    """

    def __init__(self, context: ReplicaContext, journal: JournalStream, files: ExperimentFiles) -> None:
        self._context, self._paths, self._journal, self._files = context, context.paths, journal, files
        self._looked = 0
        """After so many pushes it was looked what compaction has removed."""
        self._removing: set[str] = set()
        self._compared = False
        self._looking = 0
        """Comparisons under way, and what follows from them."""

    @property
    def drained(self) -> bool:
        return not (self._removing or self._looking)

    def start_jobs(self, now: float) -> bool:
        return self._remove() | self._compare()

    # --- what compaction removed ----------------------------------------------------------------------------

    def _remove(self) -> bool:
        """Delete there what was removed here, once the snapshot that replaces it is there, and the pack with its lines.

        The directories are looked at once after each push, and not again until the next.
        """
        busy = self._removing or self._journal.pushing or self._files.is_behind
        if busy or self._looked == self._journal.pushes or not self._context.can.delete:
            return False
        there = self._journal.there
        local = {f"journal/{name}" for name in self._journal.names(self._paths.journal)}
        snapshots = {name for name in local if parse_snapshot(name.removeprefix("journal/"))}
        gone = {name for name in there if name.startswith("journal/")} - local
        if gone and snapshots <= there and not self._files.has_history:
            return False  # it is looked again
        self._looked = self._journal.pushes
        if not gone or not snapshots <= there:
            return False
        # Blobs go last, and only now: until then a snapshot in the replica may name them.
        blobs = {f"blobs/{name}" for name in fs.listdir(self._paths.blobs)} if fs.is_dir(self._paths.blobs) else set()
        void = {name for name in there if name.startswith("blobs/")} - blobs
        self._removing = gone | void
        self._context.delete([*sorted(gone), *sorted(void)], self._removed)
        return True

    def _removed(self, answer: Answer) -> None:
        if isinstance(answer, Done):
            self._journal.there -= self._removing
        self._removing = set()

    # --- what is damaged, or missing ------------------------------------------------------------------------

    def _compare(self) -> bool:
        if self._compared:
            return False
        self._compared = True
        names = [name for name in sorted(self._journal.there) if name.split("/")[0] in ("journal", "blobs")]
        names = [name for name in names if fs.exists(self._paths.root / name)]
        if not names:
            return False
        for name in self._missed():
            log.warning("%s: %s is missing: it is sent again from here", self._context.uri, name)
        self._look(
            transfer_jobs.Compare(source=str(self._paths.root), prefix=self._context.key(), names=names), self._differ
        )
        return True

    def _missed(self) -> list[str]:
        """Blobs that are here and not there, although the journal there names them: the next push brings them."""
        there = self._journal.there
        new = {name for name in self._journal.names(self._paths.blobs) if f"blobs/{name}" not in there}
        pushed = [name for name in self._journal.names(self._paths.journal) if f"journal/{name}" in there]
        named = {
            hash.decode() for name in pushed if new for hash in _HASH.findall(fs.read_file(self._paths.journal / name))
        }
        if new and pushed:  # the settings' blob may be another than before; the space's is not
            named.add(json.loads(fs.read_file(self._paths.experiment_json)).get("space_blob"))
        return [f"blobs/{name}" for name in sorted(new & named)]

    def _look(self, job: AnyJob, answered: OnAnswer) -> None:
        self._looking += 1
        self._context.submit(job, answered)

    def _differ(self, answer: Answer) -> None:
        if self._could(answer):
            for name in msgspec.json.decode(answer.data, type=list[str]):
                self._look(transfer_jobs.Read(key=self._context.key(name)), partial(self._differs, name))

    def _differs(self, name: str, answer: Answer) -> None:
        """A remote file is another, and is sent again if that mends it."""
        if not self._could(answer):
            return
        path = self._paths.root / name
        try:
            local = fs.read_file(path)
        except FileNotFoundError:
            return  # removed meanwhile
        if _mends(name, local, answer.data):
            self._journal.send_again(name)
            said = f"is damaged: it is sent again from {path}"
        else:
            said = f"is not the same as {path}, which is not known to be the right one: it is left alone"
        log.warning("%s: %s %s", self._context.uri, name, said)

    def _could(self, answer: Answer) -> TypeGuard[Done]:
        """Whether it could be looked; if not, and that may pass, all of it is done again."""
        self._looking -= 1
        self._compared &= not (isinstance(answer, JobFailed) and answer.transient)
        return isinstance(answer, Done)


def _mends(name: str, local: bytes, remote: bytes) -> bool:
    """Whether a file is whole here, and the remote one, which differs, no more than a part of it."""
    directory, _, name = name.partition("/")
    if directory == "blobs":
        return blake3(local).hexdigest() == name
    if parse_snapshot(name) is not None:
        return _is_snapshot(local) and not _is_snapshot(remote)
    facts, cut = form.parse_lines(local)
    its, _ = form.parse_lines(remote)
    return not cut and facts[: len(its)] == its


def _is_snapshot(data: bytes) -> bool:
    try:
        form.parse_snapshot(data)
    except ValueError:
        return False
    return True
