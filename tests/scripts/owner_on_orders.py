"""A process that owns experiments: an order per line of its input, the answer on its output, both as JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tuner.clock import SystemClock
from tuner.error import OwnedElsewhereError
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import OWNER_VARIABLE, Processes

children = []
for line in sys.stdin:
    order = json.loads(line)
    try:
        if order["do"] == "claim":
            owner = claim(ExperimentPaths(Path(order["root"])), clock=SystemClock())
            answer = {"generation": owner.generation, "id": owner.id}
        elif order["do"] == "start":
            marked = {**os.environ, OWNER_VARIABLE: owner.id}
            child = subprocess.Popen(
                ["sleep", "600"],
                env=marked if order["marked"] else {},
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                pass_fds=[owner.lock_fd] if order["lock"] else [],
            )
            children.append(child)
            start = Processes().start_time(child.pid)
            if order["recorded"]:
                owner.record_processes([(child.pid, start + order.get("off", 0))])
            answer = {"pid": child.pid}
        elif order["do"] == "check":
            owner.check()
            answer = {}
        elif order["do"] == "release":
            owner.release()
            answer = {}
    except OwnedElsewhereError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
