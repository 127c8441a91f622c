"""What must hold of a disk that a crash left, and of the experiment that a resume makes of it (design.md, R1-R5)."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crash_disk import View
from crash_scenarios import Scenario

import tuner as tune
from trainables.store import manifest, verify
from trainables.wire import CheckpointRef
from tuner.driver import driver, transitions
from tuner.executors.base import Launch
from tuner.executors.inline import InlineExecutor
from tuner.experiment import journal_writer
from tuner.experiment.history import History
from tuner.experiment.journal import read_journal
from tuner.experiment.journal_format import parse_lines
from tuner.experiment.paths import ExperimentPaths, parse_segment, parse_snapshot
from tuner.experiment.reader import is_experiment, load_state
from tuner.experiment.state import ExperimentState

Order = tuple[int, int, int]
_CHECKPOINT = re.compile(r"e/([^/]+)/(checkpoint_[^/]+)/\.manifest\.json")
LEFT_OVER = re.compile(r"^\.(staging|deleting|broken|removed)-|\.tmp$|^\.(moving|replaced)$")


class Broken(AssertionError):
    """A rule does not hold."""


def require(holds: object, text: str) -> None:
    if not holds:
        raise Broken(text)


# --- checkpoints, seen without the product's eyes ---------------------------------------------------------


def newest(view: View) -> dict[str, Order]:
    """Directory of a trial -> order of its newest complete checkpoint."""
    found: dict[str, Order] = {}
    for path, content in view.items():
        match = _CHECKPOINT.fullmatch(path)
        if match is None or content is None:
            continue
        try:
            entries = msgspec.json.decode(content, type=manifest.Manifest)
        except msgspec.DecodeError:
            continue
        directory = path.rpartition("/")[0]
        if all(len(view.get(f"{directory}/{entry.name}") or b"") == entry.size for entry in entries.files):
            found[match[1]] = max(found.get(match[1], (0, 0, 0)), entries.ref.order)
    return found


def last_fact(view: View) -> int:
    """Number of the last fact in the journal."""
    numbers = [0]
    for path, content in view.items():
        directory, _, name = path.rpartition("/")
        if directory == "e/journal" and (snapshot := parse_snapshot(name)):
            numbers.append(snapshot[1])
        elif directory == "e/journal" and parse_segment(name):
            numbers += [number for number, _ in parse_lines(content or b"")[0][-1:]]
    return max(numbers)


@dataclass
class Floor:
    """What was reached once, and no crash may take away: each trial's newest complete checkpoint, and facts."""

    orders: dict[str, Order] = field(default_factory=dict)
    facts: int = 0

    def rise(self, view: View) -> None:
        for trial, order in newest(view).items():
            self.orders[trial] = max(self.orders.get(trial, (0, 0, 0)), order)
        self.facts = max(self.facts, last_fact(view))


# --- the uninterrupted run ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """How one trial has to end, however often it was killed."""

    config: dict[str, Any]
    status: str
    values: list[Any]
    """One per iteration."""
    kept: list[int]
    """Iterations of the checkpoints on disk."""


def outcomes(analysis: tune.ExperimentAnalysis) -> list[Outcome]:
    return [
        Outcome(
            trial.config,
            trial.status,
            [row["v"] for row in rows_of(Path(trial.path))],
            sorted(published.ref.iteration for published in verify.list_checkpoints(Path(trial.path))),
        )
        for trial in analysis.trials
    ]


def rows_of(directory: Path) -> list[dict[str, Any]]:
    file = directory / "result.json"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


# --- what a crash left --------------------------------------------------------------------------------------


@dataclass
class Left:
    """A disk after a crash, read with the product's eyes."""

    root: Path
    state: ExperimentState | None
    complete: dict[str, list[CheckpointRef]] = field(default_factory=dict)
    """By trial id, oldest first."""
    looked_at: bool = True

    def start_of(self, trial_id: str) -> CheckpointRef | None:
        """What the trial has to continue from."""
        refs = self.complete.get(trial_id)
        return refs[-1] if refs else None


