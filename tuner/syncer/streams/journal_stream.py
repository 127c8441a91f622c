"""The books of an experiment on their way to a replica: description, blobs, journal, and what is void there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from trainables.store import fs
from trainables.transfer import agent
from tuner.error import StorageFullError
from tuner.experiment import journal_format as form
from tuner.experiment.journal import JournalWriter
from tuner.experiment.paths import ExperimentPaths, is_history, parse_segment, parse_snapshot
from tuner.syncer.queue import Patience

SHARE = 0.05
"""Of the time, at most, goes into pushing the journal."""
_HASH = re.compile(rb"[0-9a-f]{64}")
CALM_S = 1.0
"""A journal that nobody waits for is pushed at most that often."""


@dataclass(frozen=True, slots=True)
class _RunningPush:
    """A push under way."""

    seq: int
    begun: float
    names: set[str]
    open_number: int
    """Segments of this generation below it are sealed."""


class JournalStream:
    """Says when the books are to be pushed, and what. Sealed segments go there whole; a bucket cannot append.

    Args:
        name: of the experiment over there.
        there: names (`journal/000001-000001.jsonl`, `blobs/...`) that the replica has already.
        every_s: seconds between two pushes; None: as often as costs a twentieth of the time.
        removes: the replica can delete.
        at_once: do not wait for anything: pushes are done on the caller's thread.
    """

    def __init__(
        self,
        paths: ExperimentPaths,
        journal: JournalWriter,
        *,
        name: str,
        guard: str,
        there: Collection[str],
        every_s: float | None,
        removes: bool,
        at_once: bool,
    ) -> None:
        self.pushed = 0
        """The replica has the facts up to this one."""
        self._paths, self._journal, self._name, self._guard = paths, journal, name, guard
        self._every_s, self._removes, self._at_once = every_s, removes, at_once
        self._there = {key for key in there if not is_history(key)}
        self._after = self._room_at = 0.0
        """Not before that monotonic time comes the next push; not before that, at the very end either."""
        self._patience = Patience()
        self._described = self._unlooked = self._ripening = False
        self._compared = self._resend = self._closing = False
        self._owed = {name for name in self._names(paths.journal) if f"journal/{name}" not in self._there}
        """Of earlier generations, what the replica has never had."""
        self._sent = 0
        """So many segments of this generation have gone there, or are in a snapshot there."""
        self._under: _RunningPush | None = None
        self._removing: set[str] = set()

    @property
    def busy(self) -> bool:
        """A push or a removal is under way."""
        return self._under is not None or bool(self._removing)

    @property
    def behind(self) -> bool:
        """There is something that the replica has not."""
        return self._says_more or (self._closing and self.lacks_snapshot)

    @property
    def _says_more(self) -> bool:
        return self._journal.last_seq > self.pushed or self._resend

    def close(self) -> None:
        """No facts of trials come any more: a last snapshot goes there too, although it says nothing new."""
        self._closing = True

    @property
    def lacks_snapshot(self) -> bool:
        """A snapshot here is not there: files of trials, which hold what it drops, may not be there either."""
        return any(
            f"journal/{name}" not in self._there for name in self._names(self._paths.journal) if parse_snapshot(name)
        )

    def due_at(self, *, waited_for: bool, closing: bool, snapshots: bool = True) -> float | None:
        """When the next push begins, in monotonic seconds; None: not without anything happening before.

        `waited_for`: a checkpoint waits for its result to be there.
        """
        if (self._ripening and not closing) or not (snapshots or self._says_more):
            return None
        return self._begins_at(waited_for=waited_for, closing=closing)

    def push(self, now: float, *, waited_for: bool, closing: bool, snapshots: bool) -> agent.Push | None:
        """If it is time: seal the journal; what the replica lacks, blobs before the lines that name them.

        `snapshots`: they may go too; what they drop is in the trials' own files there. None: not now. It is too early,
        there is no room here for another segment, or compaction removed one before it had gone, for which only a
        snapshot can stand.
        """
        begins = self._begins_at(waited_for=waited_for, closing=closing)
        if begins is None or begins > now:
            return None
        if not (snapshots or self._says_more):
            return None  # there is nothing but the last snapshot, and it waits for the trials' own files
        # The loop does not wait for the disk: it is woken when the journal is durable, and comes here again.
        self._ripening = not closing and not self._journal.ready_to_seal()
        if self._ripening:
            return None
        if not self._sealed():
            self._room_at = now + CALM_S
            return None
        if not (snapshots or self._is_whole()):
            self._after = now + CALM_S
            return None
        groups: list[tuple[str, str, list[str]]] = []
        sent: set[str] = set()
        for directory in (self._paths.blobs, self._paths.journal):
            names = [name for name in self._names(directory) if self._is_new(directory.name, name, snapshots)]
            sent.update(f"{directory.name}/{name}" for name in names)
            for some in [names] if directory == self._paths.blobs else _in_order(names):
                groups.append((str(directory), f"{self._name}/{directory.name}", some))
        if not self._described:
            # Last: from then on there is an experiment, and what it names is there. Where there is one already it comes
            # before the journal: it says the format, and an older version there then reads no line of a newer one.
            begun = any(name.startswith("journal/") for name in self._there)
            described = (str(self._paths.root), self._name, [self._paths.experiment_json.name])
            groups.insert(1 if begun else len(groups), described)
        self._under, self._resend = _RunningPush(self._journal.last_seq, now, sent, self._open_number), False
        return agent.Push(groups=groups, guard=self._guard)

    def arrived(self, now: float, *, whole: bool) -> None:
        """The push has ended; `whole`: everything of it is there."""
        assert self._under is not None
        under, self._under = self._under, None
        took = now - under.begun
        self._after = now + (took * (1 / SHARE - 1) if self._every_s is None else self._every_s - took)
        self._resend |= not whole
        self._patience.ended(now, well=whole)
        if self._patience.failures > 1:  # once, at once: compaction may have removed what was just to go
            self._room_at = max(self._room_at, self._patience.until)
        if whole:
            self._there |= under.names
            self.pushed, self._described, self._unlooked = under.seq, True, True
            self._sent, self._owed = max(0, under.open_number - 1), set()

    def comparison(self) -> agent.Compare | None:
        """Compare what is here and over there already, once; None: that was done, or there is nothing."""
        if self._compared:
            return None
        self._compared = True
        names = [name for name in sorted(self._there) if name.split("/")[0] in ("journal", "blobs")]
        names = [name for name in names if fs.exists(self._paths.root / name)]
        return agent.Compare(source=str(self._paths.root), prefix=self._name, names=names) if names else None

    def compare_again(self) -> None:
        """It could not be done."""
        self._compared = False

    def differs(self, name: str, there: bytes) -> str:
        """A file is another over there, and is sent again if that mends it. Returns what is to be said of it, or ""."""
        path = self._paths.root / name
        try:
            here = fs.read_file(path)
        except FileNotFoundError:
            return ""  # removed meanwhile
        if not _mends(name, here, there):
            return f"{name} is not the same as {path}, which is not known to be the right one: it is left alone"
        self._there.discard(name)
        self._resend = True
        return f"{name} is damaged: it is sent again from {path}"

    def missed(self) -> list[str]:
        """Blobs that are here and not there, although the journal there names them: the next push brings them."""
        new = {name for name in self._names(self._paths.blobs) if f"blobs/{name}" not in self._there}
        pushed = [name for name in self._names(self._paths.journal) if f"journal/{name}" in self._there]
        named = {
            hash.decode() for name in pushed if new for hash in _HASH.findall(fs.read_file(self._paths.journal / name))
        }
        if new and pushed:  # the settings' blob may be another than before; the space's is not
            named.add(json.loads(fs.read_file(self._paths.experiment_json)).get("space_blob"))
        return [f"blobs/{name}" for name in sorted(new & named)]

    def removal(self, *, packed: Callable[[], bool]) -> agent.Delete | None:
        """Delete over there what compaction removed here, once the snapshot that replaces it is there, and the pack.

        None: nothing. The directories are looked at once after each push, and not again until the next.

        Args:
            packed: whether the replica has the history of what is not here any more.
        """
        if not self._unlooked or not self._removes or self._removing or self._under is not None:
            return None
        self._unlooked = False
        here = {f"journal/{name}" for name in self._names(self._paths.journal)}
        snapshots = {name for name in here if parse_snapshot(name.removeprefix("journal/"))}
        gone = {name for name in self._there if name.startswith("journal/")} - here
        if not gone or not snapshots <= self._there:
            return None
        if not packed():
            self._unlooked = True
            return None
        # Blobs go last, and only now: until then a snapshot over there may name them.
        blobs = {f"blobs/{name}" for name in fs.listdir(self._paths.blobs)} if fs.is_dir(self._paths.blobs) else set()
        void = {name for name in self._there if name.startswith("blobs/")} - blobs
        self._removing = gone | void
        return agent.Delete(keys=[f"{self._name}/{name}" for name in [*sorted(gone), *sorted(void)]], guard=self._guard)

    def removed(self, *, whole: bool) -> None:
        """The removal has ended."""
        if whole:
            self._there -= self._removing
        self._removing = set()

    @property
    def _open_number(self) -> int:
        parsed = parse_segment(self._journal.open_name)
        return parsed[1] if parsed is not None else 0

    def _is_whole(self) -> bool:
        """Whether all that the replica lacks of the journal is here, segment by segment."""
        parsed = parse_segment(self._journal.open_name)
        generation, number = parsed if parsed is not None else (0, 0)
        own = {self._paths.segment(generation, each).name for each in range(self._sent + 1, number)}
        return (own | self._owed) <= set(self._names(self._paths.journal))

    def _names(self, directory: Path) -> list[str]:
        names = fs.listdir(directory) if fs.is_dir(directory) else []
        return [name for name in names if directory / name != self._paths.history]

    def _begins_at(self, *, waited_for: bool, closing: bool) -> float | None:
        return self.earliest(waited_for=waited_for, closing=closing) if self.behind else None

    def earliest(self, *, waited_for: bool, closing: bool) -> float | None:
        """When a push may begin as soon as there is something to push; None: not without anything happening before."""
        if self._under is not None:
            return None
        if self._at_once:
            return self._room_at if closing or waited_for else None
        calm = 0.0 if waited_for or self._every_s is not None else CALM_S
        return self._room_at if closing else max(self._room_at, self._after + calm)

    def _sealed(self) -> bool:
        try:
            return self._journal.seal()
        except StorageFullError:
            return False  # the loop meets it at its own flush, and says so

    def _is_new(self, directory: str, name: str, snapshots: bool) -> bool:
        """Whether the replica lacks it, and it is not being written any more."""
        if name.startswith(".") or name == self._journal.open_name or f"{directory}/{name}" in self._there:
            return False
        return snapshots or directory != self._paths.journal.name or parse_snapshot(name) is None


def _mends(name: str, here: bytes, there: bytes) -> bool:
    """Whether a file that is not the same over there is whole here, and what is there is no more than a part of it."""
    directory, _, name = name.partition("/")
    if directory == "blobs":
        return blake3(here).hexdigest() == name
    if parse_snapshot(name) is not None:
        return _is_snapshot(here) and not _is_snapshot(there)
    facts, cut = form.parse_lines(here)
    its, _ = form.parse_lines(there)
    return not cut and facts[: len(its)] == its


def _is_snapshot(data: bytes) -> bool:
    try:
        form.parse_snapshot(data)
    except ValueError:
        return False
    return True


def _in_order(names: list[str]) -> list[list[str]]:
    """One after another, so that whoever reads meanwhile never sees a segment without what comes before it.

    Snapshots go first: they stand for segments that compaction removed before these had gone.
    """
    return [[name] for name in sorted(names, key=lambda name: (parse_snapshot(name) is None, name))]
