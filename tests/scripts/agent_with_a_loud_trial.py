"""A driver and an agent in one process, whose trial writes more than the driver reads: `... DIRECTORY orders|end`."""

import os
import sys
import threading
import time
from pathlib import Path

from trainables.job import Job
from tuner.executors.base import Exited, Launch
from tuner.executors.host_agent.line import connect
from tuner.executors.host_agent.protocol import HEARTBEAT_S, KillTrial, Setup, pack_orders, unpack_heard
from tuner.executors.host_agent.service import HostAgent
from tuner.executors.local.pickled import pickle_job, write_trainable

home, what = Path(sys.argv[1]), sys.argv[2]


def train(config):
    while True:
        print("x" * 1000)


def drive(line):
    job = Job(
        trial_id="t0",
        trial_name="t0",
        experiment_name="e",
        directory=home / "t0",
        temporary=home,
        config={},
        generation=1,
        original_cwd=home,
        index=0,
        attempt=1,
        seed=1,
    )
    out = home / "t0" / "stdout"
    launch = Launch(job, {"cpu": 1.0}, stdout=out, stderr=out, tee=True, packed=pickle_job(job, "the config"))
    line.send(pack_orders([launch]))
    size, since = 0, time.monotonic()
    while not size or time.monotonic() - since < 1:  # until the trial is held up: nobody reads what it writes
        time.sleep(0.05)
        if out.exists() and out.stat().st_size != size:
            size, since = out.stat().st_size, time.monotonic()
        if size > 512 << 20:
            sys.exit("the agent keeps in memory whatever a trial writes")
    print("held up", flush=True)
    if what == "orders":
        line.send(pack_orders([KillTrial("nobody" * (8 << 20)), KillTrial("t0")]))
        while True:
            for batch in line.receive():
                if any(isinstance(said, Exited) for said in unpack_heard(batch)):
                    return


def beat():
    while True:
        agent.alive()
        time.sleep(HEARTBEAT_S)


agent = HostAgent("127.0.0.1", lambda heard: None)  # there is no cluster
threading.Thread(target=beat, daemon=True).start()
written = write_trainable(train, home)
address = agent.begin(Setup(written.imports, str(home), home / "tmp", home), written.path.read_bytes(), b"")
line = connect(address)  # held to the end: an agent whose driver's line is closed leaves by itself
drive(line)
agent.end()
print("ended", flush=True)
os._exit(0)
