"""The guides' listings that copy to a bucket or a host, against a real server; what lies there is looked at."""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tuner as tune
from tests.listings import BEST_FIVE, BUCKETS, FOUR, ROOT, as_written, checkpoints, environment, run, said_by
from tests.servers.forward import Answer, Forwarder
from tests.servers.hosts import Network, network
from tests.servers.s3 import ENVIRONMENT, empty, make_bucket, s3_server
from trainables.store import verify
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer.command import DELETE_LIKE
from trainables.transfer.s3 import S3Backend


@dataclass
class Cloud:
    """A server that has the buckets which the guides name, and what a user's environment says of it."""

    port: int
    disk: Path
    environment: dict[str, str]

    def brought(self, bucket: str) -> Path:
        """Everything in a bucket, as files here; what of a checkpoint is there is whole, and its hashes are right."""
        place = self.disk / bucket
        shutil.rmtree(place, ignore_errors=True)
        backend = S3Backend(f"s3://{bucket}")
        try:
            if list(backend.list()):
                backend.fetch("", place)
        finally:
            backend.close()
        for manifest in place.rglob(MANIFEST_NAME):
            verify.check(manifest.parent)
        directories = {path.parent for path in place.rglob("checkpoint_*/*")}
        assert all((directory / MANIFEST_NAME).exists() for directory in directories)
        return place


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with s3_server() as port:
        yield port


@pytest.fixture
def cloud(server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    empty(server)
    for bucket in {bucket for bucket, _, _ in BUCKETS.values()}:
        make_bucket(server, bucket)
    seen = ENVIRONMENT | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server}"}
    for name, value in seen.items():
        monkeypatch.setenv(name, value)
    return Cloud(server, tmp_path / "bucket", seen)


def experiments(place: Path) -> list[str]:
    """Where in a bucket there are experiments."""
    return sorted(str(found.parent.relative_to(place)) for found in place.rglob("experiment.json"))


@pytest.mark.timeout(400)  # `aws` takes a second to start, and is started for every checkpoint
@pytest.mark.parametrize("name", sorted(BUCKETS.keys() - {"s001_cloud_restart"}))
def test_the_guides_listing_runs_as_written_and_its_bucket_holds_what_is_kept(
    name: str, tmp_path: Path, cloud: Cloud
) -> None:
    bucket, where, kept = BUCKETS[name]

    script = as_written(name, tmp_path, steps=len(kept) if kept == FOUR else 8)

    said_by(run(script, tmp_path, timeout=380, **cloud.environment))

    place = cloud.brought(bucket)
    (experiment,) = experiments(place)
    assert fnmatch.fnmatch(experiment, where)
    assert checkpoints(place / experiment) == kept
    (trial,) = [path for path in (place / experiment).iterdir() if path.name.startswith(("my_trainable", "train_func"))]
    assert {"result.json", "params.json"} <= {path.name for path in trial.iterdir()}
    assert list((place / experiment / "journal").iterdir())
    others = {other for other, _, _ in BUCKETS.values()} - {bucket}
    assert not any(experiments(cloud.brought(other)) for other in others)


@pytest.mark.timeout(400)
def test_with_a_delete_template_the_guides_command_leaves_in_the_bucket_what_is_kept(
    tmp_path: Path, cloud: Cloud
) -> None:
    script = as_written("s001_cloud_custom_command", tmp_path, steps=4)
    text = script.read_text()
    given = text.replace("        syncer=", f"        delete_template={DELETE_LIKE!r},\n        syncer=")
    script.write_text(given.replace("    name=", "    keep_checkpoints_num=2,\n    name="))

    said_by(run(script, tmp_path, timeout=380, **cloud.environment))

    assert checkpoints(cloud.brought("bucket-name")) == FOUR[-2:]


def test_the_guides_paths_are_where_checkpoints_lie(tmp_path: Path, cloud: Cloud) -> None:
    """`.../my-tune-exp/<trial_name>/checkpoint_<step>`: in the bucket, and under local_dir here."""
    said_by(run(as_written("s001_cloud_checkpointing", tmp_path), tmp_path, **cloud.environment))

    here, there = tmp_path / "mypath/my-tune-exp", cloud.brought("my-checkpoints-bucket") / "path/my-tune-exp"
    (trial,) = {manifest.parent.parent.name for manifest in there.rglob(MANIFEST_NAME)}
    assert json.loads((there / trial / "result.json").read_text().splitlines()[-1])["trial_id"] in trial
    assert checkpoints(here / trial) == checkpoints(there / trial) == BEST_FIVE
    assert (there / trial / "checkpoint_000007/step").read_text() == "7"


