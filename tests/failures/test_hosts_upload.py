"""Checkpoints that hosts copy to a bucket themselves: nothing passes the driver, and a host's death loses nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import pytest
from clusters import DRAIN
from test_cluster_group import Training, check_places

from tests.servers.cluster import PATIENCE_S, RESULTS, Cluster, ray_cluster
from tests.servers.s3 import ENVIRONMENT

pytestmark = [pytest.mark.root, pytest.mark.timeout(400)]

_PORT = 5555
_SERVER = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

class Handler(WSGIRequestHandler):
    def log_request(self, code="-", size="-"):
        if self.command == "PUT":
            with open(sys.argv[3], "a") as file:
                print(self.client_address[0], self.path, file=file)

app = DomainDispatcherApplication(create_backend_app)
server = make_server(sys.argv[1], int(sys.argv[2]), app, threaded=True, request_handler=Handler)
print("serving", flush=True)
server.serve_forever()
"""
_BUCKET = """
import boto3
boto3.client("s3").create_bucket(Bucket="runs")
"""
_KEYS = """
import boto3
for found in boto3.client("s3").list_objects_v2(Bucket="runs").get("Contents", ()):
    print(found["Key"])
"""
_TRAIN = """
import json, os, socket, sys, time
from pathlib import Path
import boto3
import tuner as tune
from tuner.executors import RayExecutor


def train(config):
    held = tune.get_checkpoint()
    start = held.to_dict()["i"] if held else 0
    for i in range(start + 1, config["steps"] + 1):
        Path("/srv/home", f"step-{config['x']}-{i}").touch()
        tune.report({"loss": i, "host": socket.gethostname()}, checkpoint=tune.Checkpoint.from_dict({"i": i}))
        while i == config["wait_at"] and not Path(config["go"]).exists():
            if tune.get_context().should_stop():  # its node is to go away
                Path("/srv/home", f"step-{config['x']}-{i + 1}").touch()
                tune.report({"loss": i + 1, "host": socket.gethostname()},
                            checkpoint=tune.Checkpoint.from_dict({"i": i + 1}))
                return
            time.sleep(0.05)


if __name__ == "__main__":
    settings = json.loads(sys.argv[2])
    analysis = tune.run(
        train,
        config={"x": tune.grid_search([1, 2, 3]), "steps": 6, "wait_at": settings["wait_at"], "go": settings["go"]},
        executor=RayExecutor(address=sys.argv[1]), name=settings["name"], storage_path="/srv/results", verbose=2,
        resources_per_trial={"cpu": settings["cpu"]}, keep_checkpoints_num=2,
        sync_config=tune.SyncConfig(upload_dir="s3://runs/here", sync_timeout=60),
    )
    root = Path(analysis.experiment_path)
    keys = [found["Key"] for found in boto3.client("s3").list_objects_v2(Bucket="runs")["Contents"]]
    print("FOUND", json.dumps({
        "iterations": {t.dirname: t.last_result["training_iteration"] for t in analysis.trials},
        "hosts": sorted({t.last_result["host"] for t in analysis.trials}),
        "lost": sum(t.attempt - 1 for t in analysis.trials),
        "failures": [t.num_failures for t in analysis.trials],
        "last": {t.dirname: t.checkpoint.to_dict()["i"] for t in analysis.trials},
        "here": sorted(str(path.relative_to(root)) for path in root.glob("*/checkpoint_*")),
        "bucket": sorted(key for key in keys if key.endswith(".manifest.json") and settings["name"] in key),
    }))
"""


