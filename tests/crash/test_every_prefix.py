"""A small experiment, killed everywhere: after each call that changes its disk, with all that a power cut leaves."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from crash_disk import Disk, View, read_view
from crash_record import lives, recording
from crash_rules import Floor, Left, outcomes, settings_of
from crash_scenarios import BY_NAME, SCENARIOS
from crash_walk import Case, Record, Tally, cut, killed, record, resume_each

from trainables.store import delete, fs
from tuner.clock import SystemClock
from tuner.experiment.journal import JournalWriter
from tuner.experiment.paths import ExperimentPaths

LIVES = [
    *((scenario.name, None) for scenario in SCENARIOS),
    ("keep_one", 0.5),
    ("keep_best", 0.4),
    ("keep_best", 0.6),
    ("class", 0.7),
    ("failing", 0.55),
    ("compacting", 0.6),
]
"""Which run is killed everywhere: the first life of an experiment, or the second one, after a kill at that point."""
PARTS = 12
"""Thousands of disks a life are some hundred a test: a soak that is cut off goes on where it was."""
KILLED, CUT = 0.35, 0.004
"""Of the disks that a kill and a power cut may leave, in `make test`; `make soak` has all."""


@pytest.fixture(autouse=True)
def a_process_per_driver() -> Iterator[None]:
    with lives():
        yield


@pytest.fixture(params=LIVES, ids=lambda life: life[0] + (f"_resumed_at_{life[1]}" if life[1] else ""))
def recorded(request: pytest.FixtureRequest, disks: Path) -> Record:
    name, killed_at = request.param
    return record(BY_NAME[name], disks / "r", killed_at)


def require_all(tally: Tally) -> None:
    assert not tally.failures, f"{tally}\n" + "\n".join(tally.failures)
    print(tally)


def test_f01_f29_killed_after_any_call_the_next_start_continues(recorded: Record, disks: Path) -> None:
    require_all(resume_each(recorded, killed(recorded), disks, share=KILLED))


def test_t14_f02_a_power_cut_anywhere_tears_nothing_that_counts(recorded: Record, disks: Path) -> None:
    require_all(resume_each(recorded, cut(recorded, share=CUT, seed=len(recorded.ops)), disks))


@pytest.mark.soak
@pytest.mark.timeout(14400)
def test_f01_f29_killed_after_every_call_the_next_start_continues(recorded: Record, disks: Path) -> None:
    require_all(resume_each(recorded, killed(recorded), disks))


@pytest.mark.soak
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("part", range(PARTS))
def test_t14_f02_a_power_cut_anywhere_with_any_loss_tears_nothing_that_counts(
    part: int, recorded: Record, disks: Path
) -> None:
    require_all(resume_each(recorded, cut(recorded, part=(part, PARTS)), disks))


@pytest.mark.parametrize(
    ("killed_at", "share"),
    [
        pytest.param(0.5, 1.0, marks=(pytest.mark.soak, pytest.mark.timeout(14400))),
        pytest.param(1.0, 1.0, marks=(pytest.mark.soak, pytest.mark.timeout(14400))),
        (1.0, KILLED),
    ],
)
def test_t09_an_overwrite_killed_anywhere_leaves_the_old_experiment_or_a_new_one(
    killed_at: float, share: float, disks: Path
) -> None:
    made = record(BY_NAME["keep_one"], disks / "r", killed_at, resume=None, overwrite=True)

    def examine(case: Case, storage: Path) -> Left:
        return Left(storage / "e", None, looked_at=False)  # whose are the checkpoints? Either one's

    for cases, some in ((killed(made), share), (cut(made, share=CUT), 1.0)):
        tally = resume_each(made, cases, disks, examine=examine, share=some)
        assert not tally.failures, "\n".join(tally.failures)


def test_f02_a_deletion_that_a_kill_cut_off_is_finished_without_a_torn_checkpoint(disks: Path) -> None:
    """The name was hidden, and that was not durable: the power is cut while the next start empties it."""
    before: View = {"t": None, "t/checkpoint_000001": None, "t/checkpoint_000001/.manifest.json": b"{}"}
    with recording(disks / "r", Disk(before)) as recorder:
        trial = disks / "r" / "t"
        fs.rename(trial / "checkpoint_000001", trial / f"{delete.PREFIX}checkpoint_000001-0")
        delete.finish_deletes(trial)
    disk, rng = Disk(before), random.Random(0)
    for op in recorder.ops:
        disk.apply(op)
        for variant in disk.variants(rng):
            view = disk.view(variant)
            assert "t/checkpoint_000001" not in view or "t/checkpoint_000001/.manifest.json" in view, (op, variant.name)


def test_t14_a_segment_is_made_durable_although_the_next_one_is_open_already(disks: Path) -> None:
    """The driver was killed between opening a segment and syncing the one before."""
    paths = ExperimentPaths(disks / "r" / "e")
    with recording(disks / "r") as recorder:
        first = JournalWriter(paths, 1, next_seq=1, clock=SystemClock(), sync="inline")
        first.append(b'{"kind":"idle"}')
        first.flush()
        os.close(fs.open_append(paths.segment(1, 2)))
        before = len(recorder.ops)
        JournalWriter(paths, 2, next_seq=2, clock=SystemClock(), sync="inline")
    assert ("fsync_file", f"e/journal/{paths.segment(1, 1).name}") in recorder.ops[before:]


@pytest.mark.parametrize("killed_at", [None, 0.6])
def test_f01_what_a_snapshot_replaces_is_whole_in_the_files_of_its_trials(killed_at: float | None, disks: Path) -> None:
    """Facts that it drops bring nothing back: no start looks again at a trial that had ended before."""
    made = record(BY_NAME["compacting"], disks / "r", killed_at)
    disk, seen = made.base(), 0
    for op in made.ops:
        disk.apply(op)
        if op[0] == "rename" and "/snapshot-" in str(op[2]):
            now, durable = disk.view(), disk.durable_view()
            names = [name for name in now if name.endswith(("/params.json", "/trial.json", "/error.txt"))]
            assert {name: durable.get(name) for name in names} == {name: now[name] for name in names}, op
            seen += len(names)
    assert seen


# --- the harness itself -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_NAME)
def test_the_record_is_the_whole_truth(name: str, disks: Path) -> None:
    scenario, storage = BY_NAME[name], disks / "r"
    with settings_of(scenario), recording(storage) as recorder:
        assert len(outcomes(scenario.run(storage))) == scenario.trials
    assert recorder.disk.view() == read_view(storage)
    assert Record(scenario, recorder.ops, [], []).base().view() == read_view(storage)
    elsewhere = [path for path in recorder.unannounced if "/.staging-" not in path and not path.startswith(".tmp/")]
    assert not elsewhere, "changed past trainables.store.fs"


@pytest.mark.parametrize(
    ("kind", "path", "rules"),
    [
        pytest.param("fsync_file", "dict_checkpoint.pkl", ("F02", "R1", "R2"), id="contents"),
        pytest.param("fsync", ".manifest.json", ("F02", "R2"), id="manifests"),
        pytest.param("fsync", ".jsonl", ("T14", "R2"), id="journal"),
        pytest.param("fsync_dir", "_00000", ("R2",), id="names of checkpoints"),
        pytest.param("fsync_dir", "journal", ("T14", "R2"), id="names of segments"),
    ],
)
def test_a_forgotten_fsync_is_found(kind: str, path: str, rules: tuple[str, ...], disks: Path) -> None:
    honest = record(BY_NAME["keep_one"], disks / "r")
    tally = resume_each(honest, _forgetting(honest, kind, path), disks, first_only=True)
    assert tally.failures and any(f"Broken: {rule}" in tally.failures[0] for rule in rules), tally.failures


def _forgetting(honest: Record, kind: str, path: str) -> Iterator[Case]:
    """What a power cut leaves of a run without those syncs, held against what is durable with them."""
    disk, promised, floor = honest.base(), honest.base(), Floor()
    paths: dict[object, str] = {}
    for op in honest.ops:
        inode = promised.apply(op)
        floor.rise(promised.durable_view())
        if op[0] == "open":
            paths[inode] = str(op[1])
        named = paths.get(op[1], "") if op[0] == "fsync" else str(op[1])
        if op[0] != kind or not named.endswith(path):
            disk.apply(op)
        yield Case(str(op), disk.durable_view(), floor)
