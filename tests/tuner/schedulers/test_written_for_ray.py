"""Schedulers whose hooks have Ray's form: what they are told, what their word does, and what a resume gives back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tuner as tune
from tuner.error import SettingError
from tuner.schedulers import (
    ASHAScheduler,
    Decision,
    FIFOScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
    as_scheduler,
)
from tuner.testing import TrialStub

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "tests" / "scripts"


def five_steps(config: dict[str, Any]) -> None:
    for step in range(1, 6):
        tune.report({"score": config["x"] * step, "eval": {"step": step}})


def run(scheduler: Any, tmp_path: Path, **arguments: Any) -> tune.ExperimentAnalysis:
    given: dict[str, Any] = {
        "config": {"x": tune.grid_search([0.1, 0.5, 0.9])},
        "metric": "score",
        "mode": "max",
        "storage_path": tmp_path,
        "executor": "inline",
        "verbose": 0,
    }
    return tune.run(five_steps, scheduler=scheduler, **(given | arguments))


class Noting(FIFOScheduler):
    """Notes what it is told, and asks the controller for what it is given."""

    def __init__(self, stop_at: dict[float, int]) -> None:
        super().__init__()
        self.stop_at = stop_at
        self.told: list[tuple[Any, ...]] = []

    def on_trial_add(self, trial_runner: Any, trial: Any) -> None:  # type: ignore[override]
        super().on_trial_add(trial_runner, trial)  # type: ignore[call-arg]
        self.told.append(("add", trial.config["x"], len(trial_runner.get_trials())))

    def on_trial_result(self, trial_runner: Any, trial: Any, result: dict[str, Any]) -> Any:  # type: ignore[override]
        assert result[self._metric] == result["score"] and result["eval/step"] == result["eval"]["step"]
        assert trial_runner.trial_executor.has_resources_for_trial(trial) in (True, False)
        assert super().on_trial_result(trial_runner, trial, result) == TrialScheduler.CONTINUE  # type: ignore[call-arg]
        if result["training_iteration"] == self.stop_at.get(trial.config["x"]):
            trial_runner.stop_trial(trial)
            return TrialScheduler.NOOP
        return "CONTINUE"

    def on_trial_complete(self, trial_runner: Any, trial: Any, result: dict[str, Any]) -> None:  # type: ignore[override]
        self.told.append(("complete", trial.config["x"], result["eval/step"]))

    def on_trial_remove(self, trial_runner: Any, trial: Any) -> None:  # type: ignore[override]
        self.told.append(("remove", trial.config["x"]))

    def on_trial_error(self, trial_runner: Any, trial: Any) -> None:  # type: ignore[override]
        self.told.append(("error", trial.config["x"]))


def test_hooks_in_rays_form_get_the_controller_and_what_they_ask_of_it_is_done(tmp_path: Path) -> None:
    scheduler = Noting({0.5: 2})
    analysis = run(scheduler, tmp_path)
    assert [trial.iteration for trial in analysis.trials] == [5, 2, 5]
    assert [entry for entry in scheduler.told if entry[0] == "complete"] == [
        ("complete", 0.1, 5),
        ("complete", 0.5, 2),
        ("complete", 0.9, 5),
    ]
    assert [entry[1:] for entry in scheduler.told if entry[0] == "add"] == [(0.1, 1), (0.5, 2), (0.9, 3)]


class TimeSlices(TrialScheduler):
    """Pauses after each result: everybody else runs before a trial goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] = []

    def on_trial_add(self, runner: Any, trial: Any) -> None: ...  # type: ignore[override]
    def on_trial_error(self, runner: Any, trial: Any) -> None: ...  # type: ignore[override]
    def on_trial_complete(self, runner: Any, trial: Any, result: Any) -> None: ...  # type: ignore[override]
    def on_trial_remove(self, runner: Any, trial: Any) -> None: ...  # type: ignore[override]

    def on_trial_result(self, runner: Any, trial: Any, result: dict[str, Any]) -> Any:  # type: ignore[override]
        self.order.append(trial.index)
        return self.PAUSE

    def choose_trial_to_run(self, runner: Any) -> Any:  # type: ignore[override]
        waiting = [trial for trial in runner.get_trials() if trial.status in ("PENDING", "PAUSED")]
        return min(waiting, key=lambda trial: trial.iteration) if waiting else None

    def set_search_properties(self, metric: Any, mode: Any) -> bool:  # type: ignore[override]
        return True  # as it was before there were more arguments


