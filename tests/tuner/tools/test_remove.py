"""tuner rm: who is asked, what is refused, what stays; and a kill -9 leaves an experiment whole, or gone."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.replicated import answer, contents, ran, refused
from trainables.transfer.open import open_backend
from tuner.cli import main
from tuner.clock import SystemClock
from tuner.error import OwnedElsewhereError
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import is_experiment
from tuner.tools.remove import REMOVED, remove, remove_replica


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(None, tmp_path_factory.mktemp("made"))


@pytest.fixture
def experiment(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "results" / "mine"))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_what_is_set_aside_is_an_experiment_as_before(
    experiment: Path, capsys: pytest.CaptureFixture[str], answers: Callable[[str], None]
) -> None:
    aside, before = experiment.parent / REMOVED / "mine", contents(experiment)
    answers("y\n")
    said = answer(capsys, "rm", experiment)
    assert said.startswith(f"set aside {experiment}: 2 trials, 6 checkpoints, ") and f"at {aside} now" in said
    assert not experiment.exists() and contents(aside) == before
    assert "no problems" in answer(capsys, "verify", aside)
    assert answer(capsys, "ls", experiment.parent) == f"no experiments in {experiment.parent}\n"
    assert "--now deletes it" in refused(capsys, "rm", aside, "--yes")
    shutil.copytree(aside, experiment)
    assert f"at {aside}.1 now" in answer(capsys, "rm", experiment, "--yes"), "no name is taken twice"
    for path in (aside, Path(f"{aside}.1")):
        assert "deleted (2 trials, " in answer(capsys, "rm", path, "--yes", "--now")
    assert list(experiment.parent.iterdir()) == []


@pytest.mark.parametrize(("typed", "said"), [("", "there was no answer; --yes"), ("\n", "--yes"), ("n\n", "removed\n")])
def test_without_a_yes_nothing_is_touched(
    typed: str, said: str, experiment: Path, capsys: pytest.CaptureFixture[str], answers: Callable[[str], None]
) -> None:
    before = sorted(experiment.parent.rglob("*"))
    answers(typed)
    assert main(["rm", str(experiment), "--now"]) == 1
    assert said in capsys.readouterr().err
    assert sorted(experiment.parent.rglob("*")) == before


def test_what_runs_is_refused_by_the_name_of_its_process(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    owner = claim(ExperimentPaths(experiment), clock=SystemClock())
    assert main(["rm", str(experiment), "--yes", "--now"]) == 1
    assert f"is running: pid {os.getpid()} on " in capsys.readouterr().err and is_experiment(
        ExperimentPaths(experiment)
    )
    owner.release()
    assert main(["rm", str(experiment), "--yes", "--now"]) == 0


def test_links_are_not_followed(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = experiment.parent / "link"
    link.symlink_to(experiment)
    assert f"is a link to {experiment}" in refused(capsys, "rm", link, "--yes", "--now")
    assert is_experiment(ExperimentPaths(experiment))


def test_one_that_cannot_be_read_can_be_removed(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (experiment / "experiment.json").write_text("{")
    assert "it cannot be read" in answer(capsys, "rm", experiment, "--yes", "--now")
    assert not experiment.exists()


STEPS = ("rename", "unlink", "rmdir", "mkdir", "open")


def killed(steps: int, work: Callable[[], Any]) -> bool:
    """Have another process do it, killed before its step to the disk that comes after so many; False: it has ended."""
    pid = os.fork()
    if pid:
        return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    left = itertools.count(steps, -1)

    def before(real: Any) -> Any:
        def step(*arguments: Any, **named: Any) -> Any:
            if next(left) <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return step

    try:
        for name in STEPS:
            setattr(os, name, before(getattr(os, name)))
        work()
    finally:
        os._exit(0)


@pytest.mark.parametrize("now", [False, True])
def test_killed_before_any_step_it_is_whole_under_one_name_or_gone(now: bool, made: Path, tmp_path: Path) -> None:
    wanted, seen = contents(made), set()
    for steps in (*range(14), 60, 200):
        storage = tmp_path / str(steps)
        experiment, aside = storage / "mine", storage / REMOVED / "mine"
        shutil.copytree(made, experiment)
        again = killed(steps, lambda path=experiment: remove(ExperimentPaths(path), clock=SystemClock(), now=now))
        there = [path for path in (experiment, aside) if is_experiment(ExperimentPaths(path))]
        assert len(there) <= 1 and (now or there)
        assert all(contents(path) == wanted for path in there)
        seen.add(there[0] if there else None)
        if experiment in there:
            assert main(["rm", str(experiment), "--yes", "--now"]) == 0, "and what the kill left goes with it"
            assert [path.name for path in storage.iterdir()] == []
        shutil.rmtree(storage)
        if not again:
            break
    assert len({path and path.parent.name == REMOVED for path in seen}) == 2, "killed before and after the instant"


def test_copies_stay_until_they_are_removed_themselves(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = ran(bucket, tmp_path)
    uri = f"{bucket}/mine"
    said = answer(capsys, "rm", experiment, "--yes")
    assert f"its copies at {uri} stay" in said and f"`tuner rm {uri} --now` deletes them" in said
    assert "--now deletes it for good" in refused(capsys, "rm", uri, "--yes")
    owner = ran_by_another(bucket, tmp_path)
    with pytest.raises(OwnedElsewhereError, match=f"pid {os.getpid()} on"):
        remove_replica(uri, clock=SystemClock())
    owner()
    assert killed_at_a_delete(uri, 0) and has(bucket, "mine/experiment.json")
    monkeypatch.setattr("tuner.tools.remove._AT_ONCE", 4)
    assert killed_at_a_delete(uri, 2) and not has(bucket, "mine/experiment.json")
    assert "deleted (" in answer(capsys, "rm", uri, "--yes", "--now")
    with open_backend(bucket) as backend:
        assert list(backend.list("mine")) == []
    assert "there is no experiment" in refused(capsys, "rm", uri, "--yes", "--now")


def ran_by_another(bucket: str, tmp_path: Path) -> Callable[[], None]:
    """The replica has an owner that lives: this process. Returns what ends that."""
    from tuner.experiment.generations import encode_record

    paths = ExperimentPaths(tmp_path / "owner")
    ownership = claim(paths, clock=SystemClock(), above=50)
    key = f"mine/generations/{ownership.generation:06d}.json"
    with open_backend(bucket) as backend:
        backend.put(key, encode_record(ownership.record))

    def end() -> None:
        ownership.release()
        with open_backend(bucket) as backend:
            backend.delete([key])

    return end


def has(bucket: str, key: str) -> bool:
    with open_backend(bucket) as backend:
        return backend.exists(key)


def killed_at_a_delete(uri: str, number: int) -> bool:
    from trainables.transfer.transfer_jobs import Delete
    from tuner.syncer.remote_experiment import RemoteExperiment

    pid = os.fork()
    if pid:
        return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    left, real = iter(range(number, -1, -1)), RemoteExperiment.call

    def call(self: RemoteExperiment, job: Any) -> bytes:
        if isinstance(job, Delete) and next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, job)

    try:
        RemoteExperiment.call = call  # type: ignore[method-assign]
        remove_replica(uri, clock=SystemClock())
    finally:
        os._exit(0)
