"""Walks through a recorded run and kills it: after every call, in the middle of every write, and with the power cut."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_disk import Disk, File, Op, View, materialize
from crash_record import recording
from crash_rules import Floor, Left, Outcome, check, check_kept, look, outcomes, resume, settings_of
from crash_scenarios import Scenario

from tests.soak.counts import count

SHOWN = 5


@dataclass(frozen=True)
class Record:
    """What one or two lives of a driver did to a disk."""

    scenario: Scenario
    before: list[Op]
    """The first life, up to where it was killed; empty when `ops` is the first life."""
    ops: list[Op]
    expected: list[Outcome]

    def base(self) -> Disk:
        disk = Disk()
        for op in self.before:
            disk.apply(op)
        return disk


def record(scenario: Scenario, storage: Path, killed_at: float | None = None, **more: Any) -> Record:
    """Record a run from nothing; with `killed_at` a resume of a run that was killed after that part of its calls."""
    with settings_of(scenario), recording(storage) as recorder:
        expected = outcomes(scenario.run(storage))
    ops = recorder.ops
    shutil.rmtree(storage)
    if killed_at is None:
        return Record(scenario, [], ops, expected)
    first = Record(scenario, ops[: int(len(ops) * killed_at)], [], expected)
    with settings_of(scenario), recording(storage, first.base()) as recorder:
        scenario.run(storage, **more)
    shutil.rmtree(storage)
    return Record(scenario, first.before, recorder.ops, expected)


@dataclass(frozen=True)
class Case:
    """One disk to resume from."""

    label: str
    view: View
    floor: Floor


def killed(record: Record) -> Iterator[Case]:
    """Every disk that a `kill -9` may leave: what was written is there."""
    disk, floor = record.base(), Floor()
    seen: set[int] = set()

    def case(label: str, view: View) -> Iterator[Case]:
        key = hash(tuple(view.items()))
        if key not in seen:
            seen.add(key)
            yield Case(label, view, floor)

    floor.rise(disk.view())
    for number, op in enumerate(record.ops):
        if op[0] == "append":
            yield from case(f"in the middle of call {number} {_short(op)}", _half_done(disk, op))
        disk.apply(op)
        floor.rise(disk.view())
        yield from case(f"after call {number} {_short(op)}", disk.view())


def cut(record: Record, *, share: float = 1.0, seed: int = 0, part: tuple[int, int] = (0, 1)) -> Iterator[Case]:
    """Disks that a power cut may leave: of what was not synced anything may be missing. `share` of all, drawn.

    `part`: which of so many stretches of the calls it is after that the power is cut.
    """
    disk, floor = record.base(), Floor()
    rng = random.Random(seed)
    seen: set[int] = set()
    floor.rise(disk.durable_view())
    calls = min(1.0, 10 * share)
    begin, end = (len(record.ops) * each // part[1] for each in (part[0], part[0] + 1))
    for number, op in enumerate(record.ops):
        disk.apply(op)
        if str(op[0]).startswith("fsync"):
            floor.rise(disk.durable_view())
        if rng.random() >= calls or not begin <= number < end:
            continue
        for variant in disk.variants(rng):
            if rng.random() * calls >= share:
                continue
            view = disk.view(variant)
            key = hash((tuple(view.items()), tuple(floor.orders.items())))
            if key not in seen:
                seen.add(key)
                yield Case(f"power cut after call {number} {_short(op)}: {variant.name}", view, floor)


def _half_done(disk: Disk, op: Op) -> View:
    """What is there in the middle of a write."""
    _, inode, data = op
    file = disk.nodes[inode]  # type: ignore[index]
    assert isinstance(file, File) and isinstance(data, bytes)
    before = file.now
    file.now = before + data[: len(data) // 2]
    try:
        return disk.view()
    finally:
        file.now = before


def _short(op: Op) -> str:
    return str(op)[:120]


@dataclass
class Tally:
    """What came of the cases."""

    cases: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def cpu_ms(self) -> float:
        return 1000 * self.cpu_s / max(self.cases, 1)

    def __str__(self) -> str:
        wall = 1000 * self.wall_s / max(self.cases, 1)
        return f"{self.cases} disks, {wall:.1f} ms per resume ({self.cpu_ms:.1f} ms of processor time)"


def resume_each(
    record: Record,
    cases: Iterator[Case],
    disks: Path,
    *,
    first_only: bool = False,
    examine: Callable[[Case, Path], Left] | None = None,
    share: float = 1.0,
) -> Tally:
    """Rebuild every disk (or a drawn share), resume from it, hold it against the rules; collects what does not hold."""
    tally, rng = Tally(), random.Random(0)
    for case in cases:
        if rng.random() >= share:
            continue
        tally.cases += 1
        count("states of a disk")
        storage = disks / str(tally.cases)
        try:
            _resume(record, case, storage, tally, examine or _examine)
        except Exception as error:
            tally.failures.append(f"{case.label}\n    {type(error).__name__}: {error}".replace(str(storage), ""))
            if first_only or len(tally.failures) >= SHOWN:
                return tally
        finally:
            shutil.rmtree(storage)
    return tally


def _examine(case: Case, storage: Path) -> Left:
    return look(storage / "e", case.floor)


def _resume(record: Record, case: Case, storage: Path, tally: Tally, examine: Callable[[Case, Path], Left]) -> None:
    materialize(case.view, storage)
    left = examine(case, storage)
    began = time.process_time()
    resumed = resume(record.scenario, storage)
    tally.cpu_s += time.process_time() - began
    tally.wall_s += resumed.seconds
    check(record.scenario, left, resumed, record.expected)
    check_kept(resumed, record.expected)
    if tally.cases % 10 == 0:
        again = resume(record.scenario, storage)
        assert not again.launches, "what had ended runs again"
