"""Resources by hand-computed shares, and the wrapper around another scheduler."""

from __future__ import annotations

from typing import Any

import pytest

import tuner.schedulers.base as base_module
from tuner.error import SettingError
from tuner.schedulers import (
    ASHAScheduler,
    Decision,
    FIFOScheduler,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
)
from tuner.schedulers.base import Reallocate, Verdict
from tuner.schedulers.resource_changing_scheduler import (
    ClusterView,
    DistributeResources,
    DistributeResourcesToTopJob,
)
from tuner.testing import TrialStub, check_scheduler

CONTINUE = Decision.CONTINUE


class Run:
    """Some trials on a machine; what they are given, they have at once."""

    def __init__(
        self, function: Any, total: dict[str, float], trials: str = "ab", base: dict[str, float] | None = None
    ) -> None:
        self.scheduler = ResourceChangingScheduler(FIFOScheduler(), function)
        self.scheduler.set_search_properties("acc", "max", total_resources=total, trial_resources=base or {"cpu": 1})
        self.trials = {name: TrialStub(name) for name in trials}
        for trial in self.trials.values():
            self.scheduler.on_trial_add(trial)

    def report(self, name: str, acc: Any = 0.0) -> dict[str, float] | Verdict:
        verdict = self.scheduler.on_trial_result(self.trials[name], {"training_iteration": 1, "acc": acc})
        if isinstance(verdict, Reallocate):
            self.trials[name].resources = verdict.resources
            return verdict.resources
        return verdict

    def end(self, name: str) -> None:
        self.scheduler.on_trial_complete(self.trials.pop(name), {})


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


def test_cores_are_shared_in_equal_parts() -> None:
    run = Run(DistributeResources(), {"cpu": 8, "gpu": 0})
    assert run.report("a") == {"cpu": 4}
    assert run.report("a") == CONTINUE
    assert run.report("b") == {"cpu": 4}
    run.end("b")
    assert run.report("a") == {"cpu": 8}


def test_who_has_too_much_gives_it_back_when_others_come() -> None:
    run = Run(DistributeResources(), {"cpu": 4}, "a")
    assert run.report("a") == {"cpu": 4}
    run.trials["b"] = TrialStub("b")
    run.scheduler.on_trial_add(run.trials["b"])
    assert run.report("a") == {"cpu": 3}
    assert run.report("b") == CONTINUE


def test_it_never_gets_less_than_it_started_with() -> None:
    run = Run(DistributeResources(), {"cpu": 2}, "abc", base={"cpu": 2})
    assert [run.report(name) for name in "abc"] == [CONTINUE] * 3


def test_gpus_come_first_where_trials_have_them() -> None:
    run = Run(DistributeResources(), {"cpu": 16, "gpu": 4}, base={"cpu": 2, "gpu": 1})
    assert run.report("a") == {"cpu": 2, "gpu": 2}
    assert run.report("b") == {"cpu": 2, "gpu": 2}


def test_bundles_are_multiples_of_what_a_trial_started_with() -> None:
    run = Run(DistributeResources(add_bundles=True), {"cpu": 9, "gpu": 4}, base={"cpu": 2, "gpu": 1})
    assert run.report("a") == {"cpu": 4, "gpu": 2}
    assert run.report("b") == {"cpu": 4, "gpu": 2}


def test_the_step_its_limit_and_what_is_reserved() -> None:
    run = Run(DistributeResources(increase_by={"CPU": 2}, increase_by_times=2), {"cpu": 100})
    assert run.report("a") == {"cpu": 5}
    run = Run(DistributeResources(increase_by={"cpu": 2}), {"cpu": 9}, "a")
    assert run.report("a") == {"cpu": 9}
    run = Run(DistributeResources(reserve_resources={"CPU": 3}), {"cpu": 8}, "a")
    assert run.report("a") == {"cpu": 5}


def test_shares_of_a_gpu_add_up() -> None:
    run = Run(DistributeResources(increase_by={"gpu": 0.1}), {"cpu": 4, "gpu": 1}, "ab", base={"cpu": 1, "gpu": 0.2})
    found = run.report("a")
    assert isinstance(found, dict)
    assert found["gpu"] == pytest.approx(0.5)


def test_the_best_trial_gets_all_that_is_free() -> None:
    run = Run(DistributeResourcesToTopJob(), {"cpu": 8}, "abc")
    assert run.report("a", 1.0) == {"cpu": 6}  # the only one that is known
    assert run.report("b", 2.0) == CONTINUE  # nothing is free
    run.end("c")
    assert run.report("a", 1.0) == CONTINUE  # b is better
    assert run.report("b", 2.0) == {"cpu": 2}


@pytest.mark.parametrize(("mode", "best"), [("max", "b"), ("min", "a")])
def test_what_best_means(mode: str, best: str) -> None:
    run = Run(DistributeResourcesToTopJob(metric="eval/acc", mode=mode), {"cpu": 4}, "abc")
    found = {}
    for name, acc in (("c", float("nan")), ("a", 1.0), ("b", 2.0)):
        trial = run.trials[name]
        run.scheduler._live[name] = run.scheduler._live[name].__class__(name, {"cpu": 1.0}, {"eval": {"acc": acc}})
        found[name] = trial
    for name, trial in found.items():
        acc = {"a": 1.0, "b": 2.0, "c": float("nan")}[name]
        verdict = run.scheduler.on_trial_result(trial, {"training_iteration": 1, "eval": {"acc": acc}})
        assert verdict == (Reallocate({"cpu": 2.0}) if name == best else CONTINUE), name


def test_the_best_ones_limit_passes_the_rest_on() -> None:
    run = Run(DistributeResourcesToTopJob(increase_by={"cpu": 1}, increase_by_times=2), {"cpu": 8}, "ab")
    assert run.report("a", 2.0) == {"cpu": 3}
    assert run.report("b", 1.0) == {"cpu": 3}
    assert run.report("a", 2.0) == CONTINUE


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
    assert (scheduler.needs_metric, scheduler.population, scheduler.unwrapped) == (True, True, inner)
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
