"""Results per second from two trials that do nothing but report, with JSON and CSV files written.

Counted from the first `report` in a trial to the last result in the driver.
"""

from __future__ import annotations

from typing import Any

from measuring import main, timed_script

SOURCE = """
import json, sys, time
{imports}

class Count(tune.Callback):
    changes_results = False  # it only reads: else each report waits for its answer
    times = []
    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.times.append((result["began"], time.time()))

def train(config):
    began = time.time()
    for step in range(config["count"]):
        tune.report({{"loss": 1 / (step + 1), "step": step, "began": began}})

tune.run(train, config={{"count": int(sys.argv[2])}}, num_samples=2, storage_path=sys.argv[1], verbose=0,
         callbacks=[JsonLoggerCallback(), CSVLoggerCallback(), Count()])
first, last = min(began for began, _ in Count.times), Count.times[-1][1]
print("MARK", json.dumps(len(Count.times) / (last - first)))
"""

OURS = "import tuner as tune\nfrom tuner.logger import CSVLoggerCallback, JsonLoggerCallback"
RAY = "from ray import tune\nfrom ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback"

SYNE = """
import json, sys, time, logging, os
logging.disable(logging.CRITICAL)
os.environ["SYNETUNE_FOLDER"] = sys.argv[1]
from syne_tune import StoppingCriterion, Tuner
from syne_tune.backend import PythonBackend
from syne_tune.config_space import uniform
from syne_tune.optimizer.baselines import RandomSearch
from syne_tune.results_callback import StoreResultsCallback
from syne_tune.tuner_callback import TunerCallback

class Count(TunerCallback):
    times = []
    def on_trial_result(self, trial, status, result, decision):
        self.times.append((result["began"], time.time()))

def train(x, count):
    import time
    from syne_tune import Reporter
    report, began = Reporter(), time.time()
    for step in range(count):
        report(loss=1 / (step + 1), step=step, began=began)

space = {"x": uniform(0, 1), "count": int(sys.argv[2])}
Tuner(
    trial_backend=PythonBackend(tune_function=train, config_space=space),
    scheduler=RandomSearch(space, metrics=["loss"]),
    stop_criterion=StoppingCriterion(max_num_trials_finished=2),
    n_workers=2, sleep_time=0.01, callbacks=[StoreResultsCallback(), Count()], save_tuner=False,
).run()
first, last = min(began for began, _ in Count.times), Count.times[-1][1]
print("MARK", json.dumps(len(Count.times) / (last - first)))
"""


def _measure(source: str, count: int) -> dict[str, Any]:
    return {"results_per_s": timed_script(source, str(count))[0]}


if __name__ == "__main__":
    main(
        {
            "ours": lambda: _measure(SOURCE.format(imports=OURS), 30_000),
            "ray": lambda: _measure(SOURCE.format(imports=RAY), 1_000),
            "syne": lambda: _measure(SYNE, 3_000),
        }
    )
