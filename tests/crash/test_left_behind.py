"""Driver and uploader killed in the middle of uploads: what the next run leaves, here and there, is the experiment."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from killed_script import copies

from tests.servers.hosts import Host, network
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from tests.soak.counts import count

HERE = Path(__file__).parent
PATIENCE_S = 240.0
"""It is given up only then: runs are slow where others run."""
VICTIMS = ("driver", "uploader", "both")


class Place:
    """Where copies go, seen past everything that the package hides."""

    uri: str
    environment: dict[str, str] = {}

    def files(self) -> set[str]:
        """All that lies there, under its raw name; a directory without anything in it ends in a slash."""
        raise NotImplementedError

    @contextmanager
    def network(self) -> Iterator[None]:
        """What starts meanwhile reaches the place."""
        yield


class Directory(Place):
    def __init__(self, root: Path) -> None:
        self.root, self.uri = root, str(root)
        root.mkdir()

    def files(self) -> set[str]:
        return tree(self.root)


class Bucket(Place):
    def __init__(self, port: int, name: str) -> None:
        self.name, self.uri = make_bucket(port, name), f"s3://{name}/runs"
        self.environment = {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
        self.client = boto3.session.Session(**keys).client("s3", endpoint_url=f"http://127.0.0.1:{port}")

    def files(self) -> set[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        found = {entry["Key"].removeprefix("runs/") for page in pages for entry in page.get("Contents", ())}
        unfinished = self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", ())
        return found | {
            f"{upload['Key'].removeprefix('runs/')}?unfinished={upload['UploadId']}" for upload in unfinished
        }


class Elsewhere(Place):
    def __init__(self, host: Host, directory: Path) -> None:
        self.host, self.uri = host, host.uri()
        wrapper = directory / "bin" / "ssh"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {host.network.ssh_config} "$@"\n')
        wrapper.chmod(0o755)
        self.environment = {"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}

    def files(self) -> set[str]:
        return tree(self.host.path("/srv/data"))

    @contextmanager
    def network(self) -> Iterator[None]:
        with self.host.network.enter():
            yield


def tree(root: Path) -> set[str]:
    """Every file below a directory, and with a slash every directory without anything in it."""
    found = set()
    for path, directories, files in os.walk(root):
        below = Path(path).relative_to(root)
        found |= {str(below / name) for name in files}
        if not directories and not files and below.parts:
            found.add(f"{below}/")
    return found


def start(storage: Path, place: Place) -> subprocess.Popen[bytes]:
    temporary = storage.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path]),
        "TMPDIR": str(temporary),
        **place.environment,
    }
    command = [sys.executable, str(HERE / "left_script.py"), str(storage), place.uri]
    with open(storage.parent / "output", "ab") as output, place.network():
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=storage)


def half_sent(name: str) -> bool:
    """Whether it is something that is on its way: of each kind of place."""
    file = name.rpartition("/")[2]
    return file.startswith(".transfer-") or "?unfinished=" in name or (file.startswith(".") and file.count(".") > 1)


def kill_in_mid_upload(process: subprocess.Popen[bytes], place: Place, *, nth: int, victim: str) -> None:
    """Kill when so many things were seen on their way there."""
    seen: set[str] = set()
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and len(seen) < nth:
        seen |= {name for name in place.files() if half_sent(name) and "/checkpoint_" in name}
        assert time.monotonic() < deadline
    try:
        uploaders = [child for child in psutil.Process(process.pid).children() if copies(child.pid)]
    except psutil.NoSuchProcess:
        return
    pids = [process.pid] if victim != "uploader" else []
    pids += [child.pid for child in uploaders] if victim != "driver" else []
    for pid in sorted(pids):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        count("kills of driver" if pid == process.pid else "kills of uploader")


def left(storage: Path, place: Place) -> dict[str, list[str]]:
    """What is there and not here, here and not there, and what is no part of an experiment."""
    here, there = tree(storage / "e"), {name.removeprefix("e/") for name in place.files()}
    own = {name for name in here if name.startswith("generations/") and not name.endswith(".json")}
    beats = {name for name in there if name.endswith(".beat")}
    temporary = tree(storage.parent / "tmp")
    hidden = {
        name for name in tree(storage) if name.split("/")[0] != "e" or "/." in name.replace("/.manifest.json", "")
    }
    found = {
        "there, not here": sorted(there - here - beats),
        "here, not there": sorted(here - there - own),
        "temporary": sorted(temporary),
        "hidden": sorted(hidden - {"failed-0"}),
    }
    return {name: paths for name, paths in found.items() if paths}


def campaign(seed: int, tmp_path: Path, place: Place) -> dict[str, list[str]]:
    rng = random.Random(seed)
    storage = tmp_path / "here"
    storage.mkdir()
    for _ in range(rng.choice([1, 2, 3])):
        process = start(storage, place)
        kill_in_mid_upload(process, place, nth=rng.randint(1, 6), victim=rng.choice(VICTIMS))
        process.wait(PATIENCE_S)
        print("after a kill:", json.dumps(sorted(name for name in place.files() if half_sent(name))))
    last = start(storage, place)
    assert last.wait(PATIENCE_S) == 0, (tmp_path / "output").read_text()
    return left(storage, place)


@contextmanager
def opened(kind: str, tmp_path: Path) -> Iterator[Place]:
    if kind == "directory":
        yield Directory(tmp_path / "place")
    elif kind == "bucket":
        with s3_server() as port:
            yield Bucket(port, "left")
    else:
        with network(tmp_path) as net:
            yield Elsewhere(net.host(size="512m"), tmp_path)


QUICK = {"directory": [0, 1], "bucket": [0, 2], "host": [2]}
RUNS = [
    pytest.param(kind, seed, marks=pytest.mark.soak if seed not in quick else ())
    for kind, quick in QUICK.items()
    for seed in range(40)
]


@pytest.mark.root
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "seed"), RUNS)
def test_f20_after_kills_in_mid_upload_both_sides_hold_the_experiment_and_nothing_else(
    kind: str, seed: int, tmp_path: Path
) -> None:
    with opened(kind, tmp_path) as place:
        assert campaign(seed, tmp_path, place) == {}, (tmp_path / "output").read_text()
