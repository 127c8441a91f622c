"""Writing a journal: one owner appends, in order, and decides when what it wrote is made durable."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from typing import Literal

from trainables.store import fs
from tuner.clock import Clock
from tuner.error import StorageFullError
from tuner.experiment import journal_format as form
from tuner.experiment.history_writer import HISTORY_BYTES, HistoryWriter
from tuner.experiment.journal_format import GenerationLink
from tuner.experiment.journal_segment import OpenSegment
from tuner.experiment.journal_sync import GroupSync
from tuner.experiment.paths import ExperimentPaths, parse_segment, parse_snapshot
from tuner.experiment.reserve import cannot_write, is_full, trim

log = logging.getLogger(__name__)

COMPACT_BYTES = 1024 * 1024
"""Fewer bytes than that since the last snapshot are not worth another one..."""
COMPACT_SEGMENTS = 256
"""...unless they lie in more segments than that: a replica has one sealed for each push, however little is in it..."""
SEGMENT_WORTH = 16 * 1024
"""...and one more for so many bytes of the snapshot: it is written anew only after a share of it for each segment."""
GRACE_S = 60.0
"""How long a reader may take from listing a segment to reading it without having to list again."""


def _nothing() -> None:
    """Nobody asked to be told."""


class JournalWriter:
    """Appends facts under one generation, to segments of its own: never behind what an earlier one left, torn or not.

    Args:
        paths: the experiment.
        generation: the owner's number.
        next_seq: number of the first fact: one more than the last that was taken over.
        clock: its monotonic time measures the grace of compacted segments.
        sync: "thread" makes durable beside the caller, "inline" within `request_sync`, for runs that must repeat.
        on_durable: called from the thread when `durable_seq` has moved, or syncing failed (the next `flush` raises).
        parents: `JournalContents.chain` of what was taken over.
        guard: called before a snapshot is written and before anything is removed; raises when somebody else owns it.
        before: called before facts are handed to the system: what is to be there whenever they are.
        history_bytes: what the history of what snapshots replaced may take; 0: none is kept.
    """

    def __init__(
        self,
        paths: ExperimentPaths,
        generation: int,
        *,
        next_seq: int,
        clock: Clock,
        sync: Literal["thread", "inline"] = "thread",
        on_durable: Callable[[], None] = _nothing,
        parents: Sequence[GenerationLink] = (),
        guard: Callable[[], None] = _nothing,
        before: Callable[[], None] = _nothing,
        history_bytes: int = HISTORY_BYTES,
    ) -> None:
        self.last_seq = next_seq - 1
        """Number of the last fact appended."""
        self.bytes_since_snapshot = self._segments_before = 0
        self._paths, self._generation, self._guard, self._before = paths, generation, guard, before
        self._parents = tuple(parents)
        self._pending: list[bytes] = []
        self._vital = 0
        self._flushed = self.last_seq
        self._snapshot_bytes = 0
        self._ripe: int | None = None
        """The fact up to which the journal is to be durable before the open segment is sealed."""
        self._closed = False
        self._history = HistoryWriter(
            paths, generation, clock=clock, guard=guard, limit=history_bytes, threaded=sync == "thread"
        )
        self._sync = GroupSync(durable=self.last_seq, on_durable=on_durable, threaded=sync == "thread")
        self._segment = OpenSegment(paths, generation, self._sync)
        fs.make_dirs(paths.journal)
        fs.fsync_dir(paths.root)  # a fact is as durable as the names above it
        self._adopt()

    # --- appending ------------------------------------------------------------------------------------

    def append(self, body: bytes, *, vital: bool = False) -> int:
        """Number a fact and keep it in memory until `flush`; return its number.

        Args:
            body: one JSON object on one line.
            vital: it frees space or ends a trial: written with the reserve when the disk is full.
        """
        if b"\n" in body:
            raise ValueError("a fact is one line of JSON")
        seq = self.last_seq + 1
        self.last_seq = seq
        self._pending.append(form.line(seq, body))
        if vital:
            self._vital = len(self._pending)
        return seq

    def flush(self) -> None:
        """Hand everything appended to the system, with one write.

        Raises:
            StorageFullError: the disk is full (vital facts, and those before them, are written all the same; the rest
                waits in memory for the next flush), or what was written could not be made durable.
        """
        self._before()
        if self._sync.error is not None:
            raise self._not_durable(self._sync.error)
        if not self._pending:
            return
        try:
            size = sum(map(len, self._pending)) + form.MARK_BYTES
            if self._segment.number == 0 and not self._parents:
                self._parents = self._named_parent()
            reserve = self._segment.room(size)
            if reserve.cover(self._segment.size + size):
                try:
                    self._write(len(self._pending))
                except OSError as error:
                    if not is_full(error):
                        raise
            if self._pending and self._vital:
                reserve.release()
                self._write(self._vital)
        except OSError as error:
            if is_full(error) or error.errno == errno.EROFS:
                raise self._full(error) from error
            raise
        if self._pending:
            raise self._full(None)

    @property
    def durable_seq(self) -> int:
        """Facts up to this one survive a power cut."""
        return self._sync.durable

    def request_sync(self) -> None:
        """Ask for everything flushed so far to be made durable; see `sync`. Never blocks in thread mode."""
        self._sync.request()

    def sync_now(self) -> None:
        """Flush, and return when all of it is durable."""
        self.flush()
        try:
            self._sync.now()
        except OSError as error:
            raise self._not_durable(error) from error

    def ready_to_seal(self) -> bool:
        """Whether `seal` would hardly wait for the disk.

        If not, what was flushed when this was first asked is made durable beside the caller, and `on_durable` tells
        when it is time to ask again.
        """
        if self._ripe is None:
            self._ripe = self._flushed
        if self.durable_seq < self._ripe:
            self.request_sync()
        return self.durable_seq >= self._ripe

    def seal(self) -> bool:
        """Close the open segment for good, durable, and open another. False: there is no room for one, and it stays."""
        self.flush()
        self._ripe = None
        if self._segment.size == 0:
            return True
        try:
            self._segment.open_next()
        except OSError as error:
            raise self._full(error) from error
        return self._segment.size == 0

    @property
    def open_name(self) -> str:
        """The segment that is being written; every other file of the journal is as it will stay."""
        return self._segment.name if self._segment.is_open else ""

    def close(self) -> None:
        """Write and sync what is left, seal, and end the thread. Doing it twice is no error."""
        if self._closed:
            return
        self._closed = True
        try:
            self.flush()
            self._segment.close()
        finally:
            self._sync.close()
            self._segment.abandon()
        self.archive(GRACE_S)

    # --- compaction -----------------------------------------------------------------------------------

    def should_compact(self) -> bool:
        """True when what follows the last snapshot is as large as it, and not small, or lies in many small segments.

        Either way a constant cost per fact, or per segment.
        """
        many = COMPACT_SEGMENTS + self._snapshot_bytes // SEGMENT_WORTH
        segments = self._segments_before + self._segment.sealed
        return self.bytes_since_snapshot > max(COMPACT_BYTES, self._snapshot_bytes) or segments > many

    def compact(self, snapshot_body: bytes, *, grace_s: float = GRACE_S) -> bool:
        """Write a snapshot of everything appended; a compaction `grace_s` later packs what it replaces.

        False: there was no room for it; the journal stays as it is, and `should_compact` waits for more.
        """
        if not self.seal():
            return self.postpone_compaction("there is no room for another segment")
        self._guard()
        path = self._paths.snapshot(self._generation, self.last_seq)
        data = form.snapshot(self._generation, self.last_seq, self._parents, snapshot_body)
        try:
            fs.replace_file(path, data)
        except OSError as error:
            if not is_full(error):
                raise
            return self.postpone_compaction(str(error))
        self._nothing_since()
        self._snapshot_bytes = len(data)
        names = fs.listdir(self._paths.journal)
        self._history.replaced((name for name in names if name != path.name and self._is_covered(name)), self._parents)
        self._history.pack(grace_s)
        return True

    def archive(self, grace_s: float = 0.0) -> None:
        """Pack what snapshots replaced so long ago, and return when that is done; 0: nothing follows that needs it."""
        self._history.wait()
        self._history.pack(grace_s)
        self._history.wait()

    @property
    def packed(self) -> int:
        """Goes up each time after the history has changed."""
        return self._history.changes

    def postpone_compaction(self, why: str) -> bool:
        """`should_compact` waits for more; returns False."""
        log.warning("%s was not compacted: %s", self._paths.journal, why)
        self._nothing_since()
        return False

    def _nothing_since(self) -> None:
        self.bytes_since_snapshot = self._segments_before = self._segment.sealed = 0

    def _is_covered(self, name: str) -> bool:
        """True for segments and snapshots that the newest snapshot replaces (void ones too); never a newer owner's."""
        if parsed := parse_snapshot(name):
            return parsed[0] <= self._generation
        if parsed := parse_segment(name):
            return parsed < (self._generation, self._segment.number)  # the one of that number is open, and empty
        return False

    # --- segments -------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Make durable what earlier generations left in the page cache, before anything builds on it."""
        newest: dict[int, str] = {}
        for name in fs.listdir(self._paths.journal):
            if parsed := parse_segment(name):
                size = fs.size(self._paths.journal / name)
                self.bytes_since_snapshot += size
                self._segments_before += 1
                if parsed[0] < self._generation and size:  # an empty one is opened before its elder is durable
                    newest[parsed[0]] = name
            elif parse_snapshot(name):
                self._snapshot_bytes = fs.size(self._paths.journal / name)
        # Of a generation only the last segment that has something was ever not durable, and older generations were
        # adopted by their own children.
        for generation in {max(newest, default=0), *(link.generation for link in self._parents[-1:])} & set(newest):
            path = self._paths.journal / newest[generation]
            trim(path)
            fs.fsync_file(path)
        if newest:
            fs.fsync_dir(self._paths.journal)

    def _named_parent(self) -> tuple[GenerationLink, ...]:
        facts, _ = form.parse_lines(self._pending[0])
        head = form.read_head(facts[0][1])
        return (GenerationLink(head.parent, head.parent_id, head.parent_seq),) if head.parent else ()

    def _write(self, count: int) -> None:
        """Write the first `count` pending lines, all or none."""
        if not self._segment.is_open:
            self._segment.open_next()
        lines = self._pending[:count]
        if self._segment.size == 0 and lines:
            lines[0] = form.first_line(lines[0])
        data = b"".join(lines)
        self._segment.write(data)
        self.bytes_since_snapshot += len(data)
        self._flushed += count
        del self._pending[:count]
        self._vital = max(0, self._vital - count)
        self._sync.wrote(self._flushed)

    def _not_durable(self, error: Exception) -> StorageFullError:
        if isinstance(error, OSError) and error.errno == errno.EROFS:
            return cannot_write(self._paths.journal, error)
        failed = StorageFullError(
            f"{self._paths.journal} could not be made durable: {error}; end the run and resume it"
        )
        failed.__cause__ = error
        return failed

    def _full(self, error: OSError | None) -> StorageFullError:
        return cannot_write(self._paths.journal, error or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
