"""A place for copies that remembers every operation on it, and what a crash may leave of those under way.

The model: one file appears, is copied or goes at once. What one call moves side by side (the files of a push, the
removals of a whole tree) may have happened in any order when everything stops, and so may jobs that run beside one
another; what a job does call after call, and what was answered, is there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crash_disk import View

from trainables.transfer import open as opening
from trainables.transfer import transfer_jobs
from trainables.transfer.backend import Backend, Progress, unwatched
from trainables.transfer.client import InlineClient
from trainables.transfer.fsspec import MemoryBackend
from trainables.transfer.local_files import Source
from trainables.transfer.transfer_jobs import Done, JobFailed
from tuner.opening import reach

_LOOKS = (
    transfer_jobs.FetchCheckpoint,
    transfer_jobs.FetchFiles,
    transfer_jobs.Read,
    transfer_jobs.ListKeys,
    transfer_jobs.FindLeftovers,
)
"""Jobs that change nothing there."""
URI = "memory://crash/replica"
EXPERIMENT = "e/"

Files = dict[str, bytes]
"""Key -> content."""


@dataclass(frozen=True, slots=True)
class Op:
    """One file is there from now on, or not any more."""

    how: str
    """"sent", "copied" over there, or "removed"."""
    key: str
    data: bytes = b""

    def apply(self, files: Files) -> None:
        if self.how == "removed":
            files.pop(self.key, None)
        else:
            files[self.key] = self.data

    def __str__(self) -> str:
        return f"{self.key} {self.how}"


@dataclass(slots=True)
class Job:
    """What one job did: groups one after another, the operations of a group side by side."""

    kind: str
    groups: list[list[Op]] = field(default_factory=list)

    def some(self, rng: random.Random, *, done: int = 0) -> list[Op]:
        """What may have happened of it when everything stops, in an order that is possible; `done` operations have."""
        reached, left = 0, done
        while left > 0:
            left -= len(self.groups[reached])
            reached += left >= 0
        cut = rng.randint(reached, len(self.groups))
        before = [op for group in self.groups[:cut] for op in group]
        beside = list(self.groups[cut]) if cut < len(self.groups) else []
        return before + rng.sample(beside, rng.randint(0, len(beside)))


Event = tuple[str, int, Op | None]
"""("submitted" | "op" | "ended", number of a job, operation)."""


class Record:
    """What was done at a place, from the first job to the last."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.events: list[Event] = []
        self.clock: Callable[[], int] = lambda: 0
        """How much had been done to the disk of the machine, where that is recorded too."""
        self.clocks: list[int] = []
        """What it showed at each event."""
        self.now = 0
        """The job that is being done; 0: none, what happens counts as a job of its own."""
        self._last = 0

    def submitted(self, kind: str) -> int:
        self._last += 1
        self.jobs[self._last] = Job(kind)
        self._note("submitted", self._last, None)
        return self._last

    def ended(self, number: int) -> None:
        self._note("ended", number, None)

    def _note(self, kind: str, number: int, op: Op | None) -> None:
        self.events.append((kind, number, op))
        self.clocks.append(self.clock())

    @contextmanager
    def group(self) -> Iterator[None]:
        """What happens within happens side by side."""
        self.jobs[self.now].groups.append([])
        yield

    def add(self, op: Op) -> None:
        if op.key.startswith(EXPERIMENT):
            self.jobs[self.now].groups[-1].append(op)
            self._note("op", self.now, op)

    def doing(self, number: int, work: Callable[[], Any]) -> Any:
        """Do the work of a job."""
        self.now = number
        try:
            return work()
        finally:
            self.now = 0
            self.ended(number)


class RecordedBackend(MemoryBackend):
    """The back end of `memory://`, watched."""

    threads = 1

    def __init__(self, uri: str, record: Record) -> None:
        super().__init__(uri)
        self.record = record

    def check(self, timeout_s: float = 10.0) -> None:
        """It is there: the file that this would write and delete is nobody's matter."""

    def push(
        self,
        source: Path,
        prefix: str,
        names: Sequence[str],
        *,
        same: Mapping[str, str] | None = None,
        exclusive: bool = False,
        receipts: MutableMapping[str, str] | None = None,
        progress: Progress = unwatched,
    ) -> None:
        with self.record.group():
            super().push(source, prefix, names, same=same, exclusive=exclusive, receipts=receipts, progress=progress)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with self.record.group():
                super().delete([key])

    def delete_tree(self, prefix: str) -> None:
        with self.record.group():
            super().delete_tree(prefix)

    def _send(self, source: Source, key: str, *, exclusive: bool) -> str:
        receipt = super()._send(source, key, exclusive=exclusive)
        self.record.add(Op("sent", key, self._fs.cat_file(self._path(key))))
        return receipt

    def _copy(self, known: str, key: str, *, exclusive: bool) -> str:
        receipt = super()._copy(known, key, exclusive=exclusive)
        self.record.add(Op("copied", key, self._fs.cat_file(self._path(key))))
        return receipt

    def _remove(self, key: str) -> None:
        super()._remove(key)
        self.record.add(Op("removed", key))


