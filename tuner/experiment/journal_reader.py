"""Reading a journal: follows the generations back from the highest, and takes of each what its child names.

A reader never writes and needs no lock: beside a driver that appends and compacts it lists again when a segment
vanished under it, or when what it listed has a hole.

What is lost is never passed over: facts that later ones build on are an error, whole facts behind a damaged place at
the end of the history are told in `damaged` (a power cut may leave that), and a torn last line is a note.
"""

from __future__ import annotations

from dataclasses import field

from trainables.quick_dataclass import dataclass
from trainables.store import fs
from tuner.error import ExperimentDamagedError, ExperimentDivergedError
from tuner.experiment import formats
from tuner.experiment import journal_format as form
from tuner.experiment.generations import read_record
from tuner.experiment.journal_format import GenerationLink
from tuner.experiment.paths import ExperimentPaths, parse_segment, parse_snapshot

WAY_OUT = (
    "Bring the file back from a copy; to start over, overwrite=True replaces the experiment, and another name leaves "
    "it alone, also for restore= with one of its checkpoints"
)


@dataclass(frozen=True)
class Damage:
    """A segment in which a line cannot be read although whole ones follow."""

    segment: str
    first: int
    """Number of the first fact that is lost with it, and of the last: what follows a damaged line is not used."""
    last: int

    def __str__(self) -> str:
        count = self.last - self.first + 1
        return f"{self.segment} is damaged before its end: facts {self.first} to {self.last} are lost ({count})"


@dataclass(frozen=True)
class JournalContents:
    """What a journal says."""

    snapshot: bytes | None = None
    """What the facts up to `snapshot_seq` add up to."""
    snapshot_seq: int = 0
    bodies: list[tuple[int, bytes]] = field(default_factory=list)
    """(sequence number, body) of each fact after that, in order."""
    last_seq: int = 0
    generation: int = 0
    """The highest with facts; 0 when there are none."""
    chain: tuple[GenerationLink, ...] = ()
    """That generation and those it descends from, oldest first."""
    notes: list[str] = field(default_factory=list)
    """What was cut or set aside, one line each."""
    damaged: list[Damage] = field(default_factory=list)
    """Facts at the end of the history that are lost: no crash of a driver leaves that, but a power cut may."""

    @property
    def generation_id(self) -> str | None:
        return self.chain[-1].id if self.chain else None


class _ListAgain(Exception):
    """What was listed is not there (any more), or not all of it was listed."""


def read_journal(paths: ExperimentPaths) -> JournalContents:
    """Read the facts of an experiment.

    Raises:
        NewerFormatError: a file of it is of a newer version, whether or not the history needs it.
        ExperimentDamagedError: facts are missing that later ones build on.
        ExperimentDivergedError: two histories lie in one directory.
    """
    previous = None
    formats.check_books(paths)
    while True:
        names = fs.listdir(paths.journal) if fs.exists(paths.journal) else []
        try:
            return _Reader(paths, names).read()
        except _ListAgain as reason:
            if names == previous:  # nobody is at work here: it is not there
                raise ExperimentDamagedError(f"{paths.journal}: {reason}. {WAY_OUT}") from None
            previous = names


