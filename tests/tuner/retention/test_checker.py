"""Checks before a trial gets a checkpoint: each is answered, whatever the disk does."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner as tune
from trainables.store import file_tree, fs, publish, staging, verify
from trainables.wire import CheckpointRef
from tuner.experiment.events import ErrorInfo
from tuner.retention import Checker


def ref(number: int) -> CheckpointRef:
    return CheckpointRef("t1", f"checkpoint_{number:06d}", 1, 1, number, number)


def saved(directory: Path, number: int) -> Path:
    staged = staging.new_directory(directory, str(number))
    (staged / "w").write_text("weights")
    prepared = publish.prepare(staged, ref=ref(number), metrics=msgspec.Raw(b"{}"), created=1e9)
    return publish.commit(prepared, directory / ref(number).name).path


def damaged(path: Path) -> Path:
    (path / "w").write_text("WEIGHTS")
    return path


class Checks:
    """Asks a checker to look at checkpoints, and waits for each answer."""

    def __init__(self, *, inline: bool) -> None:
        self._woken = threading.Event()
        self.checker = Checker(inline=inline, wake=self._woken.set)

    def check(self, path: Path) -> Any:
        answers: list[Any] = []
        self.checker.check(path, "", answers.append)
        until = time.monotonic() + 30
        while not answers:
            assert time.monotonic() < until, "no answer: the trial would wait for ever"
            self._woken.wait(0.1)
            self._woken.clear()
            self.checker.finished()
        return answers[0]


@pytest.fixture(params=["beside the loop", "inline"])
def checks(request: pytest.FixtureRequest) -> Iterator[Checks]:
    checks = Checks(inline=request.param == "inline")
    yield checks
    checks.checker.close(10)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.ESTALE])
@pytest.mark.parametrize("step", ["rename", "fsync_dir"])
def test_a_broken_checkpoint_that_cannot_be_set_aside_is_answered_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks: Checks, step: str, number: int
) -> None:
    broken, whole = damaged(saved(tmp_path, 1)), saved(tmp_path, 2)

    def refuse(*paths: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fs, step, refuse)
    answer = checks.check(broken)
    assert "is not what was published" in answer and os.strerror(number) in answer
    assert checks.check(whole) is None
    monkeypatch.undo()
    assert checks.check(saved(tmp_path, 3)) is None


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOMEM, errno.ESTALE])
def test_a_checkpoint_that_cannot_be_read_just_now_stays_and_is_not_called_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks: Checks, number: int
) -> None:
    path = saved(tmp_path, 1)

    def fail(*args: Any, **more: Any) -> Any:
        raise OSError(number, os.strerror(number))

    for owner, name in ((fs, "read_file"), (file_tree, "fingerprint")):
        monkeypatch.setattr(owner, name, fail)
        answer = checks.check(path)
        assert isinstance(answer, ErrorInfo) and os.strerror(number) in answer.message
        assert answer.disk  # every resume takes the trial up again
        monkeypatch.undo()
        assert os.listdir(tmp_path) == [path.name]
        assert checks.check(path) is None


def test_a_bug_in_a_check_is_told_and_the_next_check_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*args: Any, **more: Any) -> Any:
        raise ZeroDivisionError("a bug")

    checks = Checks(inline=False)
    monkeypatch.setattr(verify, "check", bug)
    answer = checks.check(saved(tmp_path, 1))
    assert isinstance(answer, ErrorInfo) and (answer.type, answer.message) == ("ZeroDivisionError", "a bug")
    monkeypatch.undo()
    assert checks.check(saved(tmp_path, 2)) is None
    checks.checker.close(10)


class Counts(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.i = 0

    def step(self) -> dict[str, Any]:
        self.i += 1
        return {"i": self.i}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "i").write_text(str(self.i))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.i = int(Path(checkpoint, "i").read_text())


def count(path: Path, to: int, **settings: Any) -> Any:
    resume = "AUTO" if (path / "e").exists() else False
    settings = {"stop": {"i": to}, "checkpoint_freq": 1, "executor": "inline", "verbose": 0, **settings}
    return tune.run(Counts, name="e", storage_path=path, resume=resume, raise_on_failed_trial=False, **settings)


@pytest.mark.parametrize("max_failures", [0, 2])
def test_a_trial_whose_checkpoint_cannot_be_read_just_now_fails_and_goes_on_from_there_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_failures: int
) -> None:
    class Interrupts(tune.Callback):
        def on_checkpoint(self, *args: Any, **more: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count(tmp_path, 3, callbacks=[Interrupts()])
    (path,) = tmp_path.glob("e/Counts_*/checkpoint_000001")

    def fail(file: Any, name: str, **more: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(file_tree, "fingerprint", fail)
    (trial,) = count(tmp_path, 3, max_failures=max_failures).trials
    assert trial.status == "ERROR" and path.is_dir() and not list(path.parent.glob(".broken-*"))
    monkeypatch.undo()
    (trial,) = count(tmp_path, 3).trials
    assert (trial.status, trial.last_result["i"]) == ("TERMINATED", 3)
    assert trial.started_from is not None and trial.started_from.name == path.name
