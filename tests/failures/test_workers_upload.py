"""Workers of a trainer that copy what they save themselves: who sends what, what is complete, and what kills leave."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lifecycle_scripts import Stage
from replicas import Store, Watched, refusal

import trainables as train
from trainables import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, SyncConfig
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.store import manifest, staging, verify

TWO = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})
SIZE = 1_000_000


def save(config: dict[str, Any]) -> None:
    """Each worker has a way to the bucket of its own, and tells nobody else of it."""
    rank = train.world_rank()
    os.environ["AWS_ENDPOINT_URL"] = config["ways"][rank]
    for step in range(config["steps"]):
        with train.checkpoint_dir() as directory:
            Path(directory, f"shard_{rank}").write_bytes(os.urandom(SIZE))
            Path(directory, f"base_{rank}").write_bytes(bytes([rank]) * SIZE)
            Path(directory, "both").write_text(f"{rank}")
        train.report({"step": step})
        if "begun" in config:  # what waits to be sent would give way to what is saved next
            with open(config["begun"][rank], "rb", buffering=0) as sign:
                sign.read(1)


def wait_for(sign: Path) -> None:
    while not sign.exists():
        time.sleep(0.02)


def fit(
    store: Store,
    root: Path,
    function: Callable[..., None] = save,
    *,
    keep: int | None = None,
    backlog: int = 10**10,
    **config: Any,
) -> Any:
    """Run it to its end, two workers whose uploads are switched on."""
    checkpointing = CheckpointConfig(num_to_keep=keep, _checkpoint_upload_from_workers=True)
    settings = RunConfig(
        name="e",
        storage_path=str(root),
        verbose=0,
        checkpoint_config=checkpointing,
        failure_config=FailureConfig(max_failures=1),
        sync_config=SyncConfig(upload_dir=store.uri, max_backlog=backlog),
    )
    config = {"signs": str(root), **config}
    return DataParallelTrainer(function, train_loop_config=config, scaling_config=TWO, run_config=settings).fit()


def check_copy(store: Store, root: Path, iterations: list[int]) -> None:
    """The replica has the checkpoints that are kept here, digest for digest, and nothing else of any."""
    assert store.iterations() == [iterations]
    assert store.without_manifest() == set()
    assert all(entry.key.startswith("e/") for entry in store.backend.list())
    copied = store.bring(root / "brought")
    here = {path.relative_to(root / "e"): manifest.read(path).digest for path in (root / "e").glob("*/checkpoint_*")}
    there = {path.relative_to(copied): manifest.read(path).digest for path in copied.glob("*/checkpoint_*")}
    assert here == there and len(here) == len(iterations)
    for path in here:
        verify.check(root / "e" / path)
    assert not list((root / "e").glob(f"*/{staging.PREFIX}*"))


@contextmanager
def way_of(rank: int, moto: int, sign: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """(its URL, names of files that a worker sends over it, and of those copied over there); signs each shard."""
    sent: list[str] = []
    copied: list[str] = []
    os.mkfifo(sign)
    opened = os.open(sign, os.O_RDWR)

    def see(method: str, key: str, headers: dict[str, str]) -> None:
        if method == "PUT" and "/checkpoint_" in key:
            over_there = "x-amz-copy-source" in {name.lower() for name in headers}
            (copied if over_there else sent).append(key.rpartition("/")[2])
            if f"/shard_{rank}" in key:
                os.write(opened, b".")

    with Watched(moto) as way:
        way.before = see
        yield way.url, sent, copied
    os.close(opened)


def test_each_worker_sends_what_it_saved_and_the_driver_nothing_of_it(
    store: Store, watched: Watched, moto: int, tmp_path: Path
) -> None:
    signs = [tmp_path / f"begun_{rank}" for rank in range(2)]
    with way_of(0, moto, signs[0]) as first, way_of(1, moto, signs[1]) as second:
        fit(store, tmp_path, steps=2, ways=[first[0], second[0]], begun=[str(sign) for sign in signs])

    check_copy(store, tmp_path, [1, 2])
    for rank, (_, sent, copied) in enumerate([first, second]):
        assert sorted({*sent} - {"both"}) == [f"base_{rank}", f"shard_{rank}"]
        assert (sent.count(f"shard_{rank}"), sent.count(f"base_{rank}")) == (2, 1)
        assert f"base_{rank}" in copied  # it has not changed
    keys = [key for method, key in watched.writes if method == "PUT" and "/checkpoint_" in key]
    assert [key.rpartition("/")[2] for key in keys] == [".manifest.json"] * 2
    (brought,) = (tmp_path / "brought").glob("*/checkpoint_000002")
    assert Path(brought, "both").read_text() == "0"


def hurry(config: dict[str, Any]) -> None:
    save(config)
    if train.world_rank() == 0:
        Path(config["signs"], "done").touch()


def test_what_retention_lets_go_of_while_it_is_sent_leaves_nothing(
    store: Store, moto: int, direct: str, tmp_path: Path
) -> None:
    with Watched(moto) as way:
        way.hold = lambda method, path: wait_for(tmp_path / "done") if "/shard_" in path else None
        fit(store, tmp_path, hurry, keep=1, steps=5, ways=[way.url, direct])
        names = [key.split("/")[-2] for method, key in way.writes if "/shard_" in key]
    check_copy(store, tmp_path, [5])
    assert names == ["checkpoint_000001", "checkpoint_000005"]  # the ones between were never begun


def save_badly(config: dict[str, Any]) -> None:
    rank = train.world_rank()
    for step in range(3):
        with train.checkpoint_dir() as directory:
            Path(directory, f"shard_{rank}").write_bytes(os.urandom(SIZE))
            if step == 0 and rank == 0:
                Path(directory, ".manifest.json").write_text("{}")
            if step == 1 and rank == 1:
                Path(directory, "link").symlink_to("/nowhere")
        train.report({"step": step})


def test_a_save_that_could_not_be_published_leaves_nothing_there(store: Store, tmp_path: Path) -> None:
    fit(store, tmp_path, save_badly)

    check_copy(store, tmp_path, [3])


def test_a_report_that_waits_for_the_copies_does_not_wait_for_those_that_wait_for_its_answer(
    store: Store, direct: str, tmp_path: Path
) -> None:
    fit(store, tmp_path, steps=4, backlog=SIZE, ways=[direct, direct])

    check_copy(store, tmp_path, [1, 2, 3, 4])


# --- kills ------------------------------------------------------------------------------------------------


def die_while_it_uploads(config: dict[str, Any]) -> None:
    rank, signs = train.world_rank(), Path(config["signs"])
    first = train.get_checkpoint() is None
    if first and rank == 1:
        os.environ["AWS_ENDPOINT_URL"] = config["way"]
    for step in range(2):
        with train.checkpoint_dir() as directory:
            Path(directory, f"shard_{rank}").write_bytes(os.urandom(SIZE))
        train.report({"step": step})
        if first:
            wait_for(signs / "uploading")
            if rank == 1:
                wait_for(signs / "published")
                os.kill(os.getppid() if config["who"] == "leader" else os.getpid(), signal.SIGKILL)
            time.sleep(3600)


@pytest.mark.parametrize("who", ["rank", "leader"])
def test_one_that_is_killed_while_it_uploads_costs_no_checkpoint(
    store: Store, moto: int, tmp_path: Path, who: str
) -> None:
    over = threading.Event()

    def hold(method: str, path: str) -> None:
        if method == "PUT" and "/shard_1" in path:
            (tmp_path / "uploading").touch()
            while not list((tmp_path / "e").glob("*/checkpoint_000001")):
                time.sleep(0.02)
            (tmp_path / "published").touch()
            over.wait(100)

    with Watched(moto) as way:
        way.hold = hold
        way.before = lambda method, path, headers: refusal(503, "SlowDown") if "/shard_1" in path else None
        fit(store, tmp_path, die_while_it_uploads, who=who, way=way.url)
        over.set()

    check_copy(store, tmp_path, [1, 2, 3])


SCRIPT = """
import json, os, sys, time
from pathlib import Path
import trainables as train
from trainables import CheckpointConfig, RunConfig, ScalingConfig, SyncConfig
from trainables.data_parallel_trainer import DataParallelTrainer

