"""The directory for trials' temporary files, in a place where others make files too."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tuner.experiment.paths import ExperimentPaths
from tuner.opening import temporary


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The name that a run takes in a shared directory, where nobody has it."""
    monkeypatch.setenv("TUNE_TMPDIR", str(tmp_path / "shared"))
    directory = made(tmp_path)
    directory.rmdir()
    return directory


def made(tmp_path: Path) -> Path:
    return temporary.make(ExperimentPaths(tmp_path / "e"), "id")


def test_what_a_dead_owner_left_goes(usual: Path, tmp_path: Path) -> None:
    usual.mkdir()
    (usual / "left").touch()
    assert made(tmp_path) == usual
    assert not list(usual.iterdir())
    assert stat.S_IMODE(usual.stat().st_mode) == 0o700


def test_another_users_symlink_of_that_name_is_not_followed(usual: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    usual.symlink_to(precious)
    directory = made(tmp_path)
    assert directory.parent == usual.parent and directory != usual
    assert usual.is_symlink() and (precious / "file").exists()


@pytest.mark.root
def test_another_users_directory_of_that_name_is_left_alone(usual: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory of another user")
    usual.mkdir()
    (usual / "file").touch()
    os.chown(usual, 61001, 61001)
    directory = made(tmp_path)
    assert directory != usual and directory.stat().st_uid == os.getuid()
    assert (usual / "file").exists()
    assert made(tmp_path) == directory  # the next start finds it, and empties it


def test_a_file_of_that_name_is_left_alone(usual: Path, tmp_path: Path) -> None:
    usual.touch()
    assert made(tmp_path) != usual
    assert usual.is_file()
