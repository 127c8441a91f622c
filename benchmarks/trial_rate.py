"""One-report trials, each in a fresh process, per second: two at a time, JSON and CSV files on, TensorBoard off.

Counted between the first and the last finished trial, so that the start of the run is not in it. Beside ours stands a
bare loop in a process with the same modules loaded: fork, a child that writes 200 bytes to a pipe and ends, wait; two
at a time.
"""

from __future__ import annotations

from typing import Any

from measuring import main, timed_script

OURS = """
import json, sys, time
import tuner as tune
from tuner.logger import CSVLoggerCallback, JsonLoggerCallback

ends = []
class Ends(tune.Callback):
    def on_trial_complete(self, **info):
        ends.append(time.perf_counter())

def train(config):
    tune.report({"loss": config["x"]})

tune.run(train, config={"x": tune.uniform(0, 1)}, num_samples=int(sys.argv[2]), storage_path=sys.argv[1], verbose=0,
         max_concurrent_trials=2, callbacks=[JsonLoggerCallback(), CSVLoggerCallback(), Ends()])
print("MARK", json.dumps((len(ends) - 1) / (ends[-1] - ends[0])))
"""

RAY = """
import json, sys, time
from ray import tune
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback

ends = []
class Ends(tune.Callback):
    def on_trial_complete(self, **info):
        ends.append(time.perf_counter())

def train(config):
    tune.report({"loss": config["x"]})

tune.run(train, config={"x": tune.uniform(0, 1)}, num_samples=int(sys.argv[2]), storage_path=sys.argv[1], verbose=0,
         max_concurrent_trials=2, reuse_actors=False, callbacks=[JsonLoggerCallback(), CSVLoggerCallback(), Ends()])
print("MARK", json.dumps((len(ends) - 1) / (ends[-1] - ends[0])))
"""

SYNE = """
import json, sys, time, logging, os
logging.disable(logging.CRITICAL)
os.environ["SYNETUNE_FOLDER"] = sys.argv[1]
from syne_tune import StoppingCriterion, Tuner
from syne_tune.backend import PythonBackend
from syne_tune.config_space import uniform
from syne_tune.optimizer.baselines import RandomSearch
from syne_tune.tuner_callback import TunerCallback

ends = []
class Ends(TunerCallback):
    def on_trial_complete(self, trial, result):
        ends.append(time.perf_counter())

def train(x):
    from syne_tune import Reporter
    Reporter()(loss=x)

space = {"x": uniform(0, 1)}
Tuner(
    trial_backend=PythonBackend(tune_function=train, config_space=space),
    scheduler=RandomSearch(space, metrics=["loss"]),
    stop_criterion=StoppingCriterion(max_num_trials_finished=int(sys.argv[2])),
    n_workers=2, sleep_time=0.01, callbacks=[Ends()], save_tuner=False,
).run()
print("MARK", json.dumps((len(ends) - 1) / (ends[-1] - ends[0])))
"""

BARE = """
import json, os, sys, time
import tuner, trainables.session, msgspec, cloudpickle

def child():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, b"x" * 200)
        os._exit(0)
    os.close(writer)
    return reader

count, open_, started = int(sys.argv[2]), [], time.perf_counter()
for _ in range(count):
    if len(open_) == 2:
        reader = open_.pop(0)
        while os.read(reader, 4096):
            pass
        os.close(reader)
        os.wait()
    open_.append(child())
for reader in open_:
    os.wait()
print("MARK", json.dumps(count / (time.perf_counter() - started)))
"""


def _ours() -> dict[str, Any]:
    rate, bare = timed_script(OURS, "500")[0], timed_script(BARE, "1000")[0]
    return {"trials_per_s": rate, "bare_forks_per_s": bare, "of_bare": rate / bare}


if __name__ == "__main__":
    main(
        {
            "ours": _ours,
            "ray": lambda: {"trials_per_s": timed_script(RAY, "16")[0]},
            "syne": lambda: {"trials_per_s": timed_script(SYNE, "30")[0]},
        }
    )