class RecordedUploader(InlineClient):
    """Does jobs at once, and says when."""

    def __init__(self, arguments: dict[str, Any], wake: Callable[[], None], record: Record) -> None:
        super().__init__(arguments, wake=wake)
        self.record = record

    def submit(self, job: transfer_jobs.AnyJob) -> int:
        number = self.record.submitted(type(job).__name__)
        self._do(number, job)
        return number

    def do(self, job: transfer_jobs.AnyJob, *, timeout_s: float) -> Done | JobFailed:
        number, ended = self.submit(job), []
        while True:
            ended += self.answers()
            if mine := [answer for answer in ended if answer.id == number]:
                self._ended = [answer for answer in ended if answer.id != number] + self._ended
                return mine[0]

    def _do(self, number: int, job: transfer_jobs.AnyJob) -> None:
        job = msgspec.structs.replace(job, id=number)
        self._ended.append(self.record.doing(number, lambda: self._worker.do(job, lambda moved: None)))
        self._wake()


class BesideUploader(RecordedUploader):
    """Does jobs beside the caller, as the process does: several are under way, and end in an order drawn by a seed."""

    beside = True

    def __init__(self, arguments: dict[str, Any], wake: Callable[[], None], record: Record, rng: random.Random) -> None:
        super().__init__(arguments, wake, record)
        self._rng = rng
        self._waiting: list[tuple[int, transfer_jobs.AnyJob]] = []

    def submit(self, job: transfer_jobs.AnyJob) -> int:
        number = self.record.submitted(type(job).__name__)
        if isinstance(job, _LOOKS):
            self._do(number, job)
            return number
        self._waiting.append((number, job))
        self._wake()  # the loop comes by as if time had passed
        return number

    def answers(self) -> list[Done | JobFailed]:
        while self._waiting and self._rng.random() < 0.5:
            self._do(*self._waiting.pop(self._rng.randrange(len(self._waiting))))
        return super().answers()


@contextmanager
def recording_place(*, beside: random.Random | None = None) -> Iterator[Record]:
    """Record what happens at `URI` meanwhile; with `beside` jobs run beside the driver, in an order drawn from it."""
    record = Record()

    def open_backend(place: str, **settings: Any) -> Backend:
        return RecordedBackend(place, record)

    def uploader(arguments: dict[str, Any], *, wake: Callable[[], None]) -> InlineClient:
        if beside is None:
            return RecordedUploader(arguments, wake, record)
        return BesideUploader(arguments, wake, record, beside)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "open_backend", open_backend)
        patch.setattr(reach, "InlineClient", uploader)
        patch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0")
        yield record


# --- what is there --------------------------------------------------------------------------------------------


def load(files: Files) -> None:
    """Make the place hold these files, and no others."""
    backend = MemoryBackend(URI)
    backend._fs.store.clear()
    backend._fs.pseudo_dirs[:] = [""]
    for key, data in files.items():
        backend._fs.pipe_file(backend._path(key), data)


def stored() -> Files:
    """What the place holds."""
    backend = MemoryBackend(URI)
    return {entry.key: backend._fs.cat_file(backend._path(entry.key)) for entry in backend.list()}


def as_view(files: Files) -> View:
    """The same as a tree on a disk."""
    view: View = {}
    for key in sorted(files):
        parts = key.split("/")
        for depth in range(1, len(parts)):
            view.setdefault("/".join(parts[:depth]), None)
        view[key] = files[key]
    return view


@dataclass(frozen=True)
class Moment:
    """What may be there when everything stops."""

    label: str
    files: Files
    settled: int
    """So many events had happened whose jobs all had ended: what they did is there for certain."""
    happened: int = 0
    """So many events had happened."""
    plain: bool = True
    """What happened is there, and nothing else."""


def moments(record: Record, before: Files, rng: random.Random, *, variants: int) -> Iterator[Moment]:
    """What is there after each operation, and `variants` of what else may be: of jobs under way anything possible."""
    files, ended = dict(before), dict(before)
    under_way: dict[int, int] = {}
    settled = 0
    seen: set[int] = set()

    def moment(label: str, files: Files) -> Iterator[Moment]:
        key = hash(frozenset(files.items()))
        if key not in seen:
            seen.add(key)
            yield Moment(label, dict(files), settled, happened, plain=not label.startswith("around"))

    happened = 0
    yield from moment("at the start", files)
    for number, (kind, job, op) in enumerate(record.events, start=1):
        happened = number
        if kind == "submitted":
            under_way[job] = 0
        elif kind == "ended":
            del under_way[job]
            for each in (op for group in record.jobs[job].groups for op in group):
                each.apply(ended)
            settled = number
        if op is not None:
            op.apply(files)
            under_way[job] += 1
            yield from moment(f"after {number}: {op}", files)
        for _ in range(variants if under_way else 0):
            possible = dict(ended)
            order = list(under_way)
            rng.shuffle(order)
            for each_job in order:
                for each in record.jobs[each_job].some(rng, done=under_way[each_job]):
                    each.apply(possible)
            running = ", ".join(record.jobs[each].kind for each in under_way)
            yield from moment(f"around {number}, with {running} under way", possible)
