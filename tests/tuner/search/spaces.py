"""Resolving spaces in one line."""

from __future__ import annotations

from typing import Any

import tuner as tune
from tuner.search.resolve import HashDraw, Space


def resolve(space: dict[str, Any], key: str = "seed", grid_index: int = 0) -> dict[str, Any]:
    return Space(space).resolve(HashDraw(key), grid_index)


BRANCHES = {
    "optimizer": tune.choice(
        [
            {"kind": "adam", "lr": tune.loguniform(1e-4, 1e-2)},
            {
                "kind": "sgd",
                "lr": tune.loguniform(1e-2, 1),
                "momentum": tune.choice([0, {"value": tune.uniform(0.5, 0.9)}]),
            },
        ]
    ),
    "width": tune.choice([tune.randint(1, 3), tune.randint(100, 300)]),
}
