# ruff: noqa: E401, F401, I001
"""A script as it is written for Ray Tune: PLACE."""

import os, sys, tempfile
import ray
from ray import train, tune
from ray.air import RunConfig, session
from ray.train import Checkpoint, CheckpointConfig
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
import ray.tune.search.sample

ray.init(num_cpus=2)


def objective(config):
    import ray.tune as again

    assert ray.is_initialized() and again is tune
    assert train.get_checkpoint() is None
    for step in range(3):
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "step"), "w") as file:
                file.write(str(step))
            train.report({"score": config["x"] * step}, checkpoint=Checkpoint.from_directory(directory))


class Classic(tune.Trainable):
    def step(self):
        return {"score": self.config["x"], "done": True}


for trainable in (objective, Classic):
    results = tune.Tuner(
        trainable,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            num_samples=2, metric="score", mode="max", scheduler=ASHAScheduler(), search_alg=OptunaSearch()
        ),
        run_config=RunConfig(
            name=trainable.__name__,
            storage_path=sys.argv[1],
            verbose=0,
            checkpoint_config=CheckpointConfig(num_to_keep=1),
        ),
    ).fit()
    assert len(results) == 2 and not results.errors
    print(trainable.__name__, results.get_best_result().checkpoint is not None)
ray.shutdown()
