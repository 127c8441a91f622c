"""Walks through what a run did to its replica, and continues from each moment of it.

On a machine that has nothing (`continue_each`), or on the one that ran, with its disk as it was (`continue_pairs`).
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_disk import Disk, Op, View, materialize
from crash_place import URI, Files, Moment, Record, as_view, load, moments, recording_place, stored
from crash_record import recording
from crash_replica_rules import check_everywhere, check_starts, look_there, together
from crash_rules import Floor, Outcome, check_trials, look, outcomes, resume, settings_of
from crash_scenarios import Scenario
from crash_walk import SHOWN, Tally

import tuner as tune
from tests.soak.counts import count


@dataclass(frozen=True)
class Run:
    """What one life of a driver did to a place that held `before`."""

    scenario: Scenario
    before: Files
    record: Record
    expected: list[Outcome]

    def floor(self) -> Floor:
        floor = Floor()
        floor.rise(as_view(self.before))
        return floor


def with_replica(scenario: Scenario) -> dict[str, Any]:
    """The settings that make it keep copies at the place."""
    return {"sync_config": tune.SyncConfig(upload_dir=URI, **scenario.sync)}


def record_run(
    scenario: Scenario, disks: Path, *, seed: int | None = None, killed_at: float | None = None, **more: Any
) -> Run:
    """Record a run into an empty place; with `seed` its jobs run beside it.

    With `killed_at` it is continued on another machine, after that part of its operations, and that life is recorded.
    """
    with settings_of(scenario):
        expected = outcomes(scenario.run(disks / "alone"))
    before: Files = {}
    for life in range(1 if killed_at is None else 2):
        load(before)
        rng = None if seed is None else random.Random(f"{seed}:{life}")
        resumes = more if life else {}
        with settings_of(scenario), recording_place(beside=rng) as record:
            scenario.run(disks / f"life-{life}", **{**with_replica(scenario), **resumes})
        if killed_at is None or life == 1:
            return Run(scenario, before, record, expected)
        ops = [op for _, _, op in record.events if op is not None]
        for op in ops[: int(len(ops) * killed_at)]:
            op.apply(before)
    raise AssertionError("there is a last life")


def continue_each(run: Run, disks: Path, *, seed: int, variants: int, share: float = 1.0) -> Tally:
    """Continue from every moment of a run (`share` of them, drawn), and hold what comes of it against the rules."""
    tally, rng, floor = Tally(), random.Random(seed), run.floor()
    settled = 0
    ended: Files = dict(run.before)
    for moment in moments(run.record, run.before, rng, variants=variants):
        for kind, job, _ in run.record.events[settled : moment.settled]:
            if kind == "ended":
                for op in (op for group in run.record.jobs[job].groups for op in group):
                    op.apply(ended)
                floor.rise(as_view(ended))
        settled = moment.settled
        if rng.random() >= share:
            continue
        tally.cases += 1
        count("states of a replica")
        disk = disks / str(tally.cases)
        disk.mkdir()
        try:
            _continue(run, moment, floor, disk, tally)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".replace(str(disk), "")
            tally.failures.append(f"{moment.label}\n    {text}")
            if len(tally.failures) >= SHOWN:
                return tally
        finally:
            shutil.rmtree(disk)
    return tally


def _continue(run: Run, moment: Moment, floor: Floor, disk: Path, tally: Tally) -> None:
    materialize(as_view(moment.files), disk / "there")
    left = look_there(disk / "there" / "e", floor)
    load(moment.files)
    began = time.process_time()
    resumed = resume(run.scenario, disk / "here", **with_replica(run.scenario))
    tally.cpu_s += time.process_time() - began
    tally.wall_s += resumed.seconds
    check_starts(left, resumed)
    check_trials(left, resumed, run.expected)
    check_everywhere(run.scenario, left, resumed, disk, stored(), run.expected)
    if tally.cases % 10 == 0:
        again = resume(run.scenario, disk / "third", **with_replica(run.scenario))
        assert not again.launches, "what had ended runs again"


# --- with the disk of the machine that ran -----------------------------------------------------------------------


@dataclass(frozen=True)
class Both:
    """What one life of a driver did to a place, and to its own disk, which was `base` before."""

    run: Run
    base: View
    ops: list[Op] = field(default_factory=list)

    def until(self, happened: int) -> int:
        """How much of `ops` was done before the next change over there."""
        events = self.run.record.events
        later = (number for number in range(happened, len(events)) if events[number][0] == "op")
        return next((self.run.record.clocks[number] for number in later), len(self.ops))

    def since(self, happened: int) -> int:
        return self.run.record.clocks[happened - 1] if happened else 0


def record_both(scenario: Scenario, disks: Path, *, seed: int | None = None, killed_at: float | None = None) -> Both:
    """Record a run, both sides of it; with `killed_at` the next life on what is left after that part of the first."""
    with settings_of(scenario):
        expected = outcomes(scenario.run(disks / "alone"))
    base: View = {}
    before: Files = {}
    for life in range(1 if killed_at is None else 2):
        load(before)
        rng = None if seed is None else random.Random(f"{seed}:{life}")
        storage = disks / f"life-{life}"
        with (
            settings_of(scenario),
            recording_place(beside=rng) as record,
            recording(storage, Disk(base)) as recorder,
        ):
            record.clock = lambda recorder=recorder: (recorder.look(), len(recorder.ops))[1]  # type: ignore[misc]
            scenario.run(storage, **with_replica(scenario))
        both = Both(Run(scenario, before, record, expected), base, recorder.ops)
        if killed_at is None or life == 1:
            return both
        before = dict(before)
        changes = [number for number, event in enumerate(record.events, start=1) if event[0] == "op"]
        happened = changes[int(len(changes) * killed_at)]
        for _, _, op in record.events[:happened]:
            if op is not None:
                op.apply(before)
        disk = Disk(base)
        for each in recorder.ops[: both.since(happened)]:
            disk.apply(each)
        base = disk.view()
    raise AssertionError("there is a last life")


@dataclass(frozen=True)
class Pair:
    """What both sides hold when everything stops."""

    moment: Moment
    label: str
    here: View
    floor: Floor


def pairs(both: Both, rng: random.Random, *, variants: int) -> Iterator[Pair]:
    """A kill after every change of either side, and power cuts; what may be there of jobs under way as in `moments`."""
    disk, floors = Disk(both.base), {False: Floor(), True: Floor()}
    views: list[tuple[View, View]] = []

    def step() -> None:
        cuts = list(disk.variants(rng, shuffled=1))
        views.append((disk.view(), disk.view(rng.choice(cuts))))

    step()
    for op in both.ops:
        disk.apply(op)
        step()
    durable = Disk(both.base)
    done = 0
    for moment in moments(both.run.record, both.run.before, rng, variants=variants):
        since = both.since(moment.happened)
        while done < since:
            durable.apply(both.ops[done])
            done += 1
        floors[False].rise(views[since][0])
        floors[True].rise(durable.durable_view())
        for at in range(since, both.until(moment.happened) + 1) if moment.plain else (since,):
            yield Pair(moment, f"{moment.label}; here after {at}", views[at][0], floors[False])
        yield Pair(moment, f"{moment.label}; power cut here after {since}", views[since][1], floors[True])


def continue_pairs(both: Both, disks: Path, *, seed: int, variants: int, share: float = 1.0) -> Tally:
    """Continue on the machine that ran, from every pair (`share` of them, drawn)."""
    tally, rng, draw = Tally(), random.Random(seed), random.Random(f"{seed}:drawn")
    there = both.run.floor()
    ended: Files = dict(both.run.before)
    settled = 0
    for pair in pairs(both, rng, variants=variants):
        for kind, job, _ in both.run.record.events[settled : pair.moment.settled]:
            if kind == "ended":
                for op in (op for group in both.run.record.jobs[job].groups for op in group):
                    op.apply(ended)
                there.rise(as_view(ended))
        settled = max(settled, pair.moment.settled)
        if draw.random() >= share:
            continue
        tally.cases += 1
        count("pairs of disk and replica")
        disk = disks / str(tally.cases)
        disk.mkdir()
        try:
            _continue_pair(both.run, pair, there, disk, tally)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".replace(str(disk), "")
            tally.failures.append(f"{pair.label}\n    {text}")
            if len(tally.failures) >= SHOWN:
                return tally
        finally:
            shutil.rmtree(disk)
    return tally


def _continue_pair(run: Run, pair: Pair, floor: Floor, disk: Path, tally: Tally) -> None:
    materialize(as_view(pair.moment.files), disk / "there")
    materialize(pair.here, disk / "here")
    left = together(look(disk / "here" / "e", pair.floor), look_there(disk / "there" / "e", floor))
    load(pair.moment.files)
    began = time.process_time()
    resumed = resume(run.scenario, disk / "here", **with_replica(run.scenario))
    tally.cpu_s += time.process_time() - began
    tally.wall_s += resumed.seconds
    check_starts(left, resumed)
    check_trials(left, resumed, run.expected)
    check_everywhere(run.scenario, left, resumed, disk, stored(), run.expected)
