"""Reading the whole history of an experiment: what snapshots replaced, as far as it is kept, and what follows them.

For those who ask how something came about, as why a checkpoint went. A resume reads the journal alone (`read_journal`).
Nothing is written, and no lock is needed beside a driver that packs and drops.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

from trainables.quick_dataclass import dataclass
from trainables.store import fs
from tuner.experiment import history_format as packed
from tuner.experiment import journal_format as form
from tuner.experiment.history_format import PackEntry
from tuner.experiment.journal_reader import JournalContents
from tuner.experiment.paths import ExperimentPaths, parse_pack, parse_segment, parse_snapshot


@dataclass(frozen=True, slots=True)
class Recorded:
    """A fact as it stands in the history."""

    seq: int
    at: float | None
    """The time that it tells, or the last one that was told before it, in seconds since the epoch; None: none was."""
    body: bytes
    """`tuner.experiment.events.decode` reads it."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a file of the history lies: in a pack, or still in the journal."""

    entry: PackEntry
    path: Path
    start: int | None = None
    """Where the pack's members begin; None: it is a file of its own."""

    def read(self) -> bytes:
        return fs.read_file(self.path) if self.start is None else packed.read_member(self.path, self.start, self.entry)


@dataclass(frozen=True, slots=True)
class _Span:
    """Of the facts in a segment those that count."""

    place: _Place
    first: int
    last: int


