"""The interface of searchers: metrics and modes, what a suggestion is compared with, and learning from trials."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.search.searchers import Ladder
from tuner.error import SettingError
from tuner.search import Searcher
from tuner.search.searcher import check_metric_and_mode, contains, names_of, values_of


@dataclass
class Finished:
    """As much of a trial as a searcher learns from."""

    trial_id: str
    last_result: dict[str, Any]
    config: dict[str, Any] = field(default_factory=lambda: {"x": 1})
    status: str = "TERMINATED"


class Learning(Ladder):
    def __init__(self, metric: Any = "loss", mode: Any = "min") -> None:
        Searcher.__init__(self, metric, mode)
        self.learned: list[tuple[dict[str, Any], Any]] = []

    def add_evaluated_point(self, parameters: Any, value: Any, *more: Any, **named: Any) -> None:
        self.learned.append((dict(parameters), value))


# --- metric and mode


def test_the_runs_metric_and_mode_fill_in_what_is_not_given() -> None:
    bare, half, own = Searcher(), Searcher(mode="max"), Searcher("acc", "max")
    for searcher in (bare, half, own):
        assert searcher.set_search_properties("loss", "min", {}) is False, "it has no use for the run's space"
    assert [(each.metric, each.mode) for each in (bare, half, own)] == [
        ("loss", "min"),
        ("loss", "max"),
        ("acc", "max"),
    ]


def test_a_mode_alone_means_the_unnamed_metric_where_one_is_needed() -> None:
    class Needing(Searcher):
        needs_metric = True

    needing, bare, several = Needing(), Searcher(), Needing()
    needing.set_search_properties(None, "min", {})
    bare.set_search_properties(None, "min", {})
    assert (needing.metric, bare.metric) == ("_metric", None)
    several.set_search_properties(["a", "b"], ["min", "max"], {})
    assert list(several.metric or ()) == ["a", "b"]


@pytest.mark.parametrize(
    ("metric", "mode"),
    [(None, None), ("a", None), ("a", "min"), (None, "max"), (["a"], ["min"]), (("a", "b"), ("min", "max"))],
)
def test_what_fits_together_is_accepted(metric: Any, mode: Any) -> None:
    check_metric_and_mode("Mine", metric, mode)
    searcher = Searcher(metric, mode)
    assert (searcher.metric, searcher.mode) == (metric, mode)


@pytest.mark.parametrize(
    ("metric", "mode", "message"),
    [
        ("a", "up", "Mine: mode='up'"),
        ("a", 3, "Mine: mode=3"),
        (["a"], {"min"}, "Mine: mode={'min'}"),
        ("a", ["min"], r"metric='a' is one metric, but mode=\['min'\] are several"),
        (["a", "b"], "min", "needs one mode each"),
        (["a", "b"], ["min"], "needs one mode each"),
        (["a", "b"], ["min", "down"], "mode='down'"),
        ([], None, r"metric=\[\] is not accepted"),
        (["a", 3], None, "it is a name or a list of names"),
        (3, None, "metric=3"),
    ],
)
def test_what_does_not_fit_is_named(metric: Any, mode: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        check_metric_and_mode("Mine", metric, mode)


def test_metrics_are_a_list_of_names_and_of_values() -> None:
    assert [names_of(metric) for metric in (None, "a", ["a", "b"], ("a",))] == [[], ["a"], ["a", "b"], ["a"]]
    result = {"a": 1, "deep": {"b": 2.5}, "text": "x", "nan": math.nan}
    assert values_of(["a", "deep/b", "text", "missing"], result) == [1.0, 2.5, None, None]
    (nan,) = values_of("nan", result)
    assert nan is not None and math.isnan(nan)
    assert values_of(None, result) == []


# --- suggestions


def test_a_searcher_without_suggest_says_so() -> None:
    with pytest.raises(NotImplementedError, match="does not define suggest"):
        Searcher().suggest("t")


def test_a_replay_asks_and_says_whether_the_answer_stands_in_the_config() -> None:
    searcher = Ladder()
    assert searcher.replay_suggest("a", {"x": 1.0, "nested": {"y": [1.0], "constant": 3}, "more": 2})
    assert not searcher.replay_suggest("b", {"x": 1.0, "nested": {"y": [2.0]}})
    assert searcher.suggest("c") == {"x": 3.0, "nested": {"y": [3.0]}}

    class Over(Ladder):
        def suggest(self, trial_id: str) -> Any:
            return Searcher.FINISHED

    assert Over().replay_suggest("a", {"x": 1.0}) is False


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, math.nan, math.inf])
    | st.text("ab", max_size=2)
)
TREES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def widened(value: Any) -> Any:
    """The same with one more key in every dict."""
    if isinstance(value, dict):
        return {**{key: widened(item) for key, item in value.items()}, "new": 1}
    return [widened(item) for item in value] if isinstance(value, list) else value


def leaves(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 1 if inner is None else sum(map(leaves, inner))


def without(value: Any, number: int) -> Any:
    """The same with another value at one of its leaves."""
    if not isinstance(value, (dict, list)):
        return ("other",)
    made, left = (dict(value) if isinstance(value, dict) else list(value)), number
    for key, item in list(made.items() if isinstance(made, dict) else enumerate(made)):
        if left < leaves(item):
            made[key] = without(item, left)
            return made
        left -= leaves(item)
    return made


@given(TREES, st.data())
def test_a_config_contains_what_it_was_made_of_and_nothing_else(suggestion: Any, data: st.DataObject) -> None:
    assert contains(suggestion, suggestion)
    assert contains(widened(suggestion), suggestion)
    if leaves(suggestion):
        changed = without(suggestion, data.draw(st.integers(0, leaves(suggestion) - 1)))
        assert not contains(changed, suggestion)


@pytest.mark.parametrize(
    ("config", "suggestion", "contained"),
    [
        (math.nan, math.nan, True),
        (np.float32(math.nan), math.nan, True),
        (Decimal("nan"), Decimal("nan"), True),
        (math.nan, 1.0, False),
        ((1, 2), [1, 2], True),
        ([1, 2, 3], [1, 2], False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"b": 1}, False),
        ({}, {}, True),
        (3, {"a": 1}, False),
        ({"a": 1}, 3, False),
        ({"a": 1}, [1], False),
        ([1], {0: 1}, False),
        ({"a": np.array([1, 2])}, {"a": np.array([1, 2])}, True),
        ({"a": np.array([1, 2])}, {"a": np.array([1, 3])}, False),
        (np.array([1, 2]), 3, False),
    ],
)
def test_nan_and_arrays_are_found_again(config: Any, suggestion: Any, contained: bool) -> None:
    assert contains(config, suggestion) is contained


# --- learning from trials


def test_it_learns_from_a_finished_trial_that_has_its_metric() -> None:
    searcher = Learning()
    assert searcher.learn_from(Finished("a", {"loss": 2})) is None
    assert searcher.learned == [({"x": 1}, 2.0)]
    several = Learning(["loss", "size"], ["min", "max"])
    assert several.learn_from(Finished("a", {"loss": 2, "size": 3})) is None
    assert several.learned == [({"x": 1}, [2.0, 3.0])]


@pytest.mark.parametrize("result", [{}, {"loss": math.nan}, {"loss": "text"}, {"size": 1}])
def test_what_teaches_nothing_is_told_with_the_metric(result: dict[str, Any]) -> None:
    searcher = Learning()
    assert searcher.learn_from(Finished("ab_00003", result)) == "ab_00003 has no loss"
    several = Learning(["loss", "size"], ["min", "max"])
    assert several.learn_from(Finished("ab_00003", result)) == "ab_00003 has no loss and size"
    assert Learning(None, None).learn_from(Finished("ab_00003", {"loss": 1})) == "ab_00003 has no metric"
    assert searcher.learned == several.learned == []


def test_trials_of_an_analysis_are_learned_from_where_they_finished_well() -> None:
    trials = [
        Finished("a", {"loss": 1.0}, {"x": 1}),
        Finished("b", {"loss": 2.0}, {"x": 2}, status="ERROR"),
        Finished("c", {"loss": math.nan}, {"x": 3}),
        Finished("d", {}, {"x": 4}),
        Finished("e", {"loss": 5}, {"x": 5}),
    ]

    class Analysis:
        def __init__(self) -> None:
            self.trials = trials

    for given_as in (trials, Analysis(), iter(trials)):
        searcher = Learning()
        searcher.add_evaluated_trials(given_as, "loss")
        assert searcher.learned == [({"x": 1}, 1.0), ({"x": 5}, 5.0)]
    one = Learning()
    one.add_evaluated_trials(trials[0], "loss")
    assert one.learned == [({"x": 1}, 1.0)]
    with pytest.raises(SettingError, match="no finished trial has the metric 'size'"):
        one.add_evaluated_trials(trials, "size")


def test_who_learns_from_its_own_trials_only_says_so() -> None:
    with pytest.raises(SettingError, match="Ladder does not define add_evaluated_point"):
        Ladder().add_evaluated_trials(Finished("a", {"loss": 1}), "loss")


def test_what_it_is_told_is_passed_over_unless_it_wants_it() -> None:
    searcher = Ladder()
    before = searcher.get_state()
    searcher.prepare("b")
    searcher.on_pause("a")
    searcher.on_unpause("a")
    searcher.on_trial_result("a", {"loss": 1})
    searcher.on_trial_complete("a", None, error=True)
    searcher.on_search_end()
    assert searcher.get_state() == before
    assert searcher.set_max_concurrency(3) is False, "limited outside then"
