"""Temporary directories that a killed owner does not leave behind for good."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from trainables.store import fs, owned_directory

OWNER = """
import sys, tempfile
from trainables.store import fs, owned_directory
tempfile.tempdir = sys.argv[1]
print(owned_directory.make("mine-").path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_owner_left_goes_with_the_next_and_not_before_it_is_dead(place: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", OWNER, str(place)], text=True, **pipes) as owner:
        assert owner.stdout is not None
        theirs = Path(owner.stdout.readline().strip())
        (theirs / "file").write_text("x")
        (place / "other-1").mkdir()
        mine = owned_directory.make("mine-")
        assert theirs.is_dir() and mine.path.is_dir()
        owner.send_signal(signal.SIGKILL)
        owner.wait()

        again = owned_directory.make("mine-")
        assert sorted(place.iterdir()) == sorted([mine.path, again.path, place / "other-1"])
        assert again.path.stat().st_mode & 0o777 == 0o700
        mine.remove()
        again.remove()
        again.remove()
        assert list(place.iterdir()) == [place / "other-1"]


def test_what_is_no_directory_of_this_user_is_left_alone(place: Path) -> None:
    target = place / "target"
    target.mkdir()
    (place / "mine-link").symlink_to(target)
    (place / "mine-file").touch()
    if os.geteuid() == 0:
        (place / "mine-other").mkdir()
        os.chown(place / "mine-other", 12345, 12345)
    before = sorted(place.iterdir())

    owned_directory.sweep(place, "mine-")

    assert sorted(place.iterdir()) == before
    owned_directory.sweep(place / "absent")


def test_one_that_was_swept_before_it_was_owned_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = fs.mkdir, list[Path]()

    def mkdir(path: Path, mode: int = 0o777) -> None:
        real(path, mode)
        made.append(path)
        if len(made) == 1:
            os.rmdir(path)  # by a sweep of another process, between the two calls

    monkeypatch.setattr(fs, "mkdir", mkdir)
    owned = owned_directory.make("mine-")

    assert [owned.path] == made[1:] and owned.path.is_dir()
    owned.remove()


def test_where_there_are_no_locks_nobody_takes_it_for_a_dead_ones(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    first, second = owned_directory.make("mine-"), owned_directory.make("mine-")

    assert first.path.is_dir() and second.path.is_dir()
    first.remove()
    assert list(place.iterdir()) == [second.path]
