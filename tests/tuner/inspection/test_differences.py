"""Where two states differ, by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tuner.inspection.differences import differences

NAN = float("nan")


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 2]}, []),
        ({"a": NAN, "b": np.array([NAN, 1.0])}, {"a": NAN, "b": np.array([NAN, 1.0])}, []),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, ["a.b.1.c: 2, now 3"]),
        ({"a": 1}, {"b": 1}, ["a: is missing", "b: 1 is new"]),
        ({"a": (1, 2)}, {"a": (1,)}, ["a: 2 entries, now 1"]),
        ({"a": 1.0}, {"a": 1}, []),
        ({"a": "1"}, {"a": 1}, ["a: '1', now 1"]),
        (
            {"w": torch.zeros(2, 3)},
            {"w": torch.tensor([[0.0, 0, 0.5], [0, -2, 0]])},
            ["w: (2, 3) float32: 2 of 6 values differ, by at most 2"],
        ),
        ({"w": torch.tensor([1, 2])}, {"w": torch.tensor([1.0, 2])}, ["w: (2,) int64, now (2,) float32"]),
        ({"w": torch.tensor([True])}, {"w": torch.tensor([False])}, ["w: (1,) bool: 1 of 1 values differ"]),
        ({"w": torch.tensor([NAN, 1])}, {"w": torch.tensor([NAN, 1])}, []),
        (
            {"w": torch.eye(2).to_sparse()},
            {"w": (2 * torch.eye(2)).to_sparse()},
            ["w: (2, 2) float32: 2 of 4 values differ, by at most 1"],
        ),
        (np.array(["a", "b"]), np.array(["a", "c"]), [": (2,) <U1: 1 of 2 values differ"]),
        (SimpleNamespace(n=1, m=2), SimpleNamespace(n=1, m=3), ["m: 2, now 3"]),
        ({"step_seconds": 1, "x": {"_timestamp": 4}}, {"step_seconds": 2, "x": {"_timestamp": 5}}, []),
    ],
)
def test_each_difference_has_its_name(first: Any, second: Any, said: list[str]) -> None:
    found = differences(first, second, ignore=("*_seconds", "_timestamp"))
    assert [f"{one.name}: {one.text}" for one in found] == said
