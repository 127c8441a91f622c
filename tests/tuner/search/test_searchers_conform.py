"""Every searcher of ours under the shipped suite, and how they are named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import tuner as tune
import tuner.search
from tests.tuner.search.searchers import optuna_search
from tuner.error import SettingError
from tuner.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher, as_searcher, create_searcher
from tuner.search.optuna import OptunaSearch
from tuner.testing import check_searcher

OURS: dict[str, Callable[[], Searcher]] = {
    "random": BasicVariantGenerator,
    "random, two at a time": lambda: BasicVariantGenerator(max_concurrent=2),
    "random, with points": lambda: BasicVariantGenerator(points_to_evaluate=[{"x": 0.5}, {"model": {"lr": 0.01}}]),
    "optuna": OptunaSearch,
    "optuna, max": lambda: OptunaSearch(mode="max"),
    "optuna, with points": lambda: optuna_search(points_to_evaluate=[{"x": 0.5}]),
    "limited": lambda: ConcurrencyLimiter(OptunaSearch(), 2),
    "limited random": lambda: ConcurrencyLimiter(BasicVariantGenerator(), 2),
    "in batches": lambda: ConcurrencyLimiter(OptunaSearch(), 3, batch=True),
    "repeated": lambda: Repeater(optuna_search(), 3),
    "repeated, limited": lambda: ConcurrencyLimiter(Repeater(optuna_search(), 2), 2),
}


@pytest.mark.parametrize("make", OURS.values(), ids=OURS)
def test_it_meets_its_obligations(make: Callable[[], Searcher]) -> None:
    check_searcher(make)


def test_so_do_those_with_a_space_of_their_own() -> None:
    def define(trial: Any) -> None:
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            trial.suggest_float("x", 0, 1)

    check_searcher(lambda: optuna_search(space=define), {"constant": 1})
    check_searcher(lambda: optuna_search(space={"x": tune.randint(0, 9)}), {"constant": 1})


def test_the_exported_names() -> None:
    assert tuner.search.__all__ == [
        "AutoSearch",
        "BasicVariantGenerator",
        "ConcurrencyLimiter",
        "Repeater",
        "SearchAlgorithm",
        "SearchGenerator",
        "Searcher",
        "as_searcher",
        "create_searcher",
        "grid_search",
    ]


def test_rays_module_paths() -> None:
    from tuner.schedulers.async_hyperband import ASHAScheduler
    from tuner.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler
    from tuner.search.basic_variant import BasicVariantGenerator as Basic
    from tuner.search.concurrency_limiter import ConcurrencyLimiter as Limiter
    from tuner.search.variant_generator import grid_search

    assert (Basic, Limiter, grid_search) == (BasicVariantGenerator, ConcurrencyLimiter, tune.grid_search)
    assert issubclass(ASHAScheduler, TrialScheduler) and issubclass(FIFOScheduler, TrialScheduler)


def test_create_searcher() -> None:
    made = create_searcher("optuna", metric="loss", mode="min", max_concurrent=3)
    assert isinstance(made, OptunaSearch) and made.metric == "loss"
    assert isinstance(create_searcher("Random", metric="loss", max_concurrent=3), BasicVariantGenerator)
    assert isinstance(as_searcher("variant_generator", {}), BasicVariantGenerator)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: create_searcher("optona"), "did you mean 'optuna'"),
        (lambda: create_searcher("hebo"), "not shipped"),
        (lambda: create_searcher("optuna", sample=3), "did you mean 'sampler'"),
        (lambda: as_searcher(3, {}), "accepted are a Searcher"),
        (lambda: as_searcher(OptunaSearch, {}), "create an instance"),
        (lambda: as_searcher(optuna_search(), {}, metric="acc", mode="min"), "metric='acc' was given"),
        (lambda: as_searcher(optuna_search(), {}, metric="loss", mode="max"), "mode='max' was given"),
        (lambda: as_searcher(None, lambda trial: None), "OptunaSearch needs a metric"),
        (lambda: as_searcher(optuna_search(space={"x": tune.uniform(0, 1)}), {"m": {"y": tune.uniform(0, 1)}}), "m/y"),
        (lambda: ConcurrencyLimiter(optuna_search(), 0), "max_concurrent=0"),
        (lambda: ConcurrencyLimiter(None, 1), "searcher=None"),  # type: ignore[arg-type]
        (lambda: Repeater(optuna_search(), 0), "repeat=0"),
        (lambda: Searcher(metric=3), "metric=3"),  # type: ignore[arg-type]
        (lambda: Searcher(metric="a", mode="up"), "mode='up'"),
    ],
)
def test_what_does_not_fit_is_said_at_once(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


def test_a_mode_alone_means_the_unnamed_metric() -> None:
    assert as_searcher(OptunaSearch(mode="min"), {"x": tune.uniform(0, 1)}).metric == "_metric"


def test_state_to_a_file_and_back(tmp_path: Any) -> None:
    space = {"x": tune.uniform(0, 1)}
    first, second = (as_searcher(BasicVariantGenerator(), space, num_samples=5, seed=seed) for seed in (1, 2))
    first.suggest("a")
    first.save(tmp_path / "state")
    second.restore(tmp_path / "state")
    assert second.suggest("b") == first.suggest("b")


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    script = (
        "import sys, tuner.search, tuner.search.optuna, tuner.schedulers, tuner.stopper, tuner as tune\n"
        "searcher = tuner.search.as_searcher(None, {'x': tune.uniform(0, 1), 'n': tune.randn()}, seed=1)\n"
        "searcher.suggest('a'); tuner.schedulers.create_scheduler('asha', metric='a', mode='min')\n"
        "print(sorted({'numpy', 'optuna', 'pandas', 'torch', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
