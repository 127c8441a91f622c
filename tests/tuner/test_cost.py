"""Cost is flat (design rule R9): counted in function calls of the loop's thread, which do not depend on the machine."""

from __future__ import annotations

import cProfile
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.executors import SimulatedExecutor
from tuner.logger import LoggerCallback

COUNT, WINDOW, RESULTS = 400, 100, 3


class Counting(LoggerCallback):
    """Counts the calls of 100 trials, an early and a late time. A logger, so that the default ones stay away."""

    def __init__(self) -> None:
        self.profiles = {50: cProfile.Profile(), COUNT - WINDOW - 10: cProfile.Profile()}
        self.done = 0

    def on_trial_complete(self, **info: Any) -> None:
        if self.done - WINDOW in self.profiles:
            self.profiles[self.done - WINDOW].disable()
        self.done += 1
        if self.done in self.profiles:
            self.profiles[self.done].enable()

    @property
    def calls(self) -> list[int]:
        return [sum(entry.callcount for entry in profile.getstats()) for profile in self.profiles.values()]


@pytest.mark.parametrize("copies", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_f23_a_result_costs_the_same_work_however_many_trials_there_were(copies: bool, tmp_path: Path) -> None:
    counting = Counting()
    tune.run(
        lambda config: None,
        config={"x": tune.uniform(0, 1)},
        metric="loss",
        mode="min",
        num_samples=COUNT,
        storage_path=str(tmp_path / "results"),
        verbose=0,
        callbacks=[counting],
        executor=SimulatedExecutor(lambda config: [(1.0, {"loss": config["x"]})] * RESULTS, slots=4),
        sync_config=tune.SyncConfig(upload_dir=str(tmp_path / "copies") if copies else None),
        seed=1,
    )
    early, late = counting.calls
    assert early > 100 * WINDOW and late < 1.02 * early
