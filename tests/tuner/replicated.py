"""Experiments with copies in a bucket of a real server or in a directory, and what the command line says of them."""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blake3
import pytest

import tuner as tune
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from trainables.transfer.open import open_backend
from tuner.cli import main

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[int]:
    """Of all tests below the conftest that names it: each has a bucket of its own."""
    with s3_server() as port:
        yield port


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def bucket(server: int, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server}"}.items():
        monkeypatch.setenv(name, value)
    return f"s3://{make_bucket(server, f'cli-{next(_NUMBERS)}')}/runs"


@pytest.fixture(params=["s3", "directory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found: str = request.getfixturevalue("bucket") if request.param == "s3" else str(tmp_path / "share")
    return found


def counts(config: dict[str, Any]) -> None:
    for n in (1, 2, 3):
        tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))


def ran(place: str | None, storage: Path, resume: str | None = None, **more: Any) -> Path:
    tune.run(
        counts,
        resume=resume,
        name="mine",
        config={"i": tune.grid_search([0, 1])},
        metric="n",
        storage_path=storage,
        sync_config=tune.SyncConfig(upload_dir=place, **more),
        executor="inline",
        verbose=0,
    )
    return storage / "mine"


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int = 0) -> str:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == status, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) != 0
    return capsys.readouterr().err


def contents(experiment: str | Path) -> dict[str, bytes]:
    """Every file of the checkpoints of an experiment, with its bytes."""
    above, _, name = str(experiment).rpartition("/")
    backend = open_backend(above)
    keys = [entry.key for entry in backend.list(name) if "/checkpoint_" in entry.key]
    found = {key.removeprefix(f"{name}/"): backend.read(key) for key in keys}
    backend.close()
    return found


class Poison:
    """Ends this process when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return os._exit, (99,)


def poison(blobs: Path) -> None:
    """Every blob becomes one that must not be unpickled, under its own hash and under that of what was there."""
    data = pickle.dumps(Poison())
    for blob in list(blobs.iterdir()):
        settings = blobs.parent / "experiment.json"
        settings.write_text(settings.read_text().replace(blob.name, blake3.blake3(data).hexdigest()))
        blob.unlink()
    (blobs / blake3.blake3(data).hexdigest()).write_bytes(data)
