"""Policies as text: what is read is what is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.config import CheckpointConfig
from trainables.store.retention import (
    All,
    AnyOf,
    Best,
    Earliest,
    EveryN,
    EveryT,
    Kept,
    Latest,
    Pareto,
    Pinned,
    RetentionPolicy,
    policy_for,
)
from tuner.error import SettingError
from tuner.retention.rules import parts_of, policy_of, policy_of_settings, rule_of

READ = {
    "all": All(),
    "latest:3": Latest(3),
    "earliest:1": Earliest(1),
    "best:2:auc": Best(2, "auc"),
    "best:2:max-auc": Best(2, "auc"),
    "best:1:min-eval/loss": Best(1, "eval/loss", "min"),
    "every:10": EveryN(10),
    "every:600s": EveryT(600),
    "pinned:10,100": Pinned([10, 100]),
    "pareto:acc,min-latency": Pareto({"acc": "max", "latency": "min"}),
    "pareto:acc,min-latency:5": Pareto({"acc": "max", "latency": "min"}, limit=5),
}


@pytest.mark.parametrize("attribute", ["max-m", "min-m", "max-max-m"])
def test_a_rule_says_that_its_prefix_may_be_of_the_name(attribute: str) -> None:
    rule = rule_of(policy_for(CheckpointConfig(num_to_keep=1, checkpoint_score_attribute=attribute)))
    assert rule == f"best:1:{attribute}"
    history = [Kept((1, 1, index), index, {attribute: value}) for index, value in enumerate([5, 9, 1], start=1)]
    assert policy_of(rule).keep(history) == [(1, 1, 3 if attribute == "min-m" else 2)]


@pytest.mark.parametrize("text", READ)
def test_a_text_is_the_policy_it_names(text: str) -> None:
    assert policy_of(text) == READ[text]


names = st.sampled_from(["auc", "eval/auc", "min-x", "max-y", "a.b", "z-min"])
orders = st.sampled_from(["min", "max"])


@given(
    st.one_of(
        st.builds(Latest, st.integers(1, 99)),
        st.builds(Best, st.integers(1, 99), names, orders),
        st.builds(EveryT, st.integers(1, 10**5)),
        st.builds(Pinned, st.sets(st.integers(0, 99), min_size=1)),
        st.builds(Pareto, st.dictionaries(names, orders, min_size=1), st.sampled_from([None, 1, 7])),
    )
)
def test_what_is_said_of_a_policy_reads_back_as_it(policy: RetentionPolicy) -> None:
    assert policy_of(rule_of(policy)) == policy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("newest:3", "accepted|Accepted: all, latest:3"),
        ("lates:3", r"did you mean latest\? Accepted"),
        ("keep=3", r"is not known\. Accepted"),
        ("latest", "'latest' is not accepted"),
        ("latest:0", "a whole number >= 1"),
        ("latest:many", "'latest:many' is not accepted"),
        ("best:2", "by which metric"),
        ("best:2:", "metric"),
        ("every:-1s", "not accepted"),
        ("all:3", "too much"),
        ("pareto:", "metric"),
        ("", "Accepted"),
    ],
)
def test_a_text_that_means_nothing_is_refused_with_all_forms(text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        policy_of(text)
    assert "pareto:acc,min-latency" in str(caught.value)


class Mine(RetentionPolicy):
    def keep(self, checkpoints: Any) -> Any:
        return []


def test_a_policy_of_ones_own_and_a_function_have_a_name_only() -> None:
    assert [rule_of(Mine()), rule_of(Pinned(lambda checkpoint: True)), rule_of(AnyOf())] == ["Mine", "pinned", "none"]


def test_the_settings_of_an_experiment_say_what_it_keeps() -> None:
    config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="min-loss", keep=[EveryN(10), Mine()])
    rules = [rule_of(part) for part in parts_of(policy_for(config))]
    assert rules == ["every:10", "Mine", "best:2:min-loss"]
    assert policy_of_settings({"retention": rules}) == (AnyOf((EveryN(10), Best(2, "loss", "min"))), ["Mine"])
    older = {"num_to_keep": 2, "checkpoint_score_attribute": "loss", "checkpoint_score_order": "min"}
    assert policy_of_settings(older) == (Best(2, "loss", "min"), [])
