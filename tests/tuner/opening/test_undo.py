"""A start is taken back until its first trial has started, and not after that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.clock import SystemClock
from tuner.experiment import replacing
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths
from tuner.opening.undo import StartUndo, recover
from tuner.spec import Spec


@pytest.fixture
def paths(tmp_path: Path) -> ExperimentPaths:
    paths = ExperimentPaths(tmp_path / "runs" / "e")
    paths.root.mkdir(parents=True)
    return paths


def undo_of(paths: ExperimentPaths, made: list[Path], said: list[str] | None = None) -> StartUndo:
    log: list[str] = [] if said is None else said
    ownership = claim(paths, clock=SystemClock())
    return StartUndo(paths, ownership, made=made, inline=True, say=log.append, undone=lambda: log.append("undone"))


def old_experiment(paths: ExperimentPaths) -> None:
    paths.experiment_json.write_text("old")
    paths.journal.mkdir()


def test_the_latest_step_is_taken_back_first_and_nothing_is_written_before(paths: ExperimentPaths) -> None:
    said: list[str] = []
    undo = undo_of(paths, [], said)
    undo.add(lambda: said.append("first"))
    undo.add(lambda: said.append("second"))
    undo.take_back()
    undo.take_back()
    assert said == ["undone", "second", "first"]


def test_what_was_made_goes_with_the_empty_directories_above_it(paths: ExperimentPaths, tmp_path: Path) -> None:
    undo = undo_of(paths, [paths.root, paths.root.parent])
    undo.add(undo.remove_made)
    paths.experiment_json.write_text("new")
    undo.take_back()
    assert list(tmp_path.iterdir()) == []


def test_after_the_first_trial_nothing_is_taken_back(paths: ExperimentPaths) -> None:
    said: list[str] = []
    undo = undo_of(paths, [paths.root], said)
    undo.add(undo.remove_made)
    undo.on_trial_start(0, [], None)  # type: ignore[arg-type]
    undo.take_back()
    assert paths.root.exists() and not said


@pytest.mark.parametrize("starts", [True, False])
def test_a_replaced_experiment_comes_back_or_goes(paths: ExperimentPaths, starts: bool) -> None:
    old_experiment(paths)
    said: list[Any] = []
    undo = undo_of(paths, [])
    undo.add(lambda: replacing.put_back(paths))
    undo.when_replaced(lambda: said.append("elsewhere"))
    replacing.move_aside(paths)
    paths.experiment_json.write_text("new")
    assert undo.replaces
    undo.settle() if starts else undo.take_back()
    undo.wait_elsewhere()
    undo.close()
    assert not undo.replaces
    assert paths.experiment_json.read_text() == ("new" if starts else "old")
    assert paths.journal.exists() != starts
    assert said == ["elsewhere"] * starts


def test_a_replacement_that_was_killed_is_recovered(paths: ExperimentPaths) -> None:
    old_experiment(paths)
    replacing.move_aside(paths)
    recover(Spec(trainable=lambda config: None, name="e"), paths, SystemClock())
    assert paths.experiment_json.read_text() == "old"
