"""The process that moves bytes: what it is told and answers, and what it leaves."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.trainables.transfer.harness import DEADLINE_S, Scene
from trainables.transfer import transfer_jobs
from trainables.transfer.agent import THREADS
from trainables.transfer.client import ProcessClient
from trainables.transfer.transfer_jobs import Done


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
