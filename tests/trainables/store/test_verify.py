""""""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.store.harness import rewrite
from trainables.errors import CheckpointCorruptError, CheckpointError, CheckpointNotFoundError
from trainables.store import delete, file_tree, fs, staging, verify


def test_checkpoints_are_listed_by_save_order_and_never_by_name_or_mtime(save, trial_dir: Path) -> None:
    save(1, iteration=900)
    save(2, iteration=10_100)
    save(3, iteration=40)  # went back
    save(1, generation=2, attempt=3, iteration=7)
    for age, name in enumerate(os.listdir(trial_dir)):
        os.utime(trial_dir / name, (4e9 - age, 4e9 - age))
    order = [published.ref.order for published in verify.list_checkpoints(trial_dir)]
    assert order == [(1, 1, 1), (1, 1, 2), (1, 1, 3), (2, 3, 1)]


def test_only_complete_checkpoints_are_listed_and_the_others_named(save, trial_dir: Path) -> None:
    for index in range(1, 7):
        save(index, {"model.bin": b"m" * 10, "other.bin": b"o"})
    (trial_dir / "checkpoint_000002" / "other.bin").unlink()
    (trial_dir / "checkpoint_000003" / "model.bin").write_bytes(b"m" * 9)
    (trial_dir / "checkpoint_000004" / ".manifest.json").write_bytes(b'{"format": 1, "na')
    (trial_dir / "checkpoint_000005" / ".manifest.json").unlink()
    shutil.copytree(trial_dir / "checkpoint_000001", trial_dir / "my copy")
    (trial_dir / "lightning_logs").mkdir()
    (trial_dir / "result.json").write_text("")
    staging.new_directory(trial_dir, "7")
    listing = verify.scan(trial_dir)
    assert [published.path.name for published in listing.complete] == ["checkpoint_000001", "checkpoint_000006"]
    reasons = {broken.where.name: broken.reason for broken in listing.broken}
    assert sorted(reasons) == ["checkpoint_000002", "checkpoint_000003", "checkpoint_000004"]
    assert "other.bin is missing" in reasons["checkpoint_000002"]
    assert "model.bin has 9 bytes, published were 10" in reasons["checkpoint_000003"]
    assert "manifest" in reasons["checkpoint_000004"]
    assert [path.name for path in listing.unknown] == ["checkpoint_000005", "lightning_logs", "my copy"]


def test_a_directory_that_is_not_there_has_no_checkpoints(tmp_path: Path) -> None:
    assert verify.list_checkpoints(tmp_path / "none") == verify.leftovers(tmp_path / "none") == []
    assert delete.finish_deletes(tmp_path / "none") == []


def test_t11_a_file_rewritten_in_place_is_found_and_no_other_checkpoint_harmed(save, trial_dir: Path) -> None:
    good, bad = save(1), save(2)
    with open(bad.path / "model.bin", "r+b") as file:
        file.write(b"x")  # same size
    assert len(verify.list_checkpoints(trial_dir)) == 2
    for look in (verify.check, verify.quick):
        with pytest.raises(CheckpointCorruptError, match=r"checkpoint_000002/model\.bin.*BLAKE3"):
            look(bad.path)
    assert verify.quick(good.path) == verify.check(good.path) == good.manifest
    aside = verify.quarantine(bad.path)
    assert aside.name == ".broken-checkpoint_000002"
    assert [published.path for published in verify.list_checkpoints(trial_dir)] == [good.path]
    assert verify.problems(good.path) == []


def test_t11_a_change_that_hides_behind_its_mtime_is_found_before_a_restore(save) -> None:
    published = save(1)
    path = published.path / "model.bin"
    status = path.stat()
    path.write_bytes(b"\x02" * 1000)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    verify.quick(published.path)
    with pytest.raises(CheckpointCorruptError, match=r"model\.bin"):
        verify.check(published.path)


def test_t11_a_manifest_that_was_exchanged_is_found_by_its_digest(save) -> None:
    published = save(1)
    verify.check(published.path, digest=published.digest)
    rewrite(published.path, iteration=99)
    with pytest.raises(CheckpointCorruptError, match="not the one that was published"):
        verify.check(published.path, digest=published.digest)


@pytest.mark.parametrize("years", [-40, 1, 70], ids=["back", "forward", "far forward"])
def test_t12_a_clock_that_jumped_makes_files_be_hashed_and_stay_good(save, trial_dir: Path, years: int) -> None:
    published = [save(1), save(2)]
    for one in published:
        when = one.path.stat().st_mtime + years * 365 * 86400
        os.utime(one.path / "model.bin", (when, when))
    for one in published:
        assert verify.quick(one.path) == verify.check(one.path) == one.manifest
    assert [one.ref.index for one in verify.list_checkpoints(trial_dir)] == [1, 2]


def test_quick_hashes_nothing_that_looks_as_published(save, monkeypatch: pytest.MonkeyPatch) -> None:
    published = save(1)
    monkeypatch.setattr(file_tree, "fingerprint", None)
    assert verify.quick(published.path) == published.manifest


