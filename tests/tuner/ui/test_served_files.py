"""Files of trials that are served, whatever a trial has put in their place."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.error import ExperimentNotFoundError
from tuner.ui import served_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "stdout").write_text("secret")
    (tmp_path / "exp" / "trial").mkdir(parents=True)
    return tmp_path / "exp"


def _link(root: Path) -> None:
    os.symlink(root.parent / "secret" / "stdout", root / "trial" / "stdout")


def _linked_directory(root: Path) -> None:
    (root / "trial").rmdir()
    os.symlink(root.parent / "secret", root / "trial")


def _fifo(root: Path) -> None:
    os.mkfifo(root / "trial" / "stdout")


def _directory(root: Path) -> None:
    (root / "trial" / "stdout").mkdir()


@pytest.mark.parametrize("made", [_link, _linked_directory, _fifo, _directory, lambda root: None])
def test_what_is_no_plain_file_of_the_trial_is_not_opened(root: Path, made: Callable[[Path], None]) -> None:
    made(root)
    with pytest.raises(ExperimentNotFoundError):
        served_files.open_inside(root, "trial", "stdout")


@given(
    st.lists(st.text(max_size=12) | st.sampled_from(["..", ".", "", "a/b", "/etc/passwd", "\0", "trial"]), max_size=3)
)
def test_no_name_leads_out_of_a_directory(names: list[str]) -> None:
    with pytest.raises(ExperimentNotFoundError):
        os.close(served_files.open_inside(Path(__file__).parent, *names, "passwd"))


@given(st.text("aé\n%", min_size=1, max_size=300), st.binary(max_size=2000))
def test_a_member_is_read_back_as_it_was(name: str, content: bytes) -> None:
    packed = served_files.member_of(content, f"x{name}") + served_files.END
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        (member,) = tar.getmembers()
        file = tar.extractfile(member)
        assert file is not None and (member.name, file.read()) == (f"x{name}", content)


def test_a_file_that_is_cut_or_grows_while_it_is_sent(root: Path) -> None:
    path = root / "trial" / "weights"
    path.write_bytes(b"x" * 1000)
    growing = served_files.member(os.open(path, os.O_RDONLY), "weights")
    next(growing)
    path.write_bytes(b"x" * 3000)
    assert sum(map(len, growing)) == 1024, "as long as its head says"
    cut = served_files.member(os.open(path, os.O_RDONLY), "weights")
    next(cut)
    path.write_bytes(b"x")
    with pytest.raises(OSError, match="was cut"):
        list(cut)
