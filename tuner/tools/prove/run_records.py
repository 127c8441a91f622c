"""What a watched run has done: one line of JSON per event, written so that a kill -9 loses none of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainables import tagged

SUFFIX = ".events"
_TIMING = ".timing"


@dataclass(frozen=True, slots=True)
class KillPoint:
    """Where a run is killed: when a trial reports that iteration."""

    experiment: int
    """Counts the experiments of a script, from 0."""
    trial: int
    """The trial's index."""
    iteration: int


@dataclass(slots=True)
class RecordedKill:
    """A kill that happened."""

    iteration: int
    went_on_from: int | None = None
    """The iteration of the checkpoint that the trial continued from; 0: it began anew; None: it never came back."""


@dataclass(slots=True)
class TrialRecord:
    """All that was seen of one trial."""

    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Those that stand, by iteration."""
    configs: dict[int, Any] = field(default_factory=dict)
    """What the trial had for each of them; None: nobody wrote it down."""
    saved: list[int] = field(default_factory=list)
    """Iterations of its checkpoints, in the order of the saves."""
    kills: list[RecordedKill] = field(default_factory=list)


def write(file: Path, what: str, trial: int, iteration: int, metrics: Any = None) -> None:
    """Add one event; the metrics of a start are the config that the trial has from there on."""
    line = tagged.dumps({"what": what, "trial": trial, "iteration": iteration, "metrics": metrics}) + b"\n"
    with open(file, "ab", buffering=0) as opened:
        opened.write(line)


def read(file: Path) -> dict[int, TrialRecord]:
    """Trial index -> what became of it; empty where there is no such file."""
    found: dict[int, TrialRecord] = {}
    config: dict[int, Any] = {}
    for line in file.read_bytes().splitlines() if file.exists() else ():
        event = tagged.loads(line)
        trial = found.setdefault(event["trial"], TrialRecord())
        what, iteration = event["what"], event["iteration"]
        if what == "result":
            trial.results[iteration], trial.configs[iteration] = event["metrics"], config.get(event["trial"])
        elif what == "saved":
            trial.saved.append(iteration)
        elif what == "killed":
            trial.kills.append(RecordedKill(iteration))
        elif what == "start":
            config[event["trial"]] = event["metrics"]
            trial.results = {reached: kept for reached, kept in trial.results.items() if reached <= iteration}
            for kill in trial.kills:
                kill.went_on_from = iteration if kill.went_on_from is None else kill.went_on_from
    return found


def of_place(place: Path) -> dict[int, dict[int, TrialRecord]]:
    """Experiment's number -> its trials."""
    files = sorted(place.glob(f"*{SUFFIX}"), key=lambda file: int(file.stem))
    return {int(file.stem): read(file) for file in files}


def write_timing(place: Path, experiment: int, lines: Sequence[str]) -> None:
    """Keep what of an experiment depends on how long things take."""
    (place / f"{experiment}{_TIMING}").write_text("\n".join(lines))


def timing(place: Path) -> dict[int, list[str]]:
    """Experiment's number -> what of it depends on how long things take, of those that have something."""
    found = {int(file.stem): file.read_text().splitlines() for file in place.glob(f"*{_TIMING}")}
    return {number: lines for number, lines in found.items() if lines}


def points(seen: dict[int, dict[int, TrialRecord]], *, kills: int, seed: int) -> list[KillPoint]:
    """So many places to kill such a run at, drawn from the seed: each after the first checkpoint of its trial."""
    possible = [
        KillPoint(experiment, index, iteration)
        for experiment, trials in seen.items()
        for index, trial in sorted(trials.items())
        if trial.saved
        for iteration in sorted(trial.results)
        if iteration > min(trial.saved)
    ]
    chosen = random.Random(seed).sample(possible, min(kills, len(possible)))
    return sorted(chosen, key=possible.index)


def spent(trials: dict[int, TrialRecord], planned: Sequence[KillPoint]) -> list[KillPoint]:
    """Which of one experiment's points were used: each kill is the first one planned for its trial up to there."""
    used: list[KillPoint] = []
    for index, trial in trials.items():
        for kill in trial.kills:
            mine = [p for p in planned if p.trial == index and p.iteration <= kill.iteration and p not in used]
            used += mine[:1]
    return used
