"""The thread of an agent that runs trials: orders go in, and what happened comes out, whatever dies."""

from __future__ import annotations

import os
import queue
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import tuner as tune
from trainables.job import Job
from trainables.wire import Answer, Durable, Report, SavePublished
from tuner.executors.base import Exited, Launch, Message, Started
from tuner.executors.host_agent.protocol import HostBroken, KillTrial, Setup, TellTrial, TrialOutput
from tuner.executors.host_agent.runner import Runner
from tuner.executors.local.pickled import TrainableFile, pickle_job, write_trainable

cloudpickle.register_pickle_by_value(sys.modules[__name__])
PATIENCE_S = 60.0


class Host:
    """A runner, and all that was heard of it."""

    def __init__(self, tmp_path: Path, trainable: Any, *, shared: bool = False) -> None:
        self.root = tmp_path
        (tmp_path / "written").mkdir(exist_ok=True)
        written = (
            trainable if isinstance(trainable, TrainableFile) else write_trainable(trainable, tmp_path / "written")
        )
        self.setup = Setup(written.imports, f"runner-{tmp_path}", tmp_path / "tmp", tmp_path, shared=shared)
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.heard: list[Any] = []
        self.runner = Runner(written, self.setup, lambda said: [self._said.put(each) for each in said] and None)
        self.runner.start()

    def launch(self, config: Any = None, **more: Any) -> Job:
        job = Job(
            trial_id="e_0", trial_name="t", experiment_name="e", index=0, directory=self.root / "t",
            temporary=self.root / "tmp", config=config or {}, attempt=1, generation=1, seed=1, original_cwd=self.root,
        )  # fmt: skip
        self.runner.order([Launch(job, {"cpu": 1.0}, packed=pickle_job(job, "the config"), **more)])
        return job

    def until(self, done: Callable[[], Any]) -> None:
        ends = time.monotonic() + PATIENCE_S
        while not done():
            self.heard.append(self._said.get(timeout=max(0.0, ends - time.monotonic())))

    def of(self, kind: Any) -> list[Any]:
        return [said for said in self.heard if isinstance(said, kind)]

    def bodies(self, kind: Any) -> list[Any]:
        return [said.body for said in self.of(Message) if isinstance(said.body, kind)]

    def exited(self) -> Exited:
        self.until(lambda: self.of(Exited))
        found: Exited = self.of(Exited)[-1]
        return found


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    started: list[Host] = []

    def start(trainable: Any, **settings: Any) -> Host:
        started.append(Host(tmp_path, trainable, **settings))
        return started[-1]

    yield start
    for each in started:
        each.runner.end()


def reports(config: dict[str, Any]) -> None:
    tune.report({"n": 1})
    tune.report({"n": 2})


def test_an_attempt_is_launched_told_and_heard_of(host: Any) -> None:
    here = host(reports)
    here.launch()
    for number in (1, 2):
        here.until(lambda number=number: len(here.bodies(Report)) == number)
        here.runner.order([TellTrial("e_0", Answer())])
    assert here.exited() == Exited("e_0", 1, 0)
    assert isinstance(here.heard[0], Started) and here.heard[-1] == here.exited()
    assert (here.root / "t").is_dir()


def waits(config: dict[str, Any]) -> None:
    print("it runs", flush=True)
    while True:
        signal.pause()


def test_what_a_trial_writes_is_sent_to_the_driver_and_kept_here(host: Any) -> None:
    here = host(waits)
    out = here.root / "t" / "stdout"
    here.launch(stdout=out, stderr=here.root / "t" / "stderr", tee=True)
    here.until(lambda: here.of(TrialOutput))
    (said,) = here.of(TrialOutput)
    assert (said.trial_id, said.attempt, said.stream, said.text) == ("e_0", 1, "stdout", "it runs\n")
    assert out.read_text() == "it runs\n"
    here.runner.order([KillTrial("e_0")])
    assert here.exited() == Exited("e_0", 1, -signal.SIGKILL, "killed")


def saves_and_dies(config: dict[str, Any]) -> None:
    tune.report({"n": 1}, checkpoint=tune.Checkpoint.from_dict({"n": 1}))
    tune.report({"n": 2})
    while config["dies"] and not list(Path(config["trial"]).glob("checkpoint_*/.manifest.json")):
        time.sleep(0.005)  # published beside this thread
    if config["dies"]:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("dies", [False, True])
def test_a_checkpoint_is_told_once_whether_or_not_its_process_lived_to_tell_it(dies: bool, host: Any) -> None:
    here = host(saves_and_dies)
    here.launch({"dies": dies, "trial": str(here.root / "t")})
    for number in (1, 2):
        here.until(lambda number=number: len(here.bodies(Report)) == number)
        here.runner.order([TellTrial("e_0", Answer()), TellTrial("e_0", Durable(number))])
    here.exited()
    assert [body.ref.iteration for body in here.bodies(SavePublished)] == [1]
    assert here.heard.index(here.of(Exited)[0]) == len(here.heard) - 1, "all that it left was said before its end"


@pytest.mark.parametrize("shared", [False, True])
def test_saves_that_were_never_finished_are_removed_where_the_driver_cannot(shared: bool, host: Any) -> None:
    here = host(waits, shared=shared)
    partial = here.root / "t" / ".staging-1-00000000"
    partial.mkdir(parents=True)
    here.launch(stdout=here.root / "t" / "stdout", stderr=here.root / "t" / "stdout")
    here.until(lambda: here.of(Started))
    assert partial.exists() == shared
    partial.mkdir(exist_ok=True)
    here.runner.end()
    here.runner.tidy()
    assert partial.exists() == shared


def test_a_host_that_cannot_run_trials_says_so(host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.executors.host_agent.runner.take_temporary", _fails)
    here = host(reports)
    here.until(lambda: here.of(HostBroken))
    assert here.of(HostBroken) == [HostBroken("OSError: no room for anything")]


def _fails(setup: Setup) -> None:
    raise OSError("no room for anything")


def test_the_end_leaves_no_process_and_no_temporary_files(host: Any, watch: Any) -> None:
    here = host(waits)
    here.launch(stdout=here.root / "t" / "stdout", stderr=here.root / "t" / "stdout")
    here.until(lambda: here.of(Started))
    (started,) = here.of(Started)
    trial = watch(started.pid)
    here.runner.end()
    assert trial.gone() and not here.runner.is_alive()
    assert not (here.root / "tmp").exists() or list((here.root / "tmp").iterdir()) == []


class Kept(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "done": True}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return True


def test_a_process_goes_on_with_the_next_attempt_and_not_for_long_without_one(host: Callable[..., Host]) -> None:
    there = host(Kept)
    for number in (1, 2):
        job = there.launch(reuse=True)
        there.until(lambda n=number: len(there.bodies(Report)) == n)  # type: ignore[misc]
        there.runner.order([TellTrial(job.trial_id, Answer())])
        there.until(lambda n=number: len(there.of(Exited)) == n)  # type: ignore[misc]
    first, second = (said.pid for said in there.of(Started))
    assert first == second and [said.status for said in there.of(Exited)] == [0, 0]
    gone = os.pidfd_open(first)
    try:
        assert select.select([gone], [], [], PATIENCE_S)[0]
    finally:
        os.close(gone)
