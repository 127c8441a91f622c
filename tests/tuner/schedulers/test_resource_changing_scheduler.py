"""The wrapper that changes what trials get: it passes on what it is told, and what it may not do is said."""

from __future__ import annotations

from typing import Any

import pytest

import tuner.schedulers.base as base_module
from tests.tuner.schedulers.sharing import CONTINUE, Run
from tuner.error import SettingError
from tuner.schedulers import (
    ASHAScheduler,
    Decision,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
)
from tuner.schedulers.base import Reallocate
from tuner.schedulers.resource_changing_scheduler import (
    ClusterView,
    DistributeResources,
    DistributeResourcesToTopJob,
)
from tuner.testing import TrialStub, check_scheduler


@pytest.mark.parametrize(
    "make",
    [
        ResourceChangingScheduler,
        lambda: ResourceChangingScheduler(ASHAScheduler(max_t=9)),
        lambda: ResourceChangingScheduler(ASHAScheduler(max_t=9), DistributeResourcesToTopJob()),
    ],
)
@pytest.mark.parametrize("cores", [4, 60])
def test_it_meets_its_obligations(make: Any, cores: int) -> None:
    def made() -> TrialScheduler:
        scheduler: ResourceChangingScheduler = make()
        scheduler._total = {"cpu": cores}
        return scheduler

    check_scheduler(made)


def test_a_function_of_ones_own() -> None:
    seen: list[Any] = []

    def double(cluster: ClusterView, trial: Any, result: dict[str, Any], scheduler: ResourceChangingScheduler) -> Any:
        seen.append((cluster.total, [live.trial_id for live in cluster.get_live_trials()], result["acc"]))
        return [{"CPU": 2 * scheduler.base_trial_resources["cpu"]}] if trial.trial_id == "a" else None

    run = Run(double, {"cpu": 8}, base={"cpu": 2})
    assert run.report("a", 0.5) == {"cpu": 4}
    assert run.report("a", 0.5) == CONTINUE
    assert run.report("b", 0.1) == CONTINUE
    assert seen[0] == ({"cpu": 8}, ["a", "b"], 0.5)


def test_what_it_still_waits_for_counts_as_taken() -> None:
    """A function trainable runs on to its next save with the old resources."""
    run = Run(DistributeResources(), {"cpu": 4})
    first = run.scheduler.on_trial_result(run.trials["a"], {"training_iteration": 1})
    assert first == Reallocate({"cpu": 2})
    assert run.scheduler.on_trial_result(run.trials["a"], {"training_iteration": 2}) == CONTINUE
    assert run.report("b") == {"cpu": 2}


def test_the_other_scheduler_decides_first() -> None:
    scheduler = ResourceChangingScheduler(ASHAScheduler(metric="acc", mode="max", max_t=4, reduction_factor=2))
    scheduler.set_search_properties(None, None, total_resources={"cpu": 8}, trial_resources={"cpu": 1})
    trials = {name: TrialStub(name) for name in "ab"}
    for trial in trials.values():
        scheduler.on_trial_add(trial)
    assert scheduler.on_trial_result(trials["a"], {"training_iteration": 1, "acc": 2.0}) == Reallocate({"cpu": 4})
    assert scheduler.on_trial_result(trials["b"], {"training_iteration": 1, "acc": 1.0}) == Decision.STOP


def test_without_knowing_the_machine_nothing_changes() -> None:
    scheduler = ResourceChangingScheduler()
    scheduler.set_search_properties("acc", "max")
    trial = TrialStub("a")
    scheduler.on_trial_add(trial)
    assert scheduler.on_trial_result(trial, {"training_iteration": 1}) == CONTINUE


def test_it_passes_on_all_that_a_scheduler_is_told() -> None:
    """Also what is added to `TrialScheduler` later."""
    told = [
        name for name in vars(TrialScheduler) if name.startswith(("on_", "first_", "orders", "choose_", "set_search"))
    ]
    assert [name for name in told if name not in vars(ResourceChangingScheduler)] == []
    assert len(told) > 10
    assert base_module.TrialScheduler is TrialScheduler


def test_it_is_what_the_other_one_is() -> None:
    inner = PopulationBasedTraining("training_iteration", "acc", "max", 2, hyperparam_mutations={"lr": [1, 2]})
    scheduler = ResourceChangingScheduler(inner)
    assert (scheduler.metric, scheduler.mode, scheduler.time_attr) == ("acc", "max", "training_iteration")
    assert (scheduler.needs_metric, scheduler.population) == (True, True)
    assert scheduler.policy("a") == []
    assert not hasattr(scheduler, "on_rollback")


def test_what_does_not_fit_is_said_at_once() -> None:
    with pytest.raises(SettingError, match="base_scheduler='asha'"):
        ResourceChangingScheduler("asha")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="resources_allocation_function=3"):
        ResourceChangingScheduler(None, 3)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"increase_by_times=1\.5"):
        DistributeResources(increase_by_times=1.5)  # type: ignore[arg-type]
    scheduler = ResourceChangingScheduler(None, DistributeResourcesToTopJob())
    for metric, mode in ((None, None), (["a", "b"], ["min", "max"])):
        with pytest.raises(SettingError, match="needs one metric and mode"):
            scheduler.set_search_properties(metric, mode)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="resources_allocation_function=None"):
        ResourceChangingScheduler(None, None)
