"""What earlier drivers left in the trials' directories: removed, set aside, or a reason not to go on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tuner.experiment.facts import TRIAL, attempt, created, published, ref, saved, state_of
from trainables.store import publish, staging, verify
from trainables.wire import CheckpointRef
from tuner.error import ExperimentDamagedError
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalContents
from tuner.experiment.journal_reader import Damage
from tuner.experiment.leftovers import (
    Look,
    check_nothing_lost,
    clear_void,
    remove_halves,
    remove_set_aside,
    remove_views,
    trials_with_results,
)
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState

ENDED = ev.TrialEnded(TRIAL, "TERMINATED", 9.0)


def on_disk(directory: Path, of: CheckpointRef) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    staged = staging.new_directory(directory, str(of.index))
    (staged / "weights").write_text("w")
    prepared = publish.prepare(staged, ref=of, metrics=msgspec.Raw(b"{}"), created=1e9)
    return publish.commit(prepared, directory / of.name).path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def contents(*, generation: int = 1, damaged: Any = ()) -> JournalContents:
    fields = dict.fromkeys(JournalContents.__dataclass_fields__)
    return JournalContents(**{**fields, "generation": generation, "damaged": list(damaged), "notes": []})


@pytest.fixture
def trial_directory(paths: ExperimentPaths) -> Path:
    directory = paths.root / "train_ab_00000"
    directory.mkdir(parents=True)
    (directory / "trial.json").write_text("{}")
    return directory


# --- halves ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "touched", "looked"),
    [
        ([], (), True),
        ([attempt(), ENDED], (), False),  # nothing of it can be half done
        ([attempt(), ENDED], (TRIAL,), True),
        ([attempt(), *saved(1), ev.CheckpointForgotten(ref(1)), ENDED], (), True),
        ([attempt(), ev.TrialEnded(TRIAL, "ERROR", 9.0)], (), True),
    ],
)
def test_saves_that_never_ended_are_removed_of_all_who_may_have_some(
    facts: list[ev.AnyFact], touched: Any, looked: bool, paths: ExperimentPaths, trial_directory: Path
) -> None:
    half = trial_directory / ".staging-1-00000000"
    half.mkdir()
    whole = on_disk(trial_directory, ref(3))
    remove_halves(state_of(paths.root, created(), *facts), touched)
    assert half.exists() != looked and whole.is_dir()


def test_views_of_killed_processes_go_and_nothing_else(paths: ExperimentPaths, trial_directory: Path) -> None:
    views = [where / f"{staging.VIEW_PREFIX}1-00000000" for where in (paths.root, trial_directory)]
    for view in views:
        view.mkdir()
    (paths.root / ".hidden").mkdir()
    remove_views(paths.root)
    assert not any(view.exists() for view in views)
    assert names(paths.root) == [".hidden", trial_directory.name]


# --- a history that went on elsewhere -------------------------------------------------------------------------------


def test_what_another_history_never_knew_is_set_aside_and_what_it_let_go_of_is_removed(
    paths: ExperimentPaths, trial_directory: Path
) -> None:
    for number in (1, 2, 3, 4):
        on_disk(trial_directory, ref(number))
    on_disk(trial_directory, ref(5, trial="somebody_0"))
    state = state_of(paths.root, created(), attempt(), *saved(1))
    (note,) = clear_void(paths, state, {(TRIAL, "checkpoint_000002")})
    assert note.startswith("2 checkpoints that were saved here and never copied")
    assert names(paths.set_aside / trial_directory.name) == ["checkpoint_000003", "checkpoint_000004"]
    assert [name for name in names(trial_directory) if name.startswith("checkpoint")] == [
        "checkpoint_000001",
        "checkpoint_000005",  # a copy that a person made
    ]
    assert clear_void(paths, state, ()) == [] and paths.set_aside.exists(), "nothing more, and nothing goes"
    on_disk(trial_directory, ref(6))
    clear_void(paths, state, ())
    assert names(paths.set_aside / trial_directory.name) == ["checkpoint_000006"], "what was there before goes"
    remove_set_aside(paths)
    remove_set_aside(paths)
    assert not paths.set_aside.exists()


# --- what is incomplete ---------------------------------------------------------------------------------------------


def test_what_is_incomplete_is_hidden_and_said_once(paths: ExperimentPaths, trial_directory: Path) -> None:
    for number in (1, 2, 3):
        on_disk(trial_directory, ref(number))
    for number in (2, 3):
        (trial_directory / f"checkpoint_{number:06d}" / "weights").unlink()
    (trial_directory / "checkpoint_mine").mkdir()
    state = state_of(paths.root, created(), attempt(), *saved(1), *saved(2))
    look = Look()
    assert [found.ref.name for found in look.listed(trial_directory)] == ["checkpoint_000001"]
    notes = look.set_aside(state, [ev.CheckpointSetAside(ref(2), "missing or incomplete")])
    assert [name for name in names(trial_directory) if name.startswith("checkpoint")] == [
        "checkpoint_000001",
        "checkpoint_mine",
    ]
    assert len(notes) == 2, "what a fact says needs no line"
    assert "checkpoint_000003 is incomplete: set aside, not used" in notes[0]
    assert "checkpoint_mine is no checkpoint of that trial: left alone" in notes[1]
    assert verify.list_checkpoints(trial_directory)[0].ref == ref(1)


# --- what is lost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", ["a result", "a checkpoint", "nothing"])
@pytest.mark.parametrize(
    ("known", "damaged"), [(False, False), (True, False), (True, True)], ids=["no trials", "others", "damaged"]
)
def test_a_trial_with_results_of_which_the_journal_does_not_know_is_no_reason_to_start_over(
    left: str, known: bool, damaged: bool, paths: ExperimentPaths, trial_directory: Path
) -> None:
    if left == "a result":
        (trial_directory / "result.json").write_text("{}\n")
    elif left == "a checkpoint":
        on_disk(trial_directory, ref(1, generation=1, number=1))
    other = ev.TrialCreated("ab_00001", 1, msgspec.Raw(b"{}"), dirname="other")
    state = state_of(paths.root, *([other] if known else []))
    damage = [Damage("000001-000001.jsonl", 2, 3)] if damaged else []
    later = left == "a checkpoint"  # of an attempt that was journaled before it began
    lost = left != "nothing" and (not known or damaged or later)
    if lost:
        with pytest.raises(ExperimentDamagedError, match=f"what it said of {trial_directory.name}, which has results"):
            check_nothing_lost(paths, contents(damaged=damage), state)
    else:
        check_nothing_lost(paths, contents(damaged=damage), state)
    assert list(trials_with_results(paths)) == ([] if left == "nothing" else [trial_directory.name])
    assert list(trials_with_results(paths, but={trial_directory.name})) == []


@pytest.mark.parametrize(
    ("number", "generation", "facts", "lost"),
    [
        (1, 1, [attempt()], False),
        (2, 1, [attempt()], True),  # its attempt was journaled before it began: the end of the journal is gone
        (1, 2, [attempt()], True),
        (3, 1, [attempt(generation=2)], False),  # what an older generation did after it was taken over is void
        (2, 1, [attempt(), ENDED], False),
    ],
)
def test_a_checkpoint_of_a_later_attempt_says_that_the_end_of_the_journal_is_gone(
    number: int, generation: int, facts: list[ev.AnyFact], lost: bool, paths: ExperimentPaths, trial_directory: Path
) -> None:
    of = CheckpointRef(TRIAL, publish.checkpoint_name(7, generation, number), generation, number, 7, 7)
    on_disk(trial_directory, of)
    state: ExperimentState = state_of(paths.root, created(), *facts)
    check = lambda: check_nothing_lost(paths, contents(), state)  # noqa: E731
    if not lost:
        check()
        return
    with pytest.raises(ExperimentDamagedError, match=f"was saved by attempt {number} of generation {generation}"):
        check()
    (trial_directory / of.name / ".manifest.json").write_text("{")
    check()  # not to be read: `Look` says so
    shutil.rmtree(trial_directory)
    check()


def test_only_what_is_published_counts(paths: ExperimentPaths, trial_directory: Path) -> None:
    (trial_directory / "result.json").touch()
    (trial_directory / "checkpoint_000001").mkdir()
    assert list(trials_with_results(paths)) == []
    assert published(1).ref == ref(1)
