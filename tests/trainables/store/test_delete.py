from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from trainables.store import delete, fs, verify


def test_a_deleted_checkpoint_is_gone_and_missing_is_no_error(save, trial_dir: Path) -> None:
    path = save(1, {"model.bin": b"m", "a/b/c": b"c"}).path
    assert delete.delete(path) is True
    assert os.listdir(trial_dir) == []
    assert delete.delete(path) is True
    assert delete.delete(trial_dir / "never" / "was") is True


def test_it_is_hidden_durably_before_any_file_goes(save, trial_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(1).path
    calls: list[tuple[str, str]] = []
    for name in ("rename", "fsync_dir", "unlink", "rmdir"):
        original = getattr(fs, name)

        def recorded(*args, _name=name, _original=original):
            calls.append((_name, Path(args[0]).name))
            _original(*args)

        monkeypatch.setattr(fs, name, recorded)
    delete.delete(path)
    assert [name for name, _ in calls] == ["rename", "fsync_dir", "unlink", "unlink", "rmdir"]
    assert [place for _, place in calls[:3]] == ["checkpoint_000001", trial_dir.name, ".manifest.json"]


@pytest.mark.parametrize("call", ["rename", "fsync_dir", "unlink", "rmdir"])
@pytest.mark.parametrize("code", [errno.EBUSY, errno.ESTALE, errno.EIO], ids=errno.errorcode.get)
def test_f34_a_deletion_that_failed_is_finished_by_a_second_call(
    call: str, code: int, save, trial_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(1).path

    def fail(*args: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(fs, call, fail)
        with pytest.raises(OSError, match=os.strerror(code)):
            delete.delete(path)
    listed = verify.list_checkpoints(trial_dir)
    assert [one.path for one in listed] == ([path] if call == "rename" else [])
    assert delete.delete(path) is True
    assert os.listdir(trial_dir) == []


def test_an_interrupted_deletion_is_finished_at_the_next_start(save, trial_dir: Path) -> None:
    kept, gone = save(1).path, save(2).path
    hidden = delete.pins.hide(gone)
    assert hidden is not None
    assert [one.path for one in verify.list_checkpoints(trial_dir)] == [kept]
    assert delete.finish_deletes(trial_dir) == [hidden]
    assert delete.finish_deletes(trial_dir) == []
    assert os.listdir(trial_dir) == [kept.name]


def test_what_is_held_is_not_deleted(save, trial_dir: Path) -> None:
    path = save(1).path
    with delete.pins.hold(path), delete.pins.hold(path):
        assert delete.pins.paths() == {path.resolve()} and path in delete.pins
        assert delete.delete(path) is False
    assert delete.pins.paths() == set()
    assert verify.problems(path) == []
    assert delete.delete(path) is True


def test_one_of_two_holders_is_enough(save) -> None:
    path = save(1).path
    with delete.pins.hold(path):
        with delete.pins.hold(path.parent / "." / path.name):
            pass
        assert delete.delete(path) is False


def test_pins_are_counted_across_threads(save) -> None:
    path = save(1).path

    def open_and_close() -> None:
        for _ in range(500):
            with delete.pins.hold(path):
                assert path in delete.pins

    threads = [threading.Thread(target=open_and_close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert delete.pins.paths() == set()


def test_a_symlink_of_that_name_loses_itself_only(save, trial_dir: Path) -> None:
    target = save(1).path
    (trial_dir / "link").symlink_to(target)
    assert delete.delete(trial_dir / "link") is True
    assert os.listdir(trial_dir) == [target.name]
    assert verify.problems(target) == []


def test_read_only_directories_are_deleted_too(save) -> None:
    path = save(1, {"a/b": b"b"}).path
    (path / "a").chmod(0o500)
    assert delete.delete(path) is True
