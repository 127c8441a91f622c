"""Search with Optuna's TPE: it begins with a config that is known to be good, and asks ahead while trials run."""

from __future__ import annotations

import tuner as tune
from tuner.search.optuna import OptunaSearch


def train(config: dict) -> None:
    """A bowl with a narrow valley: the layers matter little, the learning rate a lot."""
    for epoch in range(1, 6):
        loss = (config["x"] - 0.3) ** 2 + abs(config["optimizer"].get("momentum", 0.5) - 0.9) + 1 / epoch
        tune.report({"loss": loss})


if __name__ == "__main__":
    analysis = tune.run(
        train,
        name="tpe",
        config={
            "x": tune.uniform(-1, 1),
            "optimizer": tune.choice([{"kind": "adam"}, {"kind": "sgd", "momentum": tune.uniform(0.5, 0.99)}]),
        },
        search_alg=OptunaSearch(
            points_to_evaluate=[{"x": 0.0, "optimizer": {"kind": "sgd", "momentum": 0.9}}],
            ask_ahead=True,  # the next suggestion is computed while trials run
        ),
        metric="loss",
        mode="min",
        num_samples=30,
        seed=1,
        resume="AUTO",
    )
    print("best config:", analysis.best_config)
    print("best loss:", round(analysis.best_result["loss"], 3))
