""""""

from __future__ import annotations

import errno
import os
import pickle
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import TransferError
from trainables.net.frames import Frames, frame
from trainables.runtime.worker import run_job
from trainables.socket_link import SocketLink
from trainables.store.verify import list_checkpoints
from trainables.testing import MemoryLink, example_job, run_trial
from trainables.trainable import Trainable
from trainables.wire import (
    Answer,
    AttemptErrored,
    Durable,
    Finished,
    FromTrial,
    Preempted,
    Report,
    SavePublished,
    decode_from_trial,
)


class ForkedTrial:
    """A trial in a process of its own, and the driver's ends of its sockets."""

    def __init__(self, trainable: Any, root: Path, **changes: Any) -> None:
        self.messages: list[FromTrial] = []
        self._main, main = socket.socketpair()
        self._side, side = socket.socketpair()
        job = example_job(root, **changes)
        self.pid = os.fork()
        if self.pid == 0:
            status = 70
            try:
                self._main.close()
                self._side.close()
                run_job(job, trainable, SocketLink(main, side))
                status = 0
            finally:
                os._exit(status)
        main.close()
        side.close()

    def drive(
        self,
        answer: Callable[[Report], Answer] = lambda report: Answer(),
        heard: Callable[[FromTrial], None] = lambda message: None,
    ) -> int:
        """Answer until the process has closed its sockets; return its exit status as `waitpid` gives it."""
        try:
            self._drive(answer, heard)
        except BaseException:
            os.kill(self.pid, signal.SIGKILL)
            raise
        finally:
            self._main.close()
            self._side.close()
            status = os.waitpid(self.pid, 0)[1]
        return status

    def _drive(self, answer: Callable[[Report], Answer], heard: Callable[[FromTrial], None]) -> None:
        frames = {self._main: Frames(), self._side: Frames()}
        with selectors.DefaultSelector() as selector:
            for end in frames:
                selector.register(end, selectors.EVENT_READ, data=end)
            while selector.get_map():
                for key, _ in selector.select():
                    end = key.data
                    try:
                        data = end.recv(65536)
                    except ConnectionResetError:
                        data = b""
                    if not data:
                        selector.unregister(end)
                    for body in frames[end].feed(data):
                        self._on(decode_from_trial(body), answer, heard)

    def _on(self, message: FromTrial, answer: Callable[[Report], Answer], heard: Callable[[FromTrial], None]) -> None:
        self.messages.append(message)
        heard(message)
        if isinstance(message, Report):
            try:
                self._main.sendall(frame(answer(message)))
                self._side.sendall(frame(Durable(message.iteration)))
            except BrokenPipeError:
                pass  # killed meanwhile

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.messages if isinstance(message, kind)]


def test_a_trial_runs_in_its_directory_with_temporary_files_beside(tmp_path: Path) -> None:
    before = os.getcwd(), tempfile.tempdir, list(sys.path)
    seen = []
    run_trial(lambda config: seen.append((os.getcwd(), tempfile.gettempdir())), tmp_path)
    assert seen == [(str(tmp_path / "train_t1"), str(tmp_path / ".tmp"))]
    assert (os.getcwd(), tempfile.tempdir, sys.path) == before
    assert session.current() is None


def test_a_trial_can_stay_where_the_script_was_started(tmp_path: Path) -> None:
    seen = []
    run_trial(lambda config: seen.append(os.getcwd()), tmp_path, chdir=False)
    assert seen == [os.getcwd()]


def test_modules_beside_the_script_stay_importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_the_script.py").write_text("x = 3")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])

    def train(config: dict[str, Any]) -> int:
        import beside_the_script  # type: ignore[import-not-found]

        return int(beside_the_script.x)

    assert run_trial(train, tmp_path).results[0]["_metric"] == 3


