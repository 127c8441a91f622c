"""What can be seen of a machine before a run: it is tried for real, and nothing is left behind."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from trainables.errors import TransferError
from trainables.store import fs
from trainables.transfer.local import LocalBackend
from tuner.tools import machine


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# --- packages -------------------------------------------------------------------------------------------------------


def test_a_version_is_that_of_the_distribution_and_there_or_not_where_nobody_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_script.py").write_text("raise RuntimeError('nobody imports it')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert machine.version("msgspec", "msgspec") not in (None, "")
    assert machine.version("beside_the_script", "beside-the-script") == ""
    assert machine.version("no_such_package", "no-such-package") is None
    assert machine.version("no.such.package", "no-such-package") is None


def test_a_package_comes_from_a_distribution_that_may_be_called_otherwise() -> None:
    assert machine.distributions(["yaml", "msgspec", "mine"]) == {
        "yaml": "PyYAML",
        "msgspec": "msgspec",
        "mine": "mine",
    }


# --- directories ----------------------------------------------------------------------------------------------------


def test_a_directory_is_tried_where_it_is_or_would_be_and_nothing_is_left(tmp_path: Path) -> None:
    there = machine.try_directory(tmp_path)
    assert (there.path, there.tried, there.problem) == (tmp_path, tmp_path, "")
    assert there.free is not None and there.free > 0 and there.locks
    later = machine.try_directory(tmp_path / "a" / "b")
    assert (later.path, later.tried, later.problem) == (tmp_path / "a" / "b", tmp_path, "")
    assert names(tmp_path) == []


def test_a_directory_in_which_nothing_can_be_written_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert machine.try_directory(tmp_path / "file" / "sub").problem == os.strerror(errno.ENOTDIR)

    def full(path: Path, *arguments: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fs, "write_file", full)
    tried = machine.try_directory(tmp_path)
    assert tried.problem == os.strerror(errno.ENOSPC) and not tried.locks
    assert names(tmp_path) == ["file"], "what was begun is removed"


@pytest.mark.parametrize(("mark", "seen"), [("", False), ("left-here", True), ("somebody-elses", False)])
def test_the_drivers_own_directory_is_known_by_its_mark_also_from_below(mark: str, seen: bool, tmp_path: Path) -> None:
    (tmp_path / "left-here").touch()
    (tmp_path / "results").mkdir()
    assert machine.try_directory(tmp_path / "results", mark).mark == seen


def test_a_disk_without_locks_is_seen_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*arguments: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(machine.fcntl, "flock", no_locks)
    assert not machine.try_directory(tmp_path).locks


# --- the place of the copies ----------------------------------------------------------------------------------------


def test_all_that_a_run_does_there_is_tried_and_nothing_is_left(tmp_path: Path) -> None:
    tried = machine.try_place({"place": str(tmp_path)})
    assert dict(tried) == dict.fromkeys(
        ["reach", "write", "read", "list", "create exclusively", "delete", "see what is deleted"], ""
    )
    assert names(tmp_path) == []


def test_a_place_that_cannot_be_opened_or_reached_ends_the_look(tmp_path: Path) -> None:
    ((step, why),) = machine.try_place({"place": "nothing://bucket"})
    assert step == "open" and "nothing" in why
    (tmp_path / "file").touch()
    ((step, why),) = machine.try_place({"place": str(tmp_path / "file" / "copies")})
    assert step == "reach" and why


@pytest.mark.parametrize(
    ("method", "does", "step", "said"),
    [
        ("read", lambda self, key: b"another", "read", "it is not what was written"),
        ("list", lambda self, prefix: [], "list", "it is not listed"),
        ("delete", lambda self, keys: None, "see what is deleted", "it is still there"),
    ],
)
def test_a_place_that_does_not_do_what_it_says_is_found_out(
    method: str, does: Any, step: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalBackend, method, does)
    assert dict(machine.try_place({"place": str(tmp_path)}))[step] == said


def test_what_is_refused_is_told_and_what_comes_after_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalBackend.delete

    def refused(self: LocalBackend, keys: Any) -> None:
        if [key for key in keys if key.endswith("/file")]:
            raise TransferError("no right to delete")
        real(self, keys)

    monkeypatch.setattr(LocalBackend, "delete", refused)
    tried = dict(machine.try_place({"place": str(tmp_path)}))
    assert tried["delete"] == "no right to delete" and "see what is deleted" not in tried
    assert tried["create exclusively"] == ""


# --- all of it ------------------------------------------------------------------------------------------------------


def test_what_was_seen_can_be_sent_from_another_machine(tmp_path: Path) -> None:
    seen = machine.look(tmp_path / "results", {"msgspec": "msgspec"}, place={"place": str(tmp_path)})
    assert pickle.loads(pickle.dumps(seen)) == seen
    assert seen.hostname and seen.python.startswith("3.") and seen.files != 0 and seen.processes != 0
    assert seen.memory is not None and seen.memory > 0
    assert len(seen.rights) == 7 and machine.look(tmp_path, {}).rights == []
    assert names(tmp_path) == []
