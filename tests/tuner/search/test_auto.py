"""`AutoSearch`: what it proposes, on which spaces, what it refuses, and how a run is resumed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

import tuner as tune
from tuner.error import MetricMissingError, SettingError
from tuner.executors import SimulatedExecutor
from tuner.schedulers import ASHAScheduler, FIFOScheduler, default_scheduler
from tuner.schedulers.curve_stopping import CurveStopping
from tuner.search import AutoSearch, ConcurrencyLimiter, as_searcher, create_searcher
from tuner.search.curve_process import CurveProcess
from tuner.search.fitting import misfit
from tuner.search.searcher import Searcher
from tuner.search.space_tree import compile_node
from tuner.stopper import CostStopper
from tuner.testing import check_searcher
from tuner.testing.searchers import SPACE as CONFORMANCE

MODELLED = {name: value for name, value in CONFORMANCE.items() if name != "twice"}
NESTED: dict[str, Any] = {
    "lr": tune.loguniform(1e-4, 1.0),
    "layers": tune.randint(1, 6),
    "optimizer": tune.choice([{"kind": "adam"}, {"kind": "sgd", "momentum": tune.uniform(0.1, 0.99)}]),
}


def told(searcher: Searcher, space: dict[str, Any], **spec: Any) -> Searcher:
    return as_searcher(searcher, space, num_samples=-1, metric="loss", mode="min", seed=3, **spec)


def loss_of(config: dict[str, Any], iteration: int) -> float:
    import math

    momentum = config["optimizer"].get("momentum", 0.0)
    return (math.log10(config["lr"]) + 2) ** 2 + abs(config["layers"] - 3) + (momentum - 0.9) ** 2 + 3 / iteration


@pytest.mark.parametrize("max_t", [None, 2, 50])
def test_it_meets_its_obligations(max_t: float | None) -> None:
    check_searcher(lambda: AutoSearch(max_t=max_t), MODELLED)


def test_it_meets_its_obligations_where_it_weighs_costs() -> None:
    check_searcher(lambda: AutoSearch(max_t=50, cost_attr="training_iteration"), MODELLED)


def test_it_has_a_name() -> None:
    assert isinstance(create_searcher("auto", max_t=9), AutoSearch)
    check_searcher(lambda: ConcurrencyLimiter(AutoSearch(mode="min"), 2), MODELLED)


numbers = st.tuples(st.integers(-50, 50), st.integers(2, 60))
leaves = st.one_of(
    st.builds(lambda ends: tune.uniform(ends[0], ends[0] + ends[1]), numbers),
    st.builds(lambda ends: tune.randint(ends[0], ends[0] + ends[1]), numbers),
    st.builds(lambda top: tune.lograndint(1, top), st.integers(2, 5000)),
    st.builds(lambda top: tune.loguniform(1e-6, top), st.floats(1e-3, 1e3)),
    st.builds(lambda top: tune.quniform(0, top, 0.5), st.integers(1, 9)),
    st.builds(lambda top: tune.qrandint(0, 4 * top, 4), st.integers(1, 9)),
    st.just(tune.randn(0, 2)),
    st.builds(tune.choice, st.lists(st.integers(), min_size=2, max_size=5, unique=True)),
)
inner = st.dictionaries(st.sampled_from("abc"), leaves, min_size=1, max_size=2)
branches = st.builds(lambda one, other: tune.choice([{"k": 1, **one}, {"k": 2, **other}, "none"]), inner, inner)
spaces = st.dictionaries(st.sampled_from("pqrst"), st.one_of(leaves, branches), min_size=1, max_size=4)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(space=spaces, depth=st.sampled_from([None, 1, 7, 300]), losses=st.lists(st.floats(), min_size=14, max_size=14))
def test_what_it_proposes_is_of_the_space_whatever_was_told(
    space: dict[str, Any], depth: float | None, losses: list[float]
) -> None:
    space = {"always": tune.uniform(0, 1), **space}  # some of the others have a single value
    searcher, root = told(AutoSearch(max_t=depth), space), compile_node(space)
    for number, loss in enumerate(losses):
        config = searcher.suggest(f"t{number}")
        assert isinstance(config, dict) and misfit(root, config) is None
        result = {"training_iteration": 1 + number % 3, "loss": loss}
        searcher.on_trial_result(f"t{number}", result)
        if number % 3:
            searcher.on_trial_complete(f"t{number}", result, error=number % 5 == 0)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"x": tune.uniform(0, 1), "y": tune.sample_from(lambda config: 1)}, "the sample_from at 'y'"),
        ({"x": tune.grid_search([1, 2])}, "the grid_search at 'x'"),
        (lambda trial: {"x": trial.suggest_float("x", 0, 1)}, "a dict of domains"),
        ({"x": 1}, "nothing to search"),
    ],
)
def test_what_it_cannot_model_is_refused_by_name(space: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        told(AutoSearch(), space)


def test_several_objectives_are_refused() -> None:
    with pytest.raises(SettingError, match=r"one metric, not \['loss', 'latency'\]"):
        AutoSearch(metric=["loss", "latency"], mode=["min", "min"])
    with pytest.raises(SettingError, match="OptunaSearch takes several"):
        as_searcher("auto", NESTED, metric=["loss", "latency"], mode=["min", "min"])


def test_it_says_that_it_stops_nothing_where_it_does_not_know_how_long_trials_train(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    told(AutoSearch(), NESTED)
    assert "AutoSearch stops no trial early" in caplog.text
    caplog.clear()
    told(AutoSearch(), NESTED, scheduled=True)
    told(AutoSearch(max_t=5), NESTED)
    for limit in (5, 5.5, np.int64(5), tune.at_least(5)):
        told(AutoSearch(), NESTED, stop={"training_iteration": limit})
        told(AutoSearch(), NESTED, stop=[lambda trial_id, result: False, {"training_iteration": limit}])
    assert not caplog.text
    told(AutoSearch(), NESTED, stop={"training_iteration": tune.at_most(5)})
    assert "AutoSearch stops no trial early" in caplog.text


def test_its_model_takes_one_core_and_leaves_the_others_to_the_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[int]] = {"condition": set(), "predict": set(), "after": set()}

    def watched(name: str) -> Callable[..., Any]:
        method = getattr(CurveProcess, name)

        def look(*args: Any) -> Any:
            threads[name] |= blas_threads()
            return method(*args)

        return look

    for name in threads:
        monkeypatch.setattr(CurveProcess, name, watched(name))
    with threadpool_limits(2):
        given = blas_threads()
        run(tmp_path, trials=12)
        assert blas_threads() == given
    assert threads == {"condition": {1}, "predict": {1}, "after": {1}}


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_it_brings_a_scheduler_if_it_knows_a_largest_depth() -> None:
    def brought(searcher: Any, stop: Any) -> Any:
        return default_scheduler(searcher, NESTED, stop)

    assert isinstance(brought(AutoSearch(max_t=9), None), CurveStopping)
    assert isinstance(brought(AutoSearch(), {"training_iteration": 9}), CurveStopping)
    assert isinstance(brought(AutoSearch(), {"loss": {"at_most": 1}}), FIFOScheduler)
    assert isinstance(brought(create_searcher("optuna"), {"training_iteration": 9}), FIFOScheduler)


def test_with_a_scheduler_it_leaves_stopping_to_that(tmp_path: Path) -> None:
    found = run(tmp_path, scheduler=ASHAScheduler(max_t=9, reduction_factor=3), trials=12)
    lengths = {trial.last_result["training_iteration"] for trial in found.trials}
    assert lengths <= {1, 3, 9} and 1 in lengths


def test_it_ends_trials_early_and_finds_what_is_best(tmp_path: Path) -> None:
    found = run(tmp_path)
    lengths = [trial.last_result["training_iteration"] for trial in found.trials]
    assert max(lengths) == 27 and sum(lengths) < 27 * len(lengths) / 2
    assert found.best_result["loss"] < 1.0


def run(place: Path, *, trials: int = 40, workers: int = 3, **settings: Any) -> Any:
    def model(config: dict[str, Any]) -> Any:
        return [(1.0, {"loss": loss_of(config, iteration)}) for iteration in range(1, 28)]

    given: dict[str, Any] = {"search_alg": "auto", "stop": {"training_iteration": 27}, **settings}
    return tune.run(
        lambda config: None, config=NESTED, metric="loss", mode="min", num_samples=trials, seed=1, verbose=0,
        storage_path=str(place), name="found", executor=SimulatedExecutor(model, slots=workers, directories=False),
        **given,
    )  # fmt: skip


def halves(config: dict[str, Any]) -> Any:
    """The upper half of `x` costs a hundred times the lower one; both have the same best."""
    for iteration in range(1, 10):
        loss = (abs(config["x"] - 0.5) - 0.25) ** 2 + (config["y"] - 0.3) ** 2 + 1 / iteration
        yield 1.0, {"loss": loss, "price": {"usd": 100.0 if config["x"] > 0.5 else 1.0}}


def bought(place: Path, seed: int, *, trials: int = 40, budget: float = 1e9, **settings: Any) -> tuple[float, float]:
    """What a search has cost, and the best that it found."""
    stop = CostStopper(budget, "price/usd")
    found = tune.run(
        lambda config: None, config={"x": tune.uniform(0, 1), "y": tune.uniform(0, 1)}, metric="loss", mode="min",
        search_alg=AutoSearch(max_t=9, **settings), num_samples=trials, seed=seed, verbose=0, storage_path=str(place),
        name=f"{seed}-{trials}-{len(settings)}", stop=stop,
        executor=SimulatedExecutor(halves, slots=2, directories=False),
    )  # fmt: skip
    return stop.get_state()["all"], found.best_result["loss"] - 1 / 9


def test_where_half_of_the_space_costs_a_hundred_times_as_much_weighing_spends_less(tmp_path: Path) -> None:
    plain = [bought(tmp_path, seed) for seed in range(4)]
    weighed = [bought(tmp_path, seed, cost_attr="price/usd") for seed in range(4)]
    assert sum(cost for cost, _ in weighed) < 0.5 * sum(cost for cost, _ in plain)


def test_it_finds_more_for_the_same_money(tmp_path: Path) -> None:
    spend: Any = {"trials": 60, "budget": 3000.0}
    plain = [bought(tmp_path, seed, **spend)[1] for seed in range(4)]
    weighed = [bought(tmp_path, seed, cost_attr="price/usd", **spend)[1] for seed in range(4)]
    assert sum(weighed) < 0.6 * sum(plain)


@pytest.mark.parametrize("keeps", [True, False])
def test_what_earlier_trials_have_cost_is_learned_from(keeps: bool) -> None:
    class Trial:
        status = "TERMINATED"

        def __init__(self, number: int) -> None:
            self.trial_id, x = f"t{number}", (number + 0.5) / 16
            self.config = {"x": x, "y": (number * 5 % 16) / 16}
            self.last_result = {"training_iteration": 9, "loss": abs(self.config["y"] - 0.5)}
            self.last_result |= {"usd": 100.0 if x > 0.5 else 1.0} if keeps else {}

    space = {"x": tune.uniform(0, 1), "y": tune.uniform(0, 1)}
    searcher = told(AutoSearch(max_t=9, cost_attr="usd"), space)
    assert [searcher.learn_from(Trial(number)) for number in range(16)] == [None] * 16
    proposed = [searcher.suggest(f"new {number}") for number in range(12)]
    cheap = sum(isinstance(config, dict) and config["x"] <= 0.5 for config in proposed)
    assert cheap == 12 if keeps else cheap < 12


def test_a_cost_that_never_comes_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(MetricMissingError, match=r"cost_attr='prize/usd' is not in .*: did you mean 'price/usd'"):
        bought(tmp_path, 1, cost_attr="prize/usd")


@pytest.mark.parametrize("cost_attr", ["", 3, ["cost"]])
def test_what_is_no_name_of_a_cost_is_refused(cost_attr: Any) -> None:
    with pytest.raises(SettingError, match="cost_attr="):
        AutoSearch(cost_attr=cost_attr)


@pytest.mark.parametrize("name", ["random", "optuna", "hyperopt", "bayesopt"])
def test_a_searcher_that_cannot_weigh_refuses_a_cost(name: str) -> None:
    with pytest.raises(SettingError, match=f"cost_attr='usd' is not accepted for search_alg='{name}'.*; 'auto' can"):
        create_searcher(name, cost_attr="usd")
