"""Files of a group between its hosts: what a rank saved goes to the leader, a checkpoint comes from there."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import blake3
import msgspec
import pytest

from tests.trainables.group.harness import KEY, leftovers, notes, run_nodes, save_all
from trainables.errors import CheckpointCorruptError, CheckpointNotFoundError, PublishError
from trainables.group.file_transfer import FileServer, LeaderFiles, SendFiles
from trainables.net import handshake, pieces
from trainables.store import publish, staging
from trainables.store.delete import pins
from trainables.wire import CheckpointRef, Finished


def test_hosts_that_share_the_directory_send_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderFiles, "send", lambda *_: os._exit(9))
    monkeypatch.setattr(LeaderFiles, "fetch", lambda *_: os._exit(9))

    link = run_nodes(save_all, tmp_path, shared=True)

    assert link.end == Finished()
    assert link.ended() == [0]
    assert [each["newest"]["of_2"] for each in notes(tmp_path)] == ["1"] * 3
    assert not leftovers(tmp_path)


# --- a leader and a host, without ranks --------------------------------------------------------------------


@dataclass
class Ends:
    """A leader's trial directory served over the loopback, and the files as a rank elsewhere finds them."""

    trial: Path
    there: Path
    files: LeaderFiles
    server: FileServer

    def staged(self, content: dict[str, bytes], directories: tuple[str, ...] = ()) -> Path:
        path = staging.new_directory(self.there, "1-rank2")
        for name in directories:
            (path / name).mkdir(parents=True)
        for name, data in content.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
        return path

    def published(self, name: str = "checkpoint_000001", **content: bytes) -> Path:
        path = staging.new_directory(self.trial, "1")
        for file, data in content.items():
            (path / file).write_bytes(data)
        (path / "empty").mkdir()
        prepared = publish.prepare(
            path, ref=CheckpointRef("t1", name, 1, 1, 1, 1), metrics=msgspec.Raw(b"{}"), created=1.0
        )
        return publish.commit(prepared, self.trial / name).path


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    trial, there = tmp_path / "trial", tmp_path / "there"
    trial.mkdir()
    there.mkdir()
    listener = socket.create_server(("127.0.0.1", 0))
    server = FileServer(listener, KEY, trial)
    files = LeaderFiles(listener.getsockname(), KEY, Path("/start"), there / "given", there / "fetched")
    yield Ends(trial, there, files, server)
    server.close()
    listener.close()


def until_empty(look: Callable[[], Iterable[object]]) -> None:
    """Who was answered may look before the other end has cleaned up."""
    deadline = time.monotonic() + 60
    while list(look()):
        assert time.monotonic() < deadline
        time.sleep(0.002)


def tree(directory: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
    }


def test_what_was_staged_is_moved_whole_and_gone_here(ends: Ends) -> None:
    content = {"a": os.urandom(2_500_000), "d/b": b"", "d/e/c": b"x"}
    staged = ends.staged(content, ("d/empty",))

    moved = ends.files.send(staged, "1-rank2")

    assert moved.parent == ends.trial and moved.name.startswith(f"{staging.PREFIX}1-rank2-")
    assert tree(moved) == {**content, "d": None, "d/e": None, "d/empty": None}
    assert list(ends.there.iterdir()) == []


def test_links_become_what_they_point_to_on_the_way(ends: Ends, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"content")
    staged = ends.staged({})
    (staged / "link").symlink_to(tmp_path / "outside")

    moved = ends.files.send(staged, "x")

    assert tree(moved) == {"link": b"content"} and not (moved / "link").is_symlink()


