from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.listings import SCRIPTS
from trainables.errors import InvalidSettingError, PublishError
from trainables.store import fs
from trainables.torch import atomic_torch_save

pytestmark = pytest.mark.torch


def test_a_saved_object_is_read_back_by_a_bare_load_and_nothing_else_lies_there(tmp_path: Path) -> None:
    path = tmp_path / "latest.pt"
    for step in range(2):
        atomic_torch_save({"model": torch.full((3,), step), "step": step}, path if step else str(path))

        assert torch.load(path)["step"] == step
        assert os.listdir(tmp_path) == ["latest.pt"]


def test_equal_objects_give_equal_files_whatever_they_are_called(tmp_path: Path) -> None:
    for name in ("a.pt", "another.pt"):
        atomic_torch_save({"w": torch.ones(5)}, tmp_path / name)

    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "another.pt").read_bytes()


def test_options_of_torch_save_are_passed_on(tmp_path: Path) -> None:
    atomic_torch_save({"w": 1}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)

    assert not (tmp_path / "old.pt").read_bytes().startswith(b"PK")
    assert torch.load(tmp_path / "old.pt") == {"w": 1}


def test_order_of_the_disk_calls_content_then_name_then_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for name in ("fsync", "rename", "fsync_dir"):
        real = getattr(fs, name)
        monkeypatch.setattr(fs, name, lambda *args, name=name, real=real: (done.append(name), real(*args))[1])

    atomic_torch_save([1], tmp_path / "x.pt")

    assert done == ["fsync", "rename", "fsync_dir"]


def test_a_full_disk_is_named_and_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "latest.pt"
    atomic_torch_save({"step": 1}, path)
    real = fs.write

    def full(fd: int, data: bytes | bytearray | memoryview) -> None:
        if len(data) > 1000:
            raise OSError(28, "No space left on device")
        real(fd, data)

    monkeypatch.setattr(fs, "write", full)
    with pytest.raises(PublishError, match=r"latest\.pt: No space left on device; \d+ bytes are free there"):
        atomic_torch_save({"w": torch.ones(10_000)}, path)

    assert torch.load(path) == {"step": 1}
    assert os.listdir(tmp_path) == ["latest.pt"]


def test_what_cannot_be_pickled_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"pickle|local"):
        atomic_torch_save({"f": lambda: 1}, tmp_path / "x.pt")

    assert os.listdir(tmp_path) == []


def test_a_link_is_followed_and_the_permissions_stay(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "latest.pt").symlink_to("elsewhere/real.pt")
    for step in range(2):
        atomic_torch_save({"step": step}, tmp_path / "latest.pt")

        assert os.readlink(tmp_path / "latest.pt") == "elsewhere/real.pt"
        assert torch.load(tmp_path / "elsewhere" / "real.pt") == {"step": step}
        if step:
            assert (tmp_path / "elsewhere" / "real.pt").stat().st_mode & 0o777 == 0o600
        (tmp_path / "elsewhere" / "real.pt").chmod(0o600)


@pytest.mark.parametrize("f", [None, "", 3])
def test_what_is_no_path_is_refused(f: object) -> None:
    with pytest.raises(InvalidSettingError, match="a path"):
        atomic_torch_save({}, f)  # type: ignore[arg-type]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="nowhere"):
        atomic_torch_save({}, tmp_path / "nowhere" / "x.pt")


KILLED = SCRIPTS / "killed_in_a_torch_save.py"


@pytest.mark.timeout(300)
def test_d22_killed_anywhere_the_file_is_whole_and_the_next_save_removes_what_was_left(tmp_path: Path) -> None:
    path = tmp_path / "latest.pt"
    atomic_torch_save({"step": 1}, path)
    done = subprocess.run([sys.executable, KILLED, path], capture_output=True, text=True, timeout=280)

    assert done.returncode == 0, done.stderr
    seen = [line.split() for line in done.stdout.splitlines()]
    assert [(call, saved) for call, saved, _ in seen] == [
        ("write", "None"),
        ("fsync", "None"),
        ("rename", "None"),
        ("fsync_dir", "fsync_dir"),
    ]
    assert all(int(files) <= 2 for _, _, files in seen), "leftovers pile up"
    atomic_torch_save({"step": 2}, path)
    assert os.listdir(tmp_path) == ["latest.pt"]
