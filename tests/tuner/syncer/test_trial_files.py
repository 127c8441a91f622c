"""Which files of a trial go to a replica, and which are left out with a word."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.tuner.syncer.submitted import Submitted
from trainables.config import SyncConfig
from trainables.net.failed import FailureKind
from trainables.net.frames import frame
from trainables.transfer import transfer_jobs
from tuner.experiment import events as ev
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.syncer.streams.trial_files import TrialFiles

LATER = 1000.0
"""After every back-off."""


def trial_in(root: Path) -> Trial:
    state = ExperimentState(root)
    state.apply(ev.TrialCreated("t", 0, msgspec.Raw(b"{}"), name="t", dirname="t"))
    trial = state.trials[-1]
    trial.directory.mkdir(parents=True)
    (trial.directory / "result.json").write_text("{}")
    (trial.directory / "notes.txt").write_text("notes")
    return trial


class Scene:
    """The files of a trial, and what was submitted of them."""

    def __init__(self, root: Path, config: SyncConfig) -> None:
        self.submitted = Submitted(ExperimentPaths(root), config=config)
        self.files = TrialFiles(self.submitted.context)

    def pushed(self, trial: Trial) -> list[list[str]]:
        """The names of each group, in order."""
        self.files.ended(trial)
        assert self.files.start_jobs(LATER)
        job = self.submitted.end()
        assert isinstance(job, transfer_jobs.Push)
        frame(job)  # it can be sent
        return [names for _, _, names in job.groups]


def test_what_the_loggers_write_goes_before_the_artifacts(tmp_path: Path) -> None:
    assert Scene(tmp_path, SyncConfig(upload_dir="there", sync_artifacts=True)).pushed(trial_in(tmp_path)) == [
        ["result.json"],
        ["notes.txt"],
    ]


@pytest.mark.parametrize("closing", [False, True])
def test_what_a_thread_of_a_logger_writes_after_its_trial_has_ended_goes_there(tmp_path: Path, closing: bool) -> None:
    scene, trial = Scene(tmp_path, SyncConfig(upload_dir="there")), trial_in(tmp_path)
    scene.pushed(trial)
    assert scene.files.drained
    scene.files.period()
    (trial.directory / "result.json").write_text("{}{}")
    scene.files.closing = closing
    scene.files.period()
    assert scene.files.missing() == ["result files of t"]
    assert scene.files.start_jobs(0.0)
    scene.submitted.end()
    for _ in range(3):
        scene.files.period()
        assert scene.files.drained and not scene.files.start_jobs(0.0), "nothing was written since"


def test_a_name_that_is_no_text_is_left_out_and_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trial = trial_in(tmp_path)
    directory = os.fsencode(trial.directory)
    os.mkdir(directory + b"/d\xe9")
    for name in (b"caf\xe9.txt", b"d\xe9/inside.txt", b"\xe9.bin"):
        with open(directory + b"/" + name, "w") as file:
            file.write("x")
    scene = Scene(tmp_path, SyncConfig(upload_dir="there", sync_artifacts=True, excludes=["*.bin"]))

    for _ in range(2):
        assert scene.pushed(trial) == [["result.json"], ["notes.txt"]]

    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and r"caf\xe9.txt" in said[0] and r"d\xe9/inside.txt" in said[1], said


def test_what_cannot_be_read_is_left_out_and_named_once() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        trial = trial_in(Path(place, "e"))
        for name in ("closed", "open"):
            (trial.directory / name).mkdir()
            (trial.directory / name / "file.txt").write_text("x")
        (trial.directory / "secret.txt").write_text("x")
        (trial.directory / "secret.txt").chmod(0)
        (trial.directory / "closed").chmod(0)
        Path(place).chmod(0o755)
        found = as_another_user(lambda: in_a_row(trial))
        (trial.directory / "closed").chmod(0o755)
    names, said = found
    assert names == [["result.json"], ["notes.txt", "open/file.txt"]]
    assert len(said) == 2 and "closed" in said[0] and "secret.txt" in said[1], said


def in_a_row(trial: Trial) -> tuple[list[list[str]], list[str]]:
    """What is pushed the second time, and all that was said."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tuner.syncer.streams.trial_files").addHandler(handler)
    scene = Scene(trial.directory.parent, SyncConfig(upload_dir="there", sync_artifacts=True))
    scene.pushed(trial)
    return scene.pushed(trial), said


