"""Bringing an experiment up: what a resume finds that its journal does not say, and the facts that it makes of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.driver.harness import plugin_set
from tests.tuner.opening.harness import Opening, killed_after, ran
from tuner.callback import Callback
from tuner.driver.catch_up import CatchUp
from tuner.driver.plugins import FactApplier
from tuner.error import ExperimentDamagedError
from tuner.executors import InlineExecutor
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.logger import JsonLoggerCallback


def saves(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    start = checkpoint.to_dict()["n"] if checkpoint else 0
    for n in range(start + 1, 4):
        tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))


class CaughtUp:
    """An experiment that was opened and brought up, by a driver that runs nothing."""

    def __init__(self, results: Path, *callbacks: Callback, place: Path | None = None, **settings: Any) -> None:
        owned = Opening(results, place, **{"trainable": saves, **settings}).start()
        assert owned is not None
        self.owned = owned
        snapshot = owned.contents.snapshot if owned.contents else None
        self.state = ExperimentState.from_snapshot(owned.paths.root, snapshot)
        applier = FactApplier(self.state, plugin_set(*callbacks))
        self.up = CatchUp(owned, applier, executor=InlineExecutor(), announce=lambda line: None)
        self.notes = self.up.replay()
        self.facts = list(self.up.first_facts(self.notes))

    @property
    def trial(self) -> Trial:
        (trial,) = self.state.trials
        return trial

    def of(self, kind: type[ev.Fact]) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]


def published(iteration: int) -> Any:
    return lambda fact: isinstance(fact, ev.CheckpointPublished) and fact.ref.iteration == iteration


def result(iteration: int) -> Any:
    return lambda fact: isinstance(fact, ev.ResultReported) and fact.iteration == iteration


def directory_of(root: Path) -> Path:
    (found,) = (path.parent for path in root.glob("*/trial.json"))
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An experiment whose one trial saved three times and ended."""
    tune.run(saves, name="e", storage_path=tmp_path, executor="inline", verbose=0)
    return tmp_path / "e"


def test_a_new_experiment_has_no_parent_and_nothing_to_say(tmp_path: Path) -> None:
    new = CaughtUp(tmp_path)
    assert new.facts == [ev.GenerationStarted(1)]
    assert (new.notes, new.up.taken_up, new.up.ended, new.up.touched) == ([], [], [], {})


def test_a_finished_experiment_continues_its_history_and_takes_nobody_up(root: Path, tmp_path: Path) -> None:
    again = CaughtUp(tmp_path, resume="AUTO")
    contents = again.owned.contents
    assert contents is not None
    assert again.facts == [ev.GenerationStarted(2, 1, contents.generation_id, contents.last_seq)]
    assert again.up.taken_up == [] and again.notes == []


def test_f01_a_trial_that_ran_when_its_driver_was_killed_is_taken_up(root: Path, tmp_path: Path) -> None:
    killed_after(root, published(2))
    shutil.rmtree(directory_of(root) / "checkpoint_000003")
    again = CaughtUp(tmp_path, resume="AUTO")
    assert again.of(ev.AttemptEnded) == [ev.AttemptEnded(again.trial.trial_id, 1, "halted")]
    assert again.up.taken_up == [again.trial] and again.up.ended == []
    assert again.trial.status == Trial.PAUSED and list(again.up.touched) == [again.trial.trial_id]


def test_what_it_saved_and_nobody_wrote_down_is_found_on_the_disk(root: Path, tmp_path: Path) -> None:
    killed_after(root, result(2))
    again = CaughtUp(tmp_path, resume="AUTO")
    assert [fact.ref.iteration for fact in again.of(ev.CheckpointPublished)] == [2, 3]
    assert [record.iteration for record in again.trial.checkpoints] == [1, 2, 3]
    assert again.trial.iteration == 3, "the manifest of its newest says so"


def test_a_checkpoint_that_is_gone_is_set_aside_and_said(root: Path, tmp_path: Path) -> None:
    killed_after(root, published(3))
    shutil.rmtree(directory_of(root) / "checkpoint_000002")
    again = CaughtUp(tmp_path, resume="AUTO")
    (aside,) = again.of(ev.CheckpointSetAside)
    assert aside.ref.name == "checkpoint_000002" and aside.ref not in [r.ref for r in again.trial.checkpoints]
    assert [note for note in again.notes if "checkpoint_000002 is missing or incomplete" in note]


