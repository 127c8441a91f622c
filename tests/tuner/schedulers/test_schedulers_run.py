"""Schedulers that pause, in whole runs: nobody pauses without a checkpoint, repeats a step or waits for ever."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

import tuner as tune
from tests.failures.checkpoint_faults import killed_at_fact, killed_at_order
from tuner.error import ResourceError
from tuner.experiment import journal_writer
from tuner.schedulers import (
    PB2,
    ASHAScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    OptunaPruner,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
    TrialScheduler,
)
from tuner.schedulers.base import Reallocate
from tuner.schedulers.resource_changing_scheduler import DistributeResources
from tuner.search.optuna import OptunaSearch

BEST = 20


class Steps(tune.Trainable):
    """Its score is its rate; its steps are counted across pauses."""

    def setup(self, config: dict[str, Any]) -> None:
        self.steps = 0

    def step(self) -> dict[str, Any]:
        self.steps += 1
        return {"acc": self.config["rate"], "steps": self.steps}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.steps = checkpoint["steps"]


def every_fourth(config: dict[str, Any]) -> None:
    """A function that saves at every fourth report only, and ends by itself at the end."""
    step = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        step = int(checkpoint.to_dict()["step"])
    while step < BEST:
        step += 1
        saved = tune.Checkpoint.from_dict({"step": step}) if step % 4 == 0 else None
        tune.report({"acc": config["rate"], "steps": step}, checkpoint=saved)


def run(path: Path, trainable: Any, scheduler: TrialScheduler, trials: int, **settings: Any) -> Any:
    chosen = {"executor": "inline", "verbose": 0, "name": "e", "metric": "acc", "mode": "max", **settings}
    rates = {"rate": tune.grid_search([float(rate) for rate in range(trials)])}
    return tune.run(trainable, storage_path=path, scheduler=scheduler, config=rates, **chosen).trials


def rows(trial: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(trial.path, "result.json").read_text().splitlines()]


def check(trials: Any) -> None:
    """Everybody has ended, and every step was made and told once."""
    for trial in trials:
        assert trial.status == "TERMINATED"
        assert [row["training_iteration"] for row in rows(trial)] == list(range(1, trial.iteration + 1))
        assert [row["steps"] for row in rows(trial)] == list(range(1, trial.iteration + 1))


PAUSING: dict[str, Callable[[], TrialScheduler]] = {
    "hyperband": lambda: HyperBandScheduler(max_t=9),
    "hyperband for bohb": lambda: HyperBandForBOHB(max_t=9),
    "asha, promotion": lambda: ASHAScheduler(max_t=9, reduction_factor=3, type="promotion"),
    "median": lambda: MedianStoppingRule("training_iteration", grace_period=2, hard_stop=False),
}


@pytest.mark.parametrize("make", PAUSING.values(), ids=PAUSING)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("trials", [2, 17])
def test_f26_a_function_that_saves_at_every_fourth_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[], TrialScheduler], workers: int, trials: int
) -> None:
    with caplog.at_level(logging.WARNING):
        ended = run(tmp_path, every_fourth, make(), trials, max_concurrent_trials=workers)
    check(ended)
    assert len(ended) == trials
    assert "that wait" not in caplog.text
    assert ended[-1].iteration >= 9


@pytest.mark.parametrize(
    "make",
    [
        lambda: HyperBandScheduler(max_t=9),
        lambda: PopulationBasedTraining(
            "training_iteration", perturbation_interval=2, hyperparam_mutations={"rate": [1.0]}, synch=True
        ),
    ],
    ids=["hyperband", "pbt"],
)
@pytest.mark.parametrize("saves", [False, True])
def test_a_function_that_never_saves_under_a_scheduler_that_needs_checkpoints_is_spoken_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[], TrialScheduler], saves: bool
) -> None:
    def never(config: dict[str, Any]) -> None:
        for step in range(1, 10):
            tune.report({"acc": config["rate"], "steps": step})

    with caplog.at_level(logging.WARNING):
        run(tmp_path, Steps if saves else never, make(), 9, stop={"training_iteration": 9})
    said = [record.getMessage() for record in caplog.records if "ended without one" in record.getMessage()]
    assert len(said) == (0 if saves else 1)
    assert all("should_save()" in line for line in said)


@pytest.mark.parametrize("make", PAUSING.values(), ids=PAUSING)
def test_a_searcher_that_counts_those_that_wait_stalls_nobody(
    tmp_path: Path, make: Callable[[], TrialScheduler]
) -> None:
    search = tune.search.BasicVariantGenerator(max_concurrent=2)
    ended = run(tmp_path, Steps, make(), 7, search_alg=search, stop={"training_iteration": 9})
    check(ended)
    assert len(ended) == 7


# Brackets of 3, 5 and 9 trials. Of the second one the best two go on from 3, of the third one three from 1 and one from
# 3, whose rates are the highest.
HALVED = [9, 9, 9] + [3, 3, 3, 9, 9] + [1, 1, 1, 1, 1, 1, 3, 3, 9]
# The bracket of 9 is the first one.
HALVED_FOR_BOHB = [1, 1, 1, 1, 1, 1, 3, 3, 9] + [3, 3, 3, 9, 9] + [9, 9, 9]


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize(
    ("kind", "expected"), [(HyperBandScheduler, HALVED), (HyperBandForBOHB, HALVED_FOR_BOHB)], ids=["plain", "bohb"]
)
def test_a_band_of_hyperband(tmp_path: Path, kind: type[HyperBandScheduler], expected: list[int], workers: int) -> None:
    ended = run(tmp_path, Steps, kind(max_t=9), 17, max_concurrent_trials=workers)
    check(ended)
    assert [trial.iteration for trial in ended] == expected


def allocates(by_iteration: dict[int, float]) -> ResourceChangingScheduler:
    def cores(cluster: Any, trial: Any, result: dict[str, Any], scheduler: Any) -> dict[str, float] | None:
        amount = by_iteration.get(result["training_iteration"])
        return None if amount is None else {"cpu": amount}

    return ResourceChangingScheduler(None, cores)


@pytest.mark.parametrize("trainable", [Steps, every_fourth])
def test_a_trial_that_runs_on_to_its_next_save_gets_the_last_of_what_was_given_it(
    tmp_path: Path, trainable: Any
) -> None:
    trials = run(tmp_path, trainable, allocates({1: 0.5, 3: 0.75}), 1, stop={"training_iteration": BEST})
    check(trials)
    assert dict(trials[0].resources) == {"cpu": 0.75}


@pytest.mark.parametrize("trainable", [Steps, every_fourth])
def test_more_than_there_is_for_a_trial_that_runs_is_an_error_and_a_resume_goes_on(
    tmp_path: Path, trainable: Any
) -> None:
    settings: dict[str, Any] = {"stop": {"training_iteration": BEST}, "checkpoint_freq": 4 * (trainable is Steps)}
    with pytest.raises(ResourceError, match=r"ResourceChangingScheduler gives .*_00000 \{'cpu': 64000") as caught:
        run(tmp_path, trainable, allocates({6: 64_000}), 1, **settings)
    assert "available" in str(caught.value).lower()
    trials = run(tmp_path, trainable, allocates({6: 0.5}), 1, resume=True, **settings)
    check(trials)
    assert dict(trials[0].resources) == {"cpu": 0.5}


class Walker(tune.Trainable):
    """What it reports is the sum of all rates it ever had: a step that is lost, or made twice, is seen in the score."""

    def setup(self, config: dict[str, Any]) -> None:
        self.walked: list[float] = []

    def step(self) -> dict[str, Any]:
        self.walked.append(self.config["rate"])
        return {"acc": sum(self.walked), "steps": len(self.walked)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"walked": self.walked}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.walked = checkpoint["walked"]


def hears(kind: type[TrialScheduler]) -> Any:
    """The scheduler, which remembers what it was told and gave: as a part of its state, as everything it goes by."""

    class Hearing(kind):  # type: ignore[misc, valid-type]
        heard: tuple[tuple[str, int], ...] = ()
        given: tuple[tuple[str, dict[str, float]], ...] = ()

        def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
            self.heard = (*self.heard, (trial.trial_id, result["training_iteration"]))
            verdict = super().on_trial_result(trial, result)
            if isinstance(verdict, Reallocate):
                self.given = (*self.given, (trial.trial_id, verdict.resources))
            return verdict

        def get_state(self) -> dict[str, Any]:
            return {**super().get_state(), "heard": (self.heard, self.given)}

        def set_state(self, state: dict[str, Any]) -> None:
            self.heard, self.given = state["heard"]
            super().set_state({key: value for key, value in state.items() if key != "heard"})

    return Hearing


BY_ITERATION = {"time_attr": "training_iteration", "perturbation_interval": 2}
MUTATED = {**BY_ITERATION, "hyperparam_mutations": {"rate": tune.uniform(0, 1)}}
STEPS = [
    ["t0", "t1", 2, 4, {"rate": 0.5}, {"rate": 0.25}],
    ["t0", "t0", 6, 6, {"rate": 0.25}, {"rate": 1.5}],
]


def replay(path: Path) -> TrialScheduler:
    policy = path.parent / "policy.txt"
    policy.write_text("\n".join(map(json.dumps, STEPS)))
    made: TrialScheduler = hears(PopulationBasedTrainingReplay)(policy)
    return made


KILLED: dict[str, tuple[int, Callable[[Path], TrialScheduler]]] = {
    "hyperband": (8, lambda path: hears(HyperBandScheduler)(max_t=4, reduction_factor=2)),
    "bohb": (8, lambda path: hears(HyperBandForBOHB)(max_t=4, reduction_factor=2)),
    "asha": (8, lambda path: hears(ASHAScheduler)(max_t=8, reduction_factor=2)),
    "asha, promotion": (8, lambda path: hears(ASHAScheduler)(max_t=8, reduction_factor=2, type="promotion")),
    "median": (8, lambda path: hears(MedianStoppingRule)("training_iteration", grace_period=2)),
    "median, soft": (6, lambda path: hears(MedianStoppingRule)("training_iteration", grace_period=2, hard_stop=False)),
    "pbt": (4, lambda path: hears(PopulationBasedTraining)(**MUTATED)),
    "pbt, synch": (4, lambda path: hears(PopulationBasedTraining)(**MUTATED, synch=True)),
    "pb2": (4, lambda path: hears(PB2)(**BY_ITERATION, hyperparam_bounds={"rate": [0, 1]})),
    "replay": (1, replay),
    "resources": (
        6,
        lambda path: hears(ResourceChangingScheduler)(
            ASHAScheduler(max_t=8, reduction_factor=2), DistributeResources(increase_by={"cpu": 0.25})
        ),
    ),
    "pruner": (8, lambda path: hears(OptunaPruner)(optuna.pruners.PercentilePruner(50.0, n_startup_trials=2))),
}


BY_CHANCE = ("pbt", "pb2", "resources")
"""What these decide depends on who has come how far and what is saved already, which a kill changes."""


def once(path: Path, kind: str) -> tuple[Any, Any]:
    """(trials, scheduler) at the end of a run that is new, or a resume."""
    trials, make = KILLED[kind]
    path.mkdir(exist_ok=True)
    scheduler = make(path)
    analysis = tune.run(
        Walker, storage_path=path, name="e", scheduler=scheduler, config={"rate": tune.uniform(0, 1)}, seed=3,
        num_samples=trials, search_alg=OptunaSearch() if kind in ("bohb", "pruner") else None, metric="acc", mode="max",
        resume="AUTO", executor="inline", max_concurrent_trials=1, resources_per_trial={"cpu": 0.25}, checkpoint_freq=2,
        stop={"training_iteration": 8}, verbose=0,
    )  # fmt: skip
    return analysis.trials, scheduler


def known(scheduler: Any) -> dict[str, Any]:
    """All that a scheduler goes by, to be compared."""
    state: dict[str, Any] = scheduler.get_state()
    if "pruner" in state:  # Optuna's trials say when, and its pruners are not compared
        trials = [(frozen.state, frozen.values, frozen.intermediate_values) for frozen in state["trials"]]
        return {**state, "pruner": None, "trials": trials}
    return state


def check_done(trials: Any, scheduler: Any) -> None:
    """What was decided is what the trials became: nothing was decided and not done, or done and not decided."""
    log = scheduler.get_state().get("log", ())
    for trial in trials:
        assert trial.status == "TERMINATED"
        assert [row["training_iteration"] for row in rows(trial)] == list(range(1, trial.iteration + 1))
        steps = [step for step in log if step.trial == trial.trial_id]
        assert [(clone.donor.trial_id, clone.iteration) for clone in trial.clones] == [
            (step.donor, step.iteration) for step in steps
        ]
        assert not steps or trial.config == steps[-1].config
        given = [resources for trial_id, resources in scheduler.given if trial_id == trial.trial_id]
        assert trial.resources == (given[-1] if given else None)


def check_alike(cut: Any, whole: Any) -> None:
    check(cut)
    for one, other in zip(cut, whole, strict=True):
        assert (one.config, one.iteration, one.resources) == (other.config, other.iteration, other.resources)
        assert [row["acc"] for row in rows(one)] == [row["acc"] for row in rows(other)]
        assert [record.iteration for record in one.checkpoints] == [record.iteration for record in other.checkpoints]


def killed_again_and_again(path: Path, patch: pytest.MonkeyPatch, kind: str, seed: object) -> None:
    whole, _ = once(path / "whole", kind)
    patch.setattr(journal_writer, "COMPACT_BYTES", 4000)  # what is gone on from is a snapshot and what came after it
    draw = random.Random(f"{kind} {seed}")
    for _ in range(5):
        killed_at_fact(draw.randint(4, 30), lambda: once(path / "cut", kind))
    cut, scheduler = once(path / "cut", kind)
    if kind in BY_CHANCE:
        check_done(cut, scheduler)
    else:
        check_alike(cut, whole)
    assert len(set(scheduler.heard)) == len(scheduler.heard), "each iteration was told once"
    assert set(scheduler.heard) <= {(trial.trial_id, n) for trial in cut for n in range(1, trial.iteration + 1)}
    assert known(once(path / "cut", kind)[1]) == known(scheduler), "the journal says what was decided"


@pytest.mark.parametrize("kind", KILLED)
def test_d12_t03_a_run_that_is_killed_again_and_again_decides_as_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    killed_again_and_again(tmp_path, monkeypatch, kind, "")


@pytest.mark.soak
@pytest.mark.parametrize("kind", KILLED)
@pytest.mark.parametrize("seed", range(40))
def test_d12_t03_killed_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int) -> None:
    killed_again_and_again(tmp_path, monkeypatch, kind, seed)


@pytest.mark.parametrize("kind", ["hyperband", "bohb", "asha, promotion", "pbt, synch", "replay"])
def test_d12_what_was_ordered_for_a_trial_that_waits_is_done_after_a_kill(tmp_path: Path, kind: str) -> None:
    """The kill comes right after the order, each one of the run in turn."""
    whole, _ = once(tmp_path / "whole", kind)
    for number in itertools.count(1):
        place = tmp_path / f"{number}"
        if not killed_at_order(number, functools.partial(once, place, kind)):
            break
        cut, scheduler = once(place, kind)
        check_alike(cut, whole)
        assert known(once(place, kind)[1]) == known(scheduler)
    assert number > 1, "something was ordered"


@pytest.mark.parametrize("kind", ["hyperband", "bohb", "asha, promotion", "median, soft"])
def test_f26_who_paused_at_a_save_that_a_kill_undid_is_saved_there_before_anything_follows(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each pause of the run in turn is journaled, and its checkpoint never comes."""
    whole, _ = once(tmp_path / "whole", kind)
    for number in itertools.count(1):
        place = tmp_path / f"{number}"
        if not killed_at_fact(number, functools.partial(once, place, kind), of=b'"then":"pause"', written=True):
            break
        cut, scheduler = once(place, kind)
        check_alike(cut, whole)
        assert known(once(place, kind)[1]) == known(scheduler)
    assert number > 1, "somebody paused"
    assert "ended without one although it was asked to save" not in caplog.text
