"""Checkpoints that lie elsewhere, as a user holds them: in a bucket of a real server, and in memory."""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from trainables.checkpoint import Checkpoint
from trainables.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    InvalidSettingError,
    TransferError,
)
from trainables.store import publish, staging, verify
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import remote_checkpoints
from trainables.transfer.backend import Backend
from trainables.transfer.open import open_backend
from trainables.wire import CheckpointRef

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with s3_server() as port:
        yield port


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "checkpoints"


@pytest.fixture(params=["s3", "memory"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    number = next(_NUMBERS)
    if request.param == "memory":
        return f"memory://checkpoints-{number}/a b"
    port = request.getfixturevalue("server")
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
        monkeypatch.setenv(name, value)
    return f"s3://{make_bucket(port, f'checkpoints-{number}')}/a b"


@pytest.fixture
def backend(place: str) -> Iterator[Backend]:
    made = open_backend(place)
    yield made
    made.close()


def saved(directory: Path, content: bytes = b"weights", **metadata: object) -> Path:
    """A published checkpoint of a trial."""
    mine = directory / "mine"
    (mine / "sub").mkdir(parents=True)
    (mine / "sub" / "model's $(x).bin").write_bytes(content)
    if metadata:
        Checkpoint(mine).set_metadata(metadata)
    staged = staging.lend(mine, directory / "trial", "1")
    ref = CheckpointRef("t", "checkpoint_000004", 1, 1, 1, 4)
    prepared = publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b'{"loss":0.5}'), created=1.0)
    return publish.commit(prepared, directory / "trial" / ref.name).path


def files(directory: str | Path) -> dict[str, bytes]:
    found = (path for path in Path(directory).rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found if path.name != MANIFEST_NAME}


def test_a_checkpoint_goes_there_and_comes_back(place: str, tmp_path: Path) -> None:
    path = saved(tmp_path, by="me")

    assert Checkpoint(path).to_uri(f"{place}/kept") == f"{place}/kept"

    for there in (Checkpoint.from_uri(f"{place}/kept"), Checkpoint(f"{place}/kept")):
        assert there.uri == there.path == f"{place}/kept" and not there.in_memory
        assert there.get_metadata() == {"by": "me"}
        assert there.iteration == 4 and there.metrics == {"loss": 0.5}
        with there.as_directory() as directory:
            assert files(directory) == files(path)
            verify.check(Path(directory))
        assert files(there.to_directory(tmp_path / "copy")) == files(path)
        assert files(Checkpoint.from_bytes(there.to_bytes()).to_directory()) == files(path)


def test_a_dict_goes_there_and_comes_back(place: str) -> None:
    checkpoint = Checkpoint.from_dict({"epoch": 3})
    checkpoint.set_metadata({"by": "me"})

    there = Checkpoint.from_uri(checkpoint.to_uri(f"{place}/dict"))

    assert there.to_dict() == {"epoch": 3}
    assert there.get_metadata() == {"by": "me"}
    assert Checkpoint.from_uri(Checkpoint.from_dict({}).to_uri(f"{place}/plain")).get_metadata() == {}


def test_a_directory_that_was_never_reported_is_published_there(place: str, backend: Backend, tmp_path: Path) -> None:
    saved(tmp_path)
    mine = Checkpoint(tmp_path / "mine")

    mine.to_uri(f"{place}/mine")
    mine.to_uri(f"{place}/mine")  # the same again is no error

    assert remote_checkpoints.read_manifest(backend, "mine").manifest.name == "mine"
    assert not (tmp_path / "mine" / MANIFEST_NAME).exists()
    with Checkpoint(f"{place}/mine").as_directory() as directory:
        assert files(directory) == files(tmp_path / "mine")


def test_what_is_there_is_never_replaced(place: str, tmp_path: Path) -> None:
    Checkpoint(saved(tmp_path / "one", b"one")).to_uri(f"{place}/it")

    with pytest.raises(CheckpointError, match="another checkpoint at .*it"):
        Checkpoint(saved(tmp_path / "two", b"another one")).to_uri(f"{place}/it")

    with Checkpoint(f"{place}/it").as_directory() as directory:
        assert list(files(directory).values()) == [b"one"]


def test_it_is_fetched_when_it_is_used_and_once(place: str, backend: Backend, tmp_path: Path, cache: Path) -> None:
    path = saved(tmp_path)
    there = Checkpoint.from_uri(Checkpoint(path).to_uri(f"{place}/kept"))
    there.get_metadata(), there.metrics, repr(there), there.manifest
    assert not cache.exists()

    with there.as_directory() as directory:
        pass

    digest = remote_checkpoints.read_manifest(backend, "kept").digest
    assert Path(directory) == cache / digest / "kept"
    remote_checkpoints.delete(backend, "kept")
    with there.as_directory() as again:
        assert again == directory
    with Checkpoint.from_uri(f"{place}/kept", digest=digest).as_directory() as known:
        assert known == directory
    with pytest.raises(CheckpointNotFoundError, match="kept"):
        Checkpoint.from_uri(f"{place}/kept").to_dict()