class Odd(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("odd")


def helper() -> None:
    raise ValueError("user's own")


def failing(config: dict[str, Any]) -> None:
    helper()


def test_f52_the_traceback_is_the_users_and_its_last_line_the_users(tmp_path: Path) -> None:
    end = run_trial(failing, tmp_path).end
    assert isinstance(end, AttemptErrored)
    assert (end.type, end.message, end.retry) == ("ValueError", "user's own", True)
    frames = [line for line in end.traceback.splitlines() if line.startswith("  File")]
    assert [line.rpartition("in ")[2] for line in frames] == ["failing", "helper"]
    assert end.traceback.splitlines()[-1] == "ValueError: user's own"
    assert isinstance(pickle.loads(end.pickled), ValueError)


def test_an_error_that_report_raises_points_to_the_users_line(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        session.report(bad=object())

    end = run_trial(train, tmp_path).end
    assert isinstance(end, AttemptErrored)
    frames = [line for line in end.traceback.splitlines() if line.startswith("  File")]
    assert [line.rpartition("in ")[2] for line in frames] == ["train"]


def test_a_cause_is_shown_too_without_our_frames(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        try:
            helper()
        except ValueError as error:
            raise KeyError("outer") from error

    end = run_trial(train, tmp_path).end
    assert isinstance(end, AttemptErrored)
    assert "direct cause" in end.traceback
    assert f"{os.sep}trainables{os.sep}function.py" not in end.traceback


def test_an_exception_that_does_not_survive_pickling_is_told_as_text(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        raise Odd(1, 2)

    end = run_trial(train, tmp_path).end
    assert isinstance(end, AttemptErrored)
    assert (end.type, end.message, end.pickled) == ("Odd", "odd", b"")


def test_a_checkpoint_on_its_way_when_the_trial_fails_is_published_first(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        session.report({}, checkpoint=Checkpoint.from_dict({"a": 1}))
        raise ValueError("after the save")

    link = run_trial(train, tmp_path)
    assert [type(message) for message in link.messages] == [Report, SavePublished, AttemptErrored]


def test_ctrl_c_goes_through_an_inline_trial(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        with session.checkpoint_dir(step=1):
            raise KeyboardInterrupt

    link = MemoryLink()
    before = os.getcwd()
    with pytest.raises(KeyboardInterrupt):
        run_trial(train, tmp_path, link=link)
    assert link.messages == []
    assert os.getcwd() == before
    assert os.listdir(tmp_path / "train_t1") == []


def test_a_forked_trial_says_what_an_inline_one_does(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(20):
            checkpoint = Checkpoint.from_dict({"step": step}) if step % 3 == 0 else None
            session.report({"step": step}, checkpoint=checkpoint)

    trial = ForkedTrial(train, tmp_path)
    assert trial.drive() == 0
    assert len(trial.of(Report)) == 20
    assert [message.ref.iteration for message in trial.of(SavePublished)] == [1, 4, 7, 10, 13, 16, 19]
    assert len(trial.of(Finished)) == 1


class Slow(Trainable):
    """Tells in its directory when it is in a step, and stays there until it got a signal."""

    def setup(self, config: dict[str, Any]) -> None:
        self.x = 0

    def step(self) -> dict[str, Any]:
        self.x += 1
        if self.x == 3:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
        return {"x": self.x}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"x": self.x}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_f36_a_class_told_by_a_signal_saves_that_step_and_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("SIGNAL", str(int(number)))
    trial = ForkedTrial(Slow, tmp_path)
    assert trial.drive() == 0
    assert [report.iteration for report in trial.of(Report)] == [1, 2, 3]
    assert [message.ref.iteration for message in trial.of(SavePublished)] == [3]
    assert len(trial.of(Preempted)) == 1


def test_f36_a_function_told_by_a_signal_sees_should_stop(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        step = 0
        while not session.get_context().should_stop():
            step += 1
            if step == 2:
                os.kill(os.getpid(), signal.SIGTERM)
        session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))

    trial = ForkedTrial(train, tmp_path)
    assert trial.drive() == 0
    assert len(trial.of(SavePublished)) == len(trial.of(Preempted)) == 1


def test_f36_a_function_that_hangs_ends_with_its_latest_checkpoint_when_the_grace_is_over(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        session.report({}, checkpoint=Checkpoint.from_dict({"a": 1}))
        with session.checkpoint_dir():  # half a save: it must leave no trace
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait()  # for ever

    trial = ForkedTrial(train, tmp_path, grace_s=0.2)
    assert trial.drive() == 0
    assert len(trial.of(SavePublished)) == len(trial.of(Preempted)) == 1
    assert os.listdir(tmp_path / "train_t1") == ["checkpoint_000001"]


def test_ctrl_c_in_the_terminal_does_not_reach_the_users_code(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        session.report(loss=1)

    trial = ForkedTrial(train, tmp_path)
    assert trial.drive() == 0
    assert len(trial.of(Finished)) == 1


def test_a_child_that_the_user_forks_dies_of_sigterm_and_cannot_report(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        ready, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                session.report(loss=1)
            except Exception as error:
                os.write(tell, type(error).__name__.encode())
            while True:
                time.sleep(0.01)  # a pause() that begins after the signal would never end
        said = os.read(ready, 100).decode()
        os.kill(child, signal.SIGTERM)
        return {"said": said, "status": os.waitpid(child, 0)[1]}

    trial = ForkedTrial(train, tmp_path)
    assert trial.drive() == 0
    (report,) = trial.of(Report)
    assert b'"said":"SessionError"' in bytes(report.metrics)
    assert b'"status":15' in bytes(report.metrics)
    assert len(trial.of(Finished)) == 1


@pytest.mark.parametrize("size", [4_000_000, pytest.param(200_000_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("quarter", [1, 2, 3, 4, "publishing"])
def test_f02_a_trial_killed_in_a_save_shows_only_whole_checkpoints(tmp_path: Path, size: int, quarter: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        session.report({}, checkpoint=Checkpoint.from_dict({"first": True}))
        session.get_checkpoint()  # waits until it is published
        with session.checkpoint_dir(step=2) as path, open(Path(path) / "weights", "wb", buffering=0) as file:
            for number in range(1, 5):
                file.write(b"w" * (size // 4))
                if number == quarter:
                    os.kill(os.getpid(), signal.SIGKILL)
        session.report({})
        os.kill(os.getpid(), signal.SIGKILL)  # the publisher is somewhere between hashing and renaming

    trial = ForkedTrial(train, tmp_path)
    assert os.WTERMSIG(trial.drive()) == signal.SIGKILL
    found = list_checkpoints(tmp_path / "train_t1")
    assert found[0].ref.iteration == 1
    for published in found:
        with Checkpoint(published.path).as_directory() as path:
            if published.ref.iteration == 2:
                assert (Path(path) / "weights").stat().st_size == size
            else:
                assert Checkpoint(path).to_dict() == {"first": True}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_of_another_host_is_not_this_trials(tmp_path: Path, number: int) -> None:
    def train(config: dict[str, Any]) -> None:
        raise TransferError("host:/backup is full", errno=number)

    end = run_trial(train, tmp_path).end
    assert isinstance(end, AttemptErrored) and not end.disk
