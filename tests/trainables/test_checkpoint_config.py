"""Which checkpoints are made and stay: what each setting accepts and means."""

from __future__ import annotations

from typing import Any

import pytest

from trainables.config import (
    CheckpointConfig,
    CheckpointStrategy,
    parse_score_attr,
)
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


def test_f07_order_and_prefix_may_not_contradict_each_other() -> None:
    assert CheckpointConfig(checkpoint_score_attribute="loss", checkpoint_score_order="min").score == ("loss", "min")
    assert CheckpointConfig(checkpoint_score_attribute="min-loss", checkpoint_score_order="min").score == (
        "loss",
        "min",
    )
    with pytest.raises(ValueError, match="checkpoint_score_order='min'"):
        CheckpointConfig(checkpoint_score_attribute="max-auc", checkpoint_score_order="min")


def test_one_policy_needs_no_list() -> None:
    assert CheckpointConfig(keep=Latest(2)).keep == (Latest(2),)  # type: ignore[arg-type]
