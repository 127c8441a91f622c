"""Walks through what a run did to its replica, and continues from each moment of it on a machine that has nothing."""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash_disk import materialize
from crash_place import URI, Files, Moment, Record, as_view, load, moments, recording_place, stored
from crash_replica_rules import check_everywhere, check_starts, look_there
from crash_rules import Floor, Outcome, check_trials, outcomes, resume, settings_of
from crash_scenarios import Scenario
from crash_walk import SHOWN, Tally

import tuner as tune


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
