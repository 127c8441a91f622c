"""Following a journal beside its writer: each look reads what was written since the last one, and nothing twice.

A look at a journal in which nothing has changed costs two system calls, also on a shared disk, where nobody is told of
changes. Nothing is written, and the writer knows nothing of it.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainables.store import fs
from tuner.experiment import formats
from tuner.experiment import journal_format as form
from tuner.experiment.generations import read_record
from tuner.experiment.journal_reader import JournalContents, read_journal
from tuner.experiment.paths import ExperimentPaths, parse_segment, parse_snapshot
from tuner.experiment.replacing import standing

LIST_EVERY = 20
"""Looks: a directory's time may be cached on a shared disk, so that now and then it is listed in any case."""
TORN = 50
"""Looks: a line that stays torn for so long is not being written."""


class JournalReplaced(Exception):
    """What was read is not what the journal continues: it is to be read anew."""


class JournalTail:
    """The end of one experiment's journal.

    Args:
        paths: the experiment. Of one that is about to be replaced the old one is read, as by every reader.
    """

    def __init__(self, paths: ExperimentPaths) -> None:
        self._given = paths
        self._paths = standing(paths)
        self.last_seq = 0
        self._segment = (0, 0)
        self._offset = 0
        self._id: str | None = None
        self._listed: object = None
        self._looks = self._torn = 0
        self._waits = False
        """A later generation has a file, and nothing in it: that changes without a change of the directory."""

    def begin(self) -> JournalContents:
        """All of the journal; `more` goes on from there. Raises what `read_journal` raises."""
        self._paths = standing(self._given)
        contents = read_journal(self._paths)
        self.last_seq = contents.last_seq
        own = [number for generation, number in self._segments() if generation == contents.generation]
        self._segment, self._offset = (contents.generation, max(own, default=0)), 0
        self._id = contents.generation_id
        self._listed, self._torn = None, 0
        return contents

    def more(self) -> list[tuple[int, bytes]]:
        """(sequence number, body) of each fact since the last look.

        Raises JournalReplaced, NewerFormatError, OSError.
        """
        facts = self._read()
        if facts or 0 < self._torn <= TORN:
            return facts
        self._looks += 1
        listed = self._directory()
        if listed == self._listed and self._looks % LIST_EVERY:
            return []
        if self._go_on():
            return self.more()
        self._listed = None if self._waits else listed
        return []

    def _directory(self) -> object:
        try:
            return os.stat(self._paths.journal).st_mtime_ns, self._segment
        except FileNotFoundError:
            return None

    def _path(self) -> Path:
        return self._paths.segment(*self._segment)

    def _read(self) -> list[tuple[int, bytes]]:
        path = self._path()
        try:
            with fs.open_file(path) as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._offset:
                    raise JournalReplaced(f"{path.name} was cut")
                if size == self._offset:
                    return []
                file.seek(self._offset)
                data = file.read(size - self._offset)
        except FileNotFoundError:
            self._torn = 0  # the rest of the line is in a file that has taken its place
            return []
        if not self._offset:
            formats.check_beginning(data, path)
        whole = data[: data.rfind(b"\n") + 1]
        read, cut = form.parse_lines(whole)
        self._torn = self._torn + 1 if cut or len(whole) < len(data) else 0
        if self._torn > TORN and cut:
            raise JournalReplaced(f"{path.name} is damaged")
        self._offset += len(whole) - cut
        return self._next(read)

    def _next(self, read: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Of what was read the facts that follow the last one."""
        facts = []
        for seq, body in read:
            if seq <= self.last_seq:
                continue
            if seq > self.last_seq + 1:
                raise JournalReplaced(f"facts {self.last_seq + 1} to {seq - 1} are not there any more")
            self.last_seq = seq
            facts.append((seq, body))
        return facts

    def _go_on(self) -> bool:
        """Go to the next segment, if there is one."""
        if standing(self._given).root != self._paths.root:
            raise JournalReplaced("another experiment is in its place")
        generation, number = self._segment
        record = read_record(self._paths.generation(generation))
        if self._id is not None and (record is None or record.id != self._id):
            raise JournalReplaced("the journal is another one")
        segments = self._segments()
        newest = max((key[0] for key in [*segments, *self._snapshots()]), default=0)
        after = [key for key in segments if key[0] == generation and key[1] > number]
        if after:
            self._segment, self._offset = min(after), 0
            return True
        later = [key for key in segments if key[0] > generation]
        if later and (found := self._heir(sorted(later))):
            self._segment, self._offset = found, 0
            heir = read_record(self._paths.generation(found[0]))
            self._id = None if heir is None else heir.id
            return True
        if newest < generation or any(seq > self.last_seq for _, seq in self._snapshots()):
            raise JournalReplaced("facts that were not read are not there any more")
        self._waits = bool(later)
        return False

    def _heir(self, later: list[tuple[int, int]]) -> tuple[int, int] | None:
        """The first segment of the generation that continues what was read; None: it is not written yet."""
        for key in later:
            path = self._paths.segment(*key)
            try:
                facts = form.parse_lines(fs.read_file(path))[0]
            except FileNotFoundError:
                raise JournalReplaced(f"{path.name} is not there any more") from None
            if not facts:
                continue
            head = form.read_head(facts[0][1])
            if facts[0][0] != self.last_seq + 1 or head.parent_seq != self.last_seq:
                raise JournalReplaced(f"generation {key[0]} continues from fact {facts[0][0] - 1}")
            return key
        return None

    def _segments(self) -> list[tuple[int, int]]:
        return [parsed for name in self._names() if (parsed := parse_segment(name))]

    def _snapshots(self) -> list[tuple[int, int]]:
        return [parsed for name in self._names() if (parsed := parse_snapshot(name))]

    def _names(self) -> list[str]:
        return fs.listdir(self._paths.journal) if fs.is_dir(self._paths.journal) else []
