"""The experiments of `crash_scenarios` with a replica, and what only that has: shared content, fewer copies here."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from crash_scenarios import BY_NAME, Scenario, check_same, value_of

import tuner as tune
from trainables import Checkpoint
from tuner.schedulers import TrialScheduler
from tuner.schedulers.base import Decision

WEIGHTS = b"never changes" * 500
"""More than a replica sends again when it has that content already."""


def saves_weights(config: dict[str, Any]) -> None:
    """Most of its content is the same in every checkpoint."""
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            start = int(Path(directory, "epoch").read_text())
            assert Path(directory, "weights").read_bytes() == WEIGHTS
        check_same(start)
    for epoch in range(start + 1, 4):
        with tempfile.TemporaryDirectory() as lent:
            Path(lent, "epoch").write_text(str(epoch))
            Path(lent, "weights").write_bytes(WEIGHTS)
            tune.report({"v": value_of(config, epoch)}, checkpoint=Checkpoint.from_directory(lent))


class PausesOnce(TrialScheduler):
    """Every trial waits once, after its second iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.paused: set[str] = set()

    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Decision:
        if result["training_iteration"] != 2 or trial.trial_id in self.paused:
            return Decision.CONTINUE
        self.paused.add(trial.trial_id)
        return Decision.PAUSE


SCENARIOS = [
    BY_NAME["keep_one"],
    BY_NAME["keep_best"],
    BY_NAME["class"],
    # One more failure is allowed: who loses its first checkpoint on the way fails a second time.
    replace(BY_NAME["failing"], settings={**BY_NAME["failing"].settings, "max_failures": 2}),
    BY_NAME["compacting"],
    Scenario(
        "pausing",
        saves_weights,
        trials=2,
        settings={"num_samples": 2, "keep_checkpoints_num": 1},
        more=lambda: {"scheduler": PausesOnce()},
        saved=(1, 2, 3),
    ),
    replace(BY_NAME["keep_best"], name="keep_local", sync={"keep_local": 1}),
]
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