def look(root: Path, floor: Floor, *, staged: bool = True) -> Left:
    """Read what is left, and hold it against the rules that hold at every instant, before any resume.

    Without `staged` a checkpoint grows under its own name, as in a replica, and exists once its manifest is there.
    """
    paths = ExperimentPaths(root)
    state = load_state(paths) if is_experiment(paths) else None
    left = Left(root, state)
    facts = 0 if state is None else read_journal(paths).last_seq
    require(facts >= floor.facts, f"R2: there were {floor.facts} durable facts, and {facts} are left")
    if state is not None:
        _check_history(paths)
    trials = {trial.dirname: trial for trial in state.trials} if state is not None else {}
    for directory in sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else ():
        listing = verify.scan(directory)
        require(not listing.broken, f"F02: a checkpoint is torn under its final name: {listing.broken}")
        torn = [path for path in listing.unknown if path.name.startswith("checkpoint")]
        require(not torn or not staged, f"F02: a checkpoint without a manifest under its final name: {torn}")
        for published in listing.complete:
            problems = verify.problems(published.path)
            require(not problems, f"R1: a listed checkpoint does not verify: {problems}")
            trial = trials.get(directory.name)
            require(trial is not None, f"T14: {published.path} is of a trial that the journal does not know")
            assert trial is not None
            require(
                published.ref.iteration <= trial.told and published.ref.attempt <= trial.attempt,
                f"T14: {published.path} is ahead of the journal, which knows of iteration {trial.told}",
            )
            left.complete.setdefault(trial.trial_id, []).append(published.ref)
    for name, order in floor.orders.items():
        trial = trials.get(name)
        require(trial is not None, f"R2: trial {name} had a durable checkpoint and is not in the journal")
        assert trial is not None
        start = left.start_of(trial.trial_id)
        require(
            start is not None and start.order >= order,
            f"R2: the newest checkpoint of {name} was {order} and is {start}",
        )
    return left


def _check_history(paths: ExperimentPaths) -> None:
    """Compaction loses no fact: each is in the journal, or in a pack that is whole."""
    history = History(paths, read_journal(paths))
    require(not history.notes, f"the history is torn: {history.notes}")
    numbers = [fact.seq for fact in history.facts()]
    require(
        numbers == list(range(1, history.contents.last_seq + 1)),
        f"the history has {len(numbers)} facts from {numbers[:1]} on, of {history.contents.last_seq}",
    )


# --- what a resume makes of it ------------------------------------------------------------------------------


@dataclass
class Resumed:
    analysis: tune.ExperimentAnalysis
    launches: list[Launch]
    seconds: float


@contextmanager
def settings_of(scenario: Scenario) -> Iterator[list[Launch]]:
    """The surroundings in which a scenario runs; gives the launches that happen in it."""
    launches: list[Launch] = []
    real = InlineExecutor.launch

    def launch(self: InlineExecutor, wanted: Launch) -> None:
        launches.append(wanted)
        real(self, wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InlineExecutor, "launch", launch)
        # A trial that fails again backs off as ever, and for no time: hundreds of resumes would wait a second each.
        patch.setattr(transitions, "MAX_BACK_OFF_S", 0.0)
        if scenario.compacts:
            patch.setattr(journal_writer, "COMPACT_BYTES", 1500)
            patch.setattr(journal_writer, "GRACE_S", 0.0)
            patch.setitem(journal_writer.JournalWriter.compact.__kwdefaults__, "grace_s", 0.0)
            patch.setattr(driver, "FINAL_COMPACT_BYTES", 1500)
        yield launches


def resume(scenario: Scenario, storage: Path, **more: Any) -> Resumed:
    with settings_of(scenario) as launches:
        began = time.perf_counter()
        analysis = scenario.run(storage, **more)
        return Resumed(analysis, launches, time.perf_counter() - began)


def check(scenario: Scenario, left: Left, resumed: Resumed, expected: list[Outcome]) -> None:
    """Hold what the resume did, and what is there now, against the rules."""
    if left.looked_at:
        _check_starts(scenario, left, resumed)
    check_trials(left, resumed, expected)
    _check_disk(left.root, resumed)


