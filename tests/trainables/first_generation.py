"""A `Trainer` of the first generation with two workers, and what tests run in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trainables as train
from trainables import Trainer
from trainables.group.framework import Framework


def trainer(logdir: Path | None, **more: Any) -> Trainer:
    made = Trainer(
        backend=Framework(), num_workers=2, resources_per_worker={"CPU": 0.5}, logdir=logdir, max_retries=0, **more
    )
    made.start()
    return made


def report_twice() -> str:
    for step in range(2):
        train.report(step=step, rank=train.world_rank())
        train.save_checkpoint(step=step)
    return "done"


STEPS = [[(0, 0), (0, 1)], [(1, 0), (1, 1)]]


def pairs(results: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(result["step"], result["rank"]) for result in results]
