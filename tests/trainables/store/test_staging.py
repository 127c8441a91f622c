from __future__ import annotations

import ast
import errno
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from trainables.errors import CheckpointError, CheckpointNotFoundError, PublishError
from trainables.store import file_tree, fs, staging


def tree_of(directory: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "mine"
    (directory / "a" / "b").mkdir(parents=True)
    (directory / "empty").mkdir()
    (directory / "model.bin").write_bytes(b"m" * 3_000_000)
    (directory / "optim.bin").write_bytes(b"o" * 2_000_000)
    (directory / "a" / "b" / "deep.txt").write_text("deep")
    (directory / ".hidden").write_text("h")
    (directory / "nothing").write_bytes(b"")
    return directory


def inodes(directory: Path) -> dict[str, int]:
    return {p.relative_to(directory).as_posix(): p.stat().st_ino for p in directory.rglob("*") if p.is_file()}


def test_lent_files_are_cloned_and_stay_as_they_were(source: Path, trial_dir: Path) -> None:
    before, numbers = tree_of(source), inodes(source)
    staged = staging.lend(source, trial_dir, "1")
    assert tree_of(staged) == before == tree_of(source)
    assert inodes(source) == numbers
    assert not set(inodes(staged).values()) & set(numbers.values()), "a hard link"
    assert staged.parent == trial_dir and staged.name.startswith(".staging-1-")


def test_t01_what_is_staged_does_not_change_when_the_lender_goes_on_writing(source: Path, trial_dir: Path) -> None:
    staged = staging.lend(source, trial_dir, "1")
    with open(source / "model.bin", "r+b") as file:
        file.write(b"later")
    shutil.rmtree(source / "a")
    assert (staged / "model.bin").read_bytes() == b"m" * 3_000_000
    assert (staged / "a" / "b" / "deep.txt").read_text() == "deep"


def test_t01_ten_saves_of_one_temporary_directory_each_have_every_file(trial_dir: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "written_once.txt").write_text("base")
        for step in range(10):
            (Path(directory) / "model.txt").write_text(f"step {step}")
            staged = staging.lend(Path(directory), trial_dir, str(step))
            assert tree_of(staged) == {"model.txt": f"step {step}".encode(), "written_once.txt": b"base"}
        assert sorted(os.listdir(directory)) == ["model.txt", "written_once.txt"]
    assert len(list(trial_dir.iterdir())) == 10


def test_t01_handed_over_files_are_moved_and_the_directory_is_left_empty(source: Path, trial_dir: Path) -> None:
    before, numbers = tree_of(source), inodes(source)
    staged = staging.hand_over(source, trial_dir, "1")
    assert tree_of(staged) == before
    assert inodes(staged) == numbers, "bytes were copied"
    assert source.is_dir() and list(source.iterdir()) == []


def test_handing_over_across_filesystems_copies_then_empties(source: Path, trial_dir: Path, small_disk: Path) -> None:
    (source / "model.bin").write_bytes(b"m" * 300_000)
    (source / "optim.bin").unlink()
    shutil.copytree(source, small_disk / "there")
    before = tree_of(source)
    staged = staging.hand_over(small_disk / "there", trial_dir, "1")
    assert tree_of(staged) == before
    assert list((small_disk / "there").iterdir()) == []
    assert len(list(trial_dir.iterdir())) == 1


def test_a_move_that_fails_half_way_gives_every_file_back(
    source: Path, trial_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rename = tree_of(source), fs.rename
    calls = []

    def failing(a: fs.PathLike, b: fs.PathLike) -> None:
        calls.append(a)
        if len(calls) == 1:  # the directory as a whole, as where it is a mount point
            raise OSError(errno.EBUSY, "Device or resource busy", os.fspath(a))
        if len(calls) == 4:
            raise OSError(errno.EIO, "Input/output error", os.fspath(a))
        rename(a, b)

    monkeypatch.setattr(fs, "rename", failing)
    with pytest.raises(PublishError, match="Input/output"):
        staging.hand_over(source, trial_dir, "1")
    assert tree_of(source) == before
    assert list(trial_dir.iterdir()) == []


def test_d13_every_save_gets_a_fresh_directory(trial_dir: Path) -> None:
    first = staging.new_directory(trial_dir, "checkpoint_000001")
    (first / "left by a failed save").write_text("x")
    second = staging.new_directory(trial_dir, "checkpoint_000001")
    assert first != second and list(second.iterdir()) == []


def test_staged_directories_get_the_usual_mode(trial_dir: Path, tmp_path: Path) -> None:
    private = Path(tempfile.mkdtemp(dir=tmp_path))
    assert private.stat().st_mode & 0o777 == 0o700
    usual = trial_dir.stat().st_mode
    assert staging.lend(private, trial_dir, "1").stat().st_mode == usual
    assert staging.hand_over(private, trial_dir, "1").stat().st_mode == usual


@pytest.mark.parametrize("stage", [staging.lend, staging.hand_over], ids=["lent", "handed over"])
def test_symlinks_become_what_they_point_to(stage, source: Path, trial_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "weights").write_text("w")
    (source / "best").symlink_to("model.bin")
    (source / "a" / "up").symlink_to("../../elsewhere/weights")
    (source / "folder").symlink_to(tmp_path / "elsewhere")
    staged = stage(source, trial_dir, "1")
    assert (staged / "best").read_bytes() == b"m" * 3_000_000
    assert (staged / "a" / "up").read_text() == "w"
    assert (staged / "folder" / "weights").read_text() == "w"
    assert not any(path.is_symlink() for path in staged.rglob("*"))
    assert (tmp_path / "elsewhere" / "weights").read_text() == "w"


def _dangling(directory: Path) -> None:
    (directory / "bad").symlink_to("gone")


def _circle(directory: Path) -> None:
    (directory / "bad").symlink_to(directory)


def _pipe(directory: Path) -> None:
    os.mkfifo(directory / "bad")


def _socket(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as place:
        place.bind(os.fspath(directory / "bad"))


def _not_utf8(directory: Path) -> None:
    Path(os.fsdecode(os.fsencode(directory) + b"/bad\xff")).write_text("x")


def _reserved(directory: Path) -> None:
    (directory / ".manifest.json").write_text('{"bad": "not ours"}')


@pytest.mark.parametrize("stage", [staging.lend, staging.hand_over], ids=["lent", "handed over"])
@pytest.mark.parametrize("spoil", [_dangling, _circle, _pipe, _socket, _not_utf8, _reserved])
def test_what_cannot_be_staged_is_named_and_nothing_is_touched(
    stage, spoil, source: Path, trial_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)  # the path of a socket is short
    spoil(Path(source.name))
    before = sorted(os.listdir(source))
    with pytest.raises(CheckpointError, match="bad|manifest"):
        stage(source, trial_dir, "1")
    assert sorted(os.listdir(source)) == before
    assert list(trial_dir.iterdir()) == []


@pytest.mark.parametrize("stage", [staging.lend, staging.hand_over], ids=["lent", "handed over"])
def test_a_directory_that_is_not_there_is_an_error_that_names_it(stage, tmp_path: Path, trial_dir: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match="nowhere"):
        stage(tmp_path / "nowhere", trial_dir, "1")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointNotFoundError, match="not a directory"):
        stage(tmp_path / "file", trial_dir, "1")


@pytest.mark.parametrize("stage", [staging.lend, staging.hand_over], ids=["lent", "handed over"])
def test_the_directory_of_the_trial_itself_is_refused(stage, trial_dir: Path) -> None:
    (trial_dir / "result.json").write_text("{}")
    with pytest.raises(CheckpointError, match="directory of its own"):
        stage(trial_dir, trial_dir, "1")
    assert os.listdir(trial_dir) == ["result.json"]


def test_a_published_checkpoint_is_lent_without_its_manifest_and_never_emptied(save, trial_dir: Path) -> None:
    published = save(1, {"model.bin": b"m"})
    before = tree_of(published.path)
    assert tree_of(staging.lend(published.path, trial_dir, "2")) == {"model.bin": b"m"}
    with pytest.raises(CheckpointError, match="published"):
        staging.hand_over(published.path, trial_dir, "2")
    assert tree_of(published.path) == before


def test_read_only_files_can_be_lent_and_removed(tmp_path: Path, trial_dir: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "weights").write_text("w")
    (base / "weights").chmod(0o444)
    staged = staging.lend(base, trial_dir, "1")
    assert (staged / "weights").read_text() == "w"
    fs.rmtree(staged)


@pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="no mkfs.xfs: apt-get install xfsprogs")
def test_lent_files_are_reflinks_where_the_filesystem_can(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    image, place = tmp_path / "image", tmp_path / "xfs"
    with open(image, "wb") as file:
        file.truncate(400 << 20)
    place.mkdir()
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, place], check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a loop device is not allowed here")
    try:
        (place / "mine").mkdir()
        (place / "mine" / "model.bin").write_bytes(os.urandom(50 << 20))
        fs.fsync_file(place / "mine" / "model.bin")
        before = fs.free_bytes(place)
        staged = staging.lend(place / "mine", place / "trial", "1")
        fs.fsync_file(staged / "model.bin")
        after = fs.free_bytes(place)
        assert before is not None and after is not None and before - after < 5 << 20
        with open(place / "mine" / "model.bin", "r+b") as file:
            file.write(b"changed in place")
        assert (staged / "model.bin").read_bytes()[:16] != b"changed in place"
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


# --- what was scanned already


@pytest.mark.parametrize("how", [staging.lend, staging.hand_over])
def test_a_directory_that_was_just_scanned_is_staged_as_it_is(how: Any, source: Path, trial_dir: Path) -> None:
    (source / "link").symlink_to("model.bin")
    before = tree_of(source)
    staged = how(source, trial_dir, "1", file_tree.scan(source, follow=True))
    assert tree_of(staged) == before
    assert not any(path.is_symlink() for path in staged.rglob("*"))
    assert tree_of(source) == (before if how is staging.lend else {})


@pytest.mark.parametrize("how", [staging.lend, staging.hand_over])
def test_a_directory_that_has_gone_since_it_was_scanned_is_missed(how: Any, source: Path, trial_dir: Path) -> None:
    found = file_tree.scan(source, follow=True)
    shutil.rmtree(source)
    with pytest.raises(CheckpointNotFoundError):
        how(source, trial_dir, "1", found)


COUNTS = """
import sys
from collections import Counter
from pathlib import Path
from trainables.store import file_tree, staging

source, trial_dir = map(Path, sys.argv[1:3])
calls, watching = Counter(), False
sys.addaudithook(lambda event, args: calls.update([event]) if watching and event.startswith("os.") else None)
for number in "12":
    (source / "model.bin").write_bytes(b"m")
    watching = number == "2"
    staging.hand_over(source, trial_dir, number, file_tree.scan(source, follow=True))
print(dict(calls))
"""


def test_a_move_looks_through_the_directory_once(source: Path, trial_dir: Path, tmp_path: Path) -> None:
    shutil.rmtree(source)
    source.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", COUNTS, source, trial_dir], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert ast.literal_eval(done.stdout) == {"os.scandir": 1, "os.rename": 1, "os.mkdir": 1, "os.chmod": 2}