def test_what_somebody_wrote_into_the_cache_is_fetched_again(place: str, tmp_path: Path, cache: Path) -> None:
    path = saved(tmp_path)
    there = Checkpoint.from_uri(Checkpoint(path).to_uri(f"{place}/kept"))
    with there.as_directory() as directory:
        (Path(directory) / "sub" / "model's $(x).bin").write_bytes(b"spoiled")
    leftover = Path(directory).parent / f"{staging.PREFIX}kept-dead"
    leftover.mkdir()

    with there.as_directory() as directory:
        assert files(directory) == files(path)

    assert not leftover.exists(), "a killed process left it"


def test_what_is_not_what_was_published_is_refused(place: str, backend: Backend, tmp_path: Path, cache: Path) -> None:
    path = saved(tmp_path, by="me")
    Checkpoint(path).to_uri(f"{place}/kept")
    for name in ("sub/model's $(x).bin", ".metadata.json"):
        backend.put(f"kept/{name}", b"spoiled")
    there = Checkpoint(f"{place}/kept")

    with pytest.raises(CheckpointCorruptError, match="kept"), there.as_directory():
        pass
    with pytest.raises(CheckpointCorruptError, match="metadata"):
        there.get_metadata()
    with pytest.raises(CheckpointCorruptError, match="not the one"):
        Checkpoint.from_uri(f"{place}/kept", digest="0" * 64).to_directory()

    assert not list(cache.rglob("*.bin")), "nothing of it stays"


def test_f20_files_without_a_manifest_are_no_checkpoint(place: str, backend: Backend) -> None:
    backend.put("half/model.bin", b"x")
    there = Checkpoint(f"{place}/half")

    with pytest.raises(CheckpointNotFoundError, match="half"), there.as_directory():
        pass
    assert there.manifest is there.metrics is there.iteration is None


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out"])
def test_r8_a_manifest_that_leads_out_writes_nothing_outside(
    name: str, place: str, backend: Backend, tmp_path: Path
) -> None:
    path = saved(tmp_path)
    text = (path / MANIFEST_NAME).read_text().replace("sub/model's $(x).bin", name)
    backend.put(f"evil/{MANIFEST_NAME}", text.encode())
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}

    with pytest.raises(CheckpointCorruptError, match="not inside"):
        Checkpoint(f"{place}/evil").to_directory(tmp_path / "copy")

    after = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    assert after - before <= {tmp_path / "copy"}
    assert not list((tmp_path / "cache").rglob("*out*"))


def test_it_is_equal_by_its_uri_and_pickling_keeps_it(place: str, tmp_path: Path) -> None:
    there = Checkpoint.from_uri(Checkpoint(saved(tmp_path)).to_uri(f"{place}/kept"))

    copy = pickle.loads(pickle.dumps(there))

    assert copy == there == Checkpoint(f"{place}/kept/") != Checkpoint(f"{place}/other")
    assert len({copy, there}) == 1 and "kept" in repr(copy)
    shutil.rmtree(tmp_path / "trial")
    with copy.as_directory() as directory:
        assert files(directory)


def test_it_never_changes(place: str, tmp_path: Path) -> None:
    there = Checkpoint.from_uri(Checkpoint(saved(tmp_path)).to_uri(f"{place}/kept"))

    with pytest.raises(CheckpointError, match="published and never changes"):
        there.set_metadata({"a": 1})
    with pytest.raises(InvalidSettingError, match="from_uri"):
        Checkpoint.from_directory(f"{place}/kept")


@pytest.mark.parametrize("uri", ["s3://bucket", "nope://bucket/x", "memory://x", "host:x"])
def test_what_is_no_place_of_a_checkpoint_is_said_when_it_is_made(uri: str) -> None:
    for make in (Checkpoint, Checkpoint.from_uri, Checkpoint.from_dict({}).to_uri):
        with pytest.raises(InvalidSettingError, match=uri):
            make(uri)


def test_a_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(TransferError, match="127.0.0.1:9"):
        Checkpoint("s3://bucket/x").to_dict()


def test_a_password_is_never_shown() -> None:
    there = Checkpoint("sftp://me:secret@host/x")

    assert "secret" not in repr(there) + str(there.uri) + there.path


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from trainables.transfer.cached import root

    assert root() == tmp_path / "cache"
    monkeypatch.delenv("TUNE_CACHE_DIR")
    assert root() == Path(os.path.expanduser("~/.cache/tuner"))
