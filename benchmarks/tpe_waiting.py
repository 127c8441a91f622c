"""TPE at 1,000 trials: what part of a worker's time it waits for suggestions, with trials of one second on two workers.

The searcher is told of 1,000 finished trials (five dimensions, seeded), and then 40 trials of one second run: all 1,000
would take eight minutes and wait less at the beginning. A worker's idle time is two workers' time between the first
start and the last end, less the trials' own. What random search has of it (`random_idle`: starts and ends of
processes) is not waiting for suggestions, and is taken off. Ours with and without `ask_ahead`; `suggest_s` is the CPU
time of one suggestion after 1,000.
"""

from __future__ import annotations

from typing import Any

from measuring import main, timed_script

SOURCE = """
import json, random, sys, time
{imports}

SPACE = {{
    "a": tune.uniform(-1, 1), "b": tune.loguniform(1e-4, 1e-1), "c": tune.uniform(0, 10),
    "d": tune.choice(["x", "y", "z"]), "e": tune.randint(1, 100),
}}
KNOWN, TRIALS, SECONDS = 1_000, 40, 1.0

def loss(config):
    return (config["a"] - 0.3) ** 2 + abs(config["b"] - 0.01) * 10 + config["c"] / 10 + (config["d"] == "y") / 5

def train(config):
    began = time.time()
    time.sleep(SECONDS)
    tune.report({{"loss": loss(config), "began": began, "ended": time.time()}})

class Spans(tune.Callback):
    seen = []
    def on_trial_result(self, result, **info):
        self.seen.append((result["began"], result["ended"]))

search, suggest = None, 0.0
if sys.argv[2] != "random":
    search = OptunaSearch(searched(SPACE), metric="loss", mode="min", seed=1{more})
    for number in range(KNOWN):
        name = f"known_{{number}}"
        config = search.suggest(name)
        search.on_trial_complete(name, {{"loss": loss(config)}})
    before = time.process_time()
    for number in range(10):
        search.suggest(f"asked_{{number}}")
    suggest = (time.process_time() - before) / 10
    for number in range(10):
        search.on_trial_complete(f"asked_{{number}}", {{"loss": 1.0}})
tune.run(train, config={{}} if search else SPACE, num_samples=TRIALS, search_alg=search, metric="loss", mode="min",
         max_concurrent_trials=2, resources_per_trial={{"cpu": 1}}, storage_path=sys.argv[1], verbose=0,
         callbacks=[Spans()])
spans = sorted(Spans.seen)[2:-2]  # not the first start, and not the end, when one worker has nothing left
window = max(end for _, end in spans) - min(begin for begin, _ in spans)
busy = sum(end - begin for begin, end in spans)
# The last of the two is alone for a moment at either side.
alone = abs(spans[0][0] - spans[1][0]) + abs(sorted(end for _, end in spans)[-1] - sorted(end for _, end in spans)[-2])
print("MARK", json.dumps({{"idle": 1 - busy / (2 * window - alone), "suggest_s": suggest}}))
"""
OURS = """
import tuner as tune
from tuner.search.optuna import OptunaSearch
def searched(space):
    return space
"""
RAY = """
import ray
from ray import tune
from ray.tune.search.optuna import OptunaSearch
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
def searched(space):
    return {
        "a": FloatDistribution(-1, 1), "b": FloatDistribution(1e-4, 1e-1, log=True), "c": FloatDistribution(0, 10),
        "d": CategoricalDistribution(["x", "y", "z"]), "e": IntDistribution(1, 99),
    }
"""


def _ours() -> dict[str, Any]:
    plain = timed_script(SOURCE.format(imports=OURS, more=""), "tpe")[0]
    ahead = timed_script(SOURCE.format(imports=OURS, more=", ask_ahead=True"), "tpe")[0]
    chance = timed_script(SOURCE.format(imports=OURS, more=""), "random")[0]
    return {
        "waiting": plain["idle"] - chance["idle"],
        "ahead_waiting": ahead["idle"] - chance["idle"],
        "random_idle": chance["idle"],
        "suggest_s": plain["suggest_s"],
    }


def _ray() -> dict[str, Any]:
    plain = timed_script(SOURCE.format(imports=RAY, more=""), "tpe")[0]
    chance = timed_script(SOURCE.format(imports=RAY, more=""), "random")[0]
    waiting = plain["idle"] - chance["idle"]
    return {"waiting": waiting, "random_idle": chance["idle"], "suggest_s": plain["suggest_s"]}


if __name__ == "__main__":
    main({"ours": _ours, "ray": _ray})
