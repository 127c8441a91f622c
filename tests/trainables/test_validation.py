"""What settings are checked with, and what their errors say."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.config import (
    Budget,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    parse_bytes,
)
from trainables.errors import InvalidSettingError
from trainables.validation import (
    checked_arguments,
    checked_names,
    flag,
    instance_of,
    nearest_name,
    no_effect,
    one_of,
    path_or_none,
    seconds,
    text_or_none,
    unknown_fields,
    unknown_name,
    whole_number,
)

Kind = Callable[..., Any]


def test_a_name_of_another_library_is_taken_for_what_it_means() -> None:
    accepted = ["num_samples", "queue_trials", "mode", "config"]
    found = [nearest_name(name, accepted) for name in ("n_trials", "max_evals", "direction", "space", "n_trial")]
    assert found == ["num_samples", "num_samples", "mode", "config", "queue_trials"]
    assert nearest_name("n_trials", ["n_trials", "num_samples"]) == "n_trials"
    assert nearest_name("n_jobs", ["a"]) is None


def test_unknown_names_without_a_near_one_list_all() -> None:
    assert unknown_name("option", "zzz", ["b", "a"]) == "unknown option 'zzz'. Accepted: a, b"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1),
        (5e9, 5_000_000_000),
        ("50GB", 50_000_000_000),
        ("50 gb", 50_000_000_000),
        ("50G", 50_000_000_000),
        ("1.5TB", 1_500_000_000_000),
        (".5 kB", 500),
        ("512MiB", 512 * 2**20),
        ("1_000B", 1000),
        ("1000", 1000),
        ("1.1PB", 1_100_000_000_000_000),
        ("1PiB", 2**50),
    ],
)
def test_sizes_are_read_as_people_write_them(text: Any, size: int) -> None:
    assert parse_bytes(text) == size
    assert Budget(text).size == size


@pytest.mark.parametrize("text", ["GB", "1e9", "-5GB", "5 5GB", "5EB", "0", "0.1B", "", "1..5GB"])
def test_sizes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="checkpoint_budget=.*50GB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("kind", "argument"),
    [
        (FailureConfig, {"controller_failure_limit": 3}),
        (ScalingConfig, {"accelerator_type": "A100"}),
        (ScalingConfig, {"use_tpu": True}),
        (RunConfig, {"storage_filesystem": object()}),
        (RunConfig, {"worker_runtime_env": {"pip": []}}),
    ],
)
def test_what_has_no_effect_here_is_accepted_with_one_warning_at_the_users_line(kind: Kind, argument: Any) -> None:
    with pytest.warns(UserWarning, match=f"{next(iter(argument))}.*has no effect") as caught:
        kind(**argument)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@given(st.integers(-5, 10**20), st.integers(-3, 5))
def test_a_whole_number_is_taken_from_its_least_on(value: int, least: int) -> None:
    if value >= least:
        assert whole_number("x", value, least=least) == value
    else:
        with pytest.raises(InvalidSettingError, match=f"x={value} is not accepted; accepted: a whole .* >= {least}"):
            whole_number("x", value, least=least)


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, [1], numpy.float64(1)])
def test_what_only_looks_like_a_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(InvalidSettingError, match="accepted: so or so"):
        whole_number("x", value, least=0, accepted="so or so")
    assert type(whole_number("x", numpy.int8(3), least=0)) is int


@pytest.mark.parametrize(
    ("value", "zero", "taken"),
    [(1, False, True), (0.5, False, True), (0, True, True), (0, False, False), (0.0, False, False), (-1, True, False)]
    + [(math.nan, True, False), (math.inf, True, False), (True, True, False), ("1", True, False), (None, True, False)],
)
def test_seconds_are_finite_and_above_zero_or_zero_where_that_is_accepted(value: Any, zero: bool, taken: bool) -> None:
    if taken:
        assert seconds("x", value, zero=zero) == value
    else:
        with pytest.raises(InvalidSettingError, match=f"a number of seconds {'>=' if zero else '>'} 0"):
            seconds("x", value, zero=zero)


UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "g": 10**9, "TB": 10**12, "KiB": 2**10, "MIB": 2**20, "GiB": 2**30}


@given(st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " ", "  "]))
def test_a_size_is_what_people_mean_to_the_byte(whole: int, thousandths: int, unit: str, space: str) -> None:
    size = whole * UNITS[unit] + thousandths * UNITS[unit] // 1000
    text = f"{whole}.{thousandths:03}{space}{unit}"

    if size:
        assert parse_bytes(text) == parse_bytes(f" {text} ") == size
    else:
        with pytest.raises(InvalidSettingError, match="checkpoint_budget="):
            parse_bytes(text)


@pytest.mark.parametrize("value", [None, True, [1], b"1", math.nan, math.inf, -1, 0, "1 XB", "one", "1e3", "1,5GB"])
def test_what_is_no_size_is_named(value: Any) -> None:
    with pytest.raises(InvalidSettingError, match="limit=.*is not accepted; accepted: a number of bytes > 0"):
        parse_bytes(value, name="limit")


@pytest.mark.parametrize(("value", "taken"), [(1, False), (0, False), (True, True), (False, True), (1.0, False)])
def test_numbers_do_not_pass_for_truth(value: Any, taken: bool) -> None:
    if taken:
        assert flag("x", value) is value
    else:
        with pytest.raises(InvalidSettingError, match="x=.* is not accepted; accepted: True, False"):
            flag("x", value)


def test_a_literal_that_is_nearly_right_is_told() -> None:
    assert one_of("mode", "min", ("min", "max")) == "min"
    assert one_of("mode", None, (None, "x")) is None
    with pytest.raises(InvalidSettingError, match=r"mode='Maxx' is not accepted; .*'max' \(did you mean 'max'\?\)"):
        one_of("mode", "Maxx", ("min", "max"))
    with pytest.raises(InvalidSettingError, match=r"accepted: None, 1(?m:$)"):
        one_of("mode", "zzz", (None, 1))


NAMES = st.lists(st.text(st.characters(categories=["Ll"]), min_size=3, max_size=8), min_size=1, max_size=5, unique=True)


@given(NAMES, st.data())
def test_a_name_in_another_case_is_nearest_to_itself(names: list[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(names))

    assert nearest_name(name.title(), names) == name
    assert nearest_name(name, names) == name
    assert nearest_name("", []) is None


def test_fields_that_nobody_fills_in_are_told_from_a_shells() -> None:
    assert unknown_fields("cp {source} ${HOME} {a b} {1} {} {x-y} {targt} {targt}", ["{source}"]) == ["{targt}"]
    assert unknown_fields("", ["{source}"]) == []


class Checked:
    def __init__(self, rate: float = 1.0, *, _private: int = 0) -> None:
        self.rate = rate

    @checked_arguments("Checked.call")
    def call(self, first: int, second: int = 2) -> tuple[int, int]:
        """What it says."""
        return first, second


def test_an_unknown_keyword_names_the_nearest_and_no_private_one() -> None:
    made = checked_names(type("Rated", (Checked,), {"__init__": Checked.__init__}))
    assert made(rate=3).rate == 3
    with pytest.raises(
        InvalidSettingError, match=r"unknown argument of Rated 'rat'; did you mean 'rate'\? Accepted: rate(?m:$)"
    ):
        made(rat=3)
    assert Checked().call(1, second=3) == (1, 3)
    assert Checked.call.__doc__ == "What it says."
    with pytest.raises(InvalidSettingError, match="argument of Checked.call 'secnd'; did you mean 'second'"):
        Checked().call(1, secnd=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Checked().call()  # type: ignore[call-arg]


@pytest.mark.parametrize("value", ["", " ", 3, b"x", True])
def test_what_is_no_path_is_refused_with_what_is(value: Any) -> None:
    with pytest.raises(InvalidSettingError, match="accepted: a path"):
        path_or_none("x", value, "a path")
    for path in (None, "x", Path("x"), "s3://b/x"):
        path_or_none("x", path, "a path")
    if value != " ":
        with pytest.raises(InvalidSettingError, match="None, or a text"):
            text_or_none("x", value)
    text_or_none("x", None)
    text_or_none("x", "y")


def test_an_object_of_another_class_names_those_that_are_accepted() -> None:
    instance_of("x", FailureConfig(), (FailureConfig, Budget))
    with pytest.raises(InvalidSettingError, match="None, or FailureConfig or Budget"):
        instance_of("x", FailureConfig, (FailureConfig, Budget))


def test_what_has_no_effect_is_said_at_the_line_of_who_called() -> None:
    with pytest.warns(UserWarning, match="x has no effect: it is so") as caught:
        no_effect("x", "it is so")
    assert caught[0].filename == __file__
