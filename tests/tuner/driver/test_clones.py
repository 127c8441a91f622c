"""What the loop does with a scheduler's verdicts: pauses, clones, other resources, orders for trials that wait."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.failures.checkpoint_faults import in_child
from tuner.schedulers.base import Decision, Directive, Exploit, Reallocate, TrialScheduler


class Counter(tune.Trainable):
    """Its weight is the sum of the rates of all steps: who cloned whom can be read off it."""

    def setup(self, config: dict[str, Any]) -> None:
        self.weight, self.steps = 0.0, 0

    def step(self) -> dict[str, Any]:
        self.steps += 1
        self.weight += self.config["rate"]
        return {"weight": self.weight, "steps": self.steps, "rate": self.config["rate"]}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"weight": self.weight, "steps": self.steps}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.weight, self.steps = checkpoint["weight"], checkpoint["steps"]


def every_fourth(config: dict[str, Any]) -> None:
    """A function that saves at every fourth report only."""
    step = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        step = int(checkpoint.to_dict()["step"])
    while step < 12:
        step += 1
        saved = tune.Checkpoint.from_dict({"step": step}) if step % 4 == 0 else None
        tune.report({"step": step}, checkpoint=saved)


class Scripted(TrialScheduler):
    """Says what a dict says: (trial number, iteration) -> verdict, or a function of the scheduler that returns one."""

    def __init__(self, script: dict[tuple[int, int], Any]) -> None:
        super().__init__()
        self.script = script
        self.ids: list[str] = []
        self.saved: list[tuple[str, int]] = []
        self.starts: list[str] = []
        self.ordered: list[Directive] = []
        self.blocked: set[str] = set()

    def on_trial_add(self, trial: Any) -> None:
        self.ids.append(trial.trial_id)

    def on_trial_start(self, trial: Any) -> None:
        self.starts.append(trial.trial_id)

    def on_checkpoint(self, trial: Any, iteration: int) -> None:
        self.saved.append((trial.trial_id, iteration))

    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
        verdict = self.script.get((self.ids.index(trial.trial_id), result["training_iteration"]), Decision.CONTINUE)
        return verdict(self, trial) if callable(verdict) else verdict

    def orders(self) -> list[Directive]:
        ordered, self.ordered = self.ordered, []
        return ordered

    def choose_trial_to_run(self, pending: Any) -> Any:
        return next((trial for trial in pending if trial.trial_id not in self.blocked), None)


def clone_of(number: int, rate: float) -> Any:
    return lambda scheduler, trial: Exploit(scheduler.ids[number], {"rate": rate})


def run(path: Path, trainable: Any, scheduler: TrialScheduler, **settings: Any) -> Any:
    chosen = {"executor": "inline", "verbose": 0, "name": "e", "stop": {"training_iteration": 8}, **settings}
    return tune.run(trainable, storage_path=path, scheduler=scheduler, **chosen)


def rows(trial: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(trial.path, "result.json").read_text().splitlines()]


RATES = {"rate": tune.grid_search([1.0, 100.0])}


@pytest.mark.parametrize("executor", ["inline", "local"])
def test_a_clone_goes_on_from_the_donors_checkpoint_with_its_own_count(tmp_path: Path, executor: str) -> None:
    scheduler = Scripted({(0, 4): Decision.SAVE, (1, 3): clone_of(0, 10.0)})
    donor, clone = run(
        tmp_path, Counter, scheduler, config=RATES, executor=executor, max_concurrent_trials=1
    ).trials  # fmt: skip

    assert [row["training_iteration"] for row in rows(clone)] == [1, 2, 3, 4, 5, 6, 7, 8]
    # 100 a step for three steps; then the donor's 4 after four steps, and 10 a step.
    assert [row["weight"] for row in rows(clone)] == [100, 200, 300, 14, 24, 34, 44, 54]
    assert [row["steps"] for row in rows(clone)][3:] == [5, 6, 7, 8, 9]
    assert clone.config == {"rate": 10.0} and donor.config == {"rate": 1.0}
    (made,) = clone.clones
    assert (made.iteration, made.donor.trial_id, made.donor.iteration) == (3, donor.trial_id, 4)
    assert made.changed == {"rate": (100.0, 10.0)}
    assert clone.started_from is not None and clone.started_from.trial_id == donor.trial_id


def test_a_donor_without_a_checkpoint_is_none(tmp_path: Path) -> None:
    donor, clone = run(tmp_path, Counter, Scripted({(1, 3): clone_of(0, 10.0)}), config=RATES).trials
    assert [row["weight"] for row in rows(clone)] == [100.0 * step for step in range(1, 9)]
    assert not clone.clones


def test_the_donors_checkpoint_stays_until_the_clone_has_one_of_its_own(tmp_path: Path) -> None:
    """F05, R3: keep=1, and the donor saves on at every step."""
    seen = []

    class Look(tune.Callback):
        changes_results = False

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
            seen.append(sorted(record.iteration for record in trials[0].checkpoints))

    scheduler = Scripted({(1, 2): clone_of(0, 10.0)})
    donor, clone = run(
        tmp_path, Counter, scheduler, config=RATES, keep_checkpoints_num=1, checkpoint_freq=1, callbacks=[Look()],
        max_concurrent_trials=1,
    ).trials  # fmt: skip
    assert clone.clones[0].donor.iteration == 8
    assert [record.iteration for record in donor.checkpoints] == [8]
    assert sorted(name for name in os.listdir(donor.path) if name.startswith("checkpoint")) == ["checkpoint_000008"]
    assert rows(clone)[-1]["weight"] == 8 + 6 * 10.0


def test_a_function_pauses_at_its_next_save_and_never_without(tmp_path: Path) -> None:
    """F26: told to pause at 2, it runs on to 4, and goes on from there when it is chosen."""
    scheduler = Scripted({(0, 2): Decision.PAUSE})
    scheduler.script[0, 4] = lambda own, trial: own.blocked.add(trial.trial_id) or Decision.CONTINUE
    scheduler.script[1, 12] = lambda own, trial: own.blocked.clear() or Decision.CONTINUE
    first, second = run(
        tmp_path, every_fourth, scheduler, num_samples=2, stop=None, max_concurrent_trials=1
    ).trials  # fmt: skip
    assert scheduler.starts == [first.trial_id, second.trial_id, first.trial_id]
    assert [row["step"] for row in rows(first)] == list(range(1, 13))
    assert first.status == second.status == "TERMINATED"


def test_a_paused_trial_may_be_stopped_or_cloned_by_an_order(tmp_path: Path) -> None:
    def decide(own: Scripted, trial: Any) -> Decision:
        own.ordered += [Directive(own.ids[0], Decision.STOP), Directive(own.ids[1], Exploit(own.ids[2], {"rate": 7.0}))]
        return Decision.SAVE

    scheduler = Scripted({(0, 2): Decision.PAUSE, (1, 2): Decision.PAUSE, (2, 3): decide})
    scheduler.script[0, 2] = scheduler.script[1, 2] = lambda own, trial: (
        own.blocked.add(trial.trial_id) or Decision.PAUSE
    )
    scheduler.script[2, 5] = lambda own, trial: own.blocked.clear() or Decision.CONTINUE
    trials = run(
        tmp_path, Counter, scheduler, config={"rate": tune.grid_search([1.0, 2.0, 3.0])}, max_concurrent_trials=1,
        checkpoint_freq=1,
    ).trials  # fmt: skip
    assert [(trial.status, trial.iteration) for trial in trials] == [("TERMINATED", 2)] + [("TERMINATED", 8)] * 2
    # At the order the third trial had saved its second step: 6.
    assert [row["weight"] for row in rows(trials[1])] == [2, 4, 13, 20, 27, 34, 41, 48]


def test_other_resources_come_with_the_next_attempt(tmp_path: Path) -> None:
    def resources(own: Scripted, trial: Any) -> Reallocate:
        return Reallocate({"cpu": 2})

    scheduler = Scripted({(0, 3): resources})
    (trial,) = run(tmp_path, Counter, scheduler, config={"rate": 1.0}).trials
    assert trial.resources == {"cpu": 2.0} and trial.attempt == 2
    assert [row["weight"] for row in rows(trial)] == [float(step) for step in range(1, 9)]


@pytest.mark.parametrize("at", [4, 5])
def test_t13_a_clone_that_dies_before_its_first_save_starts_from_the_donors_checkpoint_again(
    tmp_path: Path, at: int
) -> None:
    """The donor saves on with keep=1 meanwhile; the driver dies too, with the clone at `at`."""

    class Die(tune.Callback):
        changes_results = False

        def __reduce__(self) -> Any:
            return tune.Callback, ()

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
            if len(trials) > 1 and trial is trials[1] and result["training_iteration"] == at:
                os._exit(9)

    def once(callbacks: list[Any]) -> Any:
        scheduler = Scripted({(1, 3): clone_of(0, 10.0), (0, 2): Decision.SAVE})
        scheduler.script[1, 1] = Decision.SAVE
        return run(
            tmp_path, Counter, scheduler, config=RATES, resume="AUTO", keep_checkpoints_num=1, callbacks=callbacks,
            max_concurrent_trials=1,
        )  # fmt: skip

    assert in_child(lambda: once([Die()])) == 9 << 8
    donor, clone = once([]).trials
    assert [row["training_iteration"] for row in rows(clone)] == list(range(1, 9))
    assert [row["weight"] for row in rows(clone)] == [100, 200, 300, 12, 22, 32, 42, 52]
    assert clone.config == {"rate": 10.0}


def test_t13_a_clone_whose_donors_checkpoint_is_gone_starts_anew_with_its_config(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def spoil(own: Scripted, trial: Any) -> Decision:
        (path,) = tmp_path.glob("e/*_00000/checkpoint_*")
        for file in path.iterdir():
            if not file.name.startswith("."):
                file.write_bytes(b"x" * file.stat().st_size)
        return Decision.CONTINUE

    def exploit(own: Scripted, trial: Any) -> Exploit:
        spoil(own, trial)
        return Exploit(own.ids[0], {"rate": 10.0})

    scheduler = Scripted({(0, 8): Decision.SAVE, (1, 3): exploit, (0, 2): Decision.SAVE})
    _, clone = run(tmp_path, Counter, scheduler, config=RATES, keep_checkpoints_num=1, max_concurrent_trials=1).trials
    assert [row["weight"] for row in rows(clone)][-1] == 80.0
    assert "starts anew with its config" in caplog.text


def test_after_a_resume_too_a_donors_checkpoint_goes_once_its_clone_has_one_of_its_own(tmp_path: Path) -> None:
    """The donor waits at 4 when it is cloned, and after the kill it saves on to 8 before the clone saves at all."""

    class Die(tune.Callback):
        changes_results = False

        def __reduce__(self) -> Any:
            return tune.Callback, ()

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
            if trial is not trials[0] and result["training_iteration"] == 4:
                os._exit(9)

    def once(first: Any, callbacks: list[Any]) -> Any:
        scheduler = Scripted({(0, 4): first, (1, 3): clone_of(0, 10.0)})
        return run(
            tmp_path, Counter, scheduler, config=RATES, resume="AUTO", keep_checkpoints_num=1, checkpoint_freq=1,
            callbacks=callbacks, max_concurrent_trials=1,
        )  # fmt: skip

    def pause(own: Scripted, trial: Any) -> Decision:
        own.blocked.add(trial.trial_id)
        return Decision.PAUSE

    assert in_child(lambda: once(pause, [Die()])) == 9 << 8
    donor, clone = once(Decision.PAUSE, []).trials
    assert (clone.clones[0].donor.iteration, rows(clone)[-1]["weight"]) == (4, 54.0)
    assert [record.iteration for record in donor.checkpoints] == [8]


def test_the_first_of_two_donors_keeps_nothing_for_a_clone_that_saved_nothing_between(tmp_path: Path) -> None:
    class Unblocks(Scripted):
        def on_trial_complete(self, trial: Any, result: dict[str, Any]) -> None:
            if trial.trial_id == self.ids[0]:
                self.blocked.clear()

    def waits(verdict: Any) -> Any:
        def decide(scheduler: Scripted, trial: Any) -> Any:
            scheduler.blocked = {trial.trial_id}
            return verdict(scheduler, trial) if callable(verdict) else verdict

        return decide

    # The first pauses, the third is its clone and waits until it has ended, and is the second's clone then.
    script = {(0, 2): waits(Decision.PAUSE), (2, 1): waits(clone_of(0, 2.0)), (2, 2): clone_of(1, 3.0)}
    config = {"rate": tune.grid_search([1.0, 5.0, 7.0])}
    settings = {"config": config, "checkpoint_freq": 1, "keep_checkpoints_num": 1, "max_concurrent_trials": 1}
    first, _, third = run(tmp_path, Counter, Unblocks(script), **settings).trials

    assert len(third.clones) == 2
    assert sorted(path.name for path in Path(first.path).glob("checkpoint_*")) == [Path(first.checkpoint.path).name]
