"""Which checkpoints are made and stay: what each setting accepts and means."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.config import (
    Budget,
    CheckpointConfig,
    CheckpointStrategy,
    parse_score_attr,
)
from trainables.errors import InvalidSettingError
from trainables.store.retention import Latest


@pytest.mark.parametrize("value", [0, -1, True, "2", 1.5])
def test_f09_the_message_about_a_limit_names_what_is_accepted(value: Any) -> None:
    with pytest.raises(ValueError, match=r"None \(all are kept\), or a whole number >= 1"):
        CheckpointConfig(num_to_keep=value)


def test_f09_only_the_first_generation_accepts_zero() -> None:
    assert CheckpointStrategy(num_to_keep=0).num_to_keep == 0
    with pytest.raises(ValueError, match=r"0 \(none stays on disk\)"):
        CheckpointStrategy(num_to_keep=-1)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("auc", ("auc", "max")),
        ("max-auc", ("auc", "max")),
        ("min-loss", ("loss", "min")),
        ("min-eval/loss", ("eval/loss", "min")),
        ("max-min-gap", ("min-gap", "max")),
        ("minimal", ("minimal", "max")),
    ],
)
def test_d01_both_prefixes_of_a_score_attribute_work(text: str, parsed: tuple[str, str]) -> None:
    assert parse_score_attr(text) == parsed
    assert CheckpointConfig(checkpoint_score_attribute=text).score == parsed


@pytest.mark.parametrize("text", ["", "max-", "min-", None, 3])
def test_a_score_attribute_that_names_nothing_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"checkpoint_score_attr=.*accepted"):
        parse_score_attr(text)


def test_f07_an_order_that_contradicts_the_prefix_makes_it_a_part_of_the_name() -> None:
    assert CheckpointConfig(checkpoint_score_attribute="loss", checkpoint_score_order="min").score == ("loss", "min")
    assert CheckpointConfig(checkpoint_score_attribute="min-loss", checkpoint_score_order="min").score == (
        "loss",
        "min",
    )
    config = CheckpointConfig(checkpoint_score_attribute="max-loss", checkpoint_score_order="min")
    assert (config.score, config.literal_score) == (("max-loss", "min"), None)


def test_one_policy_needs_no_list() -> None:
    assert CheckpointConfig(keep=Latest(2)).keep == (Latest(2),)  # type: ignore[arg-type]


METRICS = st.text(st.characters(categories=["Ll", "Nd"], include_characters="/_-"), min_size=1, max_size=10)


@given(METRICS, st.sampled_from(["", "max-", "min-"]), st.sampled_from(["max", "min"]))
def test_what_a_prefix_and_an_order_mean(metric: str, prefix: str, order: str) -> None:
    text = prefix + metric
    means = "min" if text.startswith("min-") and text != "min-" else "max"
    said = re.match("(max|min)-.", text) is not None
    if text in ("max-", "min-"):
        return
    config = CheckpointConfig(checkpoint_score_attribute=text, checkpoint_score_order=order)
    if said and (means, order) != ("max", "min"):
        assert (config.score, config.literal_score) == ((text[4:], means), (text, order))
    else:
        assert (config.score, config.literal_score) == ((text, order), None)


def test_without_a_metric_the_order_means_nothing() -> None:
    assert CheckpointConfig(checkpoint_score_order="min").score == (None, "max")
    assert CheckpointStrategy().score == ("_timestamp", "max")
    assert CheckpointStrategy(checkpoint_score_attribute=None).score == (None, "max")


def test_a_budget_is_made_of_what_people_write() -> None:
    made = Budget("1.5 kB", top_k=2)

    assert Budget.of(made) is made and Budget.of(None) is None
    assert Budget.of("2GB") == Budget(2_000_000_000) and Budget.of(5e3) == Budget(5000)
    assert (made.size, made.bytes, made.top_k) == (1500, 1500, 2)
    with pytest.raises(InvalidSettingError, match="budget='lots' is not accepted"):
        Budget.of("lots", name="budget")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.top_k = 3  # type: ignore[misc]


def test_policies_stay_in_their_order_as_a_tuple() -> None:
    assert CheckpointConfig(keep=[Latest(1), Latest(2)]).keep == (Latest(1), Latest(2))
    with pytest.raises(InvalidSettingError, match=r"keep=\[\] is not accepted.*Latest\(3\)"):
        CheckpointConfig(keep=[])
    with pytest.raises(InvalidSettingError, match="Latest"):
        CheckpointConfig(keep=[Latest])  # type: ignore[list-item]
