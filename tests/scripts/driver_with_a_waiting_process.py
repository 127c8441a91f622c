"""A driver whose only process waits for another attempt, for a test to kill: `... DIRECTORY`. Prints all pids."""

import json
import os
import signal
import sys
from pathlib import Path

from driving import Driver

from trainables.trainable import Trainable
from tuner.executors.local.executor import LocalExecutor


class Once(Trainable):
    def step(self):
        return {"pid": os.getpid(), "done": True}

    def reset_config(self, new_config):
        return True


executor = LocalExecutor(cpus=2)
executor.start(Once, marker=f"driver-{sys.argv[1]}", temporary=Path(sys.argv[1]))
driver = Driver(executor, sys.argv[1])
trial = driver.launch(reuse=True)
driver.finish(trial)
print(json.dumps([driver.reports(trial)[0]["pid"], *(pid for pid, _ in executor.owned_processes())]), flush=True)
while True:
    signal.pause()
