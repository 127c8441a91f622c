"""Where the facts about each trial lie: so that one trial's story of a hundred thousand is read from few files.

What is held of a segment is which trials its facts are about, and the last fact about each: so an earlier moment is
told by what has not changed since, and by the facts about what has (`tuner.ui.past`).
"""

from __future__ import annotations

import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from trainables.store import fs
from tuner.experiment import events as ev
from tuner.experiment import journal_format as form
from tuner.experiment.history import History
from tuner.experiment.history_files import HistoryFiles
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.journal_reader import JournalContents, read_journal
from tuner.experiment.paths import ExperimentPaths, parse_segment, parse_snapshot
from tuner.ui.cold_state import abouts

_LINE = re.compile(
    rb'\n\{"n":(\d+),"c":"[0-9a-f]{8}","f":\{(?:"format":\d+,)?"kind":"(\w+)"'
    rb'(?:,"(?:trial|ref)":(?:\{"trial_id":)?"((?:[^"\\]|\\.)*)")?'
)
"""A fact's number, its kind, and the trial that it is about."""
_STEERING = frozenset(
    (b"generation", b"search_ended", b"run_ended", b"order_taken", b"order_answered", b"set")
    + (b"noted", b"held", b"pinned", b"reopened")
)
"""Kinds of facts that are about more than one trial's life: they are few, and all of them are replayed."""
KEPT = 3
"""Segments in memory, as they were read last."""

Hashes = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True)
class _IndexedSegment:
    """What of a segment is held: its facts that count, and the trials that they are about."""

    name: str
    first: int
    last: int
    trials: Hashes
    lasts: Hashes
    """The last fact about each of these."""


