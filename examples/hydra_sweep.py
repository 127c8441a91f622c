"""A program of Hydra's, swept by this tool: jobs run beside each other, and a sweep that was killed goes on.

    python examples/hydra_sweep.py -m hydra.sweep.dir=sweeps/first

Run it again, killed or not: what has ended stays, what was interrupted begins again with its config. The search space
stands at the command line or, as here, in the config; `python examples/hydra_sweep.py lr=0.1` runs one job as ever.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

import hydra
import numpy as np
from hydra.core.config_store import ConfigStore

log = logging.getLogger(__name__)


@dataclass
class Config:
    lr: float = 0.1
    momentum: float = 0.0
    steps: int = 50
    defaults: list[Any] = field(default_factory=lambda: ["_self_", {"override hydra/sweeper": "tuner"}])
    hydra: Any = field(
        default_factory=lambda: {
            "sweeper": {
                "params": {"lr": "tag(log,interval(1e-3,1))", "momentum": "0.0,0.9"},
                "num_samples": 4,
                "mode": "min",
                "seed": 1,
            }
        }
    )


ConfigStore.instance().store(name="config", node=Config)


@hydra.main(version_base=None, config_name="config")
def train(config: Config) -> float:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 3))
    y = x @ np.array([1.0, -2.0, 0.5])
    weights, velocity = np.zeros(3), np.zeros(3)
    for _ in range(config.steps):
        gradient = x.T @ (x @ weights - y) / len(x)
        velocity = config.momentum * velocity - config.lr * gradient
        weights = weights + velocity
    loss = float(np.mean((x @ weights - y) ** 2))
    log.info("loss %.3g", loss)
    return loss


if __name__ == "__main__":
    train()