@dataclass
class History:
    """Facts one after another up to the newest, from the first one on that is recorded."""

    paths: ExperimentPaths
    contents: JournalContents
    """The journal, whose last facts end the history."""
    notes: list[str] = field(default_factory=list)
    """What of it cannot be read, one line each."""

    def __post_init__(self) -> None:
        """Find where everything lies, and how far back it goes without a hole."""
        newest = self.contents.snapshot_seq
        self._unreadable: set[Path] = set()
        self._places, self._snapshots = self._found() if newest else ({}, {})
        self._spans, reached = self._joined()
        bases = [0] * (reached == 0) + sorted(self._snapshots)
        self._base_seq = next((seq for seq in bases if reached <= seq < newest and self._is_base(seq)), newest)
        self._spans = [span for span in self._spans if span.first > self._base_seq]

    @property
    def is_whole(self) -> bool:
        """It goes back to the very beginning."""
        return self._base_seq == 0

    @property
    def begins_after(self) -> int:
        """The number of the fact after which it begins; 0: nothing is missing."""
        return self._base_seq

    @property
    def segments(self) -> list[tuple[str, int, int]]:
        """(file, first, last) of the facts that a snapshot replaced, oldest first; `HistoryFiles` reads one."""
        return [(span.place.entry.name, span.first, span.last) for span in self._spans]

    @property
    def snapshots(self) -> dict[int, str]:
        """The last fact that each snapshot of this history stands for -> its file."""
        return {seq: place.entry.name for seq, place in self._snapshots.items()}

    @functools.cached_property
    def base(self) -> bytes | None:
        """The snapshot of what came before the first fact, for `ExperimentState.from_snapshot`; None: nothing did."""
        return self.snapshot(self._base_seq) if self._base_seq else None

    @property
    def since(self) -> float | None:
        """The time from which on facts are recorded; None: not one of them tells a time."""
        return next((fact.at for fact in self.facts() if fact.at is not None), None)

    def snapshot(self, seq: int) -> bytes:
        """The snapshot of the facts up to that one."""
        if seq == self.contents.snapshot_seq and self.contents.snapshot is not None:
            return self.contents.snapshot
        return form.parse_snapshot(self._read(self._snapshots[seq]))[1]

    def facts(self) -> Iterator[Recorded]:
        """All recorded facts, in order.

        Raises FileNotFoundError when the oldest were dropped meanwhile: a new `History` begins after them.
        """
        at: float | None = None
        for seq, body in itertools.chain(self._older(), self.contents.bodies):
            told = packed.time_of(body)
            at = at if told is None else told
            yield Recorded(seq, at, body)

    def _older(self) -> Iterator[tuple[int, bytes]]:
        """Those that a snapshot replaced."""
        for span in self._spans:
            expected = span.first
            for seq, body in form.parse_lines(self._read(span.place))[0]:
                if seq == expected <= span.last:
                    expected += 1
                    yield seq, body

    # --- finding it ---------------------------------------------------------------------------------

    def _is_base(self, seq: int) -> bool:
        if seq == 0:
            return True
        try:
            self.snapshot(seq)
        except FileNotFoundError:
            return False  # packed meanwhile, where it was not the first of its pack
        except ValueError as error:
            self.notes.append(f"the history is not whole: {error}")
            return False
        return True

    def _is_readable(self, place: _Place) -> bool:
        try:
            self._read(place)
        except (ValueError, FileNotFoundError) as error:
            if place.path not in self._unreadable:  # what is behind a damage is not whole either
                self._unreadable.add(place.path)
                self.notes.append(f"the history is not whole: {error}")
            return False
        return True

    def _joined(self) -> tuple[list[_Span], int]:
        """The segments behind the snapshot, oldest first, and the number of the fact before the first of them."""
        chain = self.contents.chain
        spans: list[_Span] = []
        needed = self.contents.snapshot_seq
        lowest = [0, *(link.last_seq for link in chain)]
        for link, above in reversed(list(zip(chain, lowest, strict=False))):
            own = sorted(
                (place for (generation, _), place in self._places.items() if generation == link.generation),
                key=lambda place: place.entry.first,
            )
            while needed > above and own:
                place = own.pop()
                if place.entry.first > needed or not self._is_readable(place):
                    continue  # after it, or void
                if place.entry.last < needed:
                    break
                spans.append(_Span(place, max(place.entry.first, above + 1), needed))
                needed = spans[-1].first - 1
            if needed > above:
                break
        return spans[::-1], needed

    def _found(self) -> tuple[dict[tuple[int, int], _Place], dict[int, _Place]]:
        """Segments by generation and number, and snapshots of this history by their last fact."""
        lasts = {link.generation: link.last_seq for link in self.contents.chain}
        segments: dict[tuple[int, int], _Place] = {}
        snapshots: dict[int, _Place] = {}
        for place in itertools.chain(self._in_journal(), self._in_packs()):  # a pack stays, a file may be packed
            if parsed := parse_segment(place.entry.name):
                segments[parsed] = place
            elif (parsed := parse_snapshot(place.entry.name)) and parsed[1] <= lasts.get(parsed[0], 0):
                snapshots[parsed[1]] = place
        return segments, snapshots

    def _in_packs(self) -> Iterator[_Place]:
        names = fs.listdir(self.paths.history) if fs.is_dir(self.paths.history) else []
        for path in (self.paths.history / name for name in names if parse_pack(name)):
            try:
                index, start = packed.read_index(path)
            except FileNotFoundError:
                continue  # dropped just now
            except ValueError as error:
                self.notes.append(f"the history is not whole: {error}")
                continue
            yield from (_Place(entry, path, start) for entry in index.files)

    def _in_journal(self) -> Iterator[_Place]:
        for name in fs.listdir(self.paths.journal):
            path = self.paths.journal / name
            try:
                if parsed := parse_snapshot(name):
                    yield _Place(PackEntry(name, 0, 0, 0, last=parsed[1]), path)
                elif parse_segment(name):
                    facts, _ = form.parse_lines(fs.read_file(path))
                    if facts and facts[0][0] <= self.contents.snapshot_seq:
                        yield _Place(PackEntry(name, 0, 0, 0, facts[0][0], facts[-1][0]), path)
            except FileNotFoundError:
                continue  # it is in a pack by now

    def _read(self, place: _Place) -> bytes:
        try:
            return place.read()
        except FileNotFoundError:
            moved = next((other for other in self._in_packs() if other.entry.name == place.entry.name), None)
            if moved is None or moved.path == place.path:
                raise
            return moved.read()
