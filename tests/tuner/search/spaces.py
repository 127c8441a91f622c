"""Resolving spaces in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tuner as tune
from tuner.search.containers import close, lay_open
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

LR = tune.uniform(0, 1)


class Attributes(dict[str, Any]):
    """A dict whose keys are its attributes, as many projects have one."""

    def __init__(self, *args: Any, **items: Any) -> None:
        super().__init__(*args, **items)
        self.__dict__ = self


def trial_config(space: Mapping[str, Any], key: str = "1") -> Any:
    laid_open = lay_open(space)
    return close(laid_open, Space(laid_open).resolve(HashDraw(key)))


def drawn(name: str = "args/lr", key: str = "1") -> Any:
    return HashDraw(key).value(name, LR)