def as_another_user(act: Callable[[], tuple[list[list[str]], list[str]]]) -> tuple[list[list[str]], list[str]]:
    """Where this is root, who may read everything: in a child as somebody else."""
    if os.geteuid() != 0:
        return act()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            os.write(writer, msgspec.json.encode(act()))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return msgspec.json.decode(data, type=tuple[list[list[str]], list[str]])


def test_one_job_at_a_time_and_without_artifacts_what_the_loggers_write(tmp_path: Path) -> None:
    trial, scene = trial_in(tmp_path / "e"), Scene(tmp_path / "e", SyncConfig())
    scene.files.ended(trial)
    assert scene.files.start_jobs(0.0)
    (job,) = scene.submitted.jobs
    assert isinstance(job, transfer_jobs.Push) and job.guard == "e/generations/000002.json"
    assert job.groups == [(str(trial.directory), "e/t", ["result.json"])]
    scene.files.ended(trial)
    assert not scene.files.start_jobs(0.0)  # one is under way


def test_f20_what_was_renamed_while_it_was_on_its_way_goes_there_too(tmp_path: Path) -> None:
    trial, scene = trial_in(tmp_path / "e"), Scene(tmp_path / "e", SyncConfig())
    (trial.directory / "error.txt").write_text("no")
    scene.files.started(trial)
    scene.files.period()
    assert scene.files.start_jobs(0.0)
    (trial.directory / "error.txt").rename(trial.directory / "error_recovered.txt")
    trial.status = Trial.TERMINATED
    scene.files.ended(trial)
    scene.submitted.end()
    assert scene.files.start_jobs(0.0)
    scene.submitted.end()
    assert scene.files.start_jobs(0.0)
    job = scene.submitted.end()
    assert isinstance(job, transfer_jobs.Delete) and job.keys == ["e/t/error.txt"]


def test_f20_what_a_job_that_failed_may_have_copied_goes_when_it_has_another_name(tmp_path: Path) -> None:
    trial, scene = trial_in(tmp_path / "e"), Scene(tmp_path / "e", SyncConfig())
    (trial.directory / "error.txt").write_text("no")
    scene.files.started(trial)
    scene.files.period()
    assert scene.files.start_jobs(0.0)
    scene.submitted.end(failed=FailureKind.PROCESS_LOST, transient=True)  # the agent was killed, say
    (trial.directory / "error.txt").rename(trial.directory / "error_recovered.txt")
    trial.status = Trial.TERMINATED
    assert scene.pushed(trial) == [["error_recovered.txt", "result.json"]]
    assert not scene.files.drained and scene.files.start_jobs(LATER)
    job = scene.submitted.end()
    assert isinstance(job, transfer_jobs.Delete) and job.keys == ["e/t/error.txt"]
    assert scene.files.drained


def test_f20_what_is_renamed_after_its_trial_was_copied_for_the_last_time_goes_too(tmp_path: Path) -> None:
    trial, scene = trial_in(tmp_path / "e"), Scene(tmp_path / "e", SyncConfig())
    (trial.directory / "error.txt").write_text("no")
    trial.status = Trial.TERMINATED
    scene.pushed(trial)
    (trial.directory / "error.txt").rename(trial.directory / "error_recovered.txt")
    scene.files.period()
    scene.files.period()
    assert scene.files.start_jobs(0.0)
    scene.submitted.end()
    assert scene.files.start_jobs(0.0)
    job = scene.submitted.end()
    assert isinstance(job, transfer_jobs.Delete) and job.keys == ["e/t/error.txt"]
