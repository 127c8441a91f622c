"""Wrappers that limit a searcher: how many trials at a time, in batches, or in all."""

from __future__ import annotations

import copy
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
import tuner.search
from tests.tuner.search.searchers import Ladder, Noting, optuna_search
from tuner.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher, as_searcher
from tuner.search.limiter import SampleLimit, Wrapper, tell_properties
from tuner.search.optuna import OptunaSearch


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


@given(st.integers(1, 4), st.booleans(), st.lists(st.integers(0, 5), max_size=40))
def test_never_more_are_unfinished_than_were_allowed_and_every_end_is_told_once(
    most: int, batch: bool, moves: list[int]
) -> None:
    inner = Noting()
    searcher = ConcurrencyLimiter(inner, most, batch=batch)
    live: list[str] = []
    created = 0
    ended: list[str] = []
    for move in moves:
        if move < 3:
            suggestion = searcher.suggest(f"t{created}")
            held = len(ended) - len(inner.told)
            assert (suggestion is None) == (len(live) + held >= most)
            if suggestion is not None:
                live.append(f"t{created}")
                created += 1
        elif live:
            name = live.pop(move % len(live))
            searcher.on_trial_complete(name, {"loss": 1.0})
            ended.append(name)
        assert len(live) <= most
    for name in live:
        searcher.on_trial_complete(name, {"loss": 1.0})
    told = [name for name, _, _ in inner.told]
    assert sorted(told) == sorted(ended + live), "what waited for its batch is told when that is over"
    if not batch:
        assert told == ended + live


def test_who_is_replayed_counts_as_unfinished_until_it_ends() -> None:
    searcher = ConcurrencyLimiter(Ladder(), 2)
    assert searcher.replay_suggest("a", {"x": 1.0, "nested": {"y": [1.0]}})
    assert not searcher.replay_suggest("b", {"x": 0.0})
    assert searcher.suggest("c") is None
    searcher.on_trial_complete("a")
    assert searcher.suggest("c") == {"x": 3.0, "nested": {"y": [3.0]}}


def test_a_trial_that_it_does_not_know_is_passed_on() -> None:
    inner = Noting()
    ConcurrencyLimiter(inner, 1, batch=True).on_trial_complete("stranger", {"loss": 2.0})
    assert inner.told == [("stranger", {"loss": 2.0}, False)]


def test_the_limit_may_change_while_trials_run() -> None:
    searcher = ConcurrencyLimiter(Ladder(), 1)
    assert searcher.suggest("a") and searcher.suggest("b") is None
    assert searcher.set_max_concurrency(2) is True
    assert searcher.suggest("b") and searcher.suggest("c") is None


def test_an_inner_searcher_that_limits_by_itself_is_told_and_left_to_it() -> None:
    class Limits(Noting):
        told_of = 0

        def set_max_concurrency(self, max_concurrent: int) -> bool:
            self.told_of = max_concurrent
            return True

    inner = Limits()
    searcher = ConcurrencyLimiter(inner, 2, batch=True)
    assert inner.told_of == 2
    assert all(searcher.suggest(name) for name in "abcd")
    searcher.on_trial_complete("a", {"loss": 1.0})
    assert inner.told == [("a", {"loss": 1.0}, False)], "no batch of ours"
    searcher.set_max_concurrency(5)
    assert inner.told_of == 5


def test_a_sample_that_will_not_run_is_not_prepared_and_a_replay_counts() -> None:
    class Preparing(Ladder):
        def prepare(self, trial_id: str) -> None:
            self.prepared = [*getattr(self, "prepared", []), trial_id]

    inner = Preparing()
    searcher = SampleLimit(inner, 2)
    assert searcher.total == 2 and searcher.counts_samples
    assert searcher.replay_suggest("a", {"x": 1.0, "nested": {"y": [1.0]}})
    searcher.prepare("b")
    assert searcher.suggest("b") and searcher.suggest("c") == Searcher.FINISHED
    searcher.prepare("c")
    assert inner.prepared == ["b"]
    searcher.num_samples = -1
    assert searcher.total is None
    searcher.prepare("c")
    assert inner.prepared == ["b", "c"] and searcher.suggest("c")


def test_a_searcher_that_has_nothing_now_uses_up_no_sample() -> None:
    class Pausing(Ladder):
        def suggest(self, trial_id: str) -> Any:
            return None if trial_id == "later" else super().suggest(trial_id)

    searcher = SampleLimit(ConcurrencyLimiter(Pausing(), 9), 1)
    assert searcher.suggest("later") is None
    assert searcher.suggest("a") and searcher.suggest("b") == Searcher.FINISHED


def test_the_runs_properties_reach_searchers_of_any_age() -> None:
    told: dict[str, Any] = {}

    class Old(Ladder):
        def set_search_properties(self, metric: Any, mode: Any, config: Any) -> bool:  # type: ignore[override]
            told["old"] = (metric, mode, config)
            return True

    class Half(Ladder):
        def set_search_properties(self, metric: Any, mode: Any, config: Any, seed: Any = None) -> bool:  # type: ignore[override]
            told["half"] = seed
            return False

    class New(Ladder):
        def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:  # type: ignore[override]
            told["new"] = spec
            return True

    answers = [tell_properties(kind(), "loss", "min", {}, seed=3, num_samples=4) for kind in (Old, Half, New)]
    assert answers == [True, False, True]
    assert told == {"old": ("loss", "min", {}), "half": 3, "new": {"seed": 3, "num_samples": 4}}
    wrapped = Wrapper(Wrapper(New()))
    assert wrapped.set_search_properties("loss", "min", {}, seed=5) is True
    assert told["new"] == {"seed": 5} and isinstance(wrapped.unwrapped, New)
    with pytest.raises(AttributeError):
        wrapped.nothing_like_it  # noqa: B018


def test_no_samples_at_all_are_no_suggestion() -> None:
    class Refusing(Ladder):
        def prepare(self, trial_id: str) -> None:
            raise AssertionError("nobody will run it")

    searcher = SampleLimit(Refusing(), 0)
    searcher.prepare("a")
    assert (searcher.total, searcher.suggest("a")) == (0, Searcher.FINISHED)


def test_a_wrapper_may_be_copied_and_pickled() -> None:
    searcher = ConcurrencyLimiter(Ladder(), 1)
    searcher.suggest("a")
    for again in (copy.deepcopy(searcher), cloudpickle.loads(cloudpickle.dumps(searcher))):
        assert again.suggest("b") is None
        again.on_trial_complete("a")
        assert again.suggest("b") == {"x": 2.0, "nested": {"y": [2.0]}}
    with pytest.raises(AttributeError, match="searcher"):
        _ = Wrapper.__new__(Wrapper).metric
