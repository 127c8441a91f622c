"""A machine is lost after any operation on its replica: a fresh one continues from the replica alone (R2-R5)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from crash_place import Job, recording_place, stored
from crash_record import lives
from crash_replica_scenarios import BY_NAME
from crash_replica_walk import Run, continue_each, continue_pairs, record_both, record_run, with_replica
from crash_rules import settings_of
from crash_walk import Tally

Life = tuple[str, float | None, dict[str, Any]]
LIVES: list[Life] = [
    *((name, None, {}) for name in BY_NAME),
    ("keep_one", 0.5, {}),
    ("keep_best", 0.4, {}),
    ("failing", 0.55, {}),
    ("compacting", 0.6, {}),
    ("pausing", 0.5, {}),
    ("keep_local", 0.7, {}),
    ("failing", 1.0, {"resume": "AUTO+ERRORED"}),
    ("failing", 1.0, {"resume": "AUTO+RESTART_ERRORED"}),
]
"""Which life is recorded: the first of an experiment, or one on another machine after that part of the first."""
LOST, SHARE = 0.35, 0.25
"""Of the moments of jobs one after another, and beside one another, in `make test`; `make soak` has all."""


def _id(life: Life) -> str:
    name, killed_at, more = life
    return "_".join([name, *([f"resumed_at_{killed_at}"] if killed_at else []), *more.values()])


@pytest.fixture(autouse=True)
def a_process_per_driver() -> Iterator[None]:
    with lives():
        yield


@pytest.fixture(params=LIVES, ids=_id)
def life(request: pytest.FixtureRequest) -> Life:
    found: Life = request.param
    return found


def recorded(life: Life, disks: Path, seed: int | None = None) -> Run:
    name, killed_at, more = life
    return record_run(BY_NAME[name], disks, seed=seed, killed_at=killed_at, **more)


def require_all(tally: Tally) -> None:
    assert not tally.failures, f"{tally}\n" + "\n".join(tally.failures)
    assert tally.cases
    print(tally)


def test_f18_r2_a_machine_lost_after_any_operation_is_continued_from_the_replica(life: Life, disks: Path) -> None:
    require_all(continue_each(recorded(life, disks), disks, seed=0, variants=1, share=LOST))


def test_f18_r2_with_jobs_beside_one_another_in_any_order(life: Life, disks: Path) -> None:
    require_all(continue_each(recorded(life, disks, seed=1), disks, seed=1, variants=1, share=SHARE))


@pytest.mark.soak
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("seed", [None, *range(1, 12)])
def test_f18_r2_with_jobs_beside_one_another_in_every_order(life: Life, seed: int | None, disks: Path) -> None:
    require_all(continue_each(recorded(life, disks, seed), disks, seed=seed or 0, variants=3))


BOTH = [("keep_one", None), ("class", None), ("pausing", None), ("compacting", 0.6), ("keep_best", 0.4)]
ALL_BOTH = [*((name, None) for name in BY_NAME), *((name, 0.5) for name in BY_NAME)]
PAIRS = 0.03
"""Of the pairs, in `make test`."""


@pytest.mark.parametrize(("name", "killed_at"), BOTH)
def test_f18_r2_a_driver_killed_anywhere_goes_on_from_its_disk_and_the_replica(
    name: str, killed_at: float | None, disks: Path
) -> None:
    both = record_both(BY_NAME[name], disks, seed=1, killed_at=killed_at)
    require_all(continue_pairs(both, disks, seed=1, variants=1, share=PAIRS))


@pytest.mark.soak
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("seed", [None, 2, 3])
@pytest.mark.parametrize(("name", "killed_at"), ALL_BOTH)
def test_f18_r2_a_driver_killed_everywhere_goes_on_from_its_disk_and_the_replica(
    name: str, killed_at: float | None, seed: int | None, disks: Path
) -> None:
    both = record_both(BY_NAME[name], disks, seed=seed, killed_at=killed_at)
    require_all(continue_pairs(both, disks, seed=seed or 0, variants=1))


# --- the harness itself -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_NAME)
def test_the_record_is_the_whole_truth(name: str, disks: Path) -> None:
    run = record_run(BY_NAME[name], disks)
    files = dict(run.before)
    for op in (op for _, _, op in run.record.events if op is not None):
        op.apply(files)
    assert files == stored()
    assert sum(len(group) for job in run.record.jobs.values() for group in job.groups) == sum(
        op is not None for _, _, op in run.record.events
    )


def test_content_that_is_there_is_copied_over_there(disks: Path) -> None:
    run = record_run(BY_NAME["pausing"], disks)
    how = [op.how for _, _, op in run.record.events if op is not None and op.key.endswith("/weights")]
    assert how.count("sent") < how.count("copied")


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        pytest.param("manifests first", ("F02", "R1", "R4"), id="manifests"),
        pytest.param("removed first", ("R2",), id="deletions"),
        pytest.param("journal late", ("T14", "R2"), id="journal"),
    ],
)
def test_a_wrong_order_is_found(kind: str, rules: tuple[str, ...], disks: Path) -> None:
    run = record_run(BY_NAME["keep_one"], disks)
    _disorder(run, kind)
    tally = continue_each(run, disks, seed=0, variants=0)
    assert tally.failures and any(f"Broken: {rule}" in failure for failure in tally.failures for rule in rules), tally


def _disorder(run: Run, kind: str) -> None:
    """Have the same jobs done in an order that no replica may have."""
    jobs = run.record.jobs
    order = sorted(jobs, key=lambda number: _rank(number, jobs[number], kind))
    run.record.events = [
        event
        for number in order
        for event in [
            ("submitted", number, None),
            *(("op", number, op) for group in jobs[number].groups for op in group),
            ("ended", number, None),
        ]
    ]


def _rank(number: int, job: Job, kind: str) -> float:
    if kind == "manifests first" and job.kind == "PushManifest":
        return number - 2.5  # before its payload, which comes before the journal
    if kind == "removed first" and job.kind == "DeleteCheckpoint":
        return number - 1.5
    if kind == "journal late" and _is_journal(job):
        return number + 1.5
    return number


def _is_journal(job: Job) -> bool:
    return any("/journal/" in op.key for group in job.groups for op in group)


def test_a_place_that_held_something_else_is_cleared_first(disks: Path) -> None:
    """What is replaced goes before the first of the new arrives, also content that both have."""
    scenario = BY_NAME["keep_one"]
    record_run(scenario, disks)
    with settings_of(scenario), recording_place() as record:
        scenario.run(disks / "again", **with_replica(scenario), resume=None, overwrite=True)
    files = stored()
    assert {Path(key).name for key in files if "/blobs/" in key} >= _named(files)
    first = [(op.how, op.key) for _, _, op in record.events if op is not None and "/generations/" not in op.key][:2]
    # A mark lets a resume end what is begun here; without experiment.json nobody takes the rest for an experiment.
    assert first == [("sent", "e/.replaced"), ("removed", "e/experiment.json")]


def _named(files: dict[str, bytes]) -> set[str]:
    settings = json.loads(files["e/experiment.json"])
    return {settings[key] for key in ("space_blob", "settings_blob") if settings[key]}
