"""What settings are checked with, and what their errors say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainables.config import (
    Budget,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    parse_bytes,
)
from trainables.validation import unknown_name

Kind = Callable[..., Any]


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
