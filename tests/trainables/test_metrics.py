"""Every component finds a metric by `lookup`: these are its rules."""

from __future__ import annotations

import math

import numpy
import pytest

from trainables.metrics import MISSING, lookup, metric_names, nearest_keys, score_of

FOUND = [
    ("a", {"a": 1}),
    ("a/b/c", {"a": {"b": {"c": 1}}}),
    ("a/b/c", {"a/b/c": 1}),
    ("a/b/c", {"a/b": {"c": 1}}),
    ("a/b/c", {"a": {"b/c": 1}}),
    ("a.b.c", {"a.b.c": 1}),
    ("a.b.c", {"a": {"b": {"c": 1}}}),
    ("a.b.c", {"a/b/c": 1}),
    ("a.b/c", {"a.b": {"c": 1}}),
    ("a/b.c", {"a": {"b.c": 1}}),
    ("a/b/c", {"a.b": {"c": 1}}),
    ("v1.0/acc", {"v1.0": {"acc": 1}, "v1": {"0/acc": 2}}),
    ("a/b", {"a/b": 1, "a": {"b": 2}}),
    ("a/b/c", {"a": {"b": {"c": 1}}, "a/b": {"d": 2}}),
    ("a/b", {"a": {"b": 1}, "a/c": 2}),
    ("/a", {"/a": 1}),
    ("evaluation/episode_reward_mean", {"evaluation": {"episode_reward_mean": 1}}),
]


@pytest.mark.parametrize(("name", "metrics"), FOUND)
def test_f12_nested_flat_and_dotted_names_all_resolve(name: str, metrics: dict[str, object]) -> None:
    assert lookup(metrics, name) == 1
    assert score_of(metrics, name) == 1.0


@pytest.mark.parametrize("name", ["b", "a/x", "a/b/c/d", "", "/", ".", "a//", "x.y"])
def test_what_is_not_there_is_missing(name: str) -> None:
    metrics = {"a": {"b": {"c": 1}}}
    assert lookup(metrics, name) is MISSING or name == "a//"
    assert score_of(metrics, name) is None


def test_missing_is_false_and_says_so() -> None:
    assert not MISSING
    assert repr(MISSING) == "MISSING"


def test_none_and_false_are_values_and_not_missing() -> None:
    assert lookup({"a": None, "b": False}, "a") is None
    assert lookup({"a": None, "b": False}, "b") is False


@pytest.mark.parametrize("value", [True, False, None, "0.9", [1], {"x": 1}, 1j, numpy.True_])
def test_only_numbers_are_scores(value: object) -> None:
    assert score_of({"m": value}, "m") is None


@pytest.mark.parametrize("value", [1, 1.0, numpy.float32(1), numpy.int64(1), numpy.float64(1)])
def test_every_kind_of_number_is_a_score(value: object) -> None:
    score = score_of({"m": value}, "m")
    assert score == 1.0
    assert type(score) is float


def test_nan_stays_nan_and_huge_ints_are_infinite() -> None:
    score = score_of({"m": math.nan}, "m")
    assert score is not None and math.isnan(score)
    assert score_of({"m": 10**400}, "m") == math.inf
    assert score_of({"m": -(10**400)}, "m") == -math.inf


def test_names_are_listed_with_their_path() -> None:
    assert metric_names({"a": 1, "e": {"x": 1, "y": {"z": 2}}, "n": {}}) == ["a", "e/x", "e/y/z", "n"]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("acuracy", "accuracy"),
        ("Accuracy", "accuracy"),
        ("auc", "eval/auc"),
        ("val_loss", "loss"),
        ("eval/acu", "eval/auc"),
    ],
)
def test_the_nearest_key_comes_first(wrong: str, right: str) -> None:
    metrics = {"training_iteration": 3, "loss": 0.1, "accuracy": 0.9, "eval": {"auc": 0.8}, "pid": 1}
    assert nearest_keys(metrics, wrong)[0] == right


def test_without_a_near_key_the_first_ones_are_listed() -> None:
    assert nearest_keys({"aa": 1, "bb": 2, "cc": 3}, "zzzzzz", limit=2) == ["aa", "bb"]


def test_what_is_reported_of_itself_comes_last_unless_it_is_near() -> None:
    metrics = {"done": False, "training_iteration": 1, "acc": 1, "pid": 7}
    assert nearest_keys(metrics, "zzzzzz", limit=2) == ["acc", "done"]
    assert nearest_keys(metrics, "training_iterations")[0] == "training_iteration"
