"""Checkpoints that hosts copy to a bucket themselves: nothing passes the driver, and a host's death loses nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import pytest

from tests.servers.cluster import PATIENCE_S, RESULTS, Cluster, ray_cluster
from tests.servers.s3 import ENVIRONMENT

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(400)]

_PORT = 5555
_SERVER = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

server = make_server(sys.argv[1], int(sys.argv[2]), DomainDispatcherApplication(create_backend_app), threaded=True)
print("serving", flush=True)
server.serve_forever()
"""
_BUCKET = """
import boto3
boto3.client("s3").create_bucket(Bucket="runs")
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
        "last": {t.dirname: t.checkpoint.to_dict()["i"] for t in analysis.trials},
        "here": sorted(str(path.relative_to(root)) for path in root.glob("*/checkpoint_*")),
        "bucket": sorted(key for key in keys if key.endswith(".manifest.json") and settings["name"] in key),
    }))
"""


@pytest.fixture(scope="module")
def with_bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts, and an S3 server on the first; nothing but that server is reachable without ssh."""
    env = {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://10.77.0.2:{_PORT}"}
    with ray_cluster(tmp_path_factory.mktemp("cluster"), ssh=False, env=env) as cluster:
        head = cluster.hosts[0]
        assert head.address == "10.77.0.2"
        server = head.popen(_SERVER, head.address, str(_PORT))
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
