"""A searcher of one's own: it takes the best config so far and changes it a little."""

from __future__ import annotations

import random
from typing import Any

import tuner as tune
from tuner.search import ConcurrencyLimiter, Searcher


class HillClimber(Searcher):
    """Draws around the best point that it knows of.

    All that it depends on are plain attributes, which are saved and restored by themselves: a run that is killed goes
    on with the same draws.
    """

    def __init__(self, low: float, high: float, *, seed: int = 0) -> None:
        super().__init__(metric="loss", mode="min")
        self.low, self.high, self.random = low, high, random.Random(seed)
        self.live: dict[str, float] = {}
        self.best: tuple[float, float] | None = None

    def suggest(self, trial_id: str) -> dict[str, Any]:
        if self.best is None:
            x = self.random.uniform(self.low, self.high)
        else:
            x = min(max(self.random.gauss(self.best[1], 0.5), self.low), self.high)
        self.live[trial_id] = x
        return {"x": x}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        x = self.live.pop(trial_id, None)
        if x is not None and result is not None and not error and (self.best is None or result["loss"] < self.best[0]):
            self.best = (result["loss"], x)


def train(config: dict) -> None:
    tune.report({"loss": (config["x"] - config["target"]) ** 2})


if __name__ == "__main__":
    analysis = tune.run(
        train,
        name="custom_searcher",
        config={"target": 2.0},  # constants reach every trial; what is searched is the searcher's own
        search_alg=ConcurrencyLimiter(HillClimber(-10, 10, seed=3), max_concurrent=2),
        metric="loss",
        mode="min",
        num_samples=40,
        resume="AUTO",
    )
    print("best x:", round(analysis.best_config["x"], 3))
