"""Whole checkpoints over a back end: their order, what a fetch checks, and what a hostile bucket may hold."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trainables.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    ObjectExistsError,
    ObjectNotFoundError,
    PublishError,
    TransferError,
)
from trainables.store import fs, staging, verify
from trainables.store.manifest import MANIFEST_NAME, Published
from trainables.testing.files import ByteCounter
from trainables.transfer import remote_checkpoints
from trainables.transfer.backend import Can, Entry, Progress, unwatched
from trainables.transfer.fsspec import MemoryBackend
from trainables.transfer.local import LocalBackend
from trainables.transfer.objects import ObjectBackend
from trainables.transfer.remote_checkpoints import ContentIndex

Save = Callable[..., Published]
TRIAL = "exp/train_abc_00000"


@pytest.fixture(params=["directory", "memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectBackend:
    if request.param == "directory":
        return LocalBackend(tmp_path / "place")
    return MemoryBackend(f"memory:/{tmp_path}/place")


def push(backend: ObjectBackend, published: Published, **more: Any) -> str:
    key = f"{TRIAL}/{published.manifest.name}"
    remote_checkpoints.push_payload(backend, published.path, key, **({"index": ContentIndex()} | more))
    remote_checkpoints.push_manifest(backend, published.path, key)
    return key


def content(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


# --- there and back ----------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_as_it_was(backend: ObjectBackend, save: Save, tmp_path: Path) -> None:
    files = {"model.bin": os.urandom(50_000), "a b/$(x)": b"odd", "empty": b"", "deep/er/file": b"x" * 10_000}
    published = save(7, files, ("logs/none", "nothing"))
    moved = ByteCounter()
    key = push(backend, published)
    target = tmp_path / "cache" / "here"
    fetched = remote_checkpoints.fetch(backend, key, target, digest=published.digest, progress=moved)
    assert (fetched.path, fetched.digest, fetched.ref) == (target, published.digest, published.ref)
    assert content(target) == content(published.path)
    assert (target / "logs" / "none").is_dir() and (target / "nothing").is_dir()
    assert verify.problems(target) == []
    assert moved.bytes >= 60_000
    assert fs.listdir(target.parent) == ["here"], "nothing is left beside it"


def test_what_others_have_brought_is_not_sent_unless_it_is_another(
    backend: ObjectBackend, save: Save, tmp_path: Path
) -> None:
    files = {name: os.urandom(100_000) for name in ("mine", "theirs", "deep/theirs", "changed")}
    published, key = save(1, files), f"{TRIAL}/checkpoint_000001"
    (tmp_path / "part").mkdir()
    sent = remote_checkpoints.push_part(backend, published.path, key, ["theirs"], index=ContentIndex())
    sent |= remote_checkpoints.push_part(backend, published.path, key, ["deep/theirs"], index=ContentIndex())
    (tmp_path / "part" / "changed").write_bytes(b"something else")
    sent |= remote_checkpoints.push_part(backend, tmp_path / "part", key, ["changed"], index=ContentIndex())
    assert not list(remote_checkpoints.listed(backend, TRIAL).complete)

    moved = ByteCounter()
    assert push(backend, published, sent=sent, progress=moved) == key
    assert 200_000 <= moved.bytes < 300_000
    fetched = remote_checkpoints.fetch(backend, key, tmp_path / "cache")
    assert content(fetched.path) == content(published.path)


def test_word_of_progress_comes_while_a_part_is_hashed(save: Save, tmp_path: Path) -> None:
    """Who hears nothing for long takes it for stuck, and a large file takes long."""
    size, told, before = 9 * 2**20, list[int](), list[int]()

    class Watched(LocalBackend):
        def push(self, *arguments: Any, **more: Any) -> None:
            before.extend(told)
            super().push(*arguments, **more)

    published = save(1, {"large": os.urandom(size), "small": b"x"})
    remote_checkpoints.push_part(
        Watched(tmp_path / "place"),
        published.path,
        f"{TRIAL}/checkpoint_000001",
        ["large", "small"],
        index=ContentIndex(),
        progress=told.append,
    )
    assert sum(before) == size + 1
    assert max(before) < size, "a file's end is too late"


def test_a_part_is_never_what_makes_a_checkpoint_complete(backend: ObjectBackend, save: Save) -> None:
    with pytest.raises(CheckpointError, match="reserved"):
        remote_checkpoints.push_part(backend, save(1).path, f"{TRIAL}/c", [MANIFEST_NAME], index=ContentIndex())
    assert not list(backend.list())


def test_a_fetched_checkpoint_need_not_be_hashed_again(
    backend: ObjectBackend, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = push(backend, save(1))
    remote_checkpoints.fetch(backend, key, tmp_path / "cache")
    monkeypatch.setattr(verify.file_tree, "fingerprint", lambda *args: pytest.fail("hashed"))
    verify.quick(tmp_path / "cache")


def test_what_a_killed_push_left_is_no_part_of_a_checkpoint_in_a_directory(save: Save, tmp_path: Path) -> None:
    """Somebody who opens the directory as it is finds what was published, and nothing beside it."""
    backend, published = LocalBackend(tmp_path / "place"), save(1, {"deep/model.bin": b"x" * 1000})
    key = push(backend, published)
    for name in (".transfer-0123", "deep/.transfer-4567"):
        (backend.root / key / name).write_bytes(b"half")
    remote_checkpoints.push_manifest(backend, published.path, key)  # as it is done again after a kill
    assert verify.problems(backend.root / key) == []
    copy = "exp/train_abc_00001/checkpoint_000001"
    remote_checkpoints.copy_payload(backend, key, backend, copy, index=ContentIndex())
    (backend.root / copy / ".transfer-89ab").write_bytes(b"half")
    remote_checkpoints.copy_manifest(backend, key, backend, copy)
    assert verify.problems(backend.root / copy) == []


def test_it_is_there_from_its_manifest_on(backend: ObjectBackend, save: Save, tmp_path: Path) -> None:
    published = save(1)
    key = f"{TRIAL}/{published.manifest.name}"
    remote_checkpoints.push_payload(backend, published.path, key, index=ContentIndex())
    assert not backend.exists(f"{key}/{MANIFEST_NAME}")
    with pytest.raises(CheckpointNotFoundError):
        remote_checkpoints.read_manifest(backend, key)
    with pytest.raises(CheckpointNotFoundError):
        remote_checkpoints.fetch(backend, key, tmp_path / "cache")
    assert not fs.exists(tmp_path / "cache")
    assert remote_checkpoints.listed(backend, TRIAL).unknown == [key]
    remote_checkpoints.push_manifest(backend, published.path, key)
    assert remote_checkpoints.read_manifest(backend, key).digest == published.digest


def test_only_what_the_manifest_names_is_pushed(backend: ObjectBackend, save: Save) -> None:
    published = save(1)
    (published.path / "somebody's").write_text("no")
    key = push(backend, published)
    assert sorted(entry.key for entry in backend.list(key)) == [f"{key}/{MANIFEST_NAME}", f"{key}/model.bin"]


def test_what_was_changed_after_it_was_published_is_not_pushed(backend: ObjectBackend, save: Save) -> None:
    published = save(1)
    (published.path / "model.bin").write_bytes(b"x" * 10_000)
    with pytest.raises(CheckpointCorruptError):
        push(backend, published)
    assert list(backend.list()) == []


def test_a_manifest_is_written_once(backend: ObjectBackend, save: Save) -> None:
    published = save(1)
    key = push(backend, published)
    remote_checkpoints.push_manifest(backend, published.path, key)  # a second try: the same bytes
    other = save(2)
    with pytest.raises(ObjectExistsError):
        remote_checkpoints.push_manifest(backend, other.path, key)
    assert remote_checkpoints.read_manifest(backend, key).digest == published.digest


def test_a_second_try_leaves_out_what_arrived(backend: ObjectBackend, save: Save) -> None:
    published = save(1, {"a": b"a" * 100_000, "b": b"b" * 100_000, "c": b"c" * 100_000})
    key = f"{TRIAL}/{published.manifest.name}"
    receipts: dict[str, str] = {}
    calls = 0

    def cut(moved: int) -> None:
        nonlocal calls
        calls += 1
        if calls >= 2:
            raise ConnectionError("cut")

    backend.threads = 1
    with pytest.raises(ConnectionError):
        remote_checkpoints.push_payload(
            backend, published.path, key, index=ContentIndex(), receipts=receipts, progress=cut
        )
    assert len(receipts) == 1
    moved = ByteCounter()
    remote_checkpoints.push_payload(
        backend, published.path, key, index=ContentIndex(), receipts=receipts, progress=moved
    )
    assert moved.bytes == 200_000
    remote_checkpoints.push_manifest(backend, published.path, key)
    assert len(remote_checkpoints.listed(backend, TRIAL).complete) == 1


# --- content that is there ---------------------------------------------------------------------------------


def test_unchanged_content_is_not_sent_again(backend: ObjectBackend, save: Save, tmp_path: Path) -> None:
    """20 checkpoints of which 90 % never changes: at most 0.15 of the whole is sent."""
    index, base, moved, whole = ContentIndex(), os.urandom(900_000), ByteCounter(), 0
    for number in range(1, 21):
        published = save(number, {"base": base, "head": os.urandom(100_000)})
        key = push(backend, published, index=index, progress=moved)
        whole += published.manifest.bytes
    assert moved.bytes <= 0.15 * whole
    remote_checkpoints.fetch(backend, key, tmp_path / "cache")


def test_a_clone_of_another_trial_costs_no_bytes(backend: ObjectBackend, save: Save) -> None:
    index, moved = ContentIndex(), ByteCounter()
    published = save(1, {"weights": os.urandom(500_000)})
    push(backend, published, index=index)
    remote_checkpoints.push_payload(backend, published.path, "exp/clone/checkpoint", index=index, progress=moved)
    assert moved.bytes == 0


def test_what_was_deleted_meanwhile_is_sent(backend: ObjectBackend, save: Save, tmp_path: Path) -> None:
    index, moved = ContentIndex(), ByteCounter()
    weights = os.urandom(500_000)
    first = push(backend, save(1, {"weights": weights}), index=index)
    backend.delete_tree(first)  # by somebody who does not know the index
    second = push(backend, save(2, {"weights": weights}), index=index, progress=moved)
    assert moved.bytes == 500_000
    assert content(remote_checkpoints.fetch(backend, second, tmp_path / "cache").path)["weights"] == weights


def test_the_index_knows_what_is_still_there(save: Save) -> None:
    index, data = ContentIndex(), os.urandom(10_000)
    first, second = save(1, {"w": data, "again": data, "small": b"s"}), save(2, {"w": data})
    entry = second.manifest.files[0]
    assert index.find(entry) is None
    index.add(first.manifest.files, "t/1")
    index.add(first.manifest.files, "t/1")
    assert index.find(entry) in ("t/1/w", "t/1/again")
    index.add(second.manifest.files, "t/2")
    assert index.find(entry) == "t/2/w"
    index.forget("t/2")
    assert index.find(entry) in ("t/1/w", "t/1/again")
    index.forget("t/1")
    index.forget("t/1")
    assert index.find(entry) is None
    index.add(first.manifest.files, "t/1")
    small = next(file for file in first.manifest.files if file.name == "small")
    assert index.find(small) is None, "a copy costs as much as sending it"


def test_threads_share_an_index(save: Save) -> None:
    index, published = ContentIndex(), save(1, {"w": os.urandom(10_000)})
    entry = published.manifest.files[0]

    def work(number: int) -> None:
        for _ in range(300):
            index.add(published.manifest.files, f"t/{number}")
            index.find(entry)
            index.forget(f"t/{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert index.find(entry) is None


# --- deleted and listed ------------------------------------------------------------------------------------


class Recording(MemoryBackend):
    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.removed: list[str] = []

    def _remove(self, key: str) -> None:
        self.removed.append(key)
        super()._remove(key)


def test_a_manifest_is_deleted_first(save: Save, tmp_path: Path) -> None:
    backend = Recording(f"memory:/{tmp_path}/place")
    key = push(backend, save(1, {"a": b"a", ".first": b"b"}))
    other = push(backend, save(2))
    remote_checkpoints.delete(backend, key)
    assert backend.removed[0] == f"{key}/{MANIFEST_NAME}"
    assert {entry.key.rpartition("/")[0] for entry in backend.list()} == {other}
    remote_checkpoints.delete(backend, key)


def test_f03_a_listing_tells_complete_from_broken(backend: ObjectBackend, save: Save, tmp_path: Path) -> None:
    keys = [push(backend, save(number, {"a": b"a" * number, "b": b"b"})) for number in (10, 9, 8, 7, 6)]
    backend.delete([f"{keys[0]}/a"])
    backend.put(f"{keys[1]}/b", b"longer")
    backend.put(f"{keys[2]}/{MANIFEST_NAME}", b"{torn")
    backend.put(f"{TRIAL}/progress.csv", b"x")
    backend.put(f"{TRIAL}/.hidden/{MANIFEST_NAME}", b"x")
    backend.put(f"{TRIAL}/pushing/file", b"x")
    backend.put(f"{TRIAL}/copied/{MANIFEST_NAME}", backend.read(f"{keys[3]}/{MANIFEST_NAME}"))
    listing = remote_checkpoints.listed(backend, TRIAL)
    assert [remote.key for remote in listing.complete] == [keys[4], keys[3]], "the oldest save first"
    assert {broken.where for broken in listing.broken} == set(keys[:3])
    assert {broken.where: broken.reason for broken in listing.broken}[keys[0]].endswith("is missing")
    assert sorted(listing.unknown) == [f"{TRIAL}/copied", f"{TRIAL}/pushing"]
    for key in keys[:3]:
        with pytest.raises(CheckpointCorruptError):
            remote_checkpoints.fetch(backend, key, tmp_path / "cache")
        assert not fs.exists(tmp_path / "cache")
    assert remote_checkpoints.listed(backend, "exp/no such trial").complete == []


def test_a_newer_format_is_refused_and_not_called_broken(backend: ObjectBackend) -> None:
    backend.put(f"{TRIAL}/new/{MANIFEST_NAME}", b'{"format": 99}')
    with pytest.raises(CheckpointError, match="upgrade"):
        remote_checkpoints.listed(backend, TRIAL)


# --- what may come back ------------------------------------------------------------------------------------


def test_content_that_changed_over_there_is_never_used(backend: ObjectBackend, save: Save, tmp_path: Path) -> None:
    key = push(backend, save(1, {"model.bin": b"a" * 10_000}))
    backend.put(f"{key}/model.bin", b"b" * 10_000)
    with pytest.raises(CheckpointCorruptError, match="BLAKE3"):
        remote_checkpoints.fetch(backend, key, tmp_path / "cache" / "here")
    assert fs.listdir(tmp_path / "cache") == []


def test_another_manifest_than_the_journal_knows_is_refused(backend: ObjectBackend, save: Save, tmp_path: Path) -> None:
    key = push(backend, save(1))
    with pytest.raises(CheckpointCorruptError, match="not the one"):
        remote_checkpoints.fetch(backend, key, tmp_path / "cache", digest="0" * 64)


def test_what_the_manifest_does_not_name_is_not_fetched(backend: ObjectBackend, save: Save, tmp_path: Path) -> None:
    key = push(backend, save(1))
    backend.put(f"{key}/extra", b"x")
    assert set(content(remote_checkpoints.fetch(backend, key, tmp_path / "cache").path)) == {"model.bin", MANIFEST_NAME}


def test_a_fetch_replaces_nothing(backend: ObjectBackend, save: Save, tmp_path: Path) -> None:
    key = push(backend, save(1))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "mine").write_text("mine")
    with pytest.raises(PublishError):
        remote_checkpoints.fetch(backend, key, tmp_path / "cache")
    assert content(tmp_path / "cache") == {"mine": b"mine"}
    assert not list(tmp_path.glob(".staging-*"))


HOSTILE = {
    "up": {"name": "../escaped"},
    "up from below": {"name": "a/../../escaped"},
    "absolute": {"name": "/tmp/escaped"},
    "empty": {"name": ""},
    "dot": {"name": "./x"},
    "nul": {"name": "a\0b"},
    "itself": {"name": MANIFEST_NAME},
    "not text": {"name": 7},
    "negative": {"size": "x"},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest_writes_nothing(
    change: dict[str, Any], backend: ObjectBackend, save: Save, tmp_path: Path
) -> None:
    published = save(1)
    key = push(backend, published)
    document = msgspec.json.decode((published.path / MANIFEST_NAME).read_bytes())
    document["files"].append({"name": "x", "size": 1, "mtime_ns": 1, "blake3": "0" * 64} | change)
    backend.put(f"{key}/{MANIFEST_NAME}", msgspec.json.encode(document))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointCorruptError):
        remote_checkpoints.fetch(backend, key, tmp_path / "cache" / "here")
    (tmp_path / "cache").rmdir()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("field", ["directories", "name"])
def test_a_hostile_manifest_makes_no_directory(field: str, backend: ObjectBackend, save: Save, tmp_path: Path) -> None:
    published = save(1)
    key = push(backend, published)
    document = msgspec.json.decode((published.path / MANIFEST_NAME).read_bytes())
    document[field] = "../escaped" if field == "name" else ["../escaped"]
    backend.put(f"{key}/{MANIFEST_NAME}", msgspec.json.encode(document))
    with pytest.raises(CheckpointCorruptError):
        remote_checkpoints.fetch(backend, key, tmp_path / "cache" / "here")
    assert not list(tmp_path.rglob("escaped"))


def test_a_file_that_is_a_directory_too_is_corrupt(backend: ObjectBackend, save: Save, tmp_path: Path) -> None:
    published = save(1, {"a": b"a"})
    key = push(backend, published)
    document = msgspec.json.decode((published.path / MANIFEST_NAME).read_bytes())
    document["directories"] = ["a/b"]
    backend.put(f"{key}/{MANIFEST_NAME}", msgspec.json.encode(document))
    with pytest.raises(CheckpointCorruptError, match="file and directory"):
        remote_checkpoints.fetch(backend, key, tmp_path / "cache")


def test_a_link_in_a_shared_directory_is_not_followed(save: Save, tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / "place")
    key = push(backend, save(1, {"model.bin": b"a" * 100, "d/x": b"x"}))
    secret = tmp_path / "secret"
    secret.write_bytes(b"a" * 100)
    there = backend.root / key
    (there / "model.bin").unlink()
    (there / "model.bin").symlink_to(secret)
    with pytest.raises(TransferError, match="symlink"):
        remote_checkpoints.fetch(backend, key, tmp_path / "cache")
    assert not fs.exists(tmp_path / "cache")


class OnlyCopies(LocalBackend):
    """As a command: one call copies a tree, with links and all."""

    can = Can(list=False, verify=False, exclusive=False, reuse=False, copy=False)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        raise TransferError("it cannot list")

    def fetch(
        self, prefix: str, target: Path, names: Sequence[str] | None = None, *, progress: Progress = unwatched
    ) -> None:
        assert names is None, "asked once, for everything"
        if not (self.root / prefix).is_dir():
            raise ObjectNotFoundError(prefix)
        shutil.copytree(self.root / prefix, target, symlinks=True, dirs_exist_ok=True)


def test_a_place_that_can_only_copy_is_read_in_one_call(save: Save, tmp_path: Path) -> None:
    backend = OnlyCopies(tmp_path / "place")
    published = save(1, {"a": b"a" * 10_000, "d/b": b"b"}, ("none",))
    key = push(backend, published)
    (backend.root / key / "extra").write_text("x")
    (backend.root / key / "link").symlink_to("/etc")
    fetched = remote_checkpoints.fetch(backend, key, tmp_path / "cache", digest=published.digest)
    assert content(fetched.path) == content(published.path)
    assert verify.problems(fetched.path) == []
    with pytest.raises(CheckpointNotFoundError):
        remote_checkpoints.fetch(backend, "nowhere", tmp_path / "other")
    (backend.root / key / "d" / "b").unlink()
    (backend.root / key / "d" / "b").symlink_to("/etc/hostname")
    with pytest.raises(CheckpointCorruptError, match="not complete"):
        remote_checkpoints.fetch(backend, key, tmp_path / "other")
    (backend.root / key / MANIFEST_NAME).unlink()
    with pytest.raises(CheckpointNotFoundError):
        remote_checkpoints.fetch(backend, key, tmp_path / "other")
    assert not fs.exists(tmp_path / "other") and not list(tmp_path.glob(".staging-*"))


def test_a_disk_that_fills_up_leaves_nothing(
    backend: ObjectBackend, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = push(backend, save(1))

    def full(fd: int, data: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fs, "write", full)
    with pytest.raises(TransferError, match="No space left"):
        remote_checkpoints.fetch(backend, key, tmp_path / "cache" / "here")
    monkeypatch.undo()
    assert fs.listdir(tmp_path / "cache") == []


def test_the_manifest_is_durable_last(
    backend: ObjectBackend, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = push(backend, save(1))
    calls: list[str] = []

    def recorded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            calls.append(f"{name} {Path(args[0]).name}")
            return real(*args, **more)

        return call

    for name in ("fsync_file", "write_file", "fsync_dir", "rename"):
        monkeypatch.setattr(fs, name, recorded(name, getattr(fs, name)))
    remote_checkpoints.fetch(backend, key, tmp_path / "cache")
    staged = calls[-2].split()[1]
    assert staged.startswith(staging.PREFIX)
    assert calls[-5:] == [
        "fsync_file model.bin",
        f"write_file {MANIFEST_NAME}",
        f"fsync_dir {staged}",
        f"rename {staged}",
        f"fsync_dir {tmp_path.name}",
    ]


def test_a_source_that_vanished_is_said_so(backend: ObjectBackend, tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError):
        remote_checkpoints.push_payload(backend, tmp_path / "gone", "k", index=ContentIndex())


def test_f39_a_checkpoint_stays_valid_from_place_to_place(save: Save, tmp_path: Path) -> None:
    published = save(3, {"a": os.urandom(10_000), "d/b": b""}, ("none",))
    places = [
        LocalBackend(tmp_path / "one"),
        MemoryBackend(f"memory:/{tmp_path}/two"),
        LocalBackend(tmp_path / "three"),
    ]
    current = published.path
    for number, place in enumerate(places):
        key = f"{TRIAL}/{published.manifest.name}"
        remote_checkpoints.push_payload(place, current, key, index=ContentIndex())
        remote_checkpoints.push_manifest(place, current, key)
        current = remote_checkpoints.fetch(place, key, tmp_path / str(number), digest=published.digest).path
    shutil.copytree(tmp_path / "three", tmp_path / "copied")
    listing = remote_checkpoints.listed(LocalBackend(tmp_path / "copied"), TRIAL)
    assert [remote.digest for remote in listing.complete] == [published.digest]
    assert content(current) == content(published.path)
