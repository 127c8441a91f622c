"""What of an experiment goes to a replica beside its books: the packed history of its journal, and driver.log.

Nothing waits for them but the end of the run: each goes in a job of its own, the history one pack after another. Packs
that only the replica has come here beside the run, the newest first, and nothing waits for those at all.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from trainables.store import fs
from trainables.transfer import agent
from tuner.experiment.paths import ExperimentPaths, parse_pack
from tuner.syncer.queue import Patience

_HISTORY = "journal/history/"


class ExperimentFiles:
    """Which of these files are to go there, or to come here; one job at a time in each direction.

    Args:
        name: of the experiment over there.
        there: names of what the replica has (`journal/history/...`).
        removes: the replica can delete.
    """

    def __init__(self, paths: ExperimentPaths, *, name: str, guard: str, there: Collection[str], removes: bool) -> None:
        self._paths, self._name, self._guard, self._removes = paths, name, guard, removes
        self._there = {key.removeprefix(_HISTORY) for key in there if key.startswith(_HISTORY)}
        self._wanted = sorted(filter(parse_pack, self._there - set(self._packs())), key=_last)
        """Packs to be brought here; the next one is the last."""
        self._new: list[str] = []
        """Packs to be sent."""
        self._dropped: list[str] = []
        self._under: list[str] = []
        self._removing: list[str] = []
        self._fetching = ""
        self._log_sent: dict[str, tuple[int, int]] = {}
        self._log_under: dict[str, tuple[int, int]] = {}
        self._log_due = True
        self._patience, self._fetch_again = Patience(), Patience()
        self._seen = set(self._packs())
        self.look()

    def look(self) -> None:
        """The history here has changed: what is new goes there, what was dropped goes there too."""
        here = self._packs()
        self._new = [name for name in reversed(here) if name not in self._there]
        self._dropped = sorted((self._seen - set(here)) & self._there) if self._removes else []
        self._seen |= set(here)

    def period(self) -> None:
        """Time to send the log, if something was written to it."""
        self._log_due = True

    @property
    def busy(self) -> bool:
        """Something is on its way there."""
        return bool(self._under or self._removing or self._log_under)

    @property
    def lacking(self) -> list[str]:
        """What is not there as it is here, one name each."""
        logs = [name for name, stamp in self._logs().items() if self._log_sent.get(name) != stamp]
        return [*(f"{_HISTORY}{name}" for name in dict.fromkeys((*self._under, *self._new))), *logs]

    @property
    def is_behind(self) -> bool:
        """A pack is not there, which may hold the only copy of what was removed here."""
        return bool(self._new or self._under)

    @property
    def due_at(self) -> float | None:
        """When the next job may begin after one that failed, in monotonic seconds; None: not by itself."""
        waits = self._patience.failures and not self.busy and (self._new or self._dropped or self._log_due)
        return self._patience.until if waits else None

    def push(self, now: float, *, closing: bool) -> agent.Push | None:
        """The next job that sends something; None: not now."""
        if self.busy or now < self._patience.until:
            return None
        if self._new:
            self._under = [self._new.pop(0)]
            groups = [(str(self._paths.history), f"{self._name}/{_HISTORY.rstrip('/')}", self._under)]
            return agent.Push(groups=groups, guard=self._guard)
        if not self._log_due and not closing:
            return None
        self._log_due = False
        logs = self._logs()
        changed = {name: stamp for name, stamp in logs.items() if self._log_sent.get(name) != stamp}
        if not changed:
            return None
        self._log_under = changed
        return agent.Push(groups=[(str(self._paths.root), self._name, sorted(changed))], guard=self._guard)

    def arrived(self, now: float, *, whole: bool) -> None:
        """That job has ended; `whole`: everything of it is there."""
        packs, self._under = self._under, []
        logs, self._log_under = self._log_under, {}
        self._patience.ended(now, well=whole)
        if whole:
            self._there |= set(packs)
            self._log_sent |= logs
        else:
            self._log_due |= bool(logs)
        self.look()

    def removal(self) -> agent.Delete | None:
        """Delete over there what was dropped here; None: nothing."""
        if self._removing or not self._dropped:
            return None
        self._removing, self._dropped = self._dropped, []
        return agent.Delete(keys=[f"{self._name}/{_HISTORY}{name}" for name in self._removing], guard=self._guard)

    def removed(self, *, whole: bool) -> None:
        """The removal has ended; what is left there goes at the next start."""
        if whole:
            self._there -= set(self._removing)
        self._removing = []

    def fetch(self, now: float) -> agent.FetchFiles | None:
        """The next job that brings a pack here; None: not now."""
        if self._fetching or not self._wanted or now < self._fetch_again.until:
            return None
        self._fetching = self._wanted.pop()
        return agent.FetchFiles(
            prefix=f"{self._name}/{_HISTORY.rstrip('/')}", target=str(self._paths.history), names=[self._fetching]
        )

    def fetched(self, now: float, *, again: bool) -> None:
        """That job has ended; `again`: it failed, and may succeed later."""
        if again:
            self._wanted.append(self._fetching)
        self._fetch_again.ended(now, well=not again)
        self._fetching = ""
        self._seen |= set(self._packs())

    def _packs(self) -> list[str]:
        """Packs that are here, the newest first."""
        names = fs.listdir(self._paths.history) if fs.is_dir(self._paths.history) else []
        return sorted(filter(parse_pack, names), key=_last, reverse=True)

    def _logs(self) -> dict[str, tuple[int, int]]:
        """Files of driver.log here, and what tells that one was written to."""
        return dict(_stamps(self._paths.driver_logs))


def _last(name: str) -> tuple[int, ...]:
    parsed = parse_pack(name)
    return () if parsed is None else (parsed[2], parsed[0])


def _stamps(files: Iterable[Path]) -> Iterable[tuple[str, tuple[int, int]]]:
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            continue  # there is none
        yield file.name, (status.st_size, status.st_mtime_ns)
