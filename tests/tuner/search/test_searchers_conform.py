"""Every searcher of ours under the shipped suite, the suite under faulty ones, and how they are named and wrapped."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import tuner as tune
import tuner.search
from tuner.error import SettingError
from tuner.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher, as_searcher, create_searcher
from tuner.search.limiter import SampleLimit
from tuner.search.optuna import OptunaSearch
from tuner.search.repeater import TRIAL_INDEX
from tuner.testing import check_searcher


def optuna_search(**kwargs: Any) -> OptunaSearch:
    return OptunaSearch(metric="loss", mode="min", **kwargs)


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


class Ladder(Searcher):
    """The simplest searcher of a user's, as Ray's documentation writes them."""

    def __init__(self) -> None:
        super().__init__(metric="loss", mode="min")
        self.next = 0.0

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        self.next += 1.0
        return {"x": self.next, "nested": {"y": [self.next]}}

    def set_search_properties(self, metric: Any, mode: Any, config: Any) -> bool:  # type: ignore[override]
        return True


class Forgetful(Ladder):
    def get_state(self) -> dict[str, Any]:
        return {}


class Sharing(Ladder):
    def __init__(self) -> None:
        super().__init__()
        self.config = {"x": 1.0}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        self.config["x"] = self.config.get("x", 0.0) + 1
        return self.config


class Random(Ladder):
    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        import random

        return {"x": random.random()}


class Writing(Ladder):
    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        result.clear()


class Lazy(Ladder):
    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        return None


class Counting(Ladder):
    """Depends on how often it was told, which a replay of the calls repeats and its state leaves out."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.next += 0.5

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        return True


def test_a_searcher_of_ones_own_needs_one_method() -> None:
    check_searcher(Ladder, {})


@pytest.mark.parametrize(
    ("make", "obligation"),
    [
        (Forgetful, "goes on from its state"),
        (Sharing, "is the caller's"),
        (Random, "the same calls give the same"),
        (Writing, "does not change what it is told"),
        (Lazy, "without unfinished trials"),
        (Counting, "goes on after a replay"),
    ],
)
def test_the_suite_finds_faults(make: Callable[[], Searcher], obligation: str) -> None:
    with pytest.raises(AssertionError, match=obligation):
        check_searcher(make, {})


# --- limits ---------------------------------------------------------------------------------------------------


def test_a_searcher_that_does_not_count_ends_after_num_samples() -> None:
    searcher = as_searcher(Ladder(), {}, num_samples=3)
    assert [searcher.suggest(str(number)) is not None for number in range(3)] == [True] * 3
    assert searcher.suggest("4") is Searcher.FINISHED
    grown = as_searcher(Ladder(), {}, num_samples=5)
    grown.set_state(searcher.get_state())
    assert [grown.suggest(str(number)) for number in range(4, 7)] == [
        {"x": 4.0, "nested": {"y": [4.0]}},
        {"x": 5.0, "nested": {"y": [5.0]}},
        Searcher.FINISHED,
    ]
    assert all(as_searcher(Ladder(), {}, num_samples=-1).suggest(str(number)) for number in range(50))


def test_a_limit_waits_until_a_trial_ends() -> None:
    searcher = ConcurrencyLimiter(Ladder(), 2)
    assert searcher.suggest("a") and searcher.suggest("b")
    assert searcher.suggest("c") is None
    searcher.on_trial_complete("b", error=True)
    assert searcher.suggest("c")
    assert searcher.suggest("d") is None


class Noting(Ladder):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, Any, bool]] = []

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.told.append((trial_id, result, error))


def test_a_batch_is_told_together() -> None:
    inner = Noting()
    searcher = ConcurrencyLimiter(inner, 2, batch=True)
    for name in "ab":
        assert searcher.suggest(name)
    searcher.on_trial_complete("a", {"loss": 1.0})
    assert inner.told == [] and searcher.suggest("c") is None
    searcher.on_trial_complete("b", error=True)
    assert inner.told == [("a", {"loss": 1.0}, False), ("b", None, True)]
    assert searcher.suggest("c")


def test_a_limit_leaves_it_to_a_searcher_that_can() -> None:
    inner = BasicVariantGenerator()
    searcher = as_searcher(ConcurrencyLimiter(inner, 2), {"g": tune.grid_search([1, 2, 3])}, num_samples=2)
    assert inner.max_concurrent == 2
    assert searcher.suggest("a") and searcher.suggest("b") and searcher.suggest("c") is None
    for number in range(10):
        searcher.on_trial_complete("abcdefghij"[number])
        searcher.suggest("cdefghijkl"[number])
    assert searcher.suggest("z") == Searcher.FINISHED
    assert searcher.total == 6  # type: ignore[attr-defined]


def test_repeats_share_a_config_and_report_their_mean() -> None:
    inner = Noting()
    searcher = Repeater(inner, repeat=3)
    configs = [searcher.suggest(name) for name in "abcd"]
    assert [(c["x"], c[TRIAL_INDEX]) for c in configs if isinstance(c, dict)] == [
        (1.0, 0),
        (1.0, 1),
        (1.0, 2),
        (2.0, 0),
    ]
    searcher.on_trial_result("a", {"loss": 100.0, "training_iteration": 1})
    for name, loss in (("c", 1.0), ("a", math.nan), ("b", 5.0)):
        assert inner.told == []
        searcher.on_trial_complete(name, {"loss": loss, "training_iteration": 2})
    ((name, result, error),) = inner.told
    assert (name, result["loss"], error) == ("a", 3.0, False)


def test_repeats_that_all_fail_are_a_failure() -> None:
    inner = Noting()
    searcher = Repeater(inner, repeat=2, set_index=False)
    assert [searcher.suggest(name) for name in "ab"] == [{"x": 1.0, "nested": {"y": [1.0]}}] * 2
    for name in "ab":
        searcher.on_trial_complete(name, error=True)
    assert inner.told == [("a", None, True)]


def test_wrappers_show_what_they_wrap() -> None:
    searcher = as_searcher(ConcurrencyLimiter(optuna_search(), 2), {"x": tune.uniform(0, 1)}, num_samples=3)
    assert isinstance(searcher, SampleLimit)
    assert isinstance(searcher.unwrapped, OptunaSearch)
    assert (searcher.metric, searcher.mode) == ("loss", "min")
    assert not hasattr(searcher, "on_rollback")

    class Undoing(Ladder):
        def on_rollback(self, trial: Any, iteration: int) -> None:
            self.undone = iteration

    undoing = as_searcher(Undoing(), {})
    undoing.on_rollback(None, 4)  # type: ignore[attr-defined]
    assert undoing.unwrapped.undone == 4  # type: ignore[attr-defined]


# --- names and arguments ---------------------------------------------------------------------------------------


def test_the_exported_names() -> None:
    assert tuner.search.__all__ == [
        "BasicVariantGenerator",
        "ConcurrencyLimiter",
        "Repeater",
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
        (lambda: create_searcher("hyperopt"), "not shipped"),
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


def test_a_searcher_without_suggest_says_so() -> None:
    with pytest.raises(NotImplementedError, match="does not define suggest"):
        Searcher().suggest("t")


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
