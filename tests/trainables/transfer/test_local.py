from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import blake3
import pytest

from tests.servers.xfs import xfs
from tests.trainables.transfer.harness import checks, run
from trainables.errors import ObjectExistsError, StoreMissingError, TransferCorruptError, TransferError
from trainables.store import fs
from trainables.testing.backends import Check
from trainables.transfer import local
from trainables.transfer.local import LocalBackend


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path / "place")


def everything(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def test_a_file_is_durable_before_it_has_its_name(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def recorded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            calls.append(name)
            return real(*args)

        return call

    for name in ("fsync", "rename", "link", "fsync_dir"):
        monkeypatch.setattr(fs, name, recorded(name, getattr(fs, name)))
    backend.put("a/b", b"data")
    assert calls[:2] == ["fsync", "rename"] and set(calls[2:]) == {"fsync_dir"} and len(calls) == 4
    calls.clear()
    backend.put("a/c", b"data", exclusive=True)
    assert calls[:2] == ["fsync", "link"] and "fsync_dir" in calls[2:]


def test_a_push_that_fails_leaves_nothing(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 10_000_000)

    class Stop(Exception):
        pass

    def stop(moved: int) -> None:
        raise Stop

    with pytest.raises(Stop):
        backend.push(tmp_path, "x", ["a"], progress=stop)
    assert everything(backend.root) == ["x"]
    assert list(backend.list()) == []


def test_what_a_killed_push_left_is_no_key_and_goes_with_its_directory(backend: LocalBackend, tmp_path: Path) -> None:
    backend.put("x/a", b"a")
    (backend.root / "x" / f"{local.PREFIX}0123").write_bytes(b"half")
    assert [entry.key for entry in backend.list()] == ["x/a"]
    backend.fetch("x", tmp_path / "fetched")
    assert everything(tmp_path / "fetched") == ["a"]
    backend.delete_tree("x")
    assert everything(backend.root) == []


def test_what_the_disk_changed_is_noticed(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"a" * 100_000)
    real = fs.fsync

    def rot(fd: int) -> None:
        real(fd)
        os.pwrite(fd, b"b", 50_000)

    monkeypatch.setattr(fs, "fsync", rot)
    with pytest.raises(TransferCorruptError, match="read back"):
        backend.push(tmp_path, "x", ["a"])
    assert list(backend.list()) == []


def test_a_file_whose_directory_went_while_it_was_written_is_sent_whole(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(100_000)
    (tmp_path / "weights").write_bytes(content)
    gone: list[Path] = []
    real = fs.fsync

    def removed(fd: int) -> None:
        real(fd)
        if not gone:
            gone.append(backend.root / "exp" / "checkpoint")
            LocalBackend(backend.root).delete_tree("exp/checkpoint")

    monkeypatch.setattr(fs, "fsync", removed)
    receipts: dict[str, str] = {}
    backend.push(tmp_path, "exp/checkpoint", ["weights"], receipts=receipts)
    assert gone
    assert backend.read("exp/checkpoint/weights") == content
    assert receipts == {"weights": f"blake3:{blake3.blake3(content).hexdigest()}"}
    assert everything(backend.root) == ["exp", "exp/checkpoint", "exp/checkpoint/weights"]


@pytest.mark.parametrize("answer", [errno.EPERM, errno.EOPNOTSUPP])
def test_without_hard_links_one_of_many_creates(
    answer: int, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(fs, "link", refuse)
    barrier = threading.Barrier(4)

    def create(number: int) -> bool:
        barrier.wait()
        try:
            backend.put("claim", str(number).encode(), exclusive=True)
        except ObjectExistsError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(create, range(4)))
    assert sum(won) == 1
    assert backend.read("claim") == str(won.index(True)).encode()
    assert everything(backend.root) == ["claim"]


def test_a_link_whose_answer_nfs_lost_is_ours(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fs.link

    def twice(source: Path, target: Path) -> None:
        real(source, target)
        real(source, target)

    monkeypatch.setattr(fs, "link", twice)
    backend.put("claim", b"mine", exclusive=True)
    assert backend.read("claim") == b"mine"
    assert everything(backend.root) == ["claim"]


def test_links_over_there_are_not_followed(backend: LocalBackend, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    backend.put("x/a", b"a")
    (backend.root / "x" / "file").symlink_to(outside / "secret")
    (backend.root / "x" / "directory").symlink_to(outside)
    (backend.root / "trial").symlink_to(outside)
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("a")
    for attempt in (
        lambda: backend.fetch("x", tmp_path / "fetched"),
        lambda: backend.fetch("x", tmp_path / "fetched", ["file"]),
        lambda: backend.fetch("x", tmp_path / "fetched", ["directory/secret"]),
        lambda: backend.read("trial/secret"),
        lambda: backend.push(source, "trial", ["a"]),
        lambda: backend.push(source, "x/directory", ["a"]),
        lambda: backend.delete(["trial/secret"]),
        lambda: backend.delete_tree("trial"),
    ):
        with pytest.raises(TransferError, match="symlink"):
            attempt()
    assert not [path for path in (tmp_path / "fetched").rglob("*") if not path.is_dir()]
    assert everything(outside) == ["secret"]
    assert [entry.key for entry in backend.list()] == ["x/a"]
    backend.delete_tree("x")
    assert everything(outside) == ["secret"], "a tree is deleted without what its links lead to"


def test_a_fetch_of_a_pipe_does_not_wait(backend: LocalBackend, tmp_path: Path) -> None:
    backend.put("x/a", b"a")
    os.mkfifo(backend.root / "x" / "pipe")
    with pytest.raises(TransferError, match="no file"):
        backend.fetch("x", tmp_path / "fetched", ["pipe"])


def test_a_full_disk_says_how_much_is_free(
    tmp_path: Path, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"a" * 1000)

    def full(fd: int, data: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fs, "write", full)
    with pytest.raises(TransferError, match=r"No space left on device; \d+ bytes are free") as caught:
        backend.push(tmp_path, "x", ["a"])
    assert caught.value.transient, "somebody may make room"
    assert list(backend.list()) == []


def test_check_names_what_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TransferError, match="there is a file of that name"):
        LocalBackend(tmp_path / "file").check()
    with pytest.raises(TransferError, match="file"):
        LocalBackend(tmp_path / "file" / "below").check()
    with pytest.raises(TransferError):
        LocalBackend(Path("/proc/no such place")).check()


def test_a_disk_that_is_not_mounted_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may always write
    with pytest.raises(StoreMissingError, match="mounted"):
        LocalBackend(tmp_path / "mnt" / "share").check()


def test_a_deleter_and_a_pusher_of_one_directory_do_not_meet(backend: LocalBackend) -> None:
    stop = threading.Event()
    errors: list[Exception] = []

    def delete() -> None:
        while not stop.is_set():
            try:
                backend.delete(["deep/er/other"])
            except Exception as error:
                errors.append(error)

    thread = threading.Thread(target=delete)
    thread.start()
    for number in range(30):
        backend.put("deep/er/other", b"x")
        backend.put("deep/er/kept", b"%d" % number)
        assert backend.read("deep/er/kept") == b"%d" % number
        backend.delete(["deep/er/kept"])
    stop.set()
    thread.join()
    assert not errors


def test_known_content_costs_no_room_where_the_filesystem_can_reflink(tmp_path: Path) -> None:
    with xfs(tmp_path) as place:
        backend = LocalBackend(place)
        (tmp_path / "weights").write_bytes(os.urandom(30 << 20))
        backend.push(tmp_path, "first", ["weights"])
        before = fs.free_bytes(place)
        backend.push(tmp_path, "second", ["weights"], same={"weights": "first/weights"})
        after = fs.free_bytes(place)
        assert before is not None and after is not None and before - after < 3 << 20
        assert (place / "second" / "weights").read_bytes() == (tmp_path / "weights").read_bytes()


def test_what_a_killed_look_left_is_removed_by_the_next(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(backend, "delete", lambda keys: None)  # as if it had been killed before that
        backend.check()
    assert everything(backend.root) != []
    backend.check()
    assert everything(backend.root) == []


@pytest.fixture(scope="module")
def reflinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with xfs(tmp_path_factory.mktemp("xfs")) as place:
        yield place


@checks
def test_a_directory_conforms(check: Check, tmp_path: Path) -> None:
    run(check, LocalBackend(tmp_path / "not" / "there yet"))


@checks
def test_a_directory_that_can_reflink_conforms(check: Check, reflinking: Path) -> None:
    run(check, LocalBackend(reflinking / check.__name__))