class FactIndex:
    """The facts of an experiment by trial.

    Args:
        paths: the experiment.
        contents: its journal as it was read, of which nothing but the chain and the numbers is needed.
        stopped: whether nobody waits for it any more.
    """

    def __init__(
        self, paths: ExperimentPaths, contents: JournalContents, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._files = HistoryFiles(paths)
        self._lock = threading.RLock()
        self._segments: list[_IndexedSegment] = []
        self._created = array("q"), array("q")
        """Hashes of ids, and the facts that created these trials."""
        self.steering: list[tuple[int, bytes, int]] = []
        """(number, body, hash of the trial or 0) of the facts of these kinds, in order."""
        self._of_rows = np.empty(0, np.int64)
        self._read: OrderedDict[str, bytes] = OrderedDict()
        self._open: tuple[str, int] | None = None
        """The newest segment, which grows, and its bytes when it was looked at."""
        contents = _of_now(paths, contents)
        history = History(paths, contents)
        self.begins_after = history.begins_after
        """The number of the fact after which the history begins."""
        self.notes = list(history.notes)
        self._snapshots = history.snapshots
        for name, first, last in history.segments:
            if stopped():
                return
            self._take_in(name, first, last, self._files.read(name))
        self.since = history.since if self.begins_after else None
        """Its time; None: it begins with the experiment, or tells no time."""
        self._key = max((parse_segment(one.name) or (0, 0) for one in self._segments), default=(0, 0))
        self._folded = contents.snapshot_seq
        self._look(strict=False)

    def _take_in(self, name: str, first: int, last: int, data: bytes) -> None:
        lasts: dict[int, int] = {}
        hashes, numbers = self._created
        for found in _LINE.finditer(b"\n" + data):
            number, kind, trial = found.groups()
            seq = int(number)
            if not first <= seq <= last:
                continue
            about = hash(trial) if trial is not None else 0
            if trial is not None:
                lasts[about] = seq
            if kind == b"created":
                hashes.append(about)
                numbers.append(seq)
            elif kind in _STEERING:
                end = data.find(b"\n", found.end() - 1)
                facts = form.parse_lines(data[found.start() : end + 1])[0]
                self.steering += [(seq, body, about) for _, body in facts]
        trials = np.fromiter(lasts.keys(), np.int64, len(lasts))
        self._segments.append(
            _IndexedSegment(name, first, last, trials, np.fromiter(lasts.values(), np.int64, len(lasts)))
        )

    # --- what came since it was made ----------------------------------------------------------------------

    def look(self) -> None:
        """Take in what came since the last look.

        Raises FileNotFoundError if some of it has gone again since then: only a new index knows where what is left is.
        """
        self._look(strict=True)

    def _look(self, *, strict: bool) -> None:
        with self._lock:
            names = self._files.segments_after(self._key)
            if self._open is not None:
                if self._is_as_it_was(names):
                    return
                if strict and self._open[0] not in map(self._files.segment, names):
                    raise FileNotFoundError(f"{self._open[0]} is not there any more")
                self._forget_open()
            for key in names:
                name = self._files.segment(key)
                try:
                    data = self._files.read(name)
                except UNREADABLE:
                    continue
                facts = form.parse_lines(data)[0]
                if not facts or facts[-1][0] <= self._folded:
                    continue
                self._cut_at(form.read_head(facts[0][1]).parent_seq)
                reached = max([self._folded, *(one.last for one in self._segments[-1:])])
                if strict and facts[0][0] > reached + 1:
                    raise FileNotFoundError(f"facts {reached + 1} to {facts[0][0] - 1} are not there any more")
                self._take_in(name, max(facts[0][0], self._folded + 1), facts[-1][0], data)
                if key == names[-1]:
                    self._open = name, len(data)
                else:
                    self._key = key

    def _is_as_it_was(self, names: list[tuple[int, int]]) -> bool:
        assert self._open is not None
        newest = [self._files.segment(key) for key in names]
        return newest == [self._open[0]] and self._files.size(self._open[0]) == self._open[1]

    def _forget_open(self) -> None:
        """What was held of the segment that has grown."""
        assert self._open is not None
        gone = self._segments.pop()
        self._read.pop(gone.name, None)
        hashes, numbers = self._created
        while numbers and numbers[-1] >= gone.first:
            numbers.pop()
            hashes.pop()
        self.steering = [fact for fact in self.steering if fact[0] < gone.first]
        self._open = None

    def _cut_at(self, parent_seq: int) -> None:
        """A generation continues after that fact: what the one before it wrote beyond is void."""
        if parent_seq:
            for segment in self._segments:
                segment.last = min(segment.last, parent_seq)
            self.steering = [fact for fact in self.steering if fact[0] <= parent_seq]

    # --- what is asked ------------------------------------------------------------------------------------

    def hashes_of(self, ids: Sequence[str]) -> Hashes:
        """Of the ids of an experiment's trials, in order of creation."""
        with self._lock:
            more = [hash(as_written(trial_id)) for trial_id in ids[len(self._of_rows) :]]
            self._of_rows = np.append(self._of_rows, np.array(more, np.int64))
            return self._of_rows[: len(ids)]

    def created(self, ids: Sequence[str]) -> Hashes:
        """The facts that created these trials, all of an experiment's; 0: one that is not recorded."""
        with self._lock:
            hashes, numbers = (np.array(values, np.int64) for values in self._created)
        rows = self.hashes_of(ids)
        if not len(hashes):
            return np.zeros(len(rows), np.int64)
        order = np.argsort(hashes)
        found = order[np.searchsorted(hashes, rows, sorter=order).clip(max=len(hashes) - 1)]
        return np.where(hashes[found] == rows, numbers[found], 0)

    def rows_until(self, at: int, ids: Sequence[str]) -> int:
        """How many of these, all of an experiment's, had been created at that fact."""
        later = np.flatnonzero(self.created(ids) > at)
        return int(later[0]) if len(later) else len(ids)

    def steered(self, until: int) -> Hashes:
        """Hashes of the ids of trials that facts of these kinds are about."""
        with self._lock:
            return np.unique(np.array([about for seq, _, about in self.steering if about and seq <= until], np.int64))

    def start_for(self, trials: Sequence[str], at: int) -> int:
        """The snapshot from which these trials are told as they were at that fact with the least reading; 0: none."""
        base = max((one for one in self._snapshots if self.begins_after <= one <= at), default=0)
        hashes = np.array([hash(as_written(trial_id)) for trial_id in trials], np.int64)
        with self._lock:
            created, numbers = (np.array(values, np.int64) for values in self._created)
            if not np.isin(hashes, created).all():
                return base
            needed = [one for one in self._segments if one.first <= at and np.isin(one.trials, hashes).any()]
        whole = sum(one.last - one.first for one in needed)
        rest = sum(one.last - one.first for one in needed if one.last > base)
        known = int((numbers <= base).sum())
        return base if rest + known < whole else self.begins_after

    def changed_after(self, seq: int) -> Hashes:
        """Hashes of the ids of trials that later facts are about."""
        with self._lock:
            later = [one.trials[one.lasts > seq] for one in self._segments if one.last > seq]
        return np.unique(np.concatenate(later)) if later else np.empty(0, np.int64)

    def snapshot(self, seq: int) -> tuple[int, bytes | None]:
        """The newest snapshot up to a fact, and its number; (0, None): there is none.

        Raises FileNotFoundError, ValueError for the one with which the history begins.
        """
        for at in sorted((one for one in self._snapshots if self.begins_after <= one <= seq), reverse=True):
            try:
                return at, form.parse_snapshot(self._files.read(self._snapshots[at]))[1]
            except UNREADABLE:
                if at == self.begins_after:
                    raise
        return 0, None

    def facts(self, trial_id: str) -> Iterator[tuple[int, ev.AnyFact]]:
        """(number, fact) of what is recorded about a trial, oldest first. What cannot be read is left out."""
        for seq, body in self.bodies([trial_id], lenient=True):
            try:
                fact = ev.decode(body)
            except UNREADABLE:
                continue
            if trial_id in abouts(fact):
                yield seq, fact

    def bodies(
        self, trials: Iterable[str], after: int = 0, until: int | None = None, *, lenient: bool = False
    ) -> list[tuple[int, bytes]]:
        """(number, body) of the facts about some trials after one fact and up to another, in order.

        Raises FileNotFoundError, ValueError for a segment that is not there any more, or damaged, unless `lenient`.
        """
        wanted = {as_written(trial_id) for trial_id in trials}
        hashes = np.fromiter(map(hash, wanted), np.int64, len(wanted))
        found: list[tuple[int, bytes]] = []
        with self._lock:
            for segment in self._segments:
                if segment.last <= after or (until is not None and segment.first > until):
                    continue
                if not np.isin(segment.trials, hashes).any():
                    continue
                last = segment.last if until is None else min(segment.last, until)
                seen = found[-1][0] if found else 0
                for seq, body in _about(self._data(segment.name, lenient=lenient), wanted):
                    if max(segment.first, after + 1, seen + 1) <= seq <= last:
                        seen = seq
                        found.append((seq, body))
        return found

    def newest(self, until: int) -> Iterator[tuple[int, bytes]]:
        """(number, body) of facts up to that one, of any trial, the newest first."""
        with self._lock:
            segments = [one for one in self._segments if one.first <= until]
        for segment in reversed(segments):
            with self._lock:
                data = self._data(segment.name, lenient=True)
            end = len(data) if segment.last <= until else data.find(b'{"n":%d,' % (until + 1))
            while end > 0:
                start = data.rfind(b"\n", 0, end - 1) + 1
                facts = form.parse_lines(data[start:end])[0]
                end = start
                yield from (fact for fact in facts if segment.first <= fact[0] <= min(segment.last, until))

    def _data(self, name: str, *, lenient: bool) -> bytes:
        if name not in self._read:
            try:
                self._read[name] = self._files.read(name)
            except UNREADABLE as error:
                if not lenient:
                    raise
                self.notes.append(f"{name} cannot be read: {said(error)}")
                return b""
            while len(self._read) > KEPT:
                self._read.popitem(last=False)
        self._read.move_to_end(name)
        return self._read[name]


def _of_now(paths: ExperimentPaths, contents: JournalContents) -> JournalContents:
    """The journal; read again if it was compacted meanwhile."""
    names = fs.listdir(paths.journal) if fs.is_dir(paths.journal) else []
    newest = max((found[1] for name in names if (found := parse_snapshot(name))), default=0)
    return contents if newest == contents.snapshot_seq else read_journal(paths)


def as_written(trial_id: str) -> bytes:
    """An id as it stands in a fact, without its quotes."""
    return msgspec.json.encode(trial_id)[1:-1]


def _about(data: bytes, wanted: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
    """(number, body) of the facts in a segment that are about one of these trials."""
    for found in _LINE.finditer(b"\n" + data):
        if found.group(3) in wanted and (end := data.find(b"\n", found.start())) >= 0:
            yield from form.parse_lines(data[found.start() : end + 1])[0]
