"""The process that moves bytes: what it is told and answers, and what it leaves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from tests.trainables.transfer.harness import DEADLINE_S, Scene
from trainables.net.failed import FailureKind
from trainables.net.frames import FrameSocket
from trainables.transfer import transfer_jobs
from trainables.transfer.agent import THREADS
from trainables.transfer.client import ProcessClient
from trainables.transfer.transfer_jobs import Begun, Done, JobFailed, Moved, OpenPlace, PlaceOpened, Push, decode_answer


def test_a_sign_of_life_does_not_wait_for_what_takes_long(scene: Scene) -> None:
    fetches = [scene.fetch(f"f{number}") for number in range(THREADS + 2)]
    beat = scene.uploader.submit(transfer_jobs.Put(key="beat", data=b"held 1"))
    scene.until(lambda: beat in scene.ended)
    assert list(scene.ended) == [beat] and isinstance(scene.ended[beat], Done)
    for number in range(THREADS + 2):
        scene.open(f"f{number}")
    scene.until(lambda: len(scene.ended) == len(fetches) + 1)
    assert all(isinstance(answer, Done) for answer in scene.ended.values())


def test_what_an_agent_has_in_the_temporary_directory_goes_with_it_or_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    one, other = (ProcessClient({"place": str(tmp_path / name)}) for name in ("one", "other"))
    before = set(temporary.iterdir())
    assert len(before) == 2
    for directory in before:
        (directory / "file").touch()
    os.kill(one._process.pid, signal.SIGKILL)
    one._process.wait()
    deadline = time.monotonic() + DEADLINE_S
    while not one._dead:
        assert time.monotonic() < deadline
    one.call(transfer_jobs.ListKeys(prefix="e"), timeout_s=DEADLINE_S)  # by the next one
    now = set(temporary.iterdir())
    assert len(now) == 2 and len(now & before) == 1, "what is another agent's stays"
    one.close()
    other.close()
    assert list(temporary.iterdir()) == []


# --- an agent alone, and a client that says what it likes ---------------------------------------------------


class Alone:
    """An agent's process, and the other end of its socket."""

    def __init__(self, root: Path) -> None:
        self.root = root
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "trainables.transfer.agent", str(theirs.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
        self.line = FrameSocket(ours)
        self.bodies = self.line.bodies()

    def open(self, place: Path, *, check: bool = True) -> Any:
        arguments = cloudpickle.dumps({"place": os.fspath(place)})
        self.line.send(OpenPlace(arguments, sys.path, check))
        return self.hear()

    def hear(self) -> Any:
        body = next(self.bodies, None)
        return None if body is None else decode_answer(body)

    def do(self, job: Any) -> list[Any]:
        """Everything that is said of one job, its answer last."""
        self.line.send(job)
        said = [self.hear()]
        while not isinstance(said[-1], Done | JobFailed | None):
            said.append(self.hear())
        return said

    def ended(self) -> int:
        self.line.close()
        return self.process.wait(60)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Alone]:
    made = Alone(tmp_path)
    yield made
    made.process.kill()
    made.process.communicate()


def test_a_job_is_begun_told_of_and_answered_and_the_agent_ends_with_its_client(alone: Alone) -> None:
    (alone.root / "source").mkdir()
    (alone.root / "source" / "large").write_bytes(bytes(3_500_000))

    opened = alone.open(alone.root / "place")
    said = alone.do(Push(id=5, groups=[(str(alone.root / "source"), "p", ["large"])]))
    failed = alone.do(transfer_jobs.Read(id=6, key="none"))

    assert isinstance(opened, PlaceOpened) and opened.can["delete"] and opened.uri == str(alone.root / "place")
    assert said[0] == Begun(5) and said[-1] == Done(5)
    assert {type(each) for each in said[1:-1]} == {Moved} and 2_500_000 <= sum(each.bytes for each in said[1:-1])
    assert isinstance(failed[-1], JobFailed) and failed[-1].kind is FailureKind.OBJECT_NOT_FOUND
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        alone.process.send_signal(number)  # Ctrl-C, say: the driver may want to finish
    assert alone.do(transfer_jobs.Put(id=7, key="still", data=b"here"))[-1] == Done(7)
    assert alone.ended() == 0
    assert (alone.root / "place" / "still").read_bytes() == b"here"


def test_a_place_that_cannot_be_used_is_said_and_nothing_is_made(alone: Alone) -> None:
    (alone.root / "file").write_text("in the way")

    answer = alone.open(alone.root / "file" / "below")

    assert isinstance(answer, JobFailed) and answer.id == 0
    assert "file" in answer.message
    assert alone.hear() is None
    assert alone.ended() == 0
    assert os.listdir(alone.root) == ["file"]


def test_a_place_is_not_looked_at_where_nobody_asks_for_that(alone: Alone) -> None:
    assert isinstance(alone.open(alone.root / "not" / "there", check=False), PlaceOpened)
    assert os.listdir(alone.root) == []
    assert alone.ended() == 0


def test_an_opening_that_is_none_is_an_answer_and_no_traceback(alone: Alone) -> None:
    alone.line.send(Done(1))

    answer = alone.hear()

    assert isinstance(answer, JobFailed) and answer.kind is FailureKind.OTHER
    assert alone.ended() == 0
    assert alone.process.stderr is not None and alone.process.stderr.read() == b""


def test_a_client_that_never_says_a_word_and_goes_leaves_nobody_behind(alone: Alone) -> None:
    assert alone.ended() == 0
