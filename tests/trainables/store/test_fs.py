from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from trainables.store import fs


@pytest.mark.parametrize("size", [0, 1, 4096, 300_000, 5_000_001])
@pytest.mark.parametrize("way", ["best", "no copy_file_range", "copy_file_range says 0", "copy_file_range stops"])
def test_a_copy_equals_its_source_whatever_the_kernel_can(
    size: int, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(size)
    (tmp_path / "a").write_bytes(data)
    original, calls = os.copy_file_range, []

    def copy_file_range(source: int, target: int, count: int) -> int:
        calls.append(count)
        if way == "no copy_file_range":
            raise OSError(errno.ENOSYS, "not here")
        if way == "copy_file_range says 0" or len(calls) > 1:
            return 0
        return original(source, target, count // 3)

    if way != "best":
        monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    assert fs.copy_file(tmp_path / "a", tmp_path / "b") == size
    assert (tmp_path / "b").read_bytes() == data
    assert (tmp_path / "b").stat().st_ino != (tmp_path / "a").stat().st_ino


def test_a_copy_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    with pytest.raises(FileExistsError):
        fs.copy_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "b"


def test_an_error_of_the_disk_in_a_copy_is_not_taken_for_a_missing_ability(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"a" * 1_000_000)

    def full(*args: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(OSError, match="No space"):
        fs.copy_file(tmp_path / "a", tmp_path / "b")


def test_replacing_a_file_that_cannot_be_written_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.replace_file(tmp_path / "a", b"old")

    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(fs, "write", full)
        with pytest.raises(OSError, match="No space"):
            fs.replace_file(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == ["a"]
    assert fs.read_file(tmp_path / "a") == b"old"
    fs.replace_file(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == ["a"] and fs.read_file(tmp_path / "a") == b"new"


def test_appending_goes_to_the_end_and_exclusive_creation_refuses(tmp_path: Path) -> None:
    for data in (b"one", b"two"):
        fd = fs.open_append(tmp_path / "log")
        fs.write(fd, data)
        fs.fdatasync(fd)
        fs.close(fd)
    assert fs.read_file(tmp_path / "log") == b"onetwo"
    with pytest.raises(FileExistsError):
        fs.write_file(tmp_path / "log", b"", fsync=False, exclusive=True)
    fs.truncate(tmp_path / "log", 3)
    assert fs.read_file(tmp_path / "log") == b"one"


def test_a_write_that_the_kernel_cuts_short_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: original(fd, bytes(data)[:7]))
    fs.write_file(tmp_path / "a", b"0123456789" * 3, fsync=True)
    assert fs.read_file(tmp_path / "a") == b"0123456789" * 3


def test_make_dirs_makes_parents_and_accepts_what_is_there(tmp_path: Path) -> None:
    fs.make_dirs(tmp_path / "a" / "b" / "c")
    fs.make_dirs(tmp_path / "a" / "b" / "c")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        fs.make_dirs(tmp_path / "file")


@pytest.mark.parametrize("remove", [fs.rmtree, fs.remove_quietly])
def test_of_a_symlink_the_link_is_removed_and_not_what_it_leads_to(remove: Any, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / "link").symlink_to("precious")
    remove(tmp_path / "link")
    assert os.listdir(tmp_path) == ["precious"]
    assert (tmp_path / "precious" / "file").exists()


def test_rmtree_follows_no_symlink(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "file").write_text("")
    (tmp_path / "go").mkdir()
    (tmp_path / "go" / "link").symlink_to(tmp_path / "keep")
    fs.rmtree(tmp_path / "go")
    fs.rmtree(tmp_path / "go")
    assert os.listdir(tmp_path / "keep") == ["file"] and os.listdir(tmp_path) == ["keep"]


def test_free_bytes_looks_at_the_nearest_parent_that_is_there(tmp_path: Path) -> None:
    assert (fs.free_bytes(tmp_path / "not" / "there") or 0) > 0


def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "link").symlink_to("file")
    assert fs.read_file(tmp_path / "file") == fs.read_file(tmp_path / "link") == b"data"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(OSError, match="no plain file"):
            fs.read_file(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        fs.read_file(tmp_path)
