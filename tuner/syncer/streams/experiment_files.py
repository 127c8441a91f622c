"""What of an experiment goes to a replica beside its journal: the packed history of its journal, and driver.log.

Nothing waits for them but the end of the run: each goes in a job of its own, the history one pack after another. Packs
that only the replica has come here beside the run, the newest first, and nothing waits for those at all.
"""

from __future__ import annotations

from functools import partial

from trainables.net.backoff import BackOff
from trainables.store import fs
from trainables.transfer import transfer_jobs
from trainables.transfer.transfer_jobs import Done, JobFailed
from tuner.experiment.paths import parse_pack
from tuner.experiment.state import ExperimentState
from tuner.syncer.inventory import Inventory
from tuner.syncer.streams.stream import Answer, ReplicaContext, Stream
from tuner.syncer.streams.written_later import stamps

_HISTORY = "journal/history/"


class ExperimentFiles(Stream):
    """One job at a time in each direction."""

    def __init__(self, context: ReplicaContext) -> None:
        self._context, self._paths = context, context.paths
        self._there: set[str] = set()
        self._wanted: list[str] = []
        """Packs to be brought here; the next one is the last."""
        self._new: list[str] = []
        """Packs to be sent."""
        self._dropped: list[str] = []
        self._packed = context.journal.packed
        self._seen: set[str] = set()
        self._running: set[str] = set()
        """Of "push", "delete", "fetch" those that are under way."""
        self._sending: list[str] = []
        self._log_sent: dict[str, tuple[int, int]] = {}
        self._log_due = True
        self._back_off, self._fetch_again = BackOff(), BackOff()

    def take_up(self, state: ExperimentState, held: Inventory) -> None:
        self._there = {key.removeprefix(_HISTORY) for key in held.names if key.startswith(_HISTORY)}
        self._seen = set(self._packs())
        self._wanted = sorted(filter(parse_pack, self._there - self._seen), key=_last)
        self._look()

    def period(self) -> None:
        """Time to send the log, if something was written to it."""
        self._log_due = True

    @property
    def drained(self) -> bool:
        return not self.missing()

    def missing(self) -> list[str]:
        logs = [name for name, stamp in self._logs().items() if self._log_sent.get(name) != stamp]
        return [*(f"{_HISTORY}{name}" for name in dict.fromkeys((*self._sending, *self._new))), *logs]

    @property
    def is_behind(self) -> bool:
        """A pack is not there, which may hold the only copy of what was removed here."""
        return bool(self._new or self._sending)

    @property
    def has_history(self) -> bool:
        """All of the history that is here now is there too."""
        return not self.is_behind and self._packed == self._context.journal.packed

    def due_at(self, now: float) -> float | None:
        busy = self._running & {"push", "delete"}
        waits = self._back_off.failures and not busy and (self._new or self._dropped or self._log_due)
        return self._back_off.until if waits else None

    def start_jobs(self, now: float) -> bool:
        if self._packed != self._context.journal.packed:
            self._packed = self._context.journal.packed
            self._look()
        return self._push(now) | self._remove() | self._fetch(now)

    def _push(self, now: float) -> bool:
        if self._running & {"push", "delete"} or now < self._back_off.until:
            return False
        if self._new:
            self._sending = [self._new.pop(0)]
            history = self._context.key(_HISTORY.rstrip("/"))
            self._context.push([(str(self._paths.history), history, self._sending)], partial(self._arrived, {}))
        else:
            if not self._log_due and not self.closing:
                return False
            self._log_due = False
            changed = {name: stamp for name, stamp in self._logs().items() if self._log_sent.get(name) != stamp}
            if not changed:
                return False
            group = (str(self._paths.root), self._context.key(), sorted(changed))
            self._context.push([group], partial(self._arrived, changed))
        self._running.add("push")
        return True

    def _arrived(self, logs: dict[str, tuple[int, int]], answer: Answer) -> None:
        self._running.discard("push")
        packs, self._sending = self._sending, []
        well = isinstance(answer, Done)
        self._back_off.ended(self._context.clock.monotonic(), well=well)
        if well:
            self._there |= set(packs)
            self._log_sent |= logs
        else:
            self._log_due |= bool(logs)
        self._look()

    def _remove(self) -> bool:
        """Delete in the replica what was dropped here."""
        if "delete" in self._running or not self._dropped:
            return False
        self._running.add("delete")
        names, self._dropped = self._dropped, []
        self._context.delete([f"{_HISTORY}{name}" for name in names], partial(self._removed, names))
        return True

    def _removed(self, names: list[str], answer: Answer) -> None:
        """What is left there goes at the next start."""
        self._running.discard("delete")
        if isinstance(answer, Done):
            self._there -= set(names)

    def _fetch(self, now: float) -> bool:
        if self.closing or "fetch" in self._running or not self._wanted or now < self._fetch_again.until:
            return False
        self._running.add("fetch")
        name = self._wanted.pop()
        history = self._context.key(_HISTORY.rstrip("/"))
        job = transfer_jobs.FetchFiles(prefix=history, target=str(self._paths.history), names=[name])
        self._context.submit(job, partial(self._fetched, name))
        return True

    def _fetched(self, name: str, answer: Answer) -> None:
        self._running.discard("fetch")
        again = isinstance(answer, JobFailed) and answer.transient
        if again:
            self._wanted.append(name)
        self._fetch_again.ended(self._context.clock.monotonic(), well=not again)
        self._seen |= set(self._packs())

    def _look(self) -> None:
        """The history here has changed: what is new goes there, what was dropped is deleted there."""
        local = self._packs()
        self._new = [name for name in reversed(local) if name not in self._there]
        self._dropped = sorted((self._seen - set(local)) & self._there) if self._context.can.delete else []
        self._seen |= set(local)

    def _packs(self) -> list[str]:
        """Packs that are here, the newest first."""
        names = fs.listdir(self._paths.history) if fs.is_dir(self._paths.history) else []
        return sorted(filter(parse_pack, names), key=_last, reverse=True)

    def _logs(self) -> dict[str, tuple[int, int]]:
        """Files of driver.log here, and what tells that one was written to."""
        return dict(stamps(self._paths.driver_logs))


def _last(name: str) -> tuple[int, ...]:
    parsed = parse_pack(name)
    return () if parsed is None else (parsed[2], parsed[0])
