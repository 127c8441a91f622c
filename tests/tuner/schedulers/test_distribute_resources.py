"""Resources by hand-computed shares."""

from __future__ import annotations

import pytest

from tests.tuner.schedulers.sharing import CONTINUE, Run
from tuner.schedulers.base import Reallocate
from tuner.schedulers.resource_changing_scheduler import (
    DistributeResources,
    DistributeResourcesToTopJob,
)
from tuner.testing import TrialStub


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