# --- a machine that is lost ------------------------------------------------------------------------------


class _Arrivals(Forwarder):
    """Tells when so many manifests of checkpoints have arrived in the bucket."""

    def __init__(self, port: int, count: int) -> None:
        super().__init__(port)
        self.count = count
        self.seen: set[str] = set()
        self.all_seen = threading.Event()

    def handle_one(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        answer = super().handle_one(method, path, headers, body)
        if method == "PUT" and path.endswith(MANIFEST_NAME) and answer[0] == 200:
            self.seen.add(path)
            if len(self.seen) == self.count:
                self.all_seen.set()
        return answer


def killed_and_its_disk_lost(name: str, home: Path, cloud: Cloud) -> None:
    """Run a listing until its first five checkpoints are in the bucket; kill it, and remove what it wrote here."""
    script = as_written(name, home)
    gate = home / "gate"
    os.mkfifo(gate)
    module = script.parent / "your_module.py"
    text = module.read_text()
    stops = f"        if step == 5:\n            open({str(gate)!r}).close()\n"
    module.write_text(text.replace("        with tune.checkpoint_dir", f"{stops}        with tune.checkpoint_dir"))
    with _Arrivals(cloud.port, 5) as arrivals:
        seen = cloud.environment | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{arrivals.server_port}"}
        process = subprocess.Popen(
            [sys.executable, str(script)],
            env=environment(home, **seen),
            cwd=home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert arrivals.all_seen.wait(60)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            _, said = process.communicate()  # until nobody holds the line any more
    assert "Traceback" not in said
    gate.unlink()
    module.write_text(text)
    for lost in ("mypath", "tuner_results", ".cache", "tmp"):
        shutil.rmtree(home / lost, ignore_errors=True)


def test_the_same_script_on_an_empty_machine_goes_on_from_the_bucket(tmp_path: Path, cloud: Cloud) -> None:
    killed_and_its_disk_lost("s001_cloud_checkpointing", tmp_path, cloud)
    assert not checkpoints(tmp_path / "mypath")

    said = said_by(run(as_written("s001_cloud_checkpointing", tmp_path), tmp_path, **cloud.environment))

    assert "resuming from s3://my-checkpoints-bucket/path/my-tune-exp" in said
    there = cloud.brought("my-checkpoints-bucket") / "path/my-tune-exp"
    assert [name[:17] for name in checkpoints(there)] == BEST_FIVE
    rows = [json.loads(row) for file in there.rglob("result.json") for row in file.read_text().splitlines()]
    assert [row["training_iteration"] for row in rows] == list(range(1, 9))
    assert len(list((there / "generations").glob("*.json"))) == 2


def test_restore_sync_config_of_a_killed_run_goes_on_under_the_new_name(tmp_path: Path, cloud: Cloud) -> None:
    killed_and_its_disk_lost("s001_cloud_checkpointing", tmp_path, cloud)
    bucket, where, kept = BUCKETS["s001_cloud_restart"]
    old = contents(cloud.brought(bucket) / "path/my-tune-exp")

    said = said_by(run(as_written("s001_cloud_restart", tmp_path), tmp_path, **cloud.environment))

    assert "continuing s3://my-checkpoints-bucket/path/my-tune-exp" in said
    place = cloud.brought(bucket)
    assert contents(place / "path/my-tune-exp") == old
    assert experiments(place) == ["path/my-tune-exp", where]
    assert [name[:17] for name in checkpoints(place / where)] == kept  # also the settings are those of the old one
    rows = [json.loads(row) for file in (place / where).rglob("result.json") for row in file.read_text().splitlines()]
    assert [row["training_iteration"] for row in rows] == list(range(1, 9))


def test_restore_sync_config_of_a_finished_run_shows_its_results_and_leaves_it_alone(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    said_by(run(as_written("s001_cloud_checkpointing", tmp_path), tmp_path, **cloud.environment))
    shutil.rmtree(tmp_path / "mypath")
    bucket, where, _ = BUCKETS["s001_cloud_restart"]
    old = contents(cloud.brought(bucket) / "path/my-tune-exp")

    said = said_by(run(as_written("s001_cloud_restart", tmp_path), tmp_path, **cloud.environment))

    assert "TERMINATED  8" in said
    place = cloud.brought(bucket)
    assert contents(place / "path/my-tune-exp") == old
    assert experiments(place) == ["path/my-tune-exp", where]
    monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / "cache"))
    analysis = tune.ExperimentAnalysis(tmp_path / "tuner_results/my-tune-exp-restart", metric="auc", mode="max")
    assert analysis.best_checkpoint is not None
    with analysis.best_checkpoint.as_directory() as directory:
        assert Path(directory, "step").read_text() == "7"


def test_the_example_on_an_empty_machine_shows_what_the_bucket_holds(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ROOT / "examples" / "bucket.py"
    first = said_by(run(script, tmp_path, "s3://bucket-name/runs", **cloud.environment))
    shutil.rmtree(tmp_path / "tuner_results")

    second = said_by(run(script, tmp_path, "s3://bucket-name/runs", **cloud.environment))

    assert "resuming from s3://bucket-name/runs/bucket" in second
    assert second.splitlines()[-2:] == first.splitlines()[-2:]
    assert "'step': 20" in second.splitlines()[-1]
    assert len(checkpoints(cloud.brought("bucket-name"))) == 3 * 2
    assert not checkpoints(tmp_path / "tuner_results")  # fetched into the cache, when it was looked into


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


# --- another host ----------------------------------------------------------------------------------------


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Network]:
    (tmp_path / "net").mkdir()
    with network(tmp_path / "net") as made:
        yield made


def to_host(listing: Path, net: Network, home: Path, *, recursive: bool = True) -> None:
    """Give a listing a test's host: where copies go, the key, and how its ssh finds the host's own key."""
    shutil.copy(net.key, home / "ssh_key.pem")
    text = listing.read_text()
    place = f"        upload_dir={net.hosts[0].uri('/srv/home/results')!r},\n        syncer="
    given = text.replace("        syncer=", place).replace("ssh -i", f"ssh -F {net.ssh_config} -i")
    if recursive:
        shell = f"rsync -re 'ssh -F {net.ssh_config}' {{source}} {{target}}"
        given = given.replace("rsync {source} {target}", shell)
    assert given != text
    listing.write_text(given)


@pytest.mark.root
@pytest.mark.parametrize("name", ["s001_rsync_template", "s001_custom_sync_function"])
def test_the_guides_rsync_copies_to_a_host_and_the_run_goes_on_from_there(
    name: str, tmp_path: Path, net: Network
) -> None:
    host = net.host()
    script = as_written(name, tmp_path, steps=4)
    to_host(script, net, tmp_path)

    with net.enter():
        said_by(run(script, tmp_path))

    there = host.path("/srv/home/results/experiment_name")
    assert checkpoints(there) == FOUR
    for manifest in there.rglob(MANIFEST_NAME):
        verify.check(manifest.parent)
    shutil.rmtree(tmp_path / "tuner_results")
    script.write_text(script.read_text().replace("    name=", '    resume="AUTO", num_samples=2, name='))
    with net.enter():
        said = said_by(run(script, tmp_path))
    assert "resuming from worker@10.77.0.2:/srv/home/results/experiment_name" in said
    assert [name[:17] for name in checkpoints(there)] == sorted(2 * FOUR)


@pytest.mark.root
def test_the_guides_function_with_an_upload_dir_is_refused_and_told_of_the_missing_r(
    tmp_path: Path, net: Network
) -> None:
    """`rsync {source} {target}` copies no directory, and does not say so with its exit status to the function."""
    net.host()
    script = as_written("s001_custom_sync_function", tmp_path)
    to_host(script, net, tmp_path, recursive=False)

    with net.enter():
        done = run(script, tmp_path)

    assert done.returncode == 1
    assert "`rsync` without -r" in done.stderr
    assert not (tmp_path / "tuner_results/experiment_name").exists()
