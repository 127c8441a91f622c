"""A search space as a function: what is asked for depends on what was answered before."""

from __future__ import annotations

from typing import Any

import tuner as tune
from tuner.search.optuna import OptunaSearch


def space(trial: Any) -> dict[str, Any]:
    """As many widths as there are layers; what is returned is added to the config as it is."""
    layers = trial.suggest_int("layers", 1, 3)
    for layer in range(layers):
        trial.suggest_int(f"widths/{layer}", 4, 64, log=True)
    if trial.suggest_categorical("optimizer", ["adam", "sgd"]) == "sgd":
        trial.suggest_float("momentum", 0.5, 0.99)
    return {"epochs": 3}


def train(config: dict) -> None:
    for epoch in range(1, config["epochs"] + 1):
        weights = sum(config["widths"].values())
        tune.report({"loss": abs(weights - 60) / 60 + (config["optimizer"] == "adam") / epoch})


if __name__ == "__main__":
    analysis = tune.run(
        train,
        name="define_by_run",
        search_alg=OptunaSearch(space),
        metric="loss",
        mode="min",
        num_samples=25,
        seed=2,
        resume="AUTO",
    )
    print("best config:", analysis.best_config)
