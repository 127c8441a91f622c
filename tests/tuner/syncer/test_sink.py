"""The driver's end of a replica: without one nothing is copied, and nothing is waited for."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.driver.harness import DriverHarness
from trainables.checkpoint_config import CheckpointConfig
from tuner.experiment import events as ev
from tuner.syncer.replica import Replica
from tuner.syncer.sink import ReplicaBacklog, ReplicaSink

OPERATIONS = [name for name, value in vars(ReplicaSink).items() if not name.startswith("_")]


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_replica_has_all_that_the_loop_tells_and_asks(name: str) -> None:
    ours, theirs = vars(ReplicaSink)[name], inspect.getattr_static(Replica, name)
    assert isinstance(ours, property) == isinstance(theirs, property)
    assert theirs is not ours, "it does more than nothing"
    if inspect.isfunction(ours):
        assert list(inspect.signature(theirs).parameters) == list(inspect.signature(ours).parameters)


def test_without_a_replica_everything_is_done_at_once(tmp_path: Path) -> None:
    sink, trial = ReplicaSink(), DriverHarness(tmp_path / "e").turn().trial()
    for tell in (sink.started, sink.ended):
        tell(trial)
    sink.touched([trial])
    sink.heartbeat()
    sink.closing()
    sink.wait(None)  # returns
    sink.release()
    assert (sink.place, sink.trouble, sink.finished(), sink.due(), sink.missing) == ("", "", [], None, [])
    assert sink.complete and not sink.given_up and not sink.behind(trial) and not sink.reads(tmp_path)
    assert sink.backlog == ReplicaBacklog() == ReplicaBacklog(checkpoints=0, bytes=0, error=None)


def test_nothing_is_in_a_replica_that_there_is_not_and_nothing_can_be_brought_from_it(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e").turn()
    harness.report(harness.trial(), saves=True)
    (record,) = harness.trial().checkpoints
    sink = ReplicaSink()
    assert not sink.holds(harness.trial(), record)
    with pytest.raises(NotImplementedError):
        sink.fetch(harness.trial(), record, lambda problem: None)


class Told(ReplicaSink):
    """Notes what it is told, by name."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in ("started", "published", "forgotten", "ended", "closing", "release"):
            object.__getattribute__(self, "calls").append(name)
        return object.__getattribute__(self, name)


def test_the_loop_tells_of_starts_saves_what_goes_and_ends_in_their_order(tmp_path: Path) -> None:
    told = Told()
    harness = DriverHarness(tmp_path / "e", copies=told, keep=CheckpointConfig(num_to_keep=1)).turn()
    trial = harness.trial()
    for _ in range(2):
        harness.report(trial, saving=harness.publish(trial, trial.iteration + 1))
    harness.exit(trial)
    assert told.calls == ["started", "published", "published", "forgotten", "ended"]
    assert isinstance(harness.facts[-1], (ev.TrialEnded, ev.CheckpointDeleted, ev.SearchEnded))
    harness.loop.copy_rest(lambda: False)
    assert told.calls[-2:] == ["closing", "release"]
