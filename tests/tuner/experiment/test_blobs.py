"""Blobs: durable, verified, never opened."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from trainables import tagged
from trainables.store import fs
from tuner.error import ExperimentDamagedError
from tuner.experiment.blobs import Blobs


class Poison:
    def __reduce__(self) -> Any:
        return (os.abort, ())


def test_a_blob_is_named_by_its_hash_and_reads_back(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    name = blobs.put(b"content")
    assert name == blake3(b"content").hexdigest()
    assert blobs.get(name) == Blobs(tmp_path / "blobs").get(name) == b"content"
    assert os.listdir(tmp_path / "blobs") == [name]


def test_a_blob_that_is_there_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = Blobs(tmp_path).put(b"content")
    monkeypatch.setattr(fs, "write", lambda *_: pytest.fail("written again"))
    assert Blobs(tmp_path).put(b"content") == name


def test_a_torn_blob_is_written_anew(tmp_path: Path) -> None:
    name = Blobs(tmp_path).put(b"content")
    (tmp_path / name).write_bytes(b"\0" * 7)
    with pytest.raises(ExperimentDamagedError, match="another hash"):
        Blobs(tmp_path).get(name)
    assert Blobs(tmp_path).put(b"content") == name
    assert Blobs(tmp_path).get(name) == b"content"


def test_a_blob_is_durable_before_put_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("fsync", "rename", "fsync_dir"):
        real = getattr(fs, name)
        monkeypatch.setattr(fs, name, lambda *args, name=name, real=real: (calls.append(name), real(*args)))
    Blobs(tmp_path).put(b"content")
    assert calls == ["fsync", "rename", "fsync_dir"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "0" * 63, "G" * 64, "0" * 64 + "/x"])
def test_a_name_from_outside_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ExperimentDamagedError):
        Blobs(tmp_path).get(name)


def test_a_missing_blob_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExperimentDamagedError, match="missing"):
        Blobs(tmp_path).get("0" * 64)


def test_blobs_are_removed_by_name(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    kept, gone = blobs.put(b"a"), blobs.put(b"b")
    (tmp_path / "other").write_bytes(b"no blob")
    blobs.remove([gone, "0" * 64, "../other"])
    assert os.listdir(tmp_path / "blobs") == [kept] and (tmp_path / "other").exists()
    assert blobs.put(b"b") == gone, "a removed blob is written again"
    assert blobs.get(gone) == b"b"
    Blobs(tmp_path / "none").remove([kept])


def test_t06_a_poisoned_blob_is_not_touched_by_reading(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    name = blobs.put(pickle.dumps(Poison()))
    (read,) = tagged.loads(b'[{"$":"blob","v":["%s","x.Poison"]}]' % name.encode())
    assert read == tagged.BlobRef(name, "x.Poison")
    assert blobs.get(name) == pickle.dumps(Poison()), "verifying and copying read bytes only"
