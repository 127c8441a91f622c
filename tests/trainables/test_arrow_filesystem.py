"""`filesystem`, as programs for Ray reach for it: an object of pyarrow, or an error that says what to use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from trainables import Checkpoint, Result
from trainables.errors import InvalidSettingError, MissingExtraError

WHY = "pyarrow is not installed, which only `filesystem` and Parquet need"


def made(tmp_path: Path) -> list[Any]:
    """A checkpoint, a result and a grid of this machine."""
    lasting = tmp_path / "c"
    lasting.mkdir()
    (lasting / "w.txt").write_text("weights")
    path = str(tmp_path)
    return [
        Checkpoint(lasting),
        Checkpoint.from_dict({"n": 1}),
        Result(metrics={}, checkpoint=None, error=None, path=path),
    ]


def test_what_lies_here_is_on_the_local_filesystem(tmp_path: Path) -> None:
    fs = pytest.importorskip("pyarrow.fs", reason=WHY)
    checkpoint, memory, result = made(tmp_path)
    assert {type(each.filesystem) for each in (checkpoint, memory, result)} == {fs.LocalFileSystem}
    with checkpoint.filesystem.open_input_file(f"{checkpoint.path}/w.txt") as file:
        assert file.read() == b"weights"
    grid = tune.Tuner(
        lambda config: {"loss": 1.0}, run_config=tune.RunConfig(name="e", storage_path=tmp_path, verbose=0)
    ).fit()
    names = {Path(each.path).name for each in grid.filesystem.get_file_info(fs.FileSelector(grid.experiment_path))}
    assert Path(grid[0].path).name in names


def test_what_lies_in_a_bucket_is_read_through_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fs = pytest.importorskip("pyarrow.fs", reason=WHY)
    with s3_server() as port:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_REGION", "us-east-1")  # else it asks the real service
        uri = f"s3://{make_bucket(port, 'arrow')}/c"
        made(tmp_path)[0].to_uri(uri)
        found = Checkpoint.from_uri(uri)
        assert isinstance(found.filesystem, fs.S3FileSystem)
        with found.filesystem.open_input_file("arrow/c/w.txt") as file:
            assert file.read() == b"weights"


def test_a_kind_of_place_that_pyarrow_does_not_know_is_named() -> None:
    pytest.importorskip("pyarrow.fs", reason=WHY)
    with pytest.raises(InvalidSettingError, match=r"no filesystem for 'memory://b/c'.*as_directory"):
        _ = Checkpoint.from_uri("memory://b/c").filesystem


def test_without_pyarrow_an_error_says_how_to_get_it_and_what_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.fs", None)
    for each in made(tmp_path):
        with pytest.raises(MissingExtraError, match=r"pip install pyarrow.*as_directory"):
            _ = each.filesystem
