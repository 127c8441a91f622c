"""Reading a run again and again: nothing is read that did not change, and nothing of a replica comes twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuner.experiment.harness import write_record
from tests.tuner.replicated import ran
from trainables.transfer.open import open_backend
from tuner.clock import VirtualClock
from tuner.error import ExperimentNotFoundError
from tuner.experiment.ownership import STALE_S
from tuner.experiment.paths import ExperimentPaths
from tuner.tools.watching import WatchedDirectory, WatchedReplica, source_at


def test_what_was_not_written_to_is_not_read_again(tmp_path: Path) -> None:
    source = WatchedDirectory(ExperimentPaths(ran(None, tmp_path)))
    first = source.look()
    assert (len(first.state.trials), first.has_ended, first.went_well) == (2, True, True)
    assert source.look().state is first.state
    ran(None, tmp_path, resume="AUTO")  # nothing is left to do: a generation more
    again = source.look()
    assert again.state is not first.state and again.has_ended


def test_a_driver_that_nobody_sees_is_silent_after_a_minute(tmp_path: Path) -> None:
    paths, clock = ExperimentPaths(ran(None, tmp_path)), VirtualClock()
    write_record(paths, 9)  # of another machine; without a lock this is a copy
    paths.lock.unlink()
    source = WatchedDirectory(paths, clock)
    assert source.look().silent_s == 0
    clock.advance(STALE_S + 1)
    assert source.look().silent_s == STALE_S + 1
    paths.heartbeats(9).write_text("held 7\n")
    assert source.look().silent_s == 0, "its heart beats"


def test_a_replica_is_watched_by_what_is_new_in_it(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(ExperimentNotFoundError), source_at(f"{bucket}/mine") as source:
        source.look()
    ran(bucket, tmp_path)
    with source_at(f"{bucket}/mine") as source:
        seen = source.look()
        assert seen.has_ended and [trial.iteration for trial in seen.state.trials] == [3, 3]
        assert fetched_by(source) == {"experiment.json", "generations"}
        ran(bucket, tmp_path, resume="AUTO")
        assert "journal" in fetched_by(source)
        with open_backend(bucket) as backend:
            (description,) = [entry.key for entry in backend.list("mine") if entry.key == "mine/experiment.json"]
            backend.delete([description])
        with pytest.raises(ExperimentNotFoundError):
            source.look()


def fetched_by(source: WatchedReplica) -> set[str]:
    """The first part of what a look brings."""
    names: list[str] = []
    remote, fetch = source._remote, source._remote.fetch
    remote.fetch = lambda keys, root: (names.extend(keys), fetch(keys, root))[1]  # type: ignore[method-assign]
    source.look()
    remote.fetch = fetch  # type: ignore[method-assign]
    return {name.partition("/")[0] for name in names}
