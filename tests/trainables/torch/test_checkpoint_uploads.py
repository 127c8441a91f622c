from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.listings import SCRIPTS
from trainables import SyncConfig
from trainables.errors import CheckpointError, SessionError, TransferError
from trainables.store import verify
from trainables.torch import AtomicDirectory
from trainables.transfer.local import LocalBackend

NEVER = 10**6
"""Seconds between two copies: only the first goes by itself."""


def save(saver: AtomicDirectory, content: str = "x", *, forced: bool = False) -> str:
    directory = saver.prepare_checkpoint_directory(force_save=forced)
    for name in ("a.pt", "b.pt", "c.pt"):
        Path(directory, name).write_text(content + name)
    saver.symlink_latest(directory)
    return os.path.basename(directory)


def copied(place: Path) -> list[str]:
    """The whole checkpoints that lie there."""
    found = verify.scan(place)
    assert not found.broken
    return [published.path.name for published in found.complete]


@pytest.fixture
def pushes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is sent, in order."""
    sent: list[str] = []
    real = LocalBackend.push

    def push(self: LocalBackend, source: Path, prefix: str, names: Any, **more: Any) -> None:
        real(self, source, prefix, names, **more)
        sent.extend(f"{prefix}/{name}" for name in names)

    monkeypatch.setattr(LocalBackend, "push", push)
    return sent


def test_the_latest_and_the_forced_ones_go_once_and_the_rest_never(tmp_path: Path, pushes: list[str]) -> None:
    config = SyncConfig(upload_dir=tmp_path / "there", sync_period=NEVER)
    first_is_there = threading.Event()
    with AtomicDirectory(tmp_path / "here", True, "run", sync_config=config) as saver:
        uploader = saver._uploader
        assert uploader is not None
        real = uploader._ship

        def ship() -> None:
            real()
            first_is_there.set()

        uploader._ship = ship  # type: ignore[method-assign]
        save(saver)
        assert first_is_there.wait(60)
        for number in range(1, 6):
            save(saver, forced=number == 2)
        assert copied(tmp_path / "there") == ["run_checkpoint_0"], "the period is not over"

    assert copied(tmp_path / "there") == ["run_checkpoint_0", "run_checkpoint_2_force", "run_checkpoint_5"]
    assert (tmp_path / "there" / "run.latest_checkpoint.name").read_text() == "run_checkpoint_5"
    manifests = [key for key in pushes if key.endswith(".manifest.json")]
    assert manifests == [f"{name}/.manifest.json" for name in copied(tmp_path / "there")]
    for manifest in manifests:
        payload = [number for number, key in enumerate(pushes) if key.startswith(manifest.partition("/")[0] + "/")]
        assert max(payload) == pushes.index(manifest), "the manifest goes last"


def test_retention_holds_over_there_too(tmp_path: Path) -> None:
    config = SyncConfig(upload_dir=tmp_path / "there", sync_period=0)
    for number in range(4):
        with AtomicDirectory(tmp_path / "here", True, "run", 2, sync_config=config) as saver:
            save(saver, forced=number == 1)

    assert copied(tmp_path / "there") == ["run_checkpoint_1_force", "run_checkpoint_2", "run_checkpoint_3"]
    assert copied(tmp_path / "here") == copied(tmp_path / "there")


def test_an_empty_machine_goes_on_from_the_copy(tmp_path: Path) -> None:
    config = SyncConfig(upload_dir=tmp_path / "there", sync_period=NEVER)
    with AtomicDirectory(tmp_path / "here", True, "run", sync_config=config) as saver:
        save(saver, "old", forced=True)
        save(saver, "new")
    shutil.rmtree(tmp_path / "here")

    with AtomicDirectory(tmp_path / "here", True, "run", sync_config=config) as saver:
        latest = saver.latest_checkpoint()
        assert (
            latest == os.readlink(tmp_path / "here" / saver.symlink_name) == str(tmp_path / "here" / "run_checkpoint_1")
        )
        assert Path(latest, "a.pt").read_text() == "newa.pt"
        assert save(saver) == "run_checkpoint_2"
    assert copied(tmp_path / "there") == ["run_checkpoint_0_force", "run_checkpoint_1", "run_checkpoint_2"]
    with pytest.raises(SessionError, match="was closed"):
        saver.prepare_checkpoint_directory()


def test_a_machine_that_was_left_behind_takes_the_newer_copy(tmp_path: Path) -> None:
    config = SyncConfig(upload_dir=tmp_path / "there", sync_period=NEVER)
    for place, saves in (("a", 1), ("b", 2)):
        with AtomicDirectory(tmp_path / place, True, "run", sync_config=config) as saver:
            for _ in range(saves):
                save(saver, place)

    with AtomicDirectory(tmp_path / "a", True, "run", sync_config=config) as saver:
        latest = saver.latest_checkpoint()
    assert latest == str(tmp_path / "a" / "run_checkpoint_2")
    assert Path(latest, "a.pt").read_text() == "ba.pt"


def test_a_copy_that_is_not_whole_is_an_error_and_no_new_start(tmp_path: Path) -> None:
    config = SyncConfig(upload_dir=tmp_path / "there", sync_period=NEVER)
    with AtomicDirectory(tmp_path / "here", True, "run", sync_config=config) as saver:
        save(saver)
    shutil.rmtree(tmp_path / "here")
    (tmp_path / "there" / "run_checkpoint_0" / "b.pt").write_text("DAMAGED")

    with pytest.raises(CheckpointError, match="run_checkpoint_0"):
        AtomicDirectory(tmp_path / "here", True, "run", sync_config=config)


def test_a_dead_place_is_told_at_the_end_and_the_next_start_sends_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = SyncConfig(upload_dir=tmp_path / "there", sync_period=0, sync_timeout=0.1)

    def dead(self: LocalBackend, *args: Any, **more: Any) -> None:
        raise TransferError("the place is dead", transient=True)

    saver = AtomicDirectory(tmp_path / "here", True, "run", 1, sync_config=config)
    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL):
        patch.setattr(LocalBackend, "push", dead)
        save(saver, forced=True)
        save(saver)
        with pytest.raises(TransferError, match="run_checkpoint_0_force, run_checkpoint_1 did not arrive .*is dead"):
            saver.close()
    assert copied(tmp_path / "here") == ["run_checkpoint_0_force", "run_checkpoint_1"]
    assert copied(tmp_path / "there") == []

    AtomicDirectory(tmp_path / "here", True, "run", 1, sync_config=config).close()
    assert copied(tmp_path / "there") == ["run_checkpoint_0_force", "run_checkpoint_1"]


def test_a_fault_that_passes_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = SyncConfig(upload_dir=tmp_path / "there", sync_period=0)
    real, left = LocalBackend.push, [2]

    def flaky(self: LocalBackend, *args: Any, **more: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise TransferError("try again", transient=True)
        real(self, *args, **more)

    monkeypatch.setattr("trainables.torch.checkpoint_uploads._RETRY_S", 0.01)
    with AtomicDirectory(tmp_path / "here", True, "run", sync_config=config) as saver:
        monkeypatch.setattr(LocalBackend, "push", flaky)
        save(saver)
    assert copied(tmp_path / "there") == ["run_checkpoint_0"]


def test_what_is_being_sent_is_not_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = SyncConfig(upload_dir=tmp_path / "there", sync_period=0)
    sending, go_on = threading.Event(), threading.Event()
    real = LocalBackend.push

    def slow(self: LocalBackend, *args: Any, **more: Any) -> None:
        sending.set()
        assert go_on.wait(60)
        real(self, *args, **more)

    with AtomicDirectory(tmp_path / "here", True, "run", 1, sync_config=config) as saver:
        monkeypatch.setattr(LocalBackend, "push", slow)
        save(saver)
        assert sending.wait(60)
        save(saver)
        save(saver)
        assert copied(tmp_path / "here") == ["run_checkpoint_0", "run_checkpoint_2"]
        go_on.set()
    assert copied(tmp_path / "here") == ["run_checkpoint_2"] == copied(tmp_path / "there")


def test_a_function_that_copies_is_enough(tmp_path: Path) -> None:
    def copy(source: str, target: str) -> None:
        if not os.path.exists(source):
            raise FileNotFoundError(source)
        shutil.copytree(source, target, dirs_exist_ok=True)

    config = SyncConfig(upload_dir=tmp_path / "there", syncer=copy, sync_period=NEVER)
    with AtomicDirectory(tmp_path / "here", True, "run", sync_config=config) as saver:
        save(saver)
    assert copied(tmp_path / "there") == ["run_checkpoint_0"]
    shutil.rmtree(tmp_path / "here")
    with AtomicDirectory(tmp_path / "here", True, "run", sync_config=config) as saver:
        assert saver.latest_checkpoint() == str(tmp_path / "here" / "run_checkpoint_0")


def test_a_place_that_cannot_be_written_to_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(TransferError, match="file"):
        AtomicDirectory(tmp_path / "here", True, sync_config=SyncConfig(upload_dir=tmp_path / "file" / "there"))


AT_EXIT = SCRIPTS / "uploads_at_exit.py"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["return", "raise"])
def test_what_is_left_goes_when_the_process_ends(tmp_path: Path, how: str) -> None:
    command = [sys.executable, AT_EXIT, tmp_path / "here", tmp_path / "there", how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)

    assert done.stderr == ("as it happens\n" if how == "raise" else "")
    assert copied(tmp_path / "there")[-1] == "run_checkpoint_2"
