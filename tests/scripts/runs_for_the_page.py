"""Experiments to look at: `python runs_for_the_page.py DIRECTORY`."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tuner as tune
from tuner.executors import SimulatedExecutor
from tuner.schedulers import ASHAScheduler, PopulationBasedTraining
from tuner.search import BasicVariantGenerator

NASTY = "<img src=x onerror=\"document.title='owned'\">"


class Grows(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.sum = 0.0
        print(f"a line of output {NASTY}")

    def step(self) -> dict[str, Any]:
        self.sum += self.config["rate"]
        return {"score": self.sum, NASTY: 1.0}

    def save_checkpoint(self, directory: str) -> None:
        Path(directory, "state").write_text(repr(self.sum))

    def load_checkpoint(self, directory: str) -> None:
        self.sum = float(Path(directory, "state").read_text())


class Mixed(Grows):
    def step(self) -> dict[str, Any]:
        kind = self.config["kind"]
        if kind == "fails" and self.iteration == 2:
            raise ValueError(f"no more {NASTY}\nthe second line")
        found = super().step()
        return {**found, "score": math.nan} if kind == "nan" else found


class Again(Grows):
    """Fails once, a result after a checkpoint; that result is far from what comes in its place."""

    def step(self) -> dict[str, Any]:
        first = Path(self.logdir, "first")
        if self.iteration == 2 and not first.exists():
            first.touch()
            return {"score": 100.0}
        if self.iteration == 3 and self.sum == 1.0:
            raise OSError("once")
        return super().step()


def model(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, float]]]:
    for step in range(1, 9):
        yield 60.0, {"loss": abs(math.log10(config["lr"]) + 3) + config["width"] / 1000 / step, "size": config["width"]}


def main(where: str) -> None:
    common: dict[str, Any] = {"storage_path": where, "verbose": 0, "raise_on_failed_trial": False, "seed": 1}
    searched: dict[str, Any] = {"lr": tune.loguniform(1e-5, 1e-1), "width": tune.choice([64, 128])}
    asha = ASHAScheduler(metric="loss", mode="min", max_t=8, grace_period=1)
    tune.run(
        lambda config: None, name="asha", config=searched, num_samples=60, metric=["loss", "size"], mode=["min", "min"],
        scheduler=asha, executor=SimulatedExecutor(model, slots=8), **common,
    )  # fmt: skip
    space = {"drop": tune.uniform(0, 0.5), "rate": tune.loguniform(0.001, 1), "batch": tune.choice([32, 64])}
    tried = [{"drop": drop, "rate": drop, "batch": batch} for drop in (0.001, 0.01, 0.1, 0.499) for batch in (32, 64)]
    tune.run(
        lambda config: None, name="space", config=space, num_samples=8, metric="loss",
        mode="min", search_alg=BasicVariantGenerator(points_to_evaluate=tried),
        executor=SimulatedExecutor(lambda config: [(60.0, {"loss": config["drop"] ** 2})]), **common,
    )  # fmt: skip
    small: dict[str, Any] = {
        "resources_per_trial": {"cpu": 0.25},
        "checkpoint_freq": 1,
        "metric": "score",
        "mode": "max",
    }
    tune.run(
        Mixed, name="mixed", config={"rate": 0.5, "kind": tune.grid_search(["good", "fails", "nan", NASTY])},
        stop={"training_iteration": 4}, keep_checkpoints_num=1, **small, **common,
    )  # fmt: skip
    tune.run(
        Again, name="again", config={"rate": 0.5}, stop={"training_iteration": 8}, max_failures=1,
        **small | {"checkpoint_freq": 2}, **common,
    )  # fmt: skip
    rate: dict[str, Any] = {"rate": tune.uniform(0, 1)}
    pbt = PopulationBasedTraining("training_iteration", perturbation_interval=2, synch=True, hyperparam_mutations=rate)
    tune.run(
        Grows, name="pbt", config=rate, num_samples=4, stop={"training_iteration": 8}, scheduler=pbt, **small, **common,
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
