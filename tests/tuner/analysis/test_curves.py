"""Learning curves: thinned to what a browser can draw, and of a fork from where it began."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from trainables.wire import CheckpointRef
from tuner.analysis import curves, scopes
from tuner.experiment import events as ev
from tuner.experiment.forks import chain, lines_of
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial_records import Clone


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=2000))
def test_a_thinned_curve_keeps_its_ends_and_its_extremes(values: list[float]) -> None:
    points = list(enumerate(values, 1))
    kept = curves.thinned(points)
    assert kept == sorted(set(kept)) and set(kept) <= set(points) and len(kept) <= curves.POINTS + 2
    assert kept[0] == points[0] and kept[-1] == points[-1]
    assert {min(y for _, y in kept), max(y for _, y in kept)} == {min(values), max(values)}


def forked_twice(root: Path) -> ExperimentState:
    """A trunk of 6 results, a fork of it at 4 with 3 of its own, and a fork of that at 6 with 2 of its own."""
    state = ExperimentState(root)
    begins: list[tuple[str, int] | None] = [None, ("t0", 4), ("t1", 6)]
    for index, (start, last) in enumerate(zip(begins, (6, 7, 8), strict=True)):
        fork = None
        if start is not None:
            fork = Clone(start[1], CheckpointRef(start[0], "checkpoint", 1, 1, 1, start[1]), {"lr": (0.1, index)})
        made = ev.TrialCreated(
            f"t{index}", index, msgspec.Raw(b"{}"), dirname=f"t{index}", fork=fork, order="o" * index
        )
        state.apply(made)
        rows = range(1 if start is None else start[1] + 1, last + 1)
        (root / f"t{index}").mkdir()
        lines = [json.dumps({"training_iteration": row, "loss": 10 * index + row}) + "\n" for row in rows]
        (root / f"t{index}" / "result.json").write_text("".join(lines))
    return state


def test_the_whole_curve_of_a_fork_of_a_fork(tmp_path: Path) -> None:
    state = forked_twice(tmp_path)
    trials = state.trials
    losses = [[row["loss"] for row in scopes.whole_history(trials, trial)] for trial in trials]
    assert losses == [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 15, 16, 17], [1, 2, 3, 4, 15, 16, 27, 28]]
    assert [(trial.index, until) for trial, until in chain(trials, trials[2])] == [(0, 4), (1, 6)]
    assert lines_of(trials, trials[2]) == ["forked from 1@6: lr 0.1 -> 2", "forked from 0@4: lr 0.1 -> 1"]
    assert lines_of(trials, trials[0]) == [] and [trial.seed_index for trial in trials] == [0, 0, 0]


def test_a_forks_line_begins_at_its_trunks_point(tmp_path: Path) -> None:
    state = forked_twice(tmp_path)
    points: list[Any] = []
    seen = SimpleNamespace(trials=state.trials, metrics=["loss"], modes=["min"])
    for trial in state.trials:
        trial.iteration, trial.raw_result = 8, msgspec.Raw(b'{"loss": 1}')
    for line in curves.curves(seen, 0).data:  # type: ignore[arg-type]
        points.append(list(zip(line.x, line.y, strict=True)))
    assert sorted(points, key=len) == [
        [(6, 16), (7, 27), (8, 28)],
        [(4, 4), (5, 15), (6, 16), (7, 17)],
        [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)],
    ]
