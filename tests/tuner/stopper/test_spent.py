"""Spent is spent: what a budget counts is all that was trained, whatever was lost of it, over resumes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tuner as tune
from tests.failures.checkpoint_faults import killed_at_fact
from tests.tuner.driver.harness import DriverHarness, plugin_set
from trainables import wire
from tuner.experiment import journal_writer
from tuner.schedulers import FIFOScheduler
from tuner.schedulers.base import Exploit
from tuner.stopper import CombinedStopper, CostStopper, MaximumIterationStopper, Stopper


class Lived(DriverHarness):
    """A run of which it is known what it cost, and what its trials count as their cost so far."""

    paid = 0.0

    def begins_at(self, trial: Any) -> float:
        ref = trial.started_from
        holder = None if ref is None else self.state.trial(ref.trial_id)
        kept = [] if holder is None or ref is None else holder.checkpoints
        return float(next((record.metrics["far"] for record in kept if record.order == ref.order), 0.0))

    def live(self, dice: random.Random) -> None:
        """Trials report what they cost, save, fail, are lost and end, in whatever order."""
        far: dict[tuple[str, int], float] = {}
        for _ in range(60):
            self.turn()
            running = list(self.loop.attempts.running.values())
            if not running:
                break
            run, chance, cost = dice.choice(running), dice.random(), float(dice.randint(1, 9))
            trial, life = run.trial, (run.trial.trial_id, run.number)
            if chance < 0.8:
                far[life] = far.get(life, self.begins_at(trial)) + cost
                self.paid += cost
                answer = self.report(trial, saves=dice.random() < 0.4, cost=cost, far=far[life])
                if answer is not None and answer.then != "continue":
                    self.exit(trial)
            elif chance < 0.9:
                self.exit(trial, status=-9, reason="lost")
            else:
                self.exit(trial, wire.AttemptErrored("ValueError", "no", "Traceback"))


class Clones(FIFOScheduler):
    """Has one trial go on from another one's checkpoint again and again."""

    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
        due = trial.trial_id == "ab_00001" and result["training_iteration"] % 4 == 0
        return Exploit("ab_00000", {"x": 0.5}) if due else super().on_trial_result(trial, result)


def budgets() -> list[CostStopper]:
    return [CostStopper(1e9), CostStopper(1e9, "far", cumulative=True), CostStopper(1e9, per="trial")]


def totals(stoppers: list[CostStopper]) -> list[float]:
    return [stopper.get_state()["all"] for stopper in stoppers]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), combined=st.booleans(), share=st.floats(0, 1))
def test_what_was_trained_is_spent_whatever_was_lost(
    tmp_path_factory: pytest.TempPathFactory, seed: int, combined: bool, share: float
) -> None:
    def made() -> tuple[list[CostStopper], Stopper]:
        stoppers = budgets() if combined else budgets()[seed % 3 :][:1]
        return stoppers, CombinedStopper(MaximumIterationStopper(12), *stoppers) if combined else stoppers[0]

    path = tmp_path_factory.mktemp("lived")
    stoppers, stopper = made()
    run = Lived(path / "run", plugin_set(stopper=stopper, scheduler=Clones(), num_samples=4), max_failures=-1)
    run.live(random.Random(seed))
    assert totals(stoppers) == [run.paid] * len(stoppers)
    assert sum(stoppers[-1].get_state()["spent"].values()) == (run.paid if stoppers[-1]._per == "trial" else 0)

    # A resume: the state of some moment, and the facts after it.
    facts = run.facts
    cut = int(share * len(facts))
    _, first = made()
    DriverHarness(path / "first", plugin_set(stopper=first, scheduler=Clones(), num_samples=4), facts=facts[:cut])
    again, second = made()
    plugins = plugin_set(stopper=second, scheduler=Clones(), num_samples=4)
    resumed = DriverHarness(path / "second", plugins, facts=facts[:cut])
    second.set_state(cloudpickle.loads(cloudpickle.dumps(first.get_state())))
    resumed.applier.replay(facts[cut:])
    assert totals(again) == [run.paid] * len(again)


def test_those_lives_lose_work_and_clone_trials(tmp_path: Path) -> None:
    kinds = set()
    for seed in range(8):
        run = Lived(tmp_path / str(seed), plugin_set(scheduler=Clones(), num_samples=4), max_failures=-1)
        run.live(random.Random(seed))
        kinds |= set(run.kinds())
    assert {"rolled_back", "exploited", "attempt_ended"} <= kinds


class Paid(tune.Trainable):
    """Notes each step that it makes where no kill takes it back."""

    def setup(self, config: dict[str, Any]) -> None:
        self.n = 0

    def step(self) -> dict[str, Any]:
        self.n += 1
        with Path(self.config["ledger"]).open("a") as ledger:
            ledger.write(".")
        return {"loss": 1.0, "cost": 1.0, "far": float(self.n)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"n": self.n}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.n = checkpoint["n"]


@pytest.mark.parametrize(("attr", "cumulative"), [("cost", False), ("far", True)])
@pytest.mark.parametrize("compacted", [False, True])
def test_killed_and_continued_a_run_spends_its_budget_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attr: str, cumulative: bool, compacted: bool
) -> None:
    if compacted:
        monkeypatch.setattr(journal_writer, "COMPACT_BYTES", 3000)
    budget = 60.0

    def run() -> tuple[CostStopper, Any]:
        stopper = CostStopper(budget, attr, cumulative=cumulative)
        found = tune.run(
            Paid, config={"ledger": str(tmp_path / "ledger"), "x": tune.uniform(0, 1)}, num_samples=50, name="e",
            storage_path=str(tmp_path), executor="inline", verbose=0, seed=1, checkpoint_freq=5, resume="AUTO",
            stop=[MaximumIterationStopper(12), stopper],
        )  # fmt: skip
        return stopper, found

    dice, kills = random.Random(f"{attr} {compacted}"), 0
    for _ in range(5):
        kills += killed_at_fact(dice.randint(8, 14), run, of=b'"result"', written=True)
    stopper, found = run()
    trained = len((tmp_path / "ledger").read_text())
    spent = stopper.get_state()["all"]
    assert kills == 5 and budget <= spent <= trained <= spent + kills  # of each kill a result may not be written down
    assert sum(trial.iteration for trial in found.trials) < spent  # what was lost was paid for
    richer = CostStopper(budget + 24, attr, cumulative=cumulative)
    more = tune.run(
        Paid, config={"ledger": str(tmp_path / "ledger"), "x": tune.uniform(0, 1)}, num_samples=50, name="e",
        storage_path=str(tmp_path), executor="inline", verbose=0, seed=1, checkpoint_freq=5, resume="AUTO",
        stop=[MaximumIterationStopper(12), richer],
    )  # fmt: skip
    assert budget + 24 <= richer.get_state()["all"] <= len((tmp_path / "ledger").read_text())
    assert len(more.trials) > len(found.trials)
