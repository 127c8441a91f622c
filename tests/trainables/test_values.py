"""Whatever people put into a checkpoint comes back as it was, or is refused by its key, in the call."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trainables as train
import tuner as tune
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from tests.trainables.values import GROUPS, TORCH, all_values, arrays, different, nested, same
from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointError, MetricError
from trainables.group.framework import Framework
from trainables.plain_metrics import plain_metrics
from trainables.result_history import write_line
from trainables.tagged import dumps, loads
from trainables.torch import TorchCheckpoint
from tuner.experiment.blobs import Blobs

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")

ONLY_EQUAL = ("a time in a zone", "the second 2:30 of a day")
"""A result has no blobs: the same time, with its offset."""

ALL = [(group, name) for group, table in GROUPS.items() for name in table]


@pytest.mark.parametrize(("group", "name"), ALL, ids=[f"{group}: {name}" for group, name in ALL])
def test_a_value_in_a_dict_comes_back_as_it_was(group: str, name: str, tmp_path: Path) -> None:
    value = GROUPS[group][name]()
    there = Checkpoint(Checkpoint.from_dict({"x": value}).to_directory(tmp_path / "d"))
    assert same(there.to_dict()["x"], value)
    assert same(Checkpoint.from_bytes(there.to_bytes()).to_dict()["x"], value)


LEAVES = st.one_of(
    arrays(), st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5)
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.dictionaries(st.text(max_size=3), nested(LEAVES), max_size=4))
def test_any_array_in_any_nesting_comes_back_as_it_was(data: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Checkpoint.from_dict(data).to_directory(directory)
        assert same(Checkpoint(directory).to_dict(), data)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 300_000_000])
def test_sizes_from_nothing_to_300_mb(size: int, tmp_path: Path) -> None:
    value = np.full(size, 7, dtype="u1")
    checkpoint = Checkpoint(Checkpoint.from_dict({"x": value, "y": bytes(min(size, 70_000))}).to_directory(tmp_path))
    assert np.array_equal(checkpoint.to_dict()["x"], value)


REFUSED: dict[str, Any] = {
    "a lock": threading.Lock,
    "a generator": lambda: (n for n in "x"),
    "a socket": socket.socket,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_saved_is_refused_by_its_key_and_type(name: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        value = REFUSED[name]()
        if hasattr(value, "close"):
            stack.callback(value.close)
        data = {"fine": np.zeros(100_000), "model": {"parts": [1, value]}}
        with pytest.raises(CheckpointError, match=f"model/parts/1' \\({type(value).__name__}\\) .* cannot be pickled"):
            Checkpoint.from_dict(data).to_directory(tmp_path)


class Unreadable:
    """Can be pickled, and not be unpickled: as an exception whose arguments are not those of its class."""

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return int, ("no number",)


def test_what_cannot_be_read_back_names_its_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint(Checkpoint.from_dict({"x": Unreadable()}).to_directory(tmp_path / "mine"))
    with pytest.raises(CheckpointError, match=r"mine.*cannot be unpickled: ValueError: invalid literal"):
        checkpoint.to_dict()


# --- state dicts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TORCH)
def test_a_state_dict_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    value = TORCH[name]()
    state = value if isinstance(value, dict) else {"x": value}
    read = TorchCheckpoint(TorchCheckpoint.from_state_dict(state).to_directory(tmp_path)).get_state_dict()
    if name in ("a parameter", "with gradients"):
        state = {"x": value.detach()}  # a state is numbers, as model.state_dict() returns it
    assert different(read, state) == []


def test_a_state_dict_that_cannot_be_saved_is_refused_by_its_key(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'optimizer/guard' \(lock\)"):
        TorchCheckpoint.from_state_dict({"w": torch.ones(2), "optimizer": {"guard": threading.Lock()}}).to_directory(
            tmp_path
        )
    names = {1: torch.ones(2)}
    read = TorchCheckpoint(TorchCheckpoint.from_state_dict(names).to_directory(tmp_path / "names"))  # type: ignore[arg-type]
    assert same(read.get_state_dict(), names)


# --- every way a checkpoint is made and read -------------------------------------------------------------------


def reports(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0}, checkpoint=Checkpoint.from_dict(all_values()))
    tune.report({"loss": 1.0})
    found = tune.get_checkpoint()
    assert found is not None
    tune.report({"loss": 2.0, "differ": different(found.to_dict(), all_values())})


class Saves(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.differ: list[str] | None = None

    def step(self) -> dict[str, Any]:
        if self.iteration == 2 and self.differ is None:
            raise RuntimeError("once, so that the next attempt loads")
        return {"differ": self.differ, "done": self.iteration == 2}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return all_values()

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.differ = different(checkpoint, all_values())


@pytest.mark.parametrize("executor", ["inline", "local"])
def test_a_function_reports_all_values_and_reads_them(tmp_path: Path, executor: str) -> None:
    found = tune.run(reports, storage_path=tmp_path, name="f", executor=executor, verbose=0)
    trial = found.trials[0]
    assert trial.status == "TERMINATED" and trial.last_result["differ"] == []
    assert different(trial.checkpoint.to_dict(), all_values()) == []


def test_a_class_saves_all_values_and_loads_them_in_its_next_attempt(tmp_path: Path) -> None:
    config = tune.CheckpointConfig(checkpoint_frequency=1)
    found = tune.run(
        Saves, storage_path=tmp_path, name="c", checkpoint_config=config, max_failures=1, executor="inline", verbose=0
    )
    assert found.trials[0].status == "TERMINATED" and found.trials[0].last_result["differ"] == []


def saves_the_first_way() -> list[str]:
    train.save_checkpoint(**{name.replace("/", "_"): value for name, value in all_values().items()})
    return []


def loads_the_first_way() -> list[str]:
    loaded = train.load_checkpoint()
    assert loaded is not None and loaded.pop("_timestamp") > 0
    return different(loaded, {name.replace("/", "_"): value for name, value in all_values().items()})


def test_the_first_generation_saves_and_loads_all_values(tmp_path: Path) -> None:
    made = train.Trainer(backend=Framework(), num_workers=1, logdir=tmp_path, max_retries=0)
    made.start()
    made.run(saves_the_first_way)
    assert made.run(loads_the_first_way, checkpoint=made.latest_checkpoint) == [[]]
    made.shutdown()


READS = """
import sys
from tests.trainables.values import all_values, different
from trainables.checkpoint import Checkpoint
print(different(Checkpoint(sys.argv[1]).to_dict(), all_values()))
"""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server() as port:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
            monkeypatch.setenv(name, value)
        yield f"s3://{make_bucket(port, 'values')}/runs"


def test_another_process_reads_all_values_from_a_bucket(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / "cache"))
    sync = tune.SyncConfig(upload_dir=bucket)
    found = tune.run(reports, storage_path=tmp_path / "here", name="f", sync_config=sync, executor="inline", verbose=0)
    trial = found.trials[0]
    uri = f"{bucket}/f/{trial.dirname}/{Path(trial.checkpoint.path).name}"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", READS, uri], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


# --- results ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("group", "name"), ALL, ids=[f"{group}: {name}" for group, name in ALL])
def test_a_value_in_a_result_is_written_as_it_is_logged_or_refused_by_its_key(group: str, name: str) -> None:
    value = {"x": {"y": GROUPS[group][name]()}}
    try:
        plain = plain_metrics(value)
    except MetricError as error:
        assert str(error).startswith("x/y"), error
    else:
        read = loads(dumps(plain))  # as the journal has it
        assert same(read, plain) or (name in ONLY_EQUAL and read == plain)
        line = write_line(plain)  # as other tools read it
        assert json.loads(line)["x"].keys() == {"y"} and b'{"$":' not in line


@pytest.mark.parametrize(("group", "name"), ALL, ids=[f"{group}: {name}" for group, name in ALL])
def test_a_value_in_a_config_comes_back_as_it_was_or_is_refused_by_its_key(
    group: str, name: str, tmp_path: Path
) -> None:
    blobs, value = Blobs(tmp_path), {"x": {"y": GROUPS[group][name]()}}
    try:
        read = loads(dumps(value, blobs=blobs), blobs=blobs)
    except MetricError as error:
        assert str(error).startswith("x/y"), error
        assert group == "torch", "only a few kinds of tensor"
    else:
        assert same(read, value)


def refuses_then_goes_on(config: dict[str, Any]) -> None:
    for value in (torch.ones(1, device="meta"), threading.Lock(), torch.eye(2).to_sparse()):
        try:
            tune.report({"loss": 1.0, "eval": {"model": value}}, checkpoint=Checkpoint.from_dict({"a": 1}))
        except MetricError as error:
            assert str(error).startswith("eval/model is a "), error
        else:
            raise AssertionError(f"{type(value)} was taken")
    tune.report({"loss": 1.0})


def test_a_result_that_cannot_be_written_names_its_key_and_counts_as_none(tmp_path: Path) -> None:
    found = tune.run(refuses_then_goes_on, storage_path=tmp_path, name="m", executor="inline", verbose=0)
    trial = found.trials[0]
    assert trial.status == "TERMINATED" and trial.last_result["training_iteration"] == 1
    assert list(trial.directory.glob(".*")) == [], "nothing was staged"