_WORKERS = """
import json, os, sys
from pathlib import Path
import boto3
import trainables as train
from trainables import CheckpointConfig, RunConfig, ScalingConfig, SyncConfig
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.store import manifest
from tuner.executors import RayExecutor


def save(config):
    for step in range(3):
        with train.checkpoint_dir() as directory:
            Path(directory, f"shard_{train.world_rank()}").write_bytes(os.urandom(200_000))
        train.report({"step": step, "node": train.get_context().get_node_rank()})


if __name__ == "__main__":
    result = DataParallelTrainer(
        save, scaling_config=ScalingConfig(num_workers=4),
        run_config=RunConfig(
            name="group", storage_path="/srv/results", executor=RayExecutor(address=sys.argv[1]),
            checkpoint_config=CheckpointConfig(num_to_keep=1, _checkpoint_upload_from_workers=True),
            sync_config=SyncConfig(upload_dir="s3://runs/here"),
        ),
    ).fit()
    place = boto3.client("s3")
    keys = [found["Key"] for found in place.list_objects_v2(Bucket="runs", Prefix="here/group")["Contents"]]
    kept = sorted(key for key in keys if "/checkpoint_" in key)
    data = place.get_object(Bucket="runs", Key=kept[0])["Body"].read()
    sizes = {entry.name: entry.size for entry in manifest.decode(data, kept[0]).files}
    print("FOUND", json.dumps({"kept": kept, "sizes": sizes}))
"""


