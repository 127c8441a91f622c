"""A driver of two trials that never end, for a test to kill: `... DIRECTORY`. Prints the pids of all its processes."""

import json
import os
import signal
import sys
from pathlib import Path

from driving import Driver, StandInExecutor, start_stubborn


def trainable(config, talk):
    talk.report(pids=[os.getpid(), start_stubborn()])
    while True:
        signal.pause()


executor = StandInExecutor(cpus=2)
executor.start(trainable, marker=f"driver-{sys.argv[1]}", temporary=Path(sys.argv[1]))
driver = Driver(executor, sys.argv[1])
trials = [driver.launch(), driver.launch()]
pids = [pid for trial in trials for pid in driver.first_report(trial)["pids"]]
print(json.dumps(pids + [pid for pid, _ in executor.owned_processes()]), flush=True)
driver.finish_all()
