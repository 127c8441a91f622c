"""One-report trials through jobs of Slurm: ours with 4 jobs that are up, and submitit, which submits each as a job.

A real Slurm of two nodes with two CPUs each on this machine. Ours is counted from the moment when all four jobs have
run trials; submitit's by the times at which its functions returned, so that how it waits for them is not in it.
`first_trial_s`: from the first line of the first job's script to the first line of the first trial. Needs root.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measuring import main, timed_script

from tests.servers.slurm import slurm

OURS = """
import json, os, sys, time
from pathlib import Path
import tuner as tune
from tuner.executors import SlurmExecutor
from tuner.logger import CSVLoggerCallback, JsonLoggerCallback

ends, jobs, results = [], set(), {}
first = Path(sys.argv[1], "first-line")

class Count(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        results[trial.trial_id] = result["job"], result["began"]

    def on_trial_complete(self, iteration, trials, trial, **info):
        jobs.add(results[trial.trial_id][0])
        if len(jobs) == 4:
            ends.append(time.perf_counter())

def train(config):
    tune.report({"loss": config["x"], "job": os.environ["SLURM_JOB_ID"], "began": time.time()})

tune.run(train, config={"x": tune.uniform(0, 1)}, num_samples=int(sys.argv[2]), storage_path=sys.argv[1], verbose=0,
         executor=SlurmExecutor(jobs=4, time="30", cpus_per_task=1,
                                setup=f"[ -e {first} ] || date +%s.%N > {first}"),
         callbacks=[JsonLoggerCallback(), CSVLoggerCallback(), Count()])
print("MARK", json.dumps((len(ends) - 1) / (ends[-1] - ends[0])))
print("MARK", json.dumps(min(began for _, began in results.values()) - float(first.read_text())))
"""

SUBMITIT = """
import json, sys, time
import submitit

def train(x):
    return time.time()

executor = submitit.AutoExecutor(folder=sys.argv[1], cluster="slurm")
executor.update_parameters(timeout_min=30, cpus_per_task=1, nodes=1)
jobs = [executor.submit(train, x) for x in range(int(sys.argv[2]))]
ends = sorted(job.result() for job in jobs)
print("MARK", json.dumps((len(ends) - 1) / (ends[-1] - ends[0])))
"""


def _ours() -> dict[str, Any]:
    with slurm() as cluster:
        rate, first = timed_script(OURS, "400", environment=cluster.env)
    return {"trials_per_s": rate, "first_trial_s": first}


def _submitit() -> dict[str, Any]:
    with slurm() as cluster:
        return {"trials_per_s": timed_script(SUBMITIT, "30", environment=cluster.env)[0]}


if __name__ == "__main__":
    main({"ours": _ours, "submitit": _submitit})