def test_a_half_written_save_is_removed_and_an_incomplete_checkpoint_is_hidden(root: Path, tmp_path: Path) -> None:
    killed_after(root, published(3))
    directory = directory_of(root)
    (directory / ".staging-9-00000000").mkdir()
    (directory / "checkpoint_000003" / ".manifest.json").write_text("{")
    again = CaughtUp(tmp_path, resume="AUTO")
    assert not (directory / ".staging-9-00000000").exists()
    assert not (directory / "checkpoint_000003").exists(), "nobody takes it for one"
    assert [fact.ref.name for fact in again.of(ev.CheckpointSetAside)] == ["checkpoint_000003"]


def test_an_end_that_was_decided_before_the_kill_is_written_down_now(root: Path, tmp_path: Path) -> None:
    shutil.rmtree(root)
    tune.run(saves, name="e", storage_path=tmp_path, executor="inline", verbose=0, stop={"n": 2})
    killed_after(root, published(2))
    again = CaughtUp(tmp_path, resume="AUTO", stop={"n": 2})
    (ended,) = again.of(ev.TrialEnded)
    assert (ended.status, ended.reason.by) == ("TERMINATED", "DictStopper")
    assert again.up.ended == again.up.taken_up == [again.trial]


def test_a_part_of_the_journal_that_is_lost_is_no_reason_to_start_over(root: Path, tmp_path: Path) -> None:
    killed_after(root, lambda fact: isinstance(fact, ev.TrialCreated))
    with pytest.raises(ExperimentDamagedError, match="its last part is lost"):
        CaughtUp(tmp_path, resume="AUTO")
    assert sorted(path.name for path in directory_of(root).glob("checkpoint_*")) == [
        f"checkpoint_{number:06d}" for number in (1, 2, 3)
    ], "nothing was touched"


@pytest.mark.parametrize("other", [0, 1])
def test_another_seed_has_no_effect_and_that_is_said(other: int, root: Path, tmp_path: Path) -> None:
    seed = json.loads((root / "experiment.json").read_text())["seed"]
    again = CaughtUp(tmp_path, resume="AUTO", seed=seed + other)
    said = f"seed={seed + 1} has no effect: this experiment was started with seed={seed}"
    assert again.notes == [said] * other


def test_what_identifies_a_trial_is_written_again_where_a_power_cut_took_it(root: Path, tmp_path: Path) -> None:
    killed_after(root, published(2))
    file = directory_of(root) / "trial.json"
    before = file.read_bytes()
    file.write_bytes(b"")
    again = CaughtUp(tmp_path, resume="AUTO")
    assert again.trial.directory == file.parent and file.read_bytes() == before


@pytest.mark.parametrize(("resume", "only"), [("AUTO", False), ("AUTO+ERRORED", False), ("AUTO+ERRORED_ONLY", True)])
def test_only_those_that_failed_run_where_the_resume_says_so(resume: str, only: bool, tmp_path: Path) -> None:
    def second_fails(config: dict[str, Any]) -> None:
        tune.report({"n": 1})
        if config["number"]:
            raise ValueError("no")

    tune.run(
        second_fails, name="e", storage_path=tmp_path, executor="inline", verbose=0, raise_on_failed_trial=False,
        config={"number": tune.grid_search([0, 1])},
    )  # fmt: skip
    again = CaughtUp(tmp_path, resume=resume, trainable=second_fails, param_space={"number": tune.grid_search([0, 1])})
    failed = again.state.trials[1].trial_id
    assert again.up.only == (frozenset({failed}) if only else None)
    assert [fact.trial for fact in again.of(ev.TrialReopened)] == ([] if resume == "AUTO" else [failed])


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_rows_that_a_power_cut_took_are_put_back_from_the_journal(kept: int, root: Path, tmp_path: Path) -> None:
    killed_after(root, published(2))
    shutil.rmtree(directory_of(root) / "checkpoint_000003")
    file = directory_of(root) / "result.json"
    rows = file.read_text().splitlines(keepends=True)
    file.write_text("".join(rows[:kept]))
    again = CaughtUp(tmp_path, JsonLoggerCallback(), resume="AUTO")
    assert [json.loads(row)["n"] for row in file.read_text().splitlines()] == [1, 2]
    assert again.notes == []


def test_an_experiment_that_was_fetched_is_described_and_its_checkpoints_stay_there_for_now(tmp_path: Path) -> None:
    ran(tmp_path / "elsewhere", tmp_path / "copies", trainable=saves)
    again = CaughtUp(tmp_path / "here", place=tmp_path / "copies", resume="AUTO")
    assert again.trial.status == Trial.TERMINATED
    assert (again.trial.directory / "trial.json").read_text() == (
        directory_of(tmp_path / "elsewhere" / "e") / "trial.json"
    ).read_text()
    assert not list(again.trial.directory.glob("checkpoint_*")) and len(again.trial.checkpoints) == 3
    assert not again.owned.paths.taking_over.exists()