def save(config):
    rank = train.world_rank()
    if rank == 1:
        os.environ["AWS_ENDPOINT_URL"] = os.environ["WAY"]
    for step in range(3):
        with train.checkpoint_dir() as directory:
            Path(directory, f"shard_{rank}").write_bytes(os.urandom(1_000_000))
        train.report({"step": step})
        while sys.argv[2] == "first":
            time.sleep(1)

run = RunConfig(
    name="e", storage_path=os.environ["RESULTS"], sync_config=SyncConfig(upload_dir=sys.argv[1]), verbose=0,
    checkpoint_config=CheckpointConfig(num_to_keep=1, _checkpoint_upload_from_workers=True),
)
two = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})
if sys.argv[2] == "again":
    DataParallelTrainer.restore(os.environ["RESULTS"] + "/e", save).fit()
else:
    DataParallelTrainer(save, scaling_config=two, run_config=run).fit()
"""


def test_a_driver_that_is_killed_while_workers_upload_is_continued_and_leaves_nothing(
    store: Store, moto: int, direct: str, tmp_path: Path
) -> None:
    uploading, over = threading.Event(), threading.Event()

    def hold(method: str, path: str) -> None:
        if method == "PUT" and "/shard_1" in path:
            uploading.set()
            over.wait(100)

    with Watched(moto) as way, Stage(tmp_path) as stage:
        way.hold = hold
        way.before = lambda method, path, headers: refusal(503, "SlowDown") if "/shard_1" in path else None
        stage.write(SCRIPT)
        script = stage.start("script.py", store.uri, "first", WAY=way.url)
        assert uploading.wait(100), script.output
        results = tmp_path / "results"
        # What the other one has brought is there, and the whole is here.
        while not (store.without_manifest() and list((results / "e").glob("*/checkpoint_*"))):
            assert script.process.poll() is None, script.output
            time.sleep(0.05)
        script.kill()
        assert store.checkpoints() == {}
        over.set()
        way.settled()
        stage.run("script.py", store.uri, "again", WAY=direct)
    check_copy(store, results, [4])


# --- places that are not there --------------------------------------------------------------------------------


def test_a_worker_that_cannot_reach_the_place_is_told_of_once_and_its_part_is_sent_with_the_rest(
    store: Store, watched: Watched, direct: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        fit(store, tmp_path, steps=2, ways=[direct, "http://127.0.0.1:1"])

    check_copy(store, tmp_path, [1, 2])
    (told,) = [text for text in caplog.messages if "could not bring there what they saved" in text]
    assert "rank 1" in told and "\n" not in told
    sent = [key.rpartition("/")[2] for method, key in watched.writes if method == "PUT" and "/checkpoint_" in key]
    assert sorted(set(sent)) == [".manifest.json", "base_1", "shard_1"]


@pytest.mark.parametrize(
    "sync, why",
    [
        ({}, "nothing is copied anywhere"),
        ({"upload_dir": "copies", "syncer": "cp -r {source}/. {target}"}, "is given whole"),
        ({"upload_dir": "copies", "sync_on_checkpoint": False}, "every sync_period"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_where_workers_have_nothing_to_upload_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sync: dict[str, Any], why: str
) -> None:
    if "upload_dir" in sync:
        (tmp_path / "copies").mkdir()
        sync = {**sync, "upload_dir": str(tmp_path / "copies")}
    settings = RunConfig(
        name="e",
        storage_path=str(tmp_path / "here"),
        verbose=0,
        checkpoint_config=CheckpointConfig(_checkpoint_upload_from_workers=True),
        sync_config=SyncConfig(**sync),
    )
    with caplog.at_level(logging.WARNING):
        DataParallelTrainer(lambda: train.report({"n": 1}), scaling_config=TWO, run_config=settings).fit()

    (told,) = [text for text in caplog.messages if "_checkpoint_upload_from_workers" in text]
    assert why in told
