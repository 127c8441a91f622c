"""A host with a real agent, Ray on this machine alone: `... DIRECTORY RAY_DIRECTORY uploads|ends`."""

import json
import os
import queue
import select
import sys
import threading
import time
import uuid
from pathlib import Path

import cloudpickle
import msgspec
import ray

from trainables.store import publish, staging
from trainables.transfer.transfer_jobs import PushManifest, PushPayload
from trainables.wire import CheckpointRef
from tuner.executors.host_agent.protocol import Setup
from tuner.executors.local.pickled import write_trainable
from tuner.executors.local.process_tree import marked
from tuner.executors.ray import connection
from tuner.executors.ray.actor import ActorHandle
from tuner.executors.remote import host as hosts
from tuner.executors.remote_hosts import ExperimentPlace, Uploading

root, id = Path(sys.argv[1]), uuid.uuid4().hex
os.environ["HOST_OF"] = id
ray.init(
    "local",
    num_cpus=1,
    include_dashboard=False,
    log_to_driver=False,
    logging_level="ERROR",
    _temp_dir=sys.argv[2],
    object_store_memory=80 * 2**20,
)
(node,) = connection.nodes()
agent, place = ActorHandle(node.id, None), ExperimentPlace(root / "exp", root / "no record", id, "e")
host = hosts.RemoteHost(node.id, node.ip, agent, place, number=1)
assert not host.survey().shared


def beat():
    while True:
        host.beat()
        time.sleep(1)


threading.Thread(target=beat, daemon=True).start()
uploading = cloudpickle.dumps(Uploading({"place": str(root / "mount" / "copies")}, 30.0, needed=False))
(root / "temporary").mkdir()
written = write_trainable(lambda config: None, root / "temporary")
setup = Setup(written.imports, id, root / "temporary", Path.cwd(), uploading=uploading)


def begin():
    begun = queue.SimpleQueue()
    host.begin(setup, written.path.read_bytes(), b"", begun.put)
    problem = begun.get(timeout=100)
    if problem is not None:
        raise problem


def uploads():
    trial = root / "exp" / "t"
    trial.mkdir()
    staged = staging.new_directory(trial, "1")
    (staged / "model").write_bytes(b"x" * 10_000)
    ref = CheckpointRef("e_0", "checkpoint_000001", 1, 1, 1, 1)
    published = publish.commit(
        publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b"{}"), created=1e9), trial / ref.name
    )

    def upload(kind):
        answers = queue.SimpleQueue()
        host.store.upload(kind(directory=str(published.path), key=f"exp/t/{ref.name}"), answers.put)
        return answers.get(timeout=100)

    begin()
    (root / "mount").write_text("not mounted")
    first = upload(PushPayload)  # the first thing that it does there is to look whether it can use the place
    (root / "mount").unlink()
    later = [type(upload(kind)).__name__ for kind in (PushPayload, PushManifest)]
    there = sorted(path.name for path in (root / "mount/copies/exp/t" / ref.name).iterdir())
    (pid,) = [pid for pid in marked("HOST_OF", id) if b"AgentActor" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    process = os.pidfd_open(pid)
    agent.kill()
    select.select([process], [], [])  # until it has ended
    dead = upload(PushPayload)
    seen = {"first": msgspec.to_builtins(first), "later": later, "there": there, "dead": dead.kind.value}
    print("SEEN", json.dumps(seen))


def ends():
    hosts.connect = lambda address: None  # nothing but the engine gets through
    begin()
    assert host.line is None
    host.listen(lambda heard: None)
    temporary = host.temporary(root / "temporary")
    assert temporary.is_dir()
    host.end()
    host.listen(lambda heard: None)  # as it does by itself when an answer comes while the agent ends
    host.ended(timeout_s=1000)
    print("SEEN", json.dumps({"left": temporary.exists()}))


{"uploads": uploads, "ends": ends}[sys.argv[3]]()
