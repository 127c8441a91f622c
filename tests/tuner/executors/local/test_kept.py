"""Which process takes which attempt, and which have to go; their lives are tried in `test_reused_process`."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.job import Job
from tuner.clock import SystemClock
from tuner.executors.base import Launch, Resources
from tuner.executors.local.kept import KeptProcess, KeptProcesses
from tuner.executors.local.lines import TrialSocket
from tuner.executors.local.local_attempts import Deadlines, LocalAttempt
from tuner.executors.pool import Pool
from tuner.executors.reactor import Reactor

ROOM = {"cpu": 4.0, "gpu": 2.0}


def launch(trial_id: str = "a", resources: Resources | None = None, **environment: str) -> Launch:
    asked = dict(resources or {"cpu": 1.0})
    here = Path("/nowhere")
    job = Job(trial_id, trial_id, "e", 0, here, here, {}, attempt=1, generation=1, seed=1, resources=asked)
    return Launch(job, asked, environment=environment, reuse=True)


class Bench:
    """Processes that wait, of which there are only the lines."""

    def __init__(self) -> None:
        self.pool = Pool(ROOM, ["0", "1"])
        self.kept = KeptProcesses(self.pool, Deadlines(SystemClock()), None)
        self.reactor = Reactor()
        self._ends: list[socket.socket] = []

    def wait(self, ran: Launch) -> KeptProcess:
        (ours, theirs), (keeper, other) = socket.socketpair(), socket.socketpair()
        self._ends += [theirs, keeper, other]
        attempt = LocalAttempt(ran, self.pool.take(ran.resources))
        attempt.main = TrialSocket(ours, self.reactor, lambda events: None)
        return self.kept.add(attempt, keeper)

    def close(self) -> None:
        for each in list(self.kept.all):
            self.kept.gone(each)
        for end in self._ends:
            end.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_a_trial_gets_the_process_that_ran_it_else_the_last_that_came(bench: Bench) -> None:
    first, _, last = (bench.wait(launch(name)) for name in "abc")
    assert bench.kept.fitting(launch("a")) is first
    assert bench.kept.fitting(launch("d")) is last


OTHERS: dict[str, Callable[[Launch], Launch]] = {
    "another amount": lambda it: launch(resources={"cpu": 2.0}),
    "a gpu": lambda it: launch(resources={"cpu": 1.0, "gpu": 1.0}),
    "another environment": lambda it: replace(it, environment={"X": "1"}),
    "what only the job says": lambda it: replace(it, job=replace(it.job, resources={"cpu": 1.0, "licence": 1.0})),
}


@pytest.mark.parametrize("change", OTHERS)
def test_what_asks_for_something_else_is_not_taken(bench: Bench, change: str) -> None:
    bench.wait(launch())
    assert bench.kept.fitting(OTHERS[change](launch())) is None
    assert bench.kept.fitting(launch()) is not None


def test_one_that_leaves_takes_nothing_and_is_asked_once(bench: Bench) -> None:
    process = bench.wait(launch())
    bench.kept.let_go([process])
    bench.kept.let_go([process])
    assert bench.kept.fitting(launch()) is None and process.leaving


@given(
    waiting=st.lists(
        st.fixed_dictionaries({"cpu": st.sampled_from([0.5, 1.0]), "gpu": st.sampled_from([0.0, 0.5, 1.0])}), max_size=2
    ),
    asked=st.fixed_dictionaries(
        {"cpu": st.sampled_from([1.0, 3.5, 4.0]), "gpu": st.sampled_from([0.0, 0.5, 2.0, 3.0])}
    ),
)
def test_whether_there_is_room_is_asked_without_changing_it(waiting: list[Resources], asked: dict[str, float]) -> None:
    bench = Bench()
    try:
        for each in waiting:
            bench.wait(launch(resources=each))
        before = vars(bench.pool).copy() | {name: dict(value) for name, value in vars(bench.pool).items()}
        assert bench.kept.would_fit(asked) == Pool(ROOM, ["0", "1"]).fits(asked)
        assert vars(bench.pool) == before
    finally:
        bench.close()


@pytest.mark.parametrize(
    ("most", "running", "stay"),
    [(3, 0, 2), (3, 1, 1), (3, 2, 0), (4, 0, 3), (1, 0, 0)],
)
def test_a_fresh_process_sends_away_as_many_as_are_too_many(bench: Bench, most: int, running: int, stay: int) -> None:
    processes = [bench.wait(launch(name)) for name in "abc"]
    bench.kept.began(most)
    assert bench.kept.make_way(launch(resources={"cpu": 0.5}), running)
    assert [each.leaving for each in processes] == [True] * (3 - stay) + [False] * stay


def test_what_a_fresh_process_needs_is_freed_one_by_one(bench: Bench) -> None:
    processes = [bench.wait(launch(name, {"cpu": 2.0})) for name in "ab"]
    large: dict[str, Any] = {"resources": {"cpu": 3.0}}
    bench.kept.began(9)
    for gone in processes:
        for _ in range(2):  # asked again while the first leaves
            bench.kept.make_way(launch(**large), 0)
            assert [each for each in bench.kept.all if each.leaving] == [gone]
        bench.kept.gone(gone)
    assert bench.pool.fits(ROOM)


def test_leased_gpus_are_waited_for(bench: Bench) -> None:
    process = bench.wait(launch(CUDA_VISIBLE_DEVICES="0,1"))
    bench.kept.began(9)
    assert bench.kept.make_way(launch(CUDA_VISIBLE_DEVICES="2"), 0) and not process.leaving
    for _ in range(2):
        assert not bench.kept.make_way(launch(CUDA_VISIBLE_DEVICES="1"), 0) and process.leaving
    bench.kept.gone(process)
    assert bench.kept.make_way(launch(CUDA_VISIBLE_DEVICES="1"), 0)
