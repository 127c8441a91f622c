"""What somebody writes who has every line checked: `mypy --strict`, and pyright's strict mode."""

# pyright: strict
from __future__ import annotations

from typing import Any

import trainables as train
import tuner as tune
from tuner.schedulers import ASHAScheduler
from tuner.search.optuna import OptunaSearch


def fit(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    step: int = checkpoint.to_dict()["step"] if checkpoint is not None else 0
    while step < 3:
        step += 1
        tune.report({"loss": config["x"] / step}, checkpoint=tune.Checkpoint.from_dict({"step": step}))


class Walk(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.x = 10.0

    def step(self) -> dict[str, Any]:
        self.x -= 1.0
        return {"loss": self.x}


class Loud(tune.Callback):
    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        print(trial)


def main() -> None:
    analysis = tune.run(
        fit,
        config={"x": tune.uniform(0, 1), "width": tune.choice([1, 2])},
        scheduler=ASHAScheduler(max_t=3),
        search_alg=OptunaSearch(metric="loss", mode="min"),
        callbacks=[Loud()],
        resume="AUTO",
    )
    best: dict[str, Any] | None = analysis.best_config
    grid = tune.Tuner(
        Walk,
        param_space={"lr": tune.loguniform(1e-3, 1.0)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=2),
        run_config=train.RunConfig(name="walk", checkpoint_config=tune.CheckpointConfig(num_to_keep=2)),
    ).fit()
    result: train.Result = grid.get_best_result()
    print(best, result.metrics, train.get_context().get_world_rank())


if __name__ == "__main__":
    main()
