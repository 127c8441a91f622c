"""The journal on its way to a replica: blobs, sealed segments, snapshots, and the description that they belong to."""

from __future__ import annotations

from pathlib import Path

from trainables.net.backoff import BackOff
from trainables.quick_dataclass import dataclass
from trainables.store import fs
from trainables.transfer.transfer_jobs import Done
from tuner.error import StorageFullError
from tuner.experiment.paths import is_history, parse_segment, parse_snapshot
from tuner.experiment.state import ExperimentState
from tuner.syncer.inventory import Inventory
from tuner.syncer.queue import Queue
from tuner.syncer.streams.stream import Answer, Group, ReplicaContext, Stream
from tuner.syncer.streams.trial_files import TrialFiles

SHARE = 0.05
"""Of the time, at most, goes into pushing the journal."""
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


class _PushPace:
    """When the journal may be pushed.

    Args:
        every_s: seconds between two pushes; None: as often as costs a twentieth of the time.
        at_once: do not wait for anything: pushes are done on the caller's thread.
    """

    def __init__(self, every_s: float | None, *, at_once: bool) -> None:
        self._every_s, self._at_once, self._back_off = every_s, at_once, BackOff()
        self._after = self._room_at = 0.0
        """Not before that monotonic time comes the next push; not before that, at the very end either."""

    def earliest(self, *, waited_for: bool, closing: bool) -> float | None:
        """When the next push may begin; None: nobody waits for it."""
        if self._at_once:
            return self._room_at if closing or waited_for else None
        calm = 0.0 if waited_for or self._every_s is not None else CALM_S
        return self._room_at if closing else max(self._room_at, self._after + calm)

    def no_room(self, now: float) -> None:
        """There is no room here for another segment."""
        self._room_at = now + CALM_S

    def wait(self, now: float) -> None:
        """It is too early."""
        self._after = now + CALM_S

    def ended(self, now: float, *, took: float, well: bool) -> None:
        self._after = now + (took * (1 / SHARE - 1) if self._every_s is None else self._every_s - took)
        self._back_off.ended(now, well=well)
        if self._back_off.failures > 1:  # once, at once: compaction may have removed what was just to go
            self._room_at = max(self._room_at, self._back_off.until)