class _Reader:
    """One attempt, over one listing."""

    def __init__(self, paths: ExperimentPaths, names: list[str]) -> None:
        self._paths = paths
        self._segments: dict[int, list[int]] = {}
        self._snapshots: dict[int, list[int]] = {}
        for name in names:
            if parsed := parse_segment(name):
                self._segments.setdefault(parsed[0], []).append(parsed[1])
            elif parsed := parse_snapshot(name):
                self._snapshots.setdefault(parsed[0], []).append(parsed[1])
        self._notes: list[str] = []
        self._damage: dict[int, list[Damage]] = {}
        self._ends: dict[int, list[tuple[int, int]]] = {}
        """Generation -> (number, last fact) of its segments."""
        self._cut: set[tuple[int, int]] = set()
        """(generation, number) of segments with a line that cannot be read."""
        self._read: dict[int, list[tuple[int, bytes]]] = {}

    def read(self) -> JournalContents:
        newest_first = sorted({*self._segments, *self._snapshots}, reverse=True)
        generation = next((number for number in newest_first if number in self._snapshots or self._facts(number)), 0)
        if not generation:
            return JournalContents(notes=self._notes, damaged=[])
        highest = generation
        limit: int | None = None
        parts: list[list[tuple[int, bytes]]] = []
        chain: list[GenerationLink] = []  # newest first
        child_names: str | None = None
        while True:
            id = self._id(generation, child_names)
            found = self._snapshot(generation, limit)
            facts = self._facts(generation)
            start = found[0] if found else None
            head = form.SegmentHead()
            if start is None:
                if facts and facts[0][0] > 1:
                    head = form.read_head(facts[0][1])
                start = head.parent_seq
            part = self._part(generation, facts, start=start, limit=limit)
            parts.append(part)
            chain.append(GenerationLink(generation, id, part[-1][0] if part else start))
            if found or not head.parent:
                break
            generation, limit, child_names = head.parent, head.parent_seq, head.parent_id
        self._note_others(oldest=generation, highest=highest, chain={link.generation for link in chain})
        bodies = [fact for part in reversed(parts) for fact in part]
        parents = found[1] if found else ()
        lost = [damage for damage in self._damage.get(highest, ()) if damage.last > chain[0].last_seq]
        return JournalContents(
            snapshot=found[2] if found else None,
            snapshot_seq=found[0] if found else 0,
            bodies=bodies,
            last_seq=chain[0].last_seq,
            generation=highest,
            chain=(*parents, *reversed(chain)),
            notes=self._notes,
            damaged=lost,
        )

    def _part(
        self, generation: int, facts: list[tuple[int, bytes]], *, start: int, limit: int | None
    ) -> list[tuple[int, bytes]]:
        """Of a generation's facts those after `start` up to `limit`, without a hole."""
        part: list[tuple[int, bytes]] = []
        expected, beyond = start + 1, 0
        for fact in facts:
            if limit is not None and fact[0] > limit:
                beyond += 1
            elif fact[0] == expected:
                part.append(fact)
                expected += 1
            elif fact[0] > expected:
                raise self._hole(generation, expected, fact[0] - 1)
            # else: the snapshot holds it, or it was written again after a write that failed half-way
        if limit is not None and expected <= limit:
            raise self._hole(generation, expected, limit)
        if beyond:
            self._notes.append(
                f"generation {generation} wrote {beyond} facts after it had been taken over: they are set aside"
            )
        return part

    def _hole(self, generation: int, first: int, last: int) -> _ListAgain:
        """Facts are missing that later ones build on; named with the file where they were."""
        before = max((number for number, seq in self._ends.get(generation, ()) if seq < first), default=0)
        cut = next((number for number in (before, before + 1) if (generation, number) in self._cut), None)
        if cut is not None:
            why = f"{self._paths.segment(generation, cut).name} is damaged"
        elif before + 1 in self._segments.get(generation, ()):
            why = f"the end of {self._paths.segment(generation, before).name} is missing"
        else:
            why = f"{self._paths.segment(generation, before + 1).name} is missing"
        return _ListAgain(
            f"{why}: facts {first} to {last} of generation {generation} are missing, and later ones build on them"
        )

    def _facts(self, generation: int) -> list[tuple[int, bytes]]:
        if generation not in self._read:
            facts: list[tuple[int, bytes]] = []
            for number in sorted(self._segments.get(generation, ())):
                facts += self._segment(generation, number)
            self._read[generation] = facts
        return self._read[generation]

    def _segment(self, generation: int, number: int) -> list[tuple[int, bytes]]:
        path = self._paths.segment(generation, number)
        try:
            data = fs.read_file(path)
            formats.check_beginning(data, path)  # it may have come since all were looked at
            facts, cut = form.parse_lines(data)
            while cut and fs.size(path) != len(data):  # its owner is writing just now
                data = fs.read_file(path)
                facts, cut = form.parse_lines(data)
        except FileNotFoundError:
            raise _ListAgain(f"the segment {path.name} is gone") from None
        if facts:
            self._ends.setdefault(generation, []).append((number, facts[-1][0]))
        if cut:
            self._cut.add((generation, number))
            lines = data[len(data) - cut :].splitlines(keepends=True)
            behind = [seq for line in lines for seq, _ in form.parse_lines(line)[0]]
            if behind:
                first = facts[-1][0] + 1 if facts else max(1, min(behind) - 1)
                self._damage.setdefault(generation, []).append(Damage(path.name, first, max(behind)))
            else:
                self._notes.append(f"{path.name}: a torn line at its end was cut ({cut} bytes)")
        return facts

    def _snapshot(self, generation: int, limit: int | None) -> tuple[int, tuple[GenerationLink, ...], bytes] | None:
        """The newest snapshot of that generation that the history holds: its number, its parents, its body."""
        for seq in sorted(self._snapshots.get(generation, ()), reverse=True):
            path = self._paths.snapshot(generation, seq)
            if limit is not None and seq > limit:
                self._notes.append(f"{path.name} was written after its generation had been taken over: it is set aside")
                continue
            try:
                data = fs.read_file(path)
                formats.check_beginning(data, path)
                parents, body = form.parse_snapshot(data)
            except FileNotFoundError:
                raise _ListAgain(f"the snapshot {path.name} is gone") from None
            except ValueError as error:
                self._notes.append(f"{path.name} cannot be used: {error}")
                continue
            return seq, parents, body
        return None

    def _id(self, generation: int, child_names: str | None) -> str | None:
        record = read_record(self._paths.generation(generation))
        if record is None:
            return child_names
        if child_names is not None and child_names != record.id:
            raise ExperimentDivergedError(
                f"{self._paths.root} holds two histories: its newest continues generation {generation} with the id "
                f"{child_names}, and the generation {generation} that lies here has the id {record.id}; "
                'resume="LOCAL" or resume="REMOTE", or Tuner.restore of its path or URI, chooses one'
            )
        return record.id

    def _note_others(self, *, oldest: int, highest: int, chain: set[int]) -> None:
        """Generations that had been taken over before they wrote their first fact."""
        for generation in sorted(self._segments):
            if oldest < generation < highest and generation not in chain and self._facts(generation):
                self._notes.append(
                    f"generation {generation} wrote {len(self._facts(generation))} facts after it had been taken over: "
                    "they are set aside"
                )
