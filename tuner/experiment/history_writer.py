"""What a snapshot replaced is packed into the history, beside the run, and removed once the pack is durable.

A resume never reads the history, so nothing here may end a run: on a full disk that part of it is given up, with one
line, and after another error the files stay as they are until the next compaction.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from trainables.quick_dataclass import dataclass
from trainables.store import fs
from tuner.clock import Clock
from tuner.error import OwnedElsewhereError
from tuner.experiment import history_format as packed
from tuner.experiment import journal_format as form
from tuner.experiment.history_format import PackEntry
from tuner.experiment.journal_format import GenerationLink
from tuner.experiment.paths import ExperimentPaths, parse_pack, parse_segment, parse_snapshot
from tuner.experiment.reserve import is_full
from tuner.freed_memory import give_back

log = logging.getLogger(__name__)

HISTORY_BYTES = 256 * 1000 * 1000
"""What the history may take by default."""


@dataclass(frozen=True, slots=True)
class _Due:
    """Files that are to go, and the generations of which facts count, with the last of each that does."""

    names: list[str]
    counts: dict[int, int | None]


class HistoryWriter:
    """Keeps what snapshots replace.

    Args:
        generation: the owner's number.
        clock: its monotonic time measures the grace.
        guard: called before anything is removed; raises when somebody else owns the experiment.
        limit: bytes that all packs may take together; the oldest go first. 0: what is replaced is just removed.
        threaded: pack beside the caller.
    """

    def __init__(
        self,
        paths: ExperimentPaths,
        generation: int,
        *,
        clock: Clock,
        guard: Callable[[], None],
        limit: int,
        threaded: bool,
    ) -> None:
        self.changes = 0
        """Goes up each time after a pack was made or dropped."""
        self._paths, self._generation, self._clock, self._guard = paths, generation, clock, guard
        self._limit, self._threaded = limit, threaded
        self._since: dict[str, float] = {}
        """File of the journal -> when it was replaced, of those that are still to go."""
        self._chain: Sequence[GenerationLink] = ()
        self._packed: dict[str, int] | None = None
        """File -> its bytes, of those in a pack; None: not looked yet."""
        self._thread: threading.Thread | None = None

    def replaced(self, names: Iterable[str], parents: Sequence[GenerationLink]) -> None:
        """A snapshot stands for these files; `parents` is the chain of generations that the owner continues."""
        now = self._clock.monotonic()
        self._chain = parents
        for name in names:
            self._since.setdefault(name, now)

    def pack(self, grace_s: float) -> None:
        """Begin to pack what was replaced so long ago. What is under way goes on, and takes up nothing more."""
        if self._thread is not None and self._thread.is_alive():
            return
        now = self._clock.monotonic()
        names = sorted(name for name, since in self._since.items() if now - since >= grace_s)
        if not names:
            return
        for name in names:
            del self._since[name]
        due = _Due(names, {link.generation: link.last_seq for link in self._chain} | {self._generation: None})
        if self._threaded:
            self._thread = threading.Thread(target=self._work, args=(due,), name="journal-history", daemon=True)
            self._thread.start()
        else:
            self._work(due)

    def wait(self) -> None:
        """Return when what is under way has ended."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _work(self, due: _Due) -> None:
        try:
            self._guard()
            if self._limit:
                self._keep(due)
            self._guard()
            for name in due.names:
                with contextlib.suppress(FileNotFoundError):  # gone is what it was to be
                    fs.unlink(self._paths.journal / name)
            give_back()  # a pack is made in memory
        except OwnedElsewhereError:
            pass  # the new owner's compaction does it
        except OSError as error:
            log.warning("%s: what was compacted could not be packed and stays as it is: %s", self._paths.journal, error)
        except Exception:
            log.exception("%s: what was compacted could not be packed and stays as it is", self._paths.journal)

    def _keep(self, due: _Due) -> None:
        """Make a pack of what is to go, durable; or say that there was no room for it."""
        index, members = self._members(due)
        segments = [entry for entry in index if entry.first]
        if not segments:
            return
        first, last = segments[0].first, segments[-1].last
        data = packed.pack(index, members)
        try:
            self._make_room(len(data))
            if len(data) <= self._limit:
                fs.make_dirs(self._paths.history)
                fs.fsync_dir(self._paths.journal)
                fs.replace_file(self._paths.pack(self._generation, first, last), data)  # durable before its files go
                self._known().update({entry.name: entry.bytes for entry in index})
        except OSError as error:
            if not is_full(error):
                raise
            log.warning(
                "%s: what the facts %d to %d said of checkpoints that are gone is given up: %s",
                self._paths.journal,
                first,
                last,
                error.strerror,
            )
        self.changes += 1

    def _members(self, due: _Due) -> tuple[list[PackEntry], list[bytes]]:
        """What goes into a pack: segments of this history that are in none yet, and the snapshot before the first."""
        found: list[tuple[PackEntry, bytes]] = []
        for _, name in sorted((parsed, name) for name in due.names if (parsed := parse_segment(name))):
            if self._counts(name, due):
                entry, member = _segment(self._paths.journal / name)
                found += [(entry, member)] if entry.last else []
        if found and (base := self._base(due, found[0][0].first)):
            found.insert(0, _snapshot(self._paths.journal / base))
        index, at = [], 0
        for entry, _ in found:
            index.append(msgspec.structs.replace(entry, at=at))
            at += entry.size
        return index, [member for _, member in found]

    @staticmethod
    def _base(due: _Due, first: int) -> str | None:
        """The newest snapshot of this history before its fact `first`, of those that are to go."""
        found: list[tuple[int, str]] = []
        for name in due.names:
            if (parsed := parse_snapshot(name)) and parsed[0] in due.counts and parsed[1] < first:
                last = due.counts[parsed[0]]
                if last is None or parsed[1] <= last:
                    found.append((parsed[1], name))
        return max(found)[1] if found else None

    def _counts(self, name: str, due: _Due) -> bool:
        """Whether a segment is of this history, and not in a pack already: of a driver that was killed just then."""
        parsed = parse_segment(name)
        assert parsed is not None
        if parsed[0] not in due.counts:
            return False
        known = self._known().get(name)
        try:
            return known is None or known != fs.size(self._paths.journal / name)
        except FileNotFoundError:
            return False

    def _known(self) -> dict[str, int]:
        if self._packed is None:
            self._packed = {}
            for path, *_ in self._packs():
                try:
                    entries = packed.read_index(path)[0].files
                except (ValueError, OSError):
                    continue  # whoever reads it says so
                self._packed |= {entry.name: entry.bytes for entry in entries}
        return self._packed

    def _packs(self) -> list[tuple[Path, int, int]]:
        """(path, last fact, bytes) of every pack, the oldest first."""
        names = fs.listdir(self._paths.history) if fs.is_dir(self._paths.history) else []
        found = [(parsed[2], parsed[0], name) for name in names if (parsed := parse_pack(name))]
        return [
            (path, last, fs.size(path)) for last, _, name in sorted(found) for path in (self._paths.history / name,)
        ]

    def _make_room(self, size: int) -> None:
        """Drop the oldest packs until one of that size fits below the limit."""
        packs = self._packs()
        total = size + sum(bytes for *_, bytes in packs)
        for path, last, bytes in packs:
            if total <= self._limit:
                return
            fs.unlink(path)
            total -= bytes
            log.info("%s: the history up to fact %d is dropped: TUNE_HISTORY_BYTES", self._paths.root, last)


def _snapshot(path: Path) -> tuple[PackEntry, bytes]:
    parsed = parse_snapshot(path.name)
    assert parsed is not None
    member, size = packed.compressed_file(path)
    return PackEntry(path.name, size, 0, len(member), last=parsed[1]), member


def _segment(path: Path) -> tuple[PackEntry, bytes]:
    data = fs.read_file(path)
    member = packed.compressed(data)
    facts, _ = form.parse_lines(data)
    if not facts:
        return PackEntry(path.name, len(data), 0, len(member)), member
    times = [when for _, body in facts if (when := packed.time_of(body)) is not None]
    since, until = min(times, default=None), max(times, default=None)
    return PackEntry(path.name, len(data), 0, len(member), facts[0][0], facts[-1][0], since, until), member
