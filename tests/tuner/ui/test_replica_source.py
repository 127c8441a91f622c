"""The page over an experiment of which only the replica in a bucket is at hand."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

import tuner as tune
from tests.servers.proxy import FaultyProxy
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from tests.servers.s3_checksums import ChecksumProxy, refusal
from tests.tuner.ui.served import client, data, serving, stream
from tuner.cli import main
from tuner.ui import live_experiment, remote_place, served_places
from tuner.ui.replica_source import ReplicaSource
from tuner.ui.ui_server import UiServer

STORE: list[ChecksumProxy] = []
"""What answers behind the network."""
VIEWS = ("overview", "trials", "curves", "parameters", "lineage", "machines", "compare", "orders")


@pytest.fixture(scope="module")
def line() -> Iterator[FaultyProxy]:
    """A network before an S3 server, which is what the environment names."""
    with (
        s3_server() as port,
        ChecksumProxy(port) as store,
        FaultyProxy(store.server_port) as proxy,
        pytest.MonkeyPatch.context() as patch,
    ):
        STORE.append(store)
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        patch.setattr(ReplicaSource, "interval", 0.2)
        make_bucket(port, "models")
        yield proxy


def _train(config: dict[str, float]) -> None:
    print("a line <b>of output</b>")
    for step in (1, 2, 3):
        if config["x"] == 2 and step == 2:
            raise ValueError("no convergence")
        if config["x"] == 3 and step == 2:
            Path(config["gate"]).open().readline()  # until somebody has seen the first step
        with tune.checkpoint_dir() as directory:
            Path(directory, "deep").mkdir()
            Path(directory, "deep", "weights").write_bytes(os.urandom(300_000))
            Path(directory, "empty").touch()
        tune.report(loss=config["x"] / step)


@dataclass
class Followed:
    """What was seen of the run while it went on."""

    storage: Path
    told: list[str]
    """What was said of the places at the start."""
    rows: list[tuple[int, str, int]] = field(default_factory=list)
    """(number, state, iteration) of trials, as the stream had them."""
    troubles: list[object] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def followed(line: FaultyProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    """Three trials, on a machine of which a page has only the bucket; it was there before them."""
    storage, beside = tmp_path_factory.mktemp("replica"), tmp_path_factory.mktemp("beside")
    os.mkfifo(storage / "gate")
    gate = os.open(storage / "gate", os.O_RDWR | os.O_CLOEXEC)
    seen = Followed(storage, [])
    places = [str(beside), "s3://models/runs", "s3://no-such-bucket/runs"]
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as machine, ExitStack() as last:
        last.callback(os.write, gate, b"on\n")  # whatever fails here, the run ends
        patch.setattr(remote_place, "AGAIN_S", 0.2)
        with serving(places, tell=seen.told.append) as page, client(page) as pages:
            assert data(pages, "experiments.json")["experiments"]["name"] == []
            run = machine.submit(_run, storage)
            while not data(pages, "experiments.json")["experiments"]["name"] and not run.done():
                pass
            _follow(pages, seen, lambda: (2, "RUNNING", 1) in seen.rows)
            os.write(gate, b"on\n")
            _follow(pages, seen, lambda: (2, "TERMINATED", 3) in seen.rows)
            run.result()
            while data(pages, "e/exp/overview.json")["state"] != "finished":
                pass
            shutil.copytree(storage / "exp", beside / ".later")
            os.rename(beside / ".later", beside / "later")
            told = data(pages, "experiments.json")
            seen.names, seen.problems = told["experiments"]["name"], told["problems"]
    yield seen


def _follow(pages: httpx.Client, seen: Followed, enough: Callable[[], bool]) -> None:
    with stream(pages, "e/exp/events") as events:
        first = data(pages, "e/exp/trials.json")
        while True:
            seen.rows += zip(first["index"], first["state"], first["iteration"], strict=True)
            if enough():
                return
            event = next(events)
            if event.kind == "reset":
                first = data(pages, "e/exp/trials.json")
            else:
                nothing: dict[str, list[Any]] = {"index": [], "state": [], "iteration": []}
                first = event.data["trials"] if event.kind == "changes" else nothing
                seen.troubles.append((event.data.get("overview") or event.data).get("trouble"))


@pytest.fixture(scope="module")
def uri(followed: Followed) -> str:
    """The same when it has ended; what was here is gone."""
    shutil.move(followed.storage / "exp", followed.storage / "kept")
    return "s3://models/runs/exp"


def _run(storage: Path) -> None:
    tune.run(
        _train,
        name="exp",
        storage_path=storage,
        metric="loss",
        mode="min",
        config={"x": tune.grid_search([1.0, 2.0, 3.0]), "gate": str(storage / "gate")},
        sync_config=tune.SyncConfig(upload_dir="s3://models/runs"),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        raise_on_failed_trial=False,
        max_concurrent_trials=1,
        log_to_file=True,
        verbose=0,
        resources_per_trial={"cpu": 0.3},
    )


@pytest.fixture(scope="module")
def server(uri: str) -> Iterator[UiServer]:
    """In place of the one in this directory, of which all else is."""
    with serving([uri]) as running:
        yield running


def test_a_living_run_is_followed_through_its_bucket_from_before_it_was_there(followed: Followed) -> None:
    assert {(0, "TERMINATED", 3), (1, "ERROR", 1), (2, "RUNNING", 1), (2, "TERMINATED", 3)} <= set(followed.rows)
    assert not any(followed.troubles), "files that are replaced under a reader are no failure"
    assert followed.names == ["exp", "later"], "what comes into a bucket and into a directory is there"
    missing, empty = sorted(followed.told, key=lambda line: "models" in line)
    assert "no-such-bucket" in missing and "there is no experiment at s3://models/runs" in empty
    assert [line for line in followed.problems if "no-such-bucket" in line] == followed.problems


@pytest.mark.parametrize("fault", ["silent", "missing", "outage"])
def test_the_only_place_that_cannot_be_had_is_one_line_and_the_end(
    line: FaultyProxy, fault: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(served_places, "ALONE_S", 0.3 if fault == "silent" else 60)
    place = "s3://no-such-bucket/runs" if fault == "missing" else "s3://models/runs"
    try:
        line.silent, line.outage = fault == "silent", fault == "outage"
        assert main(["ui", place]) == 1
    finally:
        line.silent = line.outage = False
        line.cut()
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("tuner ui: s3://") and "Traceback" not in said.err
    assert ("has not answered" in said.err) is (fault == "silent")


def test_every_view_is_filled(pages: httpx.Client, uri: str) -> None:
    told = data(pages, "e/exp/overview.json")
    assert (told["path"], told["state"], told["trials"], told["failed"]) == (uri, "finished", 3, 1)
    assert told["best"]["value"] == pytest.approx(1 / 3) and told["best"]["checkpoint"]["copies"] == [uri]
    assert told["trouble"] is None and told["orders"]
    assert told["order_words"] == ["pin", "unpin", "tag", "note"]
    for view in VIEWS:
        assert data(pages, f"e/exp/{view}.json")["name"] == "exp"
    assert len(data(pages, "e/exp/curves.json")["points"]["value"]) == 7
    with stream(pages, "e/exp/events") as events:
        assert "hello" in iter(lambda: next(events).kind, "")


def test_logs_come_from_the_bucket(pages: httpx.Client) -> None:
    failed = data(pages, "e/exp/trials.json")["id"][1]
    told = data(pages, f"e/exp/trial/{failed}.json")
    assert set(told["files"]["name"]) == {"stdout", "stderr", "error.txt"} and "copied" in told["files_note"]
    for name, address, size in zip(*(told["files"][key] for key in ("name", "address", "bytes")), strict=True):
        whole = pages.get(address)
        assert whole.status_code == 200 and int(whole.headers["x-size"]) == len(whole.content) == size
        if name == "stdout":
            assert whole.text == "a line <b>of output</b>\n" and whole.headers["content-type"].startswith("text/plain")
            assert pages.get(f"{address}?tail=3").content == whole.content[-3:]
    assert pages.get(f"e/exp/files/{failed}/params.json").status_code == 404


def _left() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("tuner-ui-*/.files/*"))


def test_a_checkpoint_comes_from_the_bucket_file_by_file(pages: httpx.Client, uri: str) -> None:
    best = data(pages, "e/exp/trials.json")["id"][0]
    shelf = data(pages, f"e/exp/trial/{best}.json")["checkpoints"]
    (address,) = filter(None, shelf["download"])
    known = _left()
    answer = pages.get(address)
    assert answer.status_code == 200
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as packed:
        files = {one.name.partition("/")[2]: packed.extractfile(one) for one in packed.getmembers()}
        assert set(files) == {"deep/weights", "empty", ".manifest.json"}
        weights = files["deep/weights"]
        assert weights is not None and len(weights.read()) == 300_000
    with pages.stream("GET", address) as cut:
        next(cut.iter_bytes())
    deadline = time.monotonic() + 60
    while _left() != known and time.monotonic() < deadline:
        time.sleep(0.01)  # the server's thread may be amid bringing the next file
    assert _left() == known
    assert pages.get(address.replace("checkpoint_", "checkpoint_9")).status_code == 404


def test_what_the_command_orders_the_page_orders(
    pages: httpx.Client, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tag = {"order": "tag", "trial": "0", "iteration": 3, "tag": "good", "id": "by-the-page"}
    answer = pages.post("e/exp/orders", json=tag)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"id": "by-the-page", "state": "done", "why": "checkpoint_000003"}
    assert main(["tag", uri, "0@3", "good", "--id", "by-the-page"]) == 0, "the same id is the same order"
    assert "done: checkpoint_000003" in capsys.readouterr().out
    refused = pages.post("e/exp/orders", json={"order": "retry", "trial": "1"})
    assert main(["retry", uri, "1"]) == 2
    assert refused.status_code == 409 and refused.json()["why"] in capsys.readouterr().err.replace("\n", " ")
    with stream(pages, "e/exp/events?since=1") as events:
        while "by-the-page" not in next(events).data.get("orders", {}).get("id", ()):
            pass
    best = data(pages, "e/exp/trials.json")["id"][0]
    assert ["good"] in data(pages, f"e/exp/trial/{best}.json")["checkpoints"]["tags"]


def _troubled(pages: httpx.Client, name: str, said: str) -> None:
    """Wait until the page says that."""
    with stream(pages, f"e/{name}/events") as events:
        while said not in str(next(events).data.get("trouble")):
            pass


def _well(pages: httpx.Client, name: str) -> None:
    with stream(pages, f"e/{name}/events") as events:
        while next(events).data.get("trouble", "") is not None:
            pass


@pytest.mark.parametrize("fault", ["outage", "expired"])
def test_a_place_that_goes_away_is_said_and_everything_else_goes_on(
    pages: httpx.Client, line: FaultyProxy, fault: str
) -> None:
    trial = data(pages, "e/exp/trials.json")["id"][2]
    while data(pages, "e/exp/overview.json")["state"] != "finished":
        pass  # whoever gave the last order owned it for a moment
    try:
        if fault == "outage":
            line.outage = True
            line.cut()
        else:
            STORE[0].refuse = lambda method, path, headers: refusal(400, "ExpiredToken")
        _troubled(pages, "exp", "cannot be reached" if fault == "outage" else "ExpiredToken")
        for view in VIEWS:
            assert data(pages, f"e/exp/{view}.json")["name"] == "exp", "as it was read before"
        told = data(pages, "experiments.json")["experiments"]
        assert told["state"] == ["finished"] and told["error"][0]
        for address in (f"e/exp/files/{trial}/stderr", f"e/exp/checkpoints/{trial}/checkpoint_000003.tar"):
            answer = pages.get(address)
            assert answer.status_code in (200, 503) and (answer.status_code == 200 or answer.json()["error"])
        ordered = pages.post("e/exp/orders", json={"order": "note", "trial": "0", "text": "seen"})
        assert ordered.status_code == 503 and ordered.json()["state"] == "refused" and ordered.json()["why"]
    finally:
        line.outage, STORE[0].refuse = False, lambda method, path, headers: None
    _well(pages, "exp")


def test_a_place_that_is_silent_is_said(
    pages: httpx.Client, line: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_experiment, "SILENCE_S", 0.2)
    try:
        line.silent = True
        while (told := data(pages, "e/exp/overview.json"))["trouble"] is None:
            pass
        assert "has not answered" in told["trouble"] and told["trials"] == 3
    finally:
        line.silent = False
        line.cut()
    _well(pages, "exp")
