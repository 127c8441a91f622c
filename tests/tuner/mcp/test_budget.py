"""How much is used, as the journals say it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.clock import SystemClock
from tuner.error import ToolError
from tuner.executors import InlineExecutor
from tuner.experiment.paths import ExperimentPaths
from tuner.mcp.budget import AgentBudget, begin_of, trials_of
from tuner.mcp.ledger import Ledger, Limits, StartRecord
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.sources import LocalSource


def _train(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"]}, checkpoint=tune.Checkpoint.from_dict({"x": "y" * 100}))


def _run(storage: Path, *, resume: bool = False) -> Path:
    tune.run(
        _train,
        name="first",
        storage_path=storage,
        config={"x": tune.uniform(0, 1)},
        num_samples=3,
        verbose=0,
        executor=InlineExecutor(),
        resume="AUTO" if resume else False,
    )
    return storage / "first"


@pytest.fixture
def budget(tmp_path: Path) -> Callable[..., AgentBudget]:
    def opened(root: Path) -> LiveExperiment:
        return LiveExperiment(root.name, LocalSource(ExperimentPaths(root)), SystemClock())

    return lambda **limits: AgentBudget(Limits(**limits), [Ledger(tmp_path)], opened, SystemClock())


def _started(storage: Path, trials: int | None) -> None:
    ledger = Ledger(storage)
    with ledger.locked():
        ledger.write(StartRecord("first", "one", "c.yaml", {}, "{}", "/", "/", trials, 0.0))


def test_the_id_of_an_order_says_for_how_many_trials_it_counts() -> None:
    assert trials_of(begin_of("mine") + "12") == 12
    assert begin_of("mine") == begin_of("mine") != begin_of("Mine")
    assert trials_of("mcp-12") is None and trials_of("a" * 32) is None


def test_what_is_planned_counts_until_the_run_has_finished_with_fewer(
    tmp_path: Path, budget: Callable[..., AgentBudget]
) -> None:
    _started(tmp_path, 5)
    assert budget().spent().trials == 5
    _run(tmp_path)
    spent = budget().spent()

    assert spent.trials == 3 and spent.hours > 0 and spent.bytes > 300
    budget(trials=4).check(1)
    with pytest.raises(ToolError, match="the budget has 4 trials, of which 3 are used: 2 more would be beyond it"):
        budget(trials=4).check(2)
    with pytest.raises(ToolError, match="without an end"):
        budget(trials=4).check(0, unlimited=True)
    with pytest.raises(ToolError, match="hours of training"):
        budget(hours=0).check(0)
    with pytest.raises(ToolError, match="bytes of checkpoints"):
        budget(bytes=300).check(0)


def test_of_a_users_own_experiment_only_what_agents_ordered_counts(
    tmp_path: Path, budget: Callable[..., AgentBudget]
) -> None:
    root = _run(tmp_path)
    experiment = tune.open_experiment(root)
    experiment.add({"x": 0.5}, if_dead="wait")
    experiment.add({"x": 0.5}, if_dead="wait", order_id=f"{begin_of('a')}1")
    experiment.order({"order": "set", "name": "num_samples", "value": 3}, if_dead="wait", order_id=f"{begin_of('b')}2")
    assert budget().spent().trials == 0
    ledger = Ledger(tmp_path)
    with ledger.locked():
        ledger.will_order("first")
    assert budget().spent().trials == 3  # before a driver has taken them up, too
    _run(tmp_path, resume=True)

    assert budget().spent().trials == 3
    assert len(experiment.refreshed().trials) == 5
    kept = {trial.trial_id: sum(one.bytes for one in trial.checkpoints) for trial in experiment.refreshed().trials}
    assert budget().spent().bytes == list(kept.values())[-1]


def test_an_experiment_that_cannot_be_read_is_no_way_around_it(
    tmp_path: Path, budget: Callable[..., AgentBudget]
) -> None:
    root = _run(tmp_path)
    _started(tmp_path, 3)
    for file in (root / "journal").iterdir():
        file.unlink()
        file.mkdir()

    with pytest.raises(ToolError, match="cannot be counted"):
        budget(trials=10).check(1)