class Steps(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"score": self.iteration, "done": self.iteration >= 2}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "x").touch()

    def load_checkpoint(self, checkpoint: Any) -> None: ...


def test_a_trial_that_pauses_lets_new_ones_run_first(tmp_path: Path) -> None:
    scheduler = TimeSlices()
    tune.run(
        Steps, num_samples=3, scheduler=scheduler, storage_path=tmp_path, executor="inline", verbose=0, metric="score"
    )
    assert scheduler.order[:3] == [0, 1, 2]
    assert sorted(scheduler.order[3:6]) == [0, 1, 2]


class EndsOthers(TimeSlices):
    """Ends all that wait as soon as the third trial reports."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: list[int] = []
        self.completed: list[int] = []

    def on_trial_result(self, runner: Any, trial: Any, result: dict[str, Any]) -> Any:
        for other in runner.get_trials() if trial.index == 2 else ():
            if other.status == trial.PAUSED:
                runner.stop_trial(other)
        return self.CONTINUE if trial.index == 2 else self.PAUSE

    def on_trial_complete(self, runner: Any, trial: Any, result: Any) -> None:
        self.completed.append(trial.index)

    def on_trial_remove(self, runner: Any, trial: Any) -> None:
        self.removed.append(trial.index)


def test_a_trial_that_waits_is_removed_when_it_is_stopped(tmp_path: Path) -> None:
    scheduler = EndsOthers()
    analysis = tune.run(
        Steps, num_samples=3, scheduler=scheduler, storage_path=tmp_path, executor="inline", verbose=0, metric="score"
    )
    assert (scheduler.removed, scheduler.completed) == ([0, 1], [2])
    assert [(trial.status, trial.iteration) for trial in analysis.trials] == [("TERMINATED", n) for n in (1, 1, 3)]


class Halving(TimeSlices):
    """Waits until four trials have come to a rung, ends the worse half, and sets the status of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.scores: dict[Any, float] = {}
        self.gone: list[int] = []

    def on_trial_result(self, runner: Any, trial: Any, result: dict[str, Any]) -> Any:
        assert trial.status == trial.RUNNING
        if result["training_iteration"] != 1:
            return self.CONTINUE
        self.scores[trial] = result["score"]
        if len(self.scores) < 4:
            return self.PAUSE
        decision = self.CONTINUE
        worse = sorted(self.scores, key=lambda one: self.scores[one])[:2]
        for one in self.scores:
            assert one.status == (one.RUNNING if one == trial else one.PAUSED)
            if one in worse and one == trial:
                decision = self.STOP
            elif one in worse:
                runner.stop_trial(one)
                assert one.status == one.TERMINATED and self.gone[-1] == one.index
            elif one != trial:
                one.status = one.PENDING
        return decision

    def on_trial_remove(self, runner: Any, trial: Any) -> None:
        self.gone.append(trial.index)

    def choose_trial_to_run(self, runner: Any) -> Any:
        return next((trial for trial in runner.get_trials() if trial.status == trial.PENDING), None)


class Scored(Steps):
    def step(self) -> dict[str, Any]:
        return {"score": self.config["x"], "done": self.iteration >= 2}


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_rung_is_halved_by_stops_and_by_statuses_that_are_set(tmp_path: Path, at_once: int) -> None:
    scheduler = Halving()
    analysis = tune.run(
        Scored, config={"x": tune.grid_search([3, 1, 4, 2])}, scheduler=scheduler, storage_path=tmp_path, verbose=0,
        **({"executor": "inline"} if at_once == 1 else {"resources_per_trial": {"cpu": 1}}),
    )  # fmt: skip
    assert [trial.iteration for trial in analysis.trials] == [3, 1, 3, 1]
    assert set(scheduler.gone) <= {1, 3} and {trial.status for trial in analysis.trials} == {"TERMINATED"}


class Weighted(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.weight = 0

    def step(self) -> dict[str, Any]:
        self.weight += self.config["x"]
        return {"score": self.weight}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, int]:
        return {"weight": self.weight}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.weight = checkpoint["weight"]


