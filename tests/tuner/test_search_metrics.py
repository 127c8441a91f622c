"""Results that lack the searched metric, or nest it, under every kind of search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tuner as tune
from tuner.search import ConcurrencyLimiter, Repeater, Searcher
from tuner.search.optuna import OptunaSearch

SEARCHERS: dict[str, Callable[[], Searcher | None]] = {
    "random": lambda: None,
    "optuna": lambda: OptunaSearch(),
    "ahead": lambda: OptunaSearch(ask_ahead=True),
    "limited": lambda: ConcurrencyLimiter(OptunaSearch(), 2),
    "repeated": lambda: Repeater(OptunaSearch(metric="eval/loss", mode="min"), 2),
}


def run(
    path: Any, name: str, search_alg: Searcher | None, spelled: Callable[[float], dict[str, Any]], **settings: Any
) -> Any:
    def train(config: dict[str, Any]) -> None:
        for n in range(1, 6):  # every third result has it, the last one has not
            tune.report({"n": n, **(spelled(config["x"] / n) if n % 3 == 1 and n < 5 else {})})

    return tune.run(
        train,
        name=name,
        storage_path=path,
        config={"x": tune.uniform(0, 1)},
        search_alg=search_alg,
        num_samples=6,
        seed=2,
        executor="inline",
        verbose=0,
        **{"metric": "eval/loss", "mode": "min", **settings},
    )


@pytest.mark.parametrize("name", SEARCHERS)
def test_f11_f12_a_metric_that_comes_seldom_and_is_nested_ends_no_search(tmp_path: Any, name: str) -> None:
    spellings: dict[str, Callable[[float], dict[str, Any]]] = {
        "nested": lambda loss: {"eval": {"loss": loss}},
        "flat": lambda loss: {"eval/loss": loss},
        "dotted": lambda loss: {"eval.loss": loss},
    }
    found = {}
    for spelling, spelled in spellings.items():
        analysis = run(tmp_path, spelling, SEARCHERS[name](), spelled)
        assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 6
        found[spelling] = [trial.config["x"] for trial in analysis.trials]
    assert found["nested"] == found["flat"] == found["dotted"]


def test_what_a_trial_reported_on_the_way_is_learned_although_its_last_result_lacks_it(tmp_path: Any) -> None:
    searcher = OptunaSearch()
    run(tmp_path, "e", searcher, lambda loss: {"eval": {"loss": loss}})
    study: Any = searcher._ready()
    assert [sorted(trial.intermediate_values) for trial in study.trials] == [[1, 4]] * 6
    assert all(trial.value == trial.intermediate_values[4] for trial in study.trials)
