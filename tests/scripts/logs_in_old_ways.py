"""A run with loggers of Ray's older kind; with a number, its driver is killed after that iteration.

Usage: logs_in_old_ways.py DIRECTORY [ITERATION]
"""

import os
import signal
import sys

import tuner as tune
from tuner.logger import DEFAULT_LOGGERS, LegacyLoggerCallback, Logger, LoggerCallback

place, *at = sys.argv[1:]
last = int(at[0]) if at else 100


class Counter(tune.Trainable):
    def setup(self, config):
        pass

    def step(self):
        return {"killed": last < 100}

    def save_checkpoint(self, checkpoint_dir):
        return {}

    def load_checkpoint(self, checkpoint):
        pass


class Lines(Logger):
    """Appends, and can take nothing back."""

    def _init(self):
        self.file = open(os.path.join(self.logdir, "lines"), "a")

    def on_result(self, result):
        print(result["training_iteration"], result["killed"], result["config"]["life"], file=self.file, flush=True)

    def close(self):
        self.file.close()


class Rows(Lines):
    """Takes back what became void."""

    def _init(self):
        self.path = os.path.join(self.logdir, "rows")
        self.file = open(self.path, "a")

    def on_rollback(self, iteration):
        with open(self.path) as file:
            kept = [line for line in file if int(line.split()[0]) <= iteration]
        self.file.seek(0)
        self.file.truncate()
        self.file.writelines(kept)
        self.file.flush()


class Only(LoggerCallback):
    """Ray's newer kind, with nothing but results."""

    def log_trial_result(self, iteration, trial, result):
        with open(os.path.join(trial.logdir, "only"), "a") as file:
            print(result["training_iteration"], result["killed"], file=file)


class Killing(tune.Callback):
    def on_step_begin(self, iteration, trials, **info):
        if any(trial.iteration >= last for trial in trials):
            os.kill(os.getpid(), signal.SIGKILL)


tune.run(
    Counter,
    name="old",
    storage_path=place,
    config={"life": 1},
    stop={"training_iteration": 10},
    checkpoint_freq=3,
    resume="AUTO",
    verbose=0,
    loggers=[*DEFAULT_LOGGERS, Lines],
    callbacks=[LegacyLoggerCallback([Rows]), Only(), Killing()],
)