def _check_starts(scenario: Scenario, left: Left, resumed: Resumed) -> None:
    before = {} if left.state is None else {trial.trial_id: trial for trial in left.state.trials}
    seen: set[str] = set()
    for launch in resumed.launches:
        job = launch.job
        trial = before.get(job.trial_id)
        if trial is not None and trial.is_finished():
            raise Broken(f"R4: {job.trial_id} had ended as {trial.status} and runs again")
        if job.trial_id in seen:
            continue  # a retry within this life
        seen.add(job.trial_id)
        start = left.start_of(job.trial_id)
        if start is None and scenario.begins:
            require(
                job.start_iteration == scenario.begins and job.checkpoint.generation == job.generation,
                f"{job.trial_id} has nothing, and starts from {job.checkpoint} instead of what was trained earlier",
            )
            continue
        require(
            job.checkpoint == start,
            f"R4: {job.trial_id} starts from {job.checkpoint}, the newest complete one is {start}",
        )
        told = 0 if trial is None else trial.iteration
        began = [iteration for iteration in scenario.saved if iteration <= told]
        require(
            job.start_iteration >= (began[-2] if len(began) > 1 else 0),
            f"R10: {job.trial_id} had reported iteration {told} and starts at {job.start_iteration}",
        )


def check_trials(left: Left, resumed: Resumed, expected: list[Outcome]) -> None:
    trials = resumed.analysis.trials
    known = [] if left.state is None else [trial.trial_id for trial in left.state.trials]
    require([trial.trial_id for trial in trials][: len(known)] == known, "F14: trials are repeated or missing")
    require(len(trials) == len(expected), f"F14: there are {len(trials)} trials instead of {len(expected)}")
    for trial, outcome in zip(trials, expected, strict=True):
        require(
            trial.config == outcome.config, f"R11: {trial.name} has the config {trial.config}, not {outcome.config}"
        )
        require(trial.status == outcome.status, f"{trial.name} is {trial.status}, not {outcome.status}: {trial.error}")
        directory = Path(trial.path)
        rows = rows_of(directory)
        counted = [row["training_iteration"] for row in rows]
        require(counted == list(range(1, len(outcome.values) + 1)), f"T03: result.json of {trial.name} has {counted}")
        require([row["v"] for row in rows] == outcome.values, f"R11: result.json of {trial.name} has other values")
        if outcome.values:
            with open(directory / "progress.csv", newline="") as file:
                table = [int(row["training_iteration"]) for row in csv.DictReader(file)]
            require(table == counted, f"T03: progress.csv of {trial.name} has {table}")
            require(trial.last_result["v"] == outcome.values[-1], f"R11: {trial.name} ended with {trial.last_result}")


def _check_disk(root: Path, resumed: Resumed) -> None:
    state = load_state(ExperimentPaths(root))
    for trial in state.trials:
        listing = verify.scan(root / trial.dirname)
        require(not listing.broken and not listing.unknown, f"{trial.name}: {listing}")
        recorded = {record.ref: record.digest for record in trial.checkpoints}
        require(
            recorded == {published.ref: published.digest for published in listing.complete},
            f"R4: {trial.name}: the journal knows {list(recorded)}, on disk are {listing.complete}",
        )
        for published in listing.complete:
            problems = verify.problems(published.path)
            require(not problems, f"R1: {problems}")
        require(not trial.forgotten, f"{trial.name}: {trial.forgotten} were never deleted")
    left_over = [path for path in root.rglob("*") if LEFT_OVER.search(path.name)]
    require(not left_over, f"F29: left over: {left_over}")
    temporary = root.parent / ".tmp"
    if temporary.is_dir():
        filled = list(temporary.glob("*/*"))
        require(not filled, f"F29: left over: {filled}")


def check_kept(resumed: Resumed, expected: list[Outcome]) -> None:
    """Retention at the end: exactly what an uninterrupted run keeps."""
    for trial, outcome in zip(resumed.analysis.trials, expected, strict=True):
        kept = sorted(published.ref.iteration for published in verify.list_checkpoints(Path(trial.path)))
        require(kept == outcome.kept, f"R3: {trial.name} keeps {kept}, uninterrupted it keeps {outcome.kept}")
