"""The driver's end of an agent: what hangs is found out, what waits for its turn is not taken for it."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.trainables.transfer.harness import DEADLINE_S, Scene
from trainables.errors import TransferError
from trainables.transfer import transfer_jobs
from trainables.transfer.agent import THREADS
from trainables.transfer.client import ProcessClient


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


def test_a_job_that_cannot_be_sent_leaves_nothing_behind(scene: Scene) -> None:
    with pytest.raises(UnicodeEncodeError):
        scene.uploader.submit(transfer_jobs.Read(key="caf\udce9"))
    assert scene.uploader.silence(time.monotonic()) is None


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
