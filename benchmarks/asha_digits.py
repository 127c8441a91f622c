"""ASHA on the digits job of examples/, the same sixteen configs in the same order, on two cores: time to 0.97.

From `python script.py` to the first epoch whose validation accuracy is 0.97 (`to_accuracy_s`), and to the end of the
script (`whole_s`); `best` is the highest accuracy that was reached. Two trials at a time with one thread each, seeded
by config, no checkpoints (Syne Tune leaves them to the script); rungs at 1, 2, 4 and 8 epochs, a half goes on; actors
reused by Ray, PythonBackend of Syne Tune, which looks every 0.05 s.
"""

from __future__ import annotations

import time
from typing import Any

from measuring import main, timed_script

SHARED = """
import json, os, random, sys, time

EPOCHS, TARGET = 8, 0.97
draw = random.Random(7)
CONFIGS = [
    {"lr": 10 ** draw.uniform(-4, -1.5), "batch_size": draw.choice([64, 128]),
     "channels": draw.choice([8, 16]), "number": number}
    for number in range(16)
]
times, best = [], [0.0]

def seen(accuracy):
    best[0] = max(best[0], accuracy)
    if accuracy >= TARGET and not times:
        times.append(time.time())
"""
TRAINING = """
    import torch
    from sklearn.datasets import load_digits
    from torch import nn
    torch.set_num_threads(1)
    torch.manual_seed(number)
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    model = nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * channels, 10),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for epoch in range(1, 9):
        for rows in torch.randperm(1400).split(batch_size):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (model(images[1400:]).argmax(1) == labels[1400:]).float().mean().item()
"""
OURS_AND_RAY = """
{imports}

class Watch(tune.Callback):
    def on_trial_result(self, result, **info):
        seen(result["accuracy"])

def train(config):
    lr, batch_size, channels, number = (config[key] for key in ("lr", "batch_size", "channels", "number"))
{training}
        tune.report({{"accuracy": accuracy}})

SPACE = {{"lr": tune.loguniform(1e-4, 0.04), "batch_size": tune.choice([64, 128]),
          "channels": tune.choice([8, 16]), "number": tune.choice(list(range(16)))}}
tune.run(train, config=SPACE, search_alg=BasicVariantGenerator(points_to_evaluate=CONFIGS), num_samples=16,
         metric="accuracy", mode="max", scheduler=ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=2),
         resources_per_trial={{"cpu": 1}}, max_concurrent_trials=2, storage_path=sys.argv[1], verbose=0,
         callbacks=[Watch()])
print("MARK", json.dumps([times[0] if times else None, best[0]]))
"""
SYNE = """
import logging
logging.disable(logging.CRITICAL)
os.environ["SYNETUNE_FOLDER"] = sys.argv[1]
from syne_tune import StoppingCriterion, Tuner
from syne_tune.backend import PythonBackend
from syne_tune.config_space import choice, loguniform
from syne_tune.optimizer.baselines import ASHA
from syne_tune.tuner_callback import TunerCallback

class Watch(TunerCallback):
    def on_trial_result(self, trial, status, result, decision):
        seen(result["accuracy"])

def train(lr, batch_size, channels, number):
    from syne_tune import Reporter
    report = Reporter()
{training}
        report(accuracy=accuracy, epoch=epoch)

space = {{"lr": loguniform(1e-4, 0.04), "batch_size": choice([64, 128]), "channels": choice([8, 16]),
         "number": choice(list(range(16)))}}
Tuner(
    trial_backend=PythonBackend(tune_function=train, config_space=space),
    scheduler=ASHA(space, metric="accuracy", time_attr="epoch", max_t=EPOCHS, do_minimize=False, grace_period=1,
                   reduction_factor=2, points_to_evaluate=CONFIGS, random_seed=1),
    stop_criterion=StoppingCriterion(max_num_trials_finished=16),
    n_workers=2, sleep_time=0.05, callbacks=[Watch()], save_tuner=False,
).run()
print("MARK", json.dumps([times[0] if times else None, best[0]]))
"""
OURS = """
import tuner as tune
from tuner.schedulers import ASHAScheduler
from tuner.search import BasicVariantGenerator
"""
RAY = """
import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.basic_variant import BasicVariantGenerator
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
"""


def _measure(source: str) -> dict[str, Any]:
    began = time.time()
    reached, best = timed_script(source)[0]
    found = {"whole_s": time.time() - began, "best": best}
    return found if reached is None else {**found, "to_accuracy_s": reached - began}


def _tune(imports: str) -> str:
    return SHARED + OURS_AND_RAY.format(imports=imports, training=TRAINING)


if __name__ == "__main__":
    main(
        {
            "ours": lambda: _measure(_tune(OURS)),
            "ray": lambda: _measure(_tune(RAY)),
            "syne": lambda: _measure(SHARED + SYNE.format(training=TRAINING)),
        }
    )
