"""A node as the driver knows it, with a real agent: Ray runs on this machine alone, and the "host" is a directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_REPOSITORY = Path(__file__).resolve().parents[3]
_START = """
import json, queue, sys, threading, time, uuid
from pathlib import Path
import cloudpickle, msgspec, ray
from trainables.store import publish, staging
from trainables.transfer.transfer_jobs import PushManifest, PushPayload
from trainables.wire import CheckpointRef
from tuner.executors.local.pickled import write_trainable
from tuner.executors.host_agent.protocol import Setup
from tuner.executors.ray import connection
from tuner.executors.ray.actor import ActorHandle
from tuner.executors.remote import host as hosts
from tuner.executors.remote_hosts import ExperimentPlace, Uploading

root, id = Path(sys.argv[1]), uuid.uuid4().hex
ray.init(
    "local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _temp_dir=sys.argv[2],
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
"""
_UPLOADS = """
trial = root / "exp" / "t"
trial.mkdir()
staged = staging.new_directory(trial, "1")
(staged / "model").write_bytes(b"x" * 10_000)
ref = CheckpointRef("e_0", "checkpoint_000001", 1, 1, 1, 1)
published = publish.commit(publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b"{}"), created=1e9), trial / ref.name)


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
agent.kill()  # it may begin what is asked of it now, and is killed in the middle of it
dead = upload(PushPayload)
seen = {"first": msgspec.to_builtins(first), "later": later, "there": there, "dead": dead.kind.value}
print("SEEN", json.dumps(seen))
"""
_ENDS = """
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
"""


@pytest.fixture
def ray_directory() -> Iterator[str]:
    """Short, for there are sockets in it."""
    directory = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def seen(script: str, root: Path, ray_directory: str) -> dict[str, Any]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "TUNER_"))},
        "PYTHONPATH": str(_REPOSITORY),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [sys.executable, "-c", _START + script, str(root), ray_directory]
    ran = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    line = next(line for line in ran.stdout.splitlines() if line.startswith("SEEN "))
    found: dict[str, Any] = json.loads(line.removeprefix("SEEN "))
    return found


def test_a_host_that_cannot_use_the_place_now_is_not_taken_for_one_that_is_gone(
    tmp_path: Path, ray_directory: str
) -> None:
    found = seen(_UPLOADS, tmp_path, ray_directory)
    first = found["first"]
    assert not first["kind"].startswith("checkpoint"), first  # that would say that there is nothing to copy any more
    assert "mount" in first["message"] and "gone" not in first["message"]
    assert found["later"] == ["Done", "Done"]
    assert found["there"] == [".manifest.json", "model"]
    assert found["dead"] == "checkpoint lost"


def test_the_end_of_a_host_that_is_reached_through_the_engine_alone_is_waited_for(
    tmp_path: Path, ray_directory: str
) -> None:
    assert seen(_ENDS, tmp_path, ray_directory) == {"left": False}
