"""From `python script.py` to the first result of a one-trial run, as the driver's callback sees it; and the import."""

from __future__ import annotations

import time
from typing import Any

from measuring import main, median, timed_script

IMPORT = "import json, time; t = time.perf_counter(); import {}; print('MARK', json.dumps(time.perf_counter() - t))"

OURS = """
import json, sys, time
import tuner as tune

class First(tune.Callback):
    def on_trial_result(self, **info):
        print("MARK", json.dumps(time.time()), flush=True)

def train(config):
    tune.report({"loss": 1.0})

tune.run(train, storage_path=sys.argv[1], callbacks=[First()], verbose=0)
"""

RAY = """
import json, sys, time
from ray import tune

class First(tune.Callback):
    def on_trial_result(self, **info):
        print("MARK", json.dumps(time.time()), flush=True)

def train(config):
    tune.report({"loss": 1.0})

tune.run(train, storage_path=sys.argv[1], callbacks=[First()], verbose=0)
"""

SYNE = """
import json, sys, time, logging
logging.disable(logging.CRITICAL)
from syne_tune import StoppingCriterion, Tuner, Reporter
from syne_tune.backend import PythonBackend
from syne_tune.config_space import uniform
from syne_tune.optimizer.baselines import RandomSearch
from syne_tune.tuner_callback import TunerCallback
import os
os.environ["SYNETUNE_FOLDER"] = sys.argv[1]

class First(TunerCallback):
    def on_trial_result(self, trial, status, result, decision):
        print("MARK", json.dumps(time.time()), flush=True)

def train(x):
    from syne_tune import Reporter
    Reporter()(loss=1.0)

space = {"x": uniform(0, 1)}
Tuner(
    trial_backend=PythonBackend(tune_function=train, config_space=space),
    scheduler=RandomSearch(space, metrics=["loss"]),
    stop_criterion=StoppingCriterion(max_num_trials_finished=1),
    n_workers=1, sleep_time=0.01, callbacks=[First()], save_tuner=False,
).run()
"""


def _measure(source: str, module: str) -> dict[str, Any]:
    times = []
    for _ in range(3):
        started = time.time()
        times.append(timed_script(source)[0] - started)
    imports = [timed_script(IMPORT.format(module))[0] for _ in range(5)]
    return {"first_result_s": median(times), "import_s": median(imports)}


if __name__ == "__main__":
    main(
        {
            "ours": lambda: _measure(OURS, "tuner"),
            "ray": lambda: _measure(RAY, "ray.tune"),
            "syne": lambda: _measure(SYNE, "syne_tune"),
        }
    )
