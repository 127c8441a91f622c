"""Where the facts about each trial lie: so that one trial's story of a hundred thousand is read from few files."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator

from trainables.store import fs
from tuner.experiment import events as ev
from tuner.experiment import journal_format as form
from tuner.experiment.history import History, read_segment
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.journal_reader import read_journal
from tuner.experiment.paths import ExperimentPaths, parse_segment

_TRIAL = re.compile(rb'"trial(?:_id)?":"((?:[^"\\]|\\.)*)"')
KEPT = 3
"""Segments in memory, as they were read last."""


class FactIndex:
    """The facts of an experiment by trial.

    Args:
        paths: the experiment.
        stopped: whether nobody waits for it any more.
    """

    def __init__(self, paths: ExperimentPaths, stopped: Callable[[], bool] = lambda: False) -> None:
        self._paths = paths
        self._lock = threading.Lock()
        self._segments: list[tuple[str, int, int]] = []
        self._trials: list[frozenset[int]] = []
        """Hashes of the ids of the trials in each segment."""
        self._last = 0
        self._read: OrderedDict[str, bytes] = OrderedDict()
        self.begins_after = 0
        """The number of the fact after which the history begins."""
        self.since: float | None = None
        """Its time; None: it begins with the experiment, or tells no time."""
        self.notes: list[str] = []
        contents = read_journal(paths)
        history = History(paths, contents)
        self.begins_after = history.begins_after
        self.notes = list(history.notes)
        for name, first, last in history.segments:
            if stopped():
                return
            self._add(name, first, last, read_segment(paths, name))
        if self.begins_after:
            self.since = history.since
        self._last = contents.snapshot_seq
        self._key = max((parse_segment(name) or (0, 0) for name, _, _ in self._segments), default=(0, 0))

    def _add(self, name: str, first: int, last: int, data: bytes) -> None:
        self._segments.append((name, first, last))
        self._trials.append(frozenset(map(hash, _TRIAL.findall(data))))

    def facts(self, trial_id: str) -> Iterator[tuple[int, ev.AnyFact]]:
        """(number, fact) of what is recorded about a trial, oldest first. What cannot be read is left out."""
        wanted = _as_written(trial_id)
        with self._lock:
            found = [segment for segment, ids in zip(self._segments, self._trials, strict=True) if hash(wanted) in ids]
            parts = [(data, first, last) for name, first, last in found if (data := self._data(name))]
            parts += self._newest()
        expected = 0
        for data, first, last in parts:
            for seq, fact in _about(data, wanted):
                if first <= seq <= last and seq > expected:
                    expected = seq
                    yield seq, fact

    def _data(self, name: str) -> bytes:
        if name not in self._read:
            try:
                self._read[name] = read_segment(self._paths, name)
            except UNREADABLE as error:
                self.notes.append(f"{name} cannot be read: {said(error)}")
                return b""
            while len(self._read) > KEPT:
                self._read.popitem(last=False)
        return self._read[name]

    def _newest(self) -> list[tuple[bytes, int, int]]:
        """Segments that came after the index was made; those that will not change any more are taken into it."""
        parts: list[tuple[bytes, int, int]] = []
        names = fs.listdir(self._paths.journal) if fs.is_dir(self._paths.journal) else []
        keys = sorted(key for name in names if (key := parse_segment(name)) and key > self._key)
        for key in keys:
            name = self._paths.segment(*key).name
            try:
                data = read_segment(self._paths, name)
            except UNREADABLE:
                continue
            facts = form.parse_lines(data)[0]
            if not facts:
                continue
            first, last = facts[0][0], facts[-1][0]
            parts.append((data, first, last))
            if key != keys[-1]:
                self._add(name, first, last, data)
                self._key = key
        return parts


def _as_written(trial_id: str) -> bytes:
    """An id as it stands in a fact, without its quotes."""
    return ev.encode(ev.TrialReopened(trial_id)).partition(b'"trial":"')[2][:-2]


def _about(data: bytes, wanted: bytes) -> Iterator[tuple[int, ev.AnyFact]]:
    quoted = b'"' + wanted + b'"'
    at = data.find(quoted)
    while at >= 0:
        start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        if end < 0:
            return
        for seq, body in form.parse_lines(data[start : end + 1])[0]:
            if wanted in _TRIAL.findall(body):
                try:
                    yield seq, ev.decode(body)
                except UNREADABLE:
                    continue
        at = data.find(quoted, end)
