"""The fact log: what is journaled when, what waits for the disk, and what a compaction keeps and drops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.driver.harness import DriverHarness, Proposer, plugin_set
from trainables.store import fs
from tuner.driver.fact_log import FULL_PATIENCE_S
from tuner.error import StorageFullError
from tuner.experiment import events as ev
from tuner.experiment.blobs import Blobs
from tuner.experiment.journal_writer import COMPACT_BYTES
from tuner.experiment.paths import TrialPaths
from tuner.syncer.sink import ReplicaSink


class FullDisk:
    """`JournalWriter.flush` of a disk that is full until the test says otherwise."""

    def __init__(self, harness: DriverHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, self._flush = True, harness.journal.flush
        monkeypatch.setattr(harness.journal, "flush", self)

    def __call__(self) -> None:
        if self.full:
            raise StorageFullError("no space in e")
        self._flush()


def test_a_fact_is_journaled_numbered_and_applied(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e").turn()
    facts = harness.loop._facts
    before = facts.last_seq
    assert facts.add(ev.Idle()) == before + 1 == facts.last_seq
    assert facts.add(ev.AttemptEnded("ab_00000", 1, "halted")) == before + 2
    assert harness.kinds()[-2:] == ["idle", "attempt_ended"]
    assert harness.trial().status == "PENDING"


def test_a_result_is_journaled_once_with_what_was_decided_on_it(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e").turn()
    harness.report(harness.trial(), loss=1.0)
    (fact,) = [fact for fact in harness.facts if isinstance(fact, ev.ResultReported)]
    assert (fact.trial, fact.iteration, fact.then) == ("ab_00000", 1, "continue")
    assert harness.trial().iteration == 1 and harness.loop._facts.last_seq == len(harness.facts)


def test_after_a_sync_everything_is_on_the_disk(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e")
    seq = harness.loop._facts.add(ev.Idle())
    assert harness.journal.durable_seq < seq
    harness.loop._facts.sync()
    assert harness.journal.durable_seq == seq


def test_what_is_prepared_is_so_before_it_is_due_and_once(tmp_path: Path) -> None:
    harness, done = DriverHarness(tmp_path / "e"), list[str]()
    facts = harness.loop._facts
    facts.add(ev.Idle())
    facts.when_durable(lambda: done.append("due"), meanwhile=lambda: done.append("prepared"))
    assert facts.flush() and done == []
    for _ in range(2):
        facts.run_due()
    facts.sync()
    facts.run_due()
    assert done == ["prepared", "due"]


def test_a_directory_is_there_before_its_trial_gets_it_and_after_its_start_is_written(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", directories=True)
    harness.loop.admission.fill()
    directory = harness.trial().directory
    assert "attempt" in harness.kinds() and not directory.exists()
    harness.loop._settle()
    assert (directory / "trial.json").exists() and harness.trial().trial_id in harness.executor.running


def test_an_action_waits_for_its_fact_and_the_order_stands(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e")
    facts, done = harness.loop._facts, list[str]()
    facts.add(ev.Idle())
    facts.when_durable(lambda: done.append("first"))
    assert not facts.due  # it is in memory still
    facts.run_due()
    assert done == []
    assert facts.flush()
    facts.add(ev.Idle())  # a later fact, not flushed
    facts.when_durable(lambda: done.append("second"))
    facts.run_due()
    assert done == ["first"] and not facts.due
    facts.flush()
    facts.run_due()
    assert done == ["first", "second"]


def test_an_action_may_wait_for_an_older_fact(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e")
    facts, done = harness.loop._facts, list[str]()
    seq = facts.add(ev.Idle())
    facts.flush()
    facts.add(ev.Idle())
    facts.when_durable(lambda: done.append("it"), seq)
    facts.run_due()
    assert done == ["it"]


def test_what_an_action_adds_itself_is_run_once_it_is_durable_too(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e")
    facts, done = harness.loop._facts, list[str]()

    def follow() -> None:
        done.append("first")
        facts.add(ev.Idle())
        facts.when_durable(lambda: done.append("follows"))

    facts.add(ev.Idle())
    facts.when_durable(follow)
    facts.flush()
    facts.run_due()
    assert done == ["first"]
    harness.loop._settle()
    assert done == ["first", "follows"]


def test_a_full_disk_is_waited_for_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = DriverHarness(tmp_path / "e")
    facts, disk = harness.loop._facts, FullDisk(harness, monkeypatch)
    facts.add(ev.Idle())
    assert not facts.flush() and facts.full
    harness.clock.advance(FULL_PATIENCE_S - 1)
    assert not facts.flush()
    disk.full = False
    assert facts.flush() and not facts.full
    assert [record.getMessage() for record in caplog.records] == [
        "no space in e; the trials wait",
        f"there is space again in {tmp_path / 'e'}",
    ]


def test_a_disk_that_stays_full_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = DriverHarness(tmp_path / "e")
    facts, disk = harness.loop._facts, FullDisk(harness, monkeypatch)
    facts.flush()
    harness.clock.advance(FULL_PATIENCE_S)
    with pytest.raises(StorageFullError, match="no space in e"):
        facts.flush()
    disk.full = False
    facts.flush()
    disk.full = True
    assert not facts.flush()  # the patience begins anew


class Remembers(Proposer):
    """A searcher whose state is what it was told."""

    def get_state(self) -> Any:
        return {"made": self.made}


def states(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*") if path.is_file()}


def test_a_compaction_keeps_the_states_of_its_snapshot_and_drops_those_before(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "e" / "blobs")
    searcher = Remembers(3)
    harness = DriverHarness(tmp_path / "e", plugin_set(searcher=searcher, num_samples=3, blobs=blobs), slots=1).turn()
    facts = harness.loop._facts
    facts.compact(ReplicaSink())
    first, kept = dict(harness.state.plugins), states(tmp_path / "e" / "blobs")
    assert set(first) == {"searcher", "scheduler", "callbacks", "metrics"}
    harness.report(harness.trial())
    harness.exit(harness.trial())  # the next trial is made: the searcher's state is another
    facts.compact(ReplicaSink())
    second = harness.state.plugins
    assert second["searcher"] != first["searcher"] and second["scheduler"] == first["scheduler"]
    after = states(tmp_path / "e" / "blobs")
    assert len(after) == len(kept), "one state came, and the one that it replaces is gone"
    assert first["searcher"] not in after
    assert blobs.get(second["searcher"])


def test_without_room_for_the_states_the_journal_is_not_folded_and_grows_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blobs = Blobs(tmp_path / "e" / "blobs")
    harness = DriverHarness(tmp_path / "e", plugin_set(blobs=blobs)).turn()

    def full(self: Blobs, data: bytes, **more: Any) -> str:
        raise StorageFullError("no space for a blob")

    harness.journal.bytes_since_snapshot = 2 * COMPACT_BYTES
    assert harness.loop._facts.should_compact()
    with monkeypatch.context() as patch:
        patch.setattr(Blobs, "put", full)
        harness.loop.compact()
    assert not harness.loop._facts.should_compact(), "it is not tried at every turn"
    assert harness.state.plugins == {} and list((tmp_path / "e" / "journal").glob("snapshot-*")) == []
    harness.loop.compact()
    assert harness.state.plugins and len(list((tmp_path / "e" / "journal").glob("snapshot-*"))) == 1


@pytest.mark.parametrize("directories", [True, False])
def test_files_of_touched_trials_are_durable_before_the_snapshot_that_drops_their_facts(
    directories: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    harness = DriverHarness(tmp_path / "e", plugin_set(num_samples=2), directories=directories).turn()
    told, silent = harness.state.trials
    for trial in (told, silent):
        trial.directory.mkdir(exist_ok=True)
        TrialPaths(trial.directory).result_json.write_text("{}")
    harness.loop.compact()  # after it only one has results
    harness.report(told)
    compact, fsync, fsync_dir = harness.journal.compact, fs.fsync_file, fs.fsync_dir
    monkeypatch.setattr(fs, "fsync_dir", lambda path: [order.append(str(path)), fsync_dir(path)])
    monkeypatch.setattr(fs, "fsync_file", lambda path: [order.append(str(path)), fsync(path)])
    monkeypatch.setattr(harness.journal, "compact", lambda body: [order.append("snapshot"), compact(body)][1])
    harness.loop.compact()
    synced = [str(TrialPaths(told.directory).result_json)] if directories else []
    at = order.index("snapshot")
    assert [path for path in order[:at] if path.endswith("result.json")] == synced
    names = [path for path in order[:at] if path in (str(told.directory), str(tmp_path / "e"))]
    assert names == ([str(told.directory), str(tmp_path / "e")] if directories else []), "and their names"
    order.clear()
    harness.loop.compact()
    assert not [path for path in order if path.endswith("result.json")], "once is enough"


def test_a_replica_hears_which_trials_a_compaction_is_about(tmp_path: Path) -> None:
    class Notes(ReplicaSink):
        def touched(self, trials: Any) -> None:
            self.trials = {trial.trial_id for trial in trials}

    harness = DriverHarness(tmp_path / "e", plugin_set(num_samples=2), directories=True).turn()
    sink = Notes()
    harness.loop._facts.compact(sink)
    assert sink.trials == {"ab_00000", "ab_00001"}, "both have begun"
    harness.report(harness.trial(1))
    harness.loop._facts.compact(sink)
    assert sink.trials == {"ab_00001"}