@pytest.fixture(scope="module")
def with_bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts, and an S3 server on the first; nothing but that server is reachable without ssh."""
    env = {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://10.77.0.2:{_PORT}"}
    with ray_cluster(tmp_path_factory.mktemp("cluster"), ssh=False, env=env) as cluster:
        head = cluster.hosts[0]
        assert head.address == "10.77.0.2"
        server = head.popen(_SERVER, head.address, str(_PORT), str(cluster.shared / "puts"))
        until(lambda: "serving" in server.output)
        head.run(_BUCKET)
        head.drivers.remove(server)
        yield cluster
        server.close()


def until(reached: object) -> None:
    deadline = time.monotonic() + 2 * PATIENCE_S
    while not reached():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def found(output: str) -> dict:
    print(output, file=sys.stderr)
    return json.loads(next(line for line in output.splitlines() if line.startswith("FOUND ")).removeprefix("FOUND "))


def test_hosts_copy_their_checkpoints_to_the_bucket_themselves(with_bucket: Cluster) -> None:
    settings = json.dumps({"name": "plain", "wait_at": 0, "go": "", "cpu": 1})
    seen = found(with_bucket.hosts[0].run(_TRAIN, with_bucket.address, settings, within_s=2 * PATIENCE_S))
    assert set(seen["iterations"].values()) == {6} and set(seen["last"].values()) == {6}
    assert len(seen["bucket"]) == 6, seen["bucket"]  # the two newest of each of three trials
    others = list(with_bucket.hosts[1].path(f"{RESULTS}/plain").glob("*/checkpoint_*"))
    assert len(others) + len(seen["here"]) == 6, (others, seen["here"])


def test_workers_on_every_host_copy_what_they_saved_to_the_bucket(with_bucket: Cluster) -> None:
    seen = found(with_bucket.hosts[0].run(_WORKERS, with_bucket.address, within_s=2 * PATIENCE_S))
    names = [key.rpartition("/checkpoint_000003/")[2] for key in seen["kept"]]
    assert names == [".manifest.json", "shard_0", "shard_1", "shard_2", "shard_3"]
    assert seen["sizes"] == {f"shard_{rank}": 200_000 for rank in range(4)}
    puts = [line.split() for line in (with_bucket.shared / "puts").read_text().splitlines()]
    last = [(path.rpartition("/")[2], address) for address, path in puts if "/checkpoint_000003/" in path]
    assert sorted(name for name, _ in last) == names, last  # each of them once
    by = dict(last)
    assert by["shard_0"] == by["shard_1"] != by["shard_2"] == by["shard_3"]


def test_f38_a_host_that_dies_takes_nothing_along_that_the_bucket_has(with_bucket: Cluster) -> None:
    head = with_bucket.hosts[0]
    third = with_bucket.add_host()
    # A trial fills a host, and waits in its middle: each host has one of the three.
    settings = json.dumps({"name": "dying", "wait_at": 4, "go": "/srv/home/go", "cpu": 2})
    driver = head.popen(_TRAIN, with_bucket.address, settings)
    until(lambda: driver.poll() is not None or list(third.path("/srv/home").glob("step-*-4")))
    assert driver.poll() is None, driver.output
    third.kill()
    for host in with_bucket.hosts[:2]:
        host.path("/srv/home/go").touch()
    seen = found(driver.ends(2 * PATIENCE_S))
    assert set(seen["iterations"].values()) == {6} and set(seen["last"].values()) == {6}
    assert seen["lost"] >= 1
    assert len(seen["bucket"]) == 6


def test_f36_a_drained_host_copies_what_it_saved_and_others_go_on_from_the_bucket(with_bucket: Cluster) -> None:
    head = with_bucket.hosts[0]
    hosts = with_bucket.hosts[:2]
    third = with_bucket.add_host()
    settings = json.dumps({"name": "drained", "wait_at": 4, "go": "/srv/home/go-drained", "cpu": 2})
    for sign in [sign for host in hosts for sign in host.path("/srv/home").glob("step-*")]:
        sign.unlink()  # of the test before
    driver = head.popen(_TRAIN, with_bucket.address, settings)
    until(lambda: driver.poll() is not None or all(list(h.path("/srv/home").glob("step-*-4")) for h in (*hosts, third)))
    assert driver.poll() is None, driver.output
    head.run(DRAIN, with_bucket.address, third.address)
    until(lambda: driver.poll() is not None or list(third.path("/srv/home").glob("step-*-5")))
    (x,) = {sign.name.split("-")[1] for sign in third.path("/srv/home").glob("step-*-1")}
    head.path("/srv/home/go-drained").touch()  # the driver's own host is the first with room: it has none of it either
    until(lambda: driver.poll() is not None or head.path(f"/srv/home/step-{x}-6").exists())
    hosts[1].path("/srv/home/go-drained").touch()
    seen = found(driver.ends(2 * PATIENCE_S))

    steps = {host.hostname: sorted(host.path("/srv/home").glob(f"step-{x}-*")) for host in (*hosts, third)}
    assert [sign.name[-1] for sign in steps.pop(third.hostname)] == ["1", "2", "3", "4", "5"]
    assert [sign.name[-1] for signs in steps.values() for sign in signs] == ["6"]  # no step twice
    third.kill()
    assert set(seen["iterations"].values()) == {6} and set(seen["last"].values()) == {6}
    assert seen["lost"] == 1 and seen["failures"] == [0, 0, 0]
    assert len(seen["bucket"]) == 6, seen["bucket"]


@pytest.mark.soak
def test_a_group_whose_leaders_host_dies_goes_on_from_the_bucket(with_bucket: Cluster) -> None:
    leads = {"leads": 1.0}
    third = with_bucket.add_host(resources=leads)
    training = Training(with_bucket, "group", leads, upload_dir="s3://runs/groups")
    begun = training.begun(1)
    other = begun[2][1]
    check_places(begun, 1, {third.hostname, other})
    assert begun[0][1] == third.hostname
    until(
        lambda: training.script.poll() is not None or "groups/group/" in listed(with_bucket, "checkpoint_000003/.man")
    )
    assert not list(with_bucket.hosts[0].path(f"{RESULTS}/group").glob("*/checkpoint_*"))  # nothing came to the driver
    third.kill()
    fourth = with_bucket.add_host(resources=leads)
    again = training.begun(2)
    check_places(again, 4, {fourth.hostname, again[2][1]})
    training.go()
    seen = training.found()
    assert seen["steps"] == [1, 2, 3, 4, 5, 6]
    assert seen["kept"] == ["model.pt", "of_0", "of_1", "of_2", "of_3"]
    assert "cannot start" not in training.script.output
    fourth.kill()


def listed(cluster: Cluster, part: str) -> str:
    """The keys in the bucket that have a part like that."""
    keys = cluster.hosts[0].run(_KEYS)
    return "\n".join(key for key in keys.splitlines() if part in key)
