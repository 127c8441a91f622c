"""A scheduler that was written for Ray, killed once and run again: `scheduler_for_ray.py STORAGE [kill]`."""

import os
import signal
import sys

from ray import tune
from ray.tune.schedulers import ASHAScheduler


class Cohort:
    def __init__(self):
        self.members = []


class Counting(ASHAScheduler):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.cohort, self.counts, self.key = Cohort(), {}, lambda trial: trial.config["x"]

    def on_trial_add(self, tune_controller, trial):
        super().on_trial_add(tune_controller, trial)
        self.cohort.members.append(trial)
        self.counts[trial] = 0

    def on_trial_result(self, tune_controller, trial, result):
        assert trial in tune_controller.get_live_trials()
        self.counts[trial] += 1
        return super().on_trial_result(tune_controller, trial, result)


def train(config):
    for step in range(1, 7):
        tune.report({"score": config["x"] * step})


class Killed(tune.Callback):
    results = 0

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.results += 1
        if self.results == 12 and "kill" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)


scheduler = Counting(max_t=6, grace_period=1, reduction_factor=2)
analysis = tune.run(
    train,
    name="counted",
    config={"x": tune.uniform(0, 1)},
    num_samples=8,
    scheduler=scheduler,
    metric="score",
    mode="max",
    storage_path=sys.argv[1],
    verbose=0,
    resume="AUTO",
    seed=3,
    callbacks=[Killed()],
)
assert type(scheduler.cohort) is Cohort
assert scheduler.cohort.members == analysis.trials[:]
assert [scheduler.counts[trial] for trial in analysis.trials] == [trial.iteration for trial in analysis.trials]
assert [scheduler.key(trial) for trial in analysis.trials] == [trial.config["x"] for trial in analysis.trials]
print(*[trial.iteration for trial in analysis.trials])
