"""The driver's end of an agent: what hangs is found out, what waits for its turn is not taken for it.

Covers agent, job_worker and transfer_jobs too.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainables.errors import TransferError
from trainables.net.failed import FailureKind
from trainables.transfer import job_worker, transfer_jobs
from trainables.transfer.agent import THREADS
from trainables.transfer.client import ProcessClient
from trainables.transfer.job_worker import JobWorker
from trainables.transfer.local import LocalBackend
from trainables.transfer.transfer_jobs import Done, JobFailed

DEADLINE_S = 60.0


def gated(gates: Path, source: str, target: str) -> None:
    """A syncer that copies a directory `NAME-gated` when there is a file NAME in `gates`."""
    if not os.path.isdir(source):
        raise OSError("there is nothing")
    name, _, kind = os.path.basename(source.rstrip("/")).partition("-")
    while kind == "gated" and not (gates / name).exists():
        time.sleep(0.005)
    shutil.copytree(source, target, dirs_exist_ok=True)


class Scene:
    """A place, an agent, and gates that hold what is fetched from there."""

    def __init__(self, root: Path) -> None:
        self.root, self.gates = root, root / "gates"
        (root / "place").mkdir()
        self.gates.mkdir()
        syncer = functools.partial(gated, self.gates)
        self.uploader = ProcessClient({"place": str(root / "place"), "syncer": syncer})
        self.ended: dict[int, Done | JobFailed] = {}

    def fetch(self, name: str) -> int:
        source = self.root / "place" / f"{name}-gated"
        source.mkdir()
        (source / "x").write_text("x")
        target = str(self.root / name)
        return self.uploader.submit(transfer_jobs.FetchFiles(prefix=source.name, target=target, names=["x"]))

    def open(self, name: str) -> None:
        (self.gates / name).touch()

    def until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < deadline
            self.uploader.wait(0.01)
            self.ended.update({answer.id: answer for answer in self.uploader.answers()})


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.uploader.close()


def test_a_sign_of_life_does_not_wait_for_what_takes_long(scene: Scene) -> None:
    fetches = [scene.fetch(f"f{number}") for number in range(THREADS + 2)]
    beat = scene.uploader.submit(transfer_jobs.Put(key="beat", data=b"held 1"))
    scene.until(lambda: beat in scene.ended)
    assert list(scene.ended) == [beat] and isinstance(scene.ended[beat], Done)
    for number in range(THREADS + 2):
        scene.open(f"f{number}")
    scene.until(lambda: len(scene.ended) == len(fetches) + 1)
    assert all(isinstance(answer, Done) for answer in scene.ended.values())


def test_what_waits_for_its_turn_is_not_silent(scene: Scene) -> None:
    first = [scene.fetch(f"f{number}") for number in range(THREADS)]
    last = scene.fetch("last")
    scene.until(lambda: (scene.uploader.silence(time.monotonic()) or (None, 0.0))[1] > 1.0)
    opened = time.monotonic()
    for number in range(THREADS):
        scene.open(f"f{number}")
    scene.until(lambda: scene.ended.keys() >= set(first))
    now = time.monotonic()
    silent = scene.uploader.silence(now)
    assert silent is not None and silent[0].id == last
    assert silent[1] <= now - opened, "it began when another had ended"
    scene.open("last")
    scene.until(lambda: last in scene.ended)
    assert scene.uploader.silence(time.monotonic()) is None


def test_an_agent_that_begins_nothing_is_silent(scene: Scene) -> None:
    process = scene.uploader._process.pid
    os.kill(process, signal.SIGSTOP)
    try:
        beat = scene.uploader.submit(transfer_jobs.Put(key="beat", data=b"held 1"))
        scene.until(lambda: (scene.uploader.silence(time.monotonic()) or (None, 0.0))[1] > 0.5)
    finally:
        os.kill(process, signal.SIGCONT)
    scene.until(lambda: beat in scene.ended)


def test_r12_an_owner_that_was_taken_over_finds_the_next_one_whatever_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LocalBackend(tmp_path, str(tmp_path))
    worker = JobWorker(backend)
    for name in ("000001.json", "000001.beat", "000003.beat", "notes.json"):
        backend.put(f"e/generations/{name}", b"")

    def push(key: str) -> Done | JobFailed:
        return worker.do(transfer_jobs.Put(key=key, data=b"", guard="e/generations/000002.json"), lambda moved: None)

    assert isinstance(push("e/one"), Done)
    backend.put("e/generations/1000000.json", b"")
    monkeypatch.setattr(job_worker, "LOOK_S", 0.0)
    answer = push("e/two")
    assert isinstance(answer, JobFailed) and answer.kind is FailureKind.OWNER_TAKEN and "1000000.json" in answer.message
    assert not backend.exists("e/two")
    delete = transfer_jobs.Delete(keys=["e/one"], guard="e/generations/000002.json")
    assert isinstance(JobWorker(backend).do(delete, lambda moved: None), JobFailed)
    assert backend.exists("e/one")


def test_a_job_that_cannot_be_sent_leaves_nothing_behind(scene: Scene) -> None:
    with pytest.raises(UnicodeEncodeError):
        scene.uploader.submit(transfer_jobs.Read(key="caf\udce9"))
    assert scene.uploader.silence(time.monotonic()) is None


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


def dies(marks: Path, times: int, name: str, source: str, target: str) -> None:
    """A syncer that copies; over what is called `name` its process is killed so many times, as somebody else would."""
    if name in source or name in target:
        count = len(list(marks.iterdir()))
        if count < times:
            (marks / f"{count}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    if not os.path.exists(source):
        raise OSError("there is nothing")
    shutil.copytree(source, target, dirs_exist_ok=True)


@pytest.mark.parametrize("name", ["", "wanted"], ids=["as it looks at the place", "over a job"])
def test_an_agent_that_is_killed_is_started_anew_and_does_its_job(tmp_path: Path, name: str) -> None:
    (tmp_path / "place" / "wanted").mkdir(parents=True)
    (tmp_path / "place" / "wanted" / "x").write_text("x")
    (tmp_path / "marks").mkdir()
    syncer = functools.partial(dies, tmp_path / "marks", 2, name)
    uploader = ProcessClient({"place": str(tmp_path / "place"), "syncer": syncer})
    try:
        uploader.call(
            transfer_jobs.FetchFiles(prefix="wanted", target=str(tmp_path / "here"), names=["x"]), timeout_s=DEADLINE_S
        )
    finally:
        uploader.close()
    assert (tmp_path / "here" / "x").read_text() == "x"
    assert len(list((tmp_path / "marks").iterdir())) == 2, "it was killed twice"


@pytest.mark.parametrize("name", ["", "wanted"], ids=["as it looks at the place", "over a job"])
def test_agents_that_are_killed_again_and_again_are_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "place" / "wanted").mkdir(parents=True)
    (tmp_path / "marks").mkdir()
    syncer = functools.partial(dies, tmp_path / "marks", 99, name)
    with pytest.raises(TransferError, match=r"the process that syncs ended \(-9\)"):
        uploader = ProcessClient({"place": str(tmp_path / "place"), "syncer": syncer})
        try:
            uploader.call(
                transfer_jobs.FetchFiles(prefix="wanted", target=str(tmp_path / "here"), names=["x"]), timeout_s=60.0
            )
        finally:
            uploader.close()
    assert len(list((tmp_path / "marks").iterdir())) == 3