class JournalStream(Stream):
    """Says when the journal is to be pushed, and what. Sealed segments go there whole; a bucket cannot append.

    Args:
        queue: its checkpoints may wait for facts to be there.
        files: their own files have to be there before a snapshot that drops what they hold.
        every_s, at_once: how often.
    """

    def __init__(
        self, context: ReplicaContext, queue: Queue, files: TrialFiles, *, every_s: float | None, at_once: bool
    ) -> None:
        self.pushed = 0
        """The replica has the facts up to this one."""
        self.pushes = 0
        """So many ended well."""
        self.there: set[str] = set()
        """Names of journal and blobs that the replica has."""
        self._context, self._paths, self._journal = context, context.paths, context.journal
        self._queue, self._files, self._pace = queue, files, _PushPace(every_s, at_once=at_once)
        self._ripening = self._resend = False
        self._owed: set[str] = set()
        """Of earlier generations, what the replica has never had."""
        self._sent = 0
        """So many segments of this generation have gone there, or are in a snapshot there."""
        self._running: _RunningPush | None = None

    def take_up(self, state: ExperimentState, held: Inventory) -> None:
        self.there = {name for name in held.names if not is_history(name)}
        self._owed = {name for name in self.names(self._paths.journal) if f"journal/{name}" not in self.there}

    def send_again(self, name: str) -> None:
        """What is there under that name is damaged."""
        self.there.discard(name)
        self._resend = True

    # --- asked ------------------------------------------------------------------------------------------

    @property
    def pushing(self) -> bool:
        return self._running is not None

    @property
    def drained(self) -> bool:
        return not (self.pushing or self._behind)

    def missing(self) -> list[str]:
        last = self._journal.last_seq
        return [f"the journal from fact {self.pushed + 1} to {last}"] if last > self.pushed else []

    def names(self, directory: Path) -> list[str]:
        """The local files of a directory that belong there."""
        names = fs.listdir(directory) if fs.is_dir(directory) else []
        return [name for name in names if directory / name != self._paths.history]

    @property
    def _behind(self) -> bool:
        """There is something that the replica has not; a last snapshot goes there too, although it says nothing new."""
        return self._says_more or (self.closing and self._context.lacks_snapshot(self.there))

    @property
    def _says_more(self) -> bool:
        return self._journal.last_seq > self.pushed or self._resend

    def due_at(self, now: float) -> float | None:
        return None if (self._ripening and not self.closing) or not self._behind else self.look_at(now)

    def look_at(self, now: float) -> float | None:
        """When a push may begin as soon as there is something to push: of new facts nobody tells."""
        if self.pushing:
            return None
        return self._pace.earliest(waited_for=self._queue.wants_journal, closing=self.closing)

    # --- jobs and their answers ---------------------------------------------------------------------------

    def start_jobs(self, now: float) -> bool:
        """If it is time: seal the journal, and push what the replica lacks, blobs before the lines that name them.

        Not when there is no room here for another segment, or compaction removed one before it had gone, for which only
        a snapshot can stand.
        """
        begins = self.look_at(now) if self._behind else None
        if begins is None or begins > now:
            return False
        snapshots = not self._files.owed  # what they drop is in the trials' own files there
        if not (snapshots or self._says_more):
            return False  # there is nothing but the last snapshot, and it waits for those
        # The loop does not wait for the disk: it is woken when the journal is durable, and comes here again.
        self._ripening = not self.closing and not self._journal.ready_to_seal()
        if self._ripening:
            return False
        if not self._sealed():
            self._pace.no_room(now)
            return False
        if not (snapshots or self._is_whole()):
            self._pace.wait(now)
            return False
        groups, sent = self._groups(snapshots=snapshots)
        self._running, self._resend = _RunningPush(self._journal.last_seq, now, sent, self._open[1]), False
        self._context.push(groups, self._arrived)
        return True

    def _groups(self, *, snapshots: bool) -> tuple[list[Group], set[str]]:
        """What is to be pushed, and the names of it."""
        groups: list[Group] = []
        sent: set[str] = set()
        for directory in (self._paths.blobs, self._paths.journal):
            names = [name for name in self.names(directory) if self._is_new(directory.name, name, snapshots)]
            sent.update(f"{directory.name}/{name}" for name in names)
            for some in [names] if directory == self._paths.blobs else _in_order(names):
                groups.append((str(directory), self._context.key(directory.name), some))
        if not self.pushes:
            # Last: from then on there is an experiment, and what it names is there. Where there is one already it comes
            # before the journal: it says the format, and an older version there then reads no line of a newer one.
            begun = any(name.startswith("journal/") for name in self.there)
            described = (str(self._paths.root), self._context.key(), [self._paths.experiment_json.name])
            groups.insert(1 if begun else len(groups), described)
        return groups, sent

    def _arrived(self, answer: Answer) -> None:
        assert self._running is not None
        push, self._running = self._running, None
        now, well = self._context.clock.monotonic(), isinstance(answer, Done)
        self._pace.ended(now, took=now - push.begun, well=well)
        self._resend |= not well
        if well:
            self.there |= push.names
            self.pushed = push.seq
            self.pushes += 1
            self._sent, self._owed = max(0, push.open_number - 1), set()
        self._queue.journal_at(self.pushed)

    @property
    def _open(self) -> tuple[int, int]:
        """(generation, number) of the open segment."""
        return parse_segment(self._journal.open_name) or (0, 0)

    def _is_whole(self) -> bool:
        """Whether all that the replica lacks of the journal is here, segment by segment."""
        generation, number = self._open
        own = {self._paths.segment(generation, each).name for each in range(self._sent + 1, number)}
        return (own | self._owed) <= set(self.names(self._paths.journal))

    def _sealed(self) -> bool:
        try:
            return self._journal.seal()
        except StorageFullError:
            return False  # the loop meets it at its own flush, and says so

    def _is_new(self, directory: str, name: str, snapshots: bool) -> bool:
        """Whether the replica lacks it, and it is not being written any more."""
        if name.startswith(".") or name == self._journal.open_name or f"{directory}/{name}" in self.there:
            return False
        return snapshots or directory != self._paths.journal.name or parse_snapshot(name) is None


def _in_order(names: list[str]) -> list[list[str]]:
    """One after another, so that whoever reads meanwhile never sees a segment without what comes before it.

    Snapshots go first: they stand for segments that compaction removed before these had gone.
    """
    return [[name] for name in sorted(names, key=lambda name: (parse_snapshot(name) is None, name))]