def test_a_copied_checkpoint_is_good_wherever_it_lies(save, tmp_path: Path) -> None:
    published = save(1, {"model.bin": b"m", "a/b": b"b"})
    shutil.copytree(published.path, tmp_path / "elsewhere", copy_function=shutil.copyfile)
    assert verify.problems(tmp_path / "elsewhere") == []
    assert verify.check(tmp_path / "elsewhere").ref == published.ref


def test_problems_names_all_that_is_wrong(save) -> None:
    path = save(1, {"a": b"a" * 10, "b": b"b", "c": b"c", "d": b"d"}).path
    (path / "a").write_bytes(b"short")
    (path / "b").unlink()
    (path / "c").write_bytes(b"x")
    (path / "extra").write_text("")
    (path / "link").symlink_to("d")
    found = verify.problems(path)
    for text in ("a has 5 bytes, published were 10", "b cannot be read", "c is not what", "extra is not in", "link is"):
        assert sum(f"{path.name}/{text}" in problem for problem in found) == 1, (text, found)
    assert len(found) == 5


def test_extra_files_do_not_keep_a_checkpoint_from_being_used(save, trial_dir: Path) -> None:
    published = save(1)
    (published.path / "notes.txt").write_text("mine")
    verify.check(published.path)
    assert len(verify.list_checkpoints(trial_dir)) == 1
    assert len(verify.problems(published.path)) == 1


def test_what_replaces_a_file_is_never_followed_nor_waited_for(save, tmp_path: Path) -> None:
    path = save(1, {"a": b"a", "b": b"b", "c/d": b"d"}).path
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "d").write_bytes(b"d")
    (path / "a").rename(tmp_path / "a")
    (path / "a").symlink_to(tmp_path / "a")
    (path / "b").unlink()
    os.mkfifo(path / "b")
    shutil.rmtree(path / "c")
    (path / "c").symlink_to(tmp_path / "outside")
    with pytest.raises(CheckpointCorruptError, match="/a "):
        verify.check(path)
    (path / "b").unlink()
    problems = [problem.removeprefix(str(path)) for problem in verify.problems(path)]
    assert {problem.split(" ")[0] for problem in problems} >= {"/a", "/b", "/c/d"}


def test_nothing_there_is_not_found(tmp_path: Path) -> None:
    for look in (verify.check, verify.quick):
        with pytest.raises(CheckpointNotFoundError, match="nothing"):
            look(tmp_path / "nothing")
    assert len(verify.problems(tmp_path / "nothing")) == 1


def test_setting_aside_twice_keeps_both(save, trial_dir: Path) -> None:
    first = verify.quarantine(save(1).path)
    second = verify.quarantine(save(1).path)
    assert first != second and first.is_dir() and second.is_dir()
    assert verify.scan(trial_dir) == verify.Listing()


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOMEM, errno.ESTALE, errno.EACCES])
@pytest.mark.parametrize("part", [".manifest.json", "b.bin"])
def test_what_cannot_be_read_just_now_is_not_called_broken(
    save, trial_dir: Path, monkeypatch: pytest.MonkeyPatch, number: int, part: str
) -> None:
    path, other = save(1, {"a.bin": b"a", "b.bin": b"b"}).path, save(2)
    failing = True

    def wrap(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(where: Any, *rest: Any, **more: Any) -> Any:
            if failing and os.fspath(where) == str(path / part):
                raise OSError(number, os.strerror(number), str(where))
            return real(where, *rest, **more)

        monkeypatch.setattr(owner, name, call)

    wrap(fs, "read_file")
    wrap(file_tree, "fingerprint")
    wrap(os, "lstat")
    for look in (verify.check, verify.quick, lambda path: verify.scan(trial_dir)):
        with pytest.raises(CheckpointError, match=re.escape(os.strerror(number))) as caught:
            look(path)
        assert not isinstance(caught.value, CheckpointCorruptError)
    assert verify.list_checkpoints(trial_dir) == [other]  # what may be used, just now
    assert len(verify.problems(path)) == 1
    failing = False
    assert len(verify.list_checkpoints(trial_dir)) == 2 and verify.problems(path) == []


@pytest.mark.parametrize("part", [".manifest.json", "b.bin"])
@pytest.mark.parametrize("there", ["directory", "link to itself"])
def test_what_has_something_else_in_the_place_of_a_file_is_broken(save, trial_dir: Path, part: str, there: str) -> None:
    path = save(1, {"a.bin": b"a", "b.bin": b"b"}).path
    (path / part).unlink()
    if there == "directory":
        (path / part).mkdir()
    else:
        (path / part).symlink_to(part)
    with pytest.raises(CheckpointCorruptError):
        verify.check(path)
    assert [broken.where for broken in verify.scan(trial_dir).broken] == [path]


def test_leftovers_are_staged_directories_only(save, trial_dir: Path) -> None:
    save(1)
    (trial_dir / ".staging").mkdir()
    (trial_dir / ".git").mkdir()
    left = staging.new_directory(trial_dir, "2")
    assert verify.leftovers(trial_dir) == [left]
    fs.rmtree(left)
    assert verify.leftovers(trial_dir) == []
