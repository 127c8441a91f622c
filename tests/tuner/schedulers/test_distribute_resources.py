"""Resources by hand-computed shares."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.schedulers.sharing import CONTINUE, Run
from tuner.error import SettingError
from tuner.schedulers.base import Reallocate
from tuner.schedulers.distribute_resources import (
    ClusterView,
    DistributeResources,
    DistributeResourcesToTopJob,
    LiveTrial,
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


# --- whatever happens, nobody gets more than there is

STEPS = st.sampled_from([None, {"cpu": 1}, {"cpu": 2}, {"cpu": 3, "gpu": 1}])


@given(
    st.booleans(),
    st.sampled_from([DistributeResources, DistributeResourcesToTopJob]),
    STEPS,
    st.sampled_from([-1, 1, 2]),
    st.integers(0, 3),
    st.lists(st.integers(0, 5), max_size=30),
)
def test_what_is_given_is_there_and_what_is_too_much_comes_back_in_one_round(
    bundles: bool, kind: Any, step: Any, times: int, reserve: int, moves: list[int]
) -> None:
    base, total = {"cpu": 1.0, "gpu": 1.0}, {"cpu": 12.0, "gpu": 6.0}
    run = Run(kind(bundles, step, times, {"cpu": reserve} if reserve else None), total, "abc", base=base)

    def held(resource: str) -> list[float]:
        return [(trial.resources or base).get(resource, 0.0) for trial in run.trials.values()]

    def fits() -> bool:
        return all(sum(held(resource)) <= there for resource, there in total.items())

    for turn, move in enumerate(moves):
        name = "abcdef"[move]
        if name not in run.trials and len(run.trials) < 5:
            run.trials[name] = TrialStub(name)
            run.scheduler.on_trial_add(run.trials[name])
        elif name in run.trials and turn % 7 == 6:
            run.end(name)
        elif name in run.trials:
            before = sum(held("cpu")) + sum(held("gpu"))
            run.report(name, float(turn % 5))
            assert fits() or sum(held("cpu")) + sum(held("gpu")) <= before, "it was given what is not there"
        assert min([*held("cpu"), *held("gpu")], default=1.0) >= 1.0
    for name in run.trials:
        run.report(name, 0.0)
    assert fits()
    if times > 0 and step == {"cpu": 2}:
        assert max(held("cpu"), default=0.0) <= 1 + 2 * times


def test_without_anybody_else_it_gets_all_but_what_is_reserved() -> None:
    for total in range(1, 9):
        run = Run(DistributeResources(reserve_resources={"cpu": 1}), {"cpu": total}, "a")
        found = run.report("a")
        assert found == ({"cpu": total - 1} if total > 2 else CONTINUE)


@pytest.mark.parametrize("kind", [DistributeResources, DistributeResourcesToTopJob])
@pytest.mark.parametrize(("times", "cores"), [(-1, 8), (0, 8), (1, 2), (3, 4)])
def test_a_limit_below_one_is_none(kind: Any, times: int, cores: int) -> None:
    assert Run(kind(increase_by_times=times), {"cpu": 8}, "a").report("a") == {"cpu": cores}


def test_what_a_function_may_know_of_the_machine() -> None:
    live = (LiveTrial("a", {"cpu": 1.0}, {"acc": 1}), LiveTrial("b", {"cpu": 2.0}, {}))
    cluster = ClusterView({"cpu": 4.0}, live)
    assert cluster.get_live_trials() == list(live)
    with pytest.raises(AttributeError):
        cluster.total = {}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"increase_by": {"cpu": -1}}, "cpu=-1"),
        ({"reserve_resources": {"gpu": "x"}}, "gpu='x'"),
        ({"add_bundles": "yes"}, "add_bundles='yes'"),
        ({"increase_by_times": True}, "increase_by_times=True"),
    ],
)
def test_settings_that_are_none_are_named(arguments: dict[str, Any], message: str) -> None:
    for kind in (DistributeResources, DistributeResourcesToTopJob):
        with pytest.raises(ValueError, match=message):
            kind(**arguments)


def test_the_best_ones_metric_and_mode_are_its_own_or_the_schedulers_or_the_runs() -> None:
    class Asked:
        metric: str | None = "acc"
        mode: str | None = None
        run_metric: Any = "loss"
        run_mode: Any = "min"
        base_trial_resources: ClassVar[dict[str, float]] = {"cpu": 1.0}

    assert DistributeResourcesToTopJob().ranks_by(Asked()) == ("acc", "min")
    assert DistributeResourcesToTopJob(metric="f1", mode="max").ranks_by(Asked()) == ("f1", "max")
    Asked.metric, Asked.run_metric = None, ["a", "b"]
    with pytest.raises(SettingError, match=r"needs one metric and mode, and has metric=\['a', 'b'\], mode='min'"):
        DistributeResourcesToTopJob().ranks_by(Asked())
    with pytest.raises(SettingError, match="DistributeResourcesToTopJob: mode='up'"):
        DistributeResourcesToTopJob(mode="up")