def test_a_checkpoint_comes_whole_once_and_is_verified(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ends.published(weights=os.urandom(1_200_000), other=b"")

    first = ends.files.fetch(path)

    assert first == ends.there / "fetched" / path.name
    assert tree(first) == tree(path) and (first / "empty").is_dir()
    monkeypatch.setattr(LeaderFiles, "_fetch", lambda *_: pytest.fail("it is here already"))
    assert ends.files.fetch(path) == first
    assert ends.files.fetch(Path("/start")) == ends.there / "given"
    until_empty(pins.paths)  # it is held while it is read, and no longer


def test_what_was_damaged_over_there_is_refused_and_not_kept(ends: Ends) -> None:
    path = ends.published(weights=b"12345678")
    (path / "weights").write_bytes(b"1234567X")

    with pytest.raises(CheckpointCorruptError):
        ends.files.fetch(path)
    assert list((ends.there / "fetched").iterdir()) == []


@pytest.mark.parametrize("where", ["gone", "outside", "not published"])
def test_only_published_checkpoints_of_the_trial_are_given(ends: Ends, tmp_path: Path, where: str) -> None:
    path = ends.trial / "checkpoint_000009"
    if where == "outside":
        path = shutil.copytree(ends.published(a=b"x"), tmp_path / "elsewhere")
    elif where == "not published":
        path.mkdir()
        (path / "secret").touch()

    with pytest.raises(CheckpointNotFoundError, match="is not on the leader's host any more"):
        ends.files.fetch(path)
    assert list((ends.there / "fetched").iterdir()) == []


def test_a_full_disk_of_the_leaders_is_the_ranks_error_and_nothing_stays(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pieces, "write", full)
    for content in ({"a": b"1"}, {f"f{number}": os.urandom(400_000) for number in range(8)}):
        staged = ends.staged(content)
        with pytest.raises(PublishError, match="No space left on device") as raised:
            ends.files.send(staged, "1-rank2")
        assert raised.value.errno == errno.ENOSPC
        assert list(ends.there.iterdir()) == []
        until_empty(ends.trial.iterdir)
    monkeypatch.undo()
    assert ends.files.send(ends.staged({"a": b"1"}), "x").exists(), "the next one is taken"


def test_a_name_that_leads_out_is_written_nowhere(ends: Ends, tmp_path: Path) -> None:
    for name in ("../evil", "/tmp/evil-of-a-rank", "a/../../evil"):
        with Connection(handshake.connect(ends.files.address, KEY).detach()) as line:
            line.send(SendFiles("x", [(name, 4), ("good", 2)], [name]))
            assert isinstance(line.recv(), Path)
            line.send_bytes(b"evil" + b"ok")
            line.send_bytes(blake3.blake3(b"evilok").digest())
            answer = line.recv()
        assert isinstance(answer, PublishError) and "leads out" in str(answer)
    until_empty(ends.trial.iterdir)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["there", "trial"]
    assert not Path("/tmp/evil-of-a-rank").exists()


def test_what_did_not_arrive_as_it_was_sent_is_refused(ends: Ends) -> None:
    with Connection(handshake.connect(ends.files.address, KEY).detach()) as line:
        line.send(SendFiles("x", [("a", 4)], []))
        line.recv()
        line.send_bytes(b"1234")
        line.send_bytes(blake3.blake3(b"1235").digest())
        answer = line.recv()

    assert isinstance(answer, PublishError) and "did not arrive as it was sent" in str(answer)


def test_a_rank_that_dies_while_it_sends_leaves_nothing(ends: Ends) -> None:
    with Connection(handshake.connect(ends.files.address, KEY).detach()) as line:
        line.send(SendFiles("x", [("a", 4)], []))
        staged = line.recv()
        assert staged.is_dir()
    until_empty(ends.trial.iterdir)


def test_a_file_that_is_cut_while_it_is_sent_is_an_error(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = ends.staged({"a": bytes(100)})
    real = pieces.send

    def cut(line: Connection, directory: Path, *more: Any) -> None:
        os.truncate(directory / "a", 10)
        real(line, directory, *more)

    monkeypatch.setattr(pieces, "send", cut)
    with pytest.raises(PublishError, match="was shortened while it was sent"):
        ends.files.send(staged, "x")
    assert not staged.exists()


def test_a_leader_that_is_gone_is_said_so(ends: Ends) -> None:
    path = ends.published(a=b"x")
    ends.server.close()
    listener = socket.create_server(("127.0.0.1", 0))
    silent = replace(ends.files, address=listener.getsockname())

    def hang_up() -> None:
        for _ in range(2):
            accepted, _ = listener.accept()
            sock = handshake.admit(accepted, KEY, knock_s=10, answer_s=10)
            assert sock is not None
            sock.close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    with pytest.raises(PublishError, match="the leader of the group is gone|Broken pipe|reset"):
        silent.send(ends.staged({"a": b"1"}), "x")
    with pytest.raises((CheckpointNotFoundError, OSError), match="the leader of the group is gone|Broken pipe|reset"):
        silent.fetch(path)
    thread.join(60)
    listener.close()


def test_who_does_not_know_the_key_is_sent_away(ends: Ends) -> None:
    stranger = replace(ends.files, key=b"another key")

    with pytest.raises((AuthenticationError, EOFError, OSError)):
        stranger.send(ends.staged({"a": b"1"}), "x")
    assert list(ends.trial.iterdir()) == []
