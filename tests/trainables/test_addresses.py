"""What may be an address of a checkpoint: text alone, nothing is looked at."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainables.addresses import CheckpointAddress, Selector, address_in, checkpoint_address

NAMES = st.text("ab1@~ é.-:%", min_size=1, max_size=12)
TAGS = st.text("abZ019._-", min_size=1, max_size=60)
PLACES = st.sampled_from(["", "/data/", "~/", "./", "runs@2024/", "s3://bucket/", "me@host:/runs/", "file:///x/"])


@given(PLACES, NAMES, TAGS)
def test_a_tag_is_what_stands_behind_the_last_at(place: str, name: str, tag: str) -> None:
    assume(place or ":" not in name)  # a host, as rsync writes it
    found = address_in(f"{place}{name}@{tag}")
    assert found is not None
    readings = list(found.readings())
    assert readings[0] == (f"{place}{name}", Selector(tag=tag))
    assert all(f"{experiment}@{selector}" == found.text for experiment, selector in readings if selector.tag)
    lengths = [len(experiment) for experiment, _ in readings]
    assert lengths == sorted(lengths, reverse=True) and min(lengths) > len(place)


@given(PLACES, NAMES.filter(lambda name: ":" not in name), NAMES, st.integers(0, 10**9))
def test_a_trial_and_an_iteration_are_one_reading_of_several(place: str, name: str, trial: str, iteration: int) -> None:
    assume(place or ":" not in trial)
    found = address_in(f"{place}{name}@{trial}@{iteration}")
    assert found is not None
    assert (f"{place}{name}", Selector(trial=trial, iteration=iteration)) in list(found.readings())


def test_a_selector_stands_before_the_query_of_an_address() -> None:
    query = "?endpoint_override=http://127.0.0.1:9000"
    found = address_in(f"s3://bucket/run@3@40/{query}")
    assert found is not None
    assert list(found.readings()) == [
        (f"s3://bucket/run@3{query}", Selector(tag="40")),
        (f"s3://bucket/run{query}", Selector(trial="3", iteration=40)),
    ]
    assert checkpoint_address(f"s3://bucket/run{query}", Selector(tag="best")) == f"s3://bucket/run@best{query}"


@pytest.mark.parametrize(
    "place",
    [
        "first",
        "me@host:/runs/first",
        "runs@2024/first",
        "first/@best",
        "@best",
        "first@",
        "first@a b",
        "first@a/b",
        "s3://user@host/first",
        f"first@{'x' * 61}",
        "first@3@x y",
    ],
)
def test_what_can_only_be_a_path_is_no_address(place: str) -> None:
    assert address_in(place) is None


def test_a_relative_one_is_of_the_directory_in_which_it_was_given() -> None:
    address = CheckpointAddress("a/b@c", "/given")
    assert address.anchored("a/b") == "/given/a/b"
    for whole in ("/a", "~/a", "s3://b/a", "file:///a", "host:/a"):
        assert address.anchored(whole) == whole