class Copying(FIFOScheduler):
    """Has the worse trial go on from the better one's checkpoint, in the words of one version of Ray or another."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words, self.saved, self.was = words, {}, None  # type: ignore[var-annotated]

    def on_trial_result(self, runner: Any, trial: Any, result: dict[str, Any]) -> Any:  # type: ignore[override]
        if trial.config["x"] == 5:
            self.saved[trial] = runner.trial_executor.save(trial, "memory", result=result)
        elif result["training_iteration"] == 3 and self.was is None:
            [(better, saved)] = self.saved.items()
            self.was = trial.config
            if self.words == "executor":
                runner.trial_executor.stop_trial(trial)
                runner.trial_executor.set_status(trial, trial.PAUSED)
            else:
                runner.pause_trial(trial, should_checkpoint=False)
            trial.set_experiment_tag("copied")
            trial.set_config({**better.config, "x": 7})
            assert trial.config == {"x": 7} and trial.status == trial.PAUSED
            if self.words == "checkpoint":
                trial.on_checkpoint(better.checkpoint)
            elif self.words == "manager":
                trial.run_metadata.checkpoint_manager._latest_checkpoint_result = better.latest_checkpoint_result
            else:
                trial.on_checkpoint(saved)
            return self.NOOP
        return self.CONTINUE


@pytest.mark.parametrize("words", ["executor", "checkpoint", "manager"])
def test_a_trial_goes_on_from_another_ones_checkpoint_with_the_config_that_was_set(
    tmp_path: Path, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = Copying(words)
    analysis = tune.run(
        Weighted, config={"x": tune.grid_search([5, 1])}, stop={"training_iteration": 5}, scheduler=scheduler,
        storage_path=tmp_path, verbose=0, executor="inline",
    )  # fmt: skip
    better, worse = analysis.trials
    assert (scheduler.was, better.last_result["score"]) == ({"x": 1}, 25)
    assert worse.config == {"x": 7} and worse.iteration == 5
    assert [clone.donor.trial_id for clone in worse.clones] == [better.trial_id]
    assert worse.last_result["score"] == 4 * 5 + 2 * 7  # the better one's last result ended it, and was not saved
    assert "asked to save" not in caplog.text


def test_a_checkpoint_of_nobody_is_refused(tmp_path: Path) -> None:
    class Odd(Copying):
        def on_trial_result(self, runner: Any, trial: Any, result: dict[str, Any]) -> Any:
            trial.on_checkpoint(object())

    with pytest.raises(SettingError, match="it is no checkpoint of a trial of this run"):
        tune.run(Weighted, config={"x": 1}, scheduler=Odd(""), storage_path=tmp_path, verbose=0, executor="inline")


class PassingOn(ASHAScheduler):
    """Only hands on: it decides as the class above it."""

    def on_trial_add(self, controller: Any, trial: Any) -> None:  # type: ignore[override]
        ASHAScheduler.on_trial_add(self, controller, trial)  # type: ignore[call-arg, arg-type]

    def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> Any:  # type: ignore[override]
        return super().on_trial_result(controller, trial, result)  # type: ignore[call-arg]

    def on_trial_complete(self, controller: Any, trial: Any, result: dict[str, Any]) -> None:  # type: ignore[override]
        super().on_trial_complete(controller, trial, result)  # type: ignore[call-arg]


class Holding(TrialScheduler):
    """Has a scheduler inside, and calls it with what it is given."""

    def __init__(self, inner: TrialScheduler) -> None:
        super().__init__()
        self.inner: Any = inner

    def on_trial_add(self, controller: Any, trial: Any) -> None:  # type: ignore[override]
        self.inner.on_trial_add(controller, trial)

    def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> Any:  # type: ignore[override]
        return self.inner.on_trial_result(controller, trial, result)

    def on_trial_complete(self, controller: Any, trial: Any, result: dict[str, Any]) -> None:  # type: ignore[override]
        self.inner.on_trial_complete(controller, trial, result)


def life(scheduler: TrialScheduler, scores: Sequence[Sequence[float]]) -> list[str]:
    """Every trial in turn, to its end or until it is stopped; what was decided."""
    trials = [TrialStub(str(number)) for number in range(len(scores))]
    said = []
    for trial in trials:
        scheduler.on_trial_add(trial)
    for trial, curve in zip(trials, scores, strict=True):
        result: dict[str, Any] = {}
        for step, score in enumerate(curve, 1):
            result = {"training_iteration": step, "acc": score}
            answer = scheduler.on_trial_result(trial, result)
            said.append(answer.name if hasattr(answer, "name") else str(answer))
            if answer == Decision.STOP:
                break
        scheduler.on_trial_complete(trial, result)
    return said


curves = st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=6), min_size=1, max_size=8)


@given(curves)
def test_one_that_hands_on_decides_as_the_built_in(scores: list[list[float]]) -> None:
    of_asha: dict[str, Any] = {"metric": "acc", "mode": "max", "max_t": 4, "reduction_factor": 2}
    expected = life(ASHAScheduler(**of_asha), scores)
    assert life(PassingOn(**of_asha), scores) == expected
    assert life(Holding(ASHAScheduler(**of_asha)), scores) == expected
    assert life(Holding(PassingOn(**of_asha)), scores) == expected
    assert life(ResourceChangingScheduler(PassingOn(**of_asha)), scores) == expected


@settings(max_examples=20, deadline=None)
@given(curves, st.integers(0, 7))
def test_a_state_that_is_taken_over_decides_on_as_before(scores: list[list[float]], at: int) -> None:
    of_asha: dict[str, Any] = {"metric": "acc", "mode": "max", "max_t": 4, "reduction_factor": 2}
    before = PassingOn(**of_asha)
    life(before, scores[:at])
    after = PassingOn(**of_asha)
    after.set_state(before.get_state())
    assert life(after, scores[at:]) == life(before, scores[at:])


def test_a_median_rule_and_a_population_in_rays_form_run(tmp_path: Path) -> None:
    class Median(MedianStoppingRule):
        def on_trial_complete(self, trial_runner: Any, trial: Any, result: dict[str, Any]) -> None:  # type: ignore[override]
            super().on_trial_complete(trial_runner, trial, result)  # type: ignore[call-arg]

    class Population(PopulationBasedTraining):
        def on_trial_result(self, trial_runner: Any, trial: Any, result: dict[str, Any]) -> Any:  # type: ignore[override]
            return super().on_trial_result(trial_runner, trial, result)  # type: ignore[call-arg]

    rule = Median(time_attr="training_iteration", grace_period=1, min_samples_required=2)
    assert [trial.iteration for trial in run(rule, tmp_path / "median").trials] == [5, 5, 5]
    population = Population(perturbation_interval=2, hyperparam_mutations={"x": [0.1, 0.5, 0.9]})
    tune.run(
        Steps, config={"x": 0.1}, num_samples=3, scheduler=population, metric="score", mode="max",
        storage_path=tmp_path, executor="inline", verbose=0,
    )  # fmt: skip
    assert isinstance(as_scheduler(rule), Median)


def script(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuner.compat", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


def test_a_resume_gives_such_a_scheduler_its_attributes_and_its_trials(tmp_path: Path) -> None:
    whole = script(SCRIPTS / "scheduler_for_ray.py", tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    killed = script(SCRIPTS / "scheduler_for_ray.py", tmp_path / "killed", "kill")
    assert killed.returncode == -9, killed.stderr
    resumed = script(SCRIPTS / "scheduler_for_ray.py", tmp_path / "killed")
    assert resumed.returncode == 0, resumed.stderr
    assert len(resumed.stdout.splitlines()[-1].split()) == len(whole.stdout.splitlines()[-1].split()) == 8


def test_hooks_of_ours_are_wrapped_only_where_somebody_needs_it() -> None:
    code = (
        "from tuner.schedulers import *\n"
        "class Ours(FIFOScheduler):\n"
        "    def on_trial_result(self, trial, result): return self.CONTINUE\n"
        "assert not any(hasattr(vars(kind).get('on_trial_result'), '__wrapped__') for kind in (Ours, ASHAScheduler))\n"
        "class Rays(FIFOScheduler):\n"
        "    def on_trial_result(self, runner, trial, result): return self.CONTINUE\n"
        "assert all(hasattr(vars(kind)['on_trial_result'], '__wrapped__') for kind in (Ours, ASHAScheduler, Rays))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
