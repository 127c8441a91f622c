"""What is accepted as a setting of a run: the same in a script and in an order, and nothing that breaks a driver."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.error import OrderError, SettingError
from tuner.orders.order import SetOrder, encode, in_words, made, parse
from tuner.orders.settable import LARGEST, OF_RUN, checked, said_by
from tuner.spec import Spec

_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**6),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.none()),
)
GIVEN = {"num_samples": "num_samples", "max_concurrent": "max_concurrent_trials", "time_budget_s": "time_budget_s"}


def train(config: dict[str, Any]) -> None:
    """What a script would run."""


@given(st.sampled_from(sorted(OF_RUN)), _values)
def test_an_order_accepts_what_a_script_accepts(name: str, value: Any) -> None:
    try:
        kept: Any = checked(name, value, None)[1]
    except OrderError:
        if isinstance(value, (int, float)) and LARGEST < value < math.inf:
            return  # a script may say so, and means no limit
        with pytest.raises(SettingError):
            Spec(train, **{GIVEN[name]: value})
        return
    assert said_by(Spec(train, **{GIVEN[name]: value}), name) == kept


@given(st.sampled_from([*OF_RUN, "resources", "x"]), _values, st.none() | st.text(max_size=3))
def test_an_order_that_is_accepted_is_read_back(name: str, value: Any, trial: str | None) -> None:
    try:
        order = made(SetOrder, name=name, value=value, trial=trial)
    except OrderError:
        return
    assert parse(encode(order)) == order


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "num_sample", "value": 3}, "unknown setting 'num_sample'; did you mean 'num_samples'"),
        ({"name": "metric", "value": "loss"}, "Accepted: max_concurrent, num_samples, time_budget_s"),
        ({"name": "num_samples", "value": "20"}, "num_samples='20' is not accepted; accepted are 1, 2, ... and -1"),
        ({"name": "num_samples", "value": 2.0}, "num_samples=2.0 is not accepted"),
        ({"name": "num_samples", "value": 0}, "num_samples=0 is not accepted"),
        ({"name": "num_samples", "value": None}, "num_samples=None is not accepted"),
        ({"name": "num_samples", "value": 10**30}, "at most"),
        ({"name": "max_concurrent", "value": -1}, "accepted are 1, 2, ... and None or 0"),
        ({"name": "max_concurrent", "value": True}, "max_concurrent=True is not accepted"),
        ({"name": "time_budget_s", "value": -1}, "seconds above 0, or None"),
        ({"name": "time_budget_s", "value": 10**400}, "seconds above 0"),
        ({"name": "resources", "value": {"cpu": 1}}, "resources is set of one trial"),
        ({"name": "cpu", "value": 2}, "cpu is set of one trial: say of which"),
        ({"name": "resources", "value": {"num_samples": 1}, "trial": "3"}, "num_samples and the like"),
        ({"name": "num_samples", "value": 1, "trial": "3"}, "of a trial there is resources"),
        ({"name": "resources", "value": {}, "trial": "3"}, 'amounts such as {"cpu": 2'),
        ({"name": "resources", "value": 2, "trial": "3"}, 'amounts such as {"cpu": 2'),
        ({"name": "resources", "value": {"cpu": -1}, "trial": "3"}, "cpu=-1: a number from 0"),
        ({"name": "resources", "value": {"cpu": "2"}, "trial": "3"}, "cpu='2': a number from 0"),
        ({"name": "resources", "value": {"gpu": 1.5}, "trial": "3"}, "a share of one GPU"),
        ({"name": "resources", "value": {"cpu": 1, "CPU": 2}, "trial": "3"}, "each resource is accepted once"),
        ({"name": "num_samples"}, "'set' has name, value, trial"),
    ],
)
def test_what_is_not_accepted_is_said(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(OrderError) as refused:
        parse(json.dumps({"order": "set", **fields}).encode())
    assert said in str(refused.value)


@pytest.mark.parametrize("value", [math.nan, -math.inf, "1h"])
def test_what_json_cannot_say_is_refused_too(value: Any) -> None:
    with pytest.raises(OrderError, match=r"time_budget_s=.* is not accepted"):
        made(SetOrder, name="time_budget_s", value=value)
    with pytest.raises(OrderError, match="a number from 0"):
        made(SetOrder, name="resources", value={"cpu": value}, trial="1")


def test_names_and_values_have_one_form() -> None:
    assert made(SetOrder, name="max_concurrent_trials", value=0) == SetOrder("max_concurrent", None)
    assert made(SetOrder, name="time_budget_s", value=datetime.timedelta(minutes=2)).value == 120
    assert made(SetOrder, name="time_budget_s", value=math.inf).value is None
    assert made(SetOrder, name="resources", value={"CPU": 2, "gpu": 0}, trial="1").value == {"cpu": 2.0, "gpu": 0.0}
    assert in_words({"order": "set", "name": "num_samples", "value": 20}) == "set num_samples=20"
    assert in_words({"order": "set", "trial": "3", "name": "resources", "value": {"cpu": 2}}) == "set 3 cpu=2"
    assert in_words({"order": "save", "trial": "3", "iteration": 40}) == "save 3@40"
