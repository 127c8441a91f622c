"""Two objectives and a constraint: fast and exact, among models that fit into memory."""

from __future__ import annotations

import optuna

import tuner as tune
from tuner.search.optuna import OptunaSearch


def train(config: dict) -> None:
    """The larger the model, the more exact and the slower it is."""
    size = config["width"] * config["layers"]
    tune.report({"error": 1 / size + 0.01 * config["layers"], "seconds": 0.002 * size, "too_large": size - 600})


if __name__ == "__main__":
    search = OptunaSearch(
        metric=["error", "seconds"],
        mode=["min", "min"],
        sampler=optuna.samplers.NSGAIISampler(seed=1, population_size=10),
        constraints=["too_large"],  # a trial is feasible where this is at most 0
    )
    analysis = tune.run(
        train,
        name="multi_objective",
        config={"width": tune.qrandint(8, 128, 8), "layers": tune.randint(1, 9)},
        search_alg=search,
        num_samples=40,
        resume="AUTO",
    )

    # The Pareto front: no other trial is better in one of both and not worse in the other.
    fitting = [trial for trial in analysis.trials if trial.last_result["too_large"] <= 0]
    points = sorted({(trial.last_result["error"], trial.last_result["seconds"]) for trial in fitting})
    fastest = float("inf")
    for error, seconds in points:
        if seconds < fastest:
            fastest = seconds
            print(f"front: error {error:.4f} in {seconds:.3f} s")
