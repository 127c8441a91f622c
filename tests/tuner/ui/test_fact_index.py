"""Every result of a watched run is found, while it runs and after its end has packed the journal into the history."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.ui.test_cold_state import RAW, result
from trainables.store import fs
from trainables.transfer.open import open_backend
from tuner.clock import SystemClock, VirtualClock
from tuner.experiment import events as ev
from tuner.experiment.journal_reader import read_journal
from tuner.experiment.journal_writer import JournalWriter
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.replica_source import ReplicaSource
from tuner.ui.sources import LocalSource

STEPS = ("report", "seal", "fold", "pack", "resume")
READS = ("listdir", "open_file", "exists", "is_dir", "size")
"""Functions of `fs` by which the page looks at the disk."""


class Run:
    """A driver of one trial, whose journal is written step by step."""

    def __init__(self, root: Path, history_bytes: int = 10**6) -> None:
        self.paths, self._history_bytes = ExperimentPaths(root), history_bytes
        root.mkdir()
        self.paths.experiment_json.write_text('{"format": 1}')
        self._state, self._generation, self.reported = ExperimentState(root), 0, 0
        self._open()
        self._tell(ev.TrialCreated("a", 0, RAW, RAW, "", "t_a", "t_a"))
        self._tell(ev.AttemptStarted("a", 1, 1, 2.0))

    def do(self, step: str) -> None:
        """Do one of `STEPS`, or "end" or "close", the last ones of a run."""
        match step:
            case "report":
                self.reported += 1
                self._tell(result("a", self.reported))
            case "seal":
                self._journal.seal()
            case "fold":
                self._journal.compact(self._state.snapshot({}))
            case "pack":
                self._journal.archive()
            case "resume":
                self._journal.close()
                self._open()
            case "end":
                self._tell(ev.RunEnded("finished", 9.0))
            case "close":
                self._journal.close()

    def _open(self) -> None:
        known = read_journal(self.paths)
        self._generation += 1
        self._journal = JournalWriter(
            self.paths,
            self._generation,
            next_seq=known.last_seq + 1,
            clock=SystemClock(),
            sync="inline",
            parents=known.chain,
            history_bytes=self._history_bytes,
        )
        self._tell(ev.GenerationStarted(self._generation, known.generation, known.generation_id, known.last_seq))

    def _tell(self, fact: ev.AnyFact) -> None:
        self._journal.append(ev.encode(fact))
        self._state.apply(fact)
        self._journal.flush()


ENDING = ("report", "end", "fold", "pack", "close")
"""What the driver does at the end of a run."""


def found(live: LiveExperiment) -> list[int]:
    """Iterations of the results that the page finds."""
    live.look()
    return [fact.iteration for _, fact in live.index().facts("a") if isinstance(fact, ev.ResultReported)]


@contextmanager
def meanwhile(act: Callable[[int], None]) -> Iterator[None]:
    """Call `act` with 0, 1, ... before each look at the disk."""
    count, acting = 0, False

    def before(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal count, acting
            if not acting:
                acting = True
                act(count)
                count, acting = count + 1, False
            return real(*arguments, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in READS:
            patch.setattr(fs, name, before(getattr(fs, name)))
        yield


@given(
    before=st.lists(st.sampled_from([*STEPS, "look"]), max_size=12),
    moments=st.lists(st.integers(0, 40), min_size=len(ENDING), max_size=len(ENDING)),
)
def test_a_run_watched_to_its_end_keeps_all_its_results(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], moments: list[int]
) -> None:
    run = Run(tmp_path_factory.mktemp("watched") / "one")
    live = LiveExperiment("one", LocalSource(run.paths))
    for step in before:
        if step == "look":
            assert found(live) == [*range(1, run.reported + 1)]
        else:
            run.do(step)
    ending = sorted(zip(sorted(moments), range(len(ENDING)), strict=True))

    def drive(look: int) -> None:
        while ending and ending[0][0] <= look:
            run.do(ENDING[ending.pop(0)[1]])

    with meanwhile(drive):
        found(live)
    drive(max(moments))
    assert found(live) == [*range(1, run.reported + 1)]
    shutil.rmtree(run.paths.root)


def test_an_index_of_segments_that_were_dropped_begins_after_them(tmp_path: Path) -> None:
    run = Run(tmp_path / "one", history_bytes=0)
    live = LiveExperiment("one", LocalSource(run.paths))
    run.do("report")
    run.do("end")
    assert found(live) == [1] and live.index().begins_after == 0
    run.do("fold")
    run.do("pack")
    assert found(live) == [] and live.index().begins_after == live.seq


def copied(run: Run) -> None:
    """Make the place hold what the run's directory holds; what is new comes first."""
    with closing(open_backend(f"memory://watched/{run.paths.root.name}")) as place:
        local = {str(path.relative_to(run.paths.root)): path for path in run.paths.root.rglob("*") if path.is_file()}
        for key, path in local.items():
            place.put(key, path.read_bytes())
        place.delete([entry.key for entry in place.list("") if entry.key not in local])


def test_the_page_of_a_replica_keeps_the_results_of_a_run_that_ends(tmp_path: Path) -> None:
    run, clock = Run(tmp_path / "one"), VirtualClock()
    source = ReplicaSource("memory://watched/one", tmp_path / "beside", clock)
    live = LiveExperiment("one", source, clock)
    for steps in (["report"], ENDING, ["resume", "report"], ENDING):
        for step in steps:
            run.do(step)
        copied(run)
        clock.advance(source.interval)
        assert found(live) == [*range(1, run.reported + 1)]
    live.close()


def test_the_history_of_a_replica_comes_when_it_is_asked_for(tmp_path: Path) -> None:
    run, clock = Run(tmp_path / "two"), VirtualClock()
    for step in ENDING:
        run.do(step)
    copied(run)
    source = ReplicaSource("memory://watched/two", tmp_path / "beside", clock)
    live = LiveExperiment("two", source, clock)
    live.look()
    assert not source.paths.history.exists()
    assert found(live) == [1] and fs.listdir(source.paths.history) == fs.listdir(run.paths.history)
    shutil.rmtree(run.paths.history)
    copied(run)
    clock.advance(source.interval)
    live.look()
    assert fs.listdir(source.paths.history) == []
    live.close()
