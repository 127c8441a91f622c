"""Values and functions that stand in configs and settings of the stored samples.

The samples hold these by reference, as a user's own experiments hold theirs: what is here keeps its name and its
meaning for good. New samples get new names.
"""

from __future__ import annotations

import datetime
import enum
import functools
import json
import random
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PureWindowsPath
from typing import Any
from uuid import UUID

import numpy as np

import tuner as tune


class Kind(enum.Enum):
    SLOW = "slow"
    FAST = "fast"


@dataclass(frozen=True)
class Point:
    x: float
    label: str = "here"


def double(x: float) -> float:
    return 2 * x


def odd_values() -> dict[str, Any]:
    """A config's values that JSON has not."""
    return {
        "tuple": (1, (2.5, "three"), ()), "int keys": {1: "one", (2, 3): [4]}, "dollar": {"$": "no tag"},
        "set": {3, 1, 2}, "frozenset": frozenset({"a", "b"}), "bytes": b"\x00\xff", "bytearray": bytearray(b"ab"),
        "inf": float("inf"), "minus inf": float("-inf"), "nan": float("nan"), "minus zero": -0.0, "large": -(2**80),
        "complex": 1 - 2j, "range": range(1, 10, 3), "path": Path("some/where"), "windows": PureWindowsPath("C:/x"),
        "datetime": datetime.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=datetime.UTC), "time": datetime.time(1, 2),
        "timedelta": datetime.timedelta(days=1, microseconds=7), "decimal": Decimal("1.10"), "none": None,
        "uuid": UUID(int=7), "fraction": Fraction(1, 3), "enum": Kind.SLOW, "dataclass": Point(0.5), "class": Point,
        "function": double, "builtin": len, "partial": functools.partial(double, x=3.0), "bool": True,
        "float32": np.float32(0.1), "int8": np.int8(-3), "array": np.array([[1, 2], [3, 4]], dtype=np.int16),
        "strings": np.array(["a", "bc"]), "no array": np.zeros((0, 3)), "dates": np.array(["2024-02-29"], "M8[D]"),
        "large array": np.arange(20_000, dtype=np.float64), "text": "naïve \u2603 \ud800", "": {"": []},
    }  # fmt: skip


def alike(a: Any, b: Any) -> bool:
    """Equal, and of equal types, all the way down; NaN is itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, dict):
        return list(a) == list(b) and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, functools.partial):
        return (a.func, a.args, a.keywords) == (b.func, b.args, b.keywords)
    return bool(a == b) or (a != a and b != b)


def no_argument() -> float:
    return random.random()


def of_config(config: Any) -> float:
    return float(config["uniform"]) * 2


def of_spec(spec: Any) -> float:
    return float(spec.config.of_config) + 1


def by_run(trial: Any) -> dict[str, Any]:
    """A define-by-run space of Optuna's."""
    kind = trial.suggest_categorical("kind", ["near", "far"])
    trial.suggest_float("x", 0, 1 if kind == "near" else 10)
    return {"n": 3}


def third(trial_id: str, result: dict[str, Any]) -> bool:
    return bool(result["training_iteration"] >= 3)


def trial_name(trial: Any) -> str:
    return f"mine_{trial.trial_id}"


def cores(cluster: Any, trial: Any, result: dict[str, Any], scheduler: Any) -> dict[str, float] | None:
    return {"cpu": 0.5} if result["training_iteration"] == 2 else None


POLICY = [
    ["t0", "t1", 2, 4, {"x": 0.5}, {"x": 0.25}],
    ["t0", "t0", 6, 6, {"x": 0.25}, {"x": 1.5}],
]


def start(place: Path) -> Path:
    """A checkpoint of no experiment, to start from."""
    directory = place / "start"
    if not directory.exists():
        tune.Checkpoint.from_dict({"step": 2}).to_directory(directory)
    return directory


def policy(place: Path) -> Path:
    """A schedule of a population, as PBT writes them."""
    file = place / "policy.txt"
    file.write_text("\n".join(map(json.dumps, POLICY)))
    return file


def large_values() -> dict[str, Any]:
    """A config's values that lie beside the journal: JSON, JSON in a dict of a dict, arrays."""
    return {
        "table": [0.5, "a"] * 10_000,
        "model": {"words": {f"word {number}": 7 for number in range(6_000)}, "small": [1, 2]},
        "text": "n\u00e4her " * 12_000,
        "array": np.full((100, 100), 3, dtype=np.int64),
    }


def earlier(place: Path) -> Path:
    """An experiment that another one continues: a sample of this format."""
    from tests.data.unpacking import unpack

    directory = place / "earlier"
    if not directory.exists():
        directory.mkdir()
        unpack("0.1.0-format-2", "compacted", directory)
    return directory / "storage" / "compacted"


def directory_name(trial: Any) -> str:
    return f"of-{trial.trial_id}"
