"""How often the journal goes to a replica: as often as costs 5 % of the time, or as TUNE_GLOBAL_CHECKPOINT_S says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tuner.syncer.submitted import Submitted
from tuner import knobs
from tuner.clock import VirtualClock
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter
from tuner.experiment.paths import ExperimentPaths
from tuner.syncer.queue import Queue
from tuner.syncer.streams.journal_stream import JournalStream
from tuner.syncer.streams.trial_files import TrialFiles


@pytest.fixture
def paths(tmp_path: Path) -> ExperimentPaths:
    paths = ExperimentPaths(tmp_path / "e")
    for directory in (paths.journal, paths.blobs, paths.generations):
        directory.mkdir(parents=True)
    paths.experiment_json.write_text("{}")
    return paths


@pytest.fixture
def journal(paths: ExperimentPaths) -> Iterator[JournalWriter]:
    made = JournalWriter(paths, 1, next_seq=1, clock=VirtualClock(), sync="inline")
    yield made
    made.close()


class Waiting(Queue):
    """Of checkpoints that wait for the journal."""

    wants_journal = True


def next_push(paths: ExperimentPaths, journal: JournalWriter, every_s: float | None, *, took: float) -> float | None:
    """When the second push may begin, after one that began at 100 s and took so long."""
    submitted = Submitted(paths, journal=journal)
    files = TrialFiles(submitted.context)
    stream = JournalStream(submitted.context, Waiting(), files, every_s=every_s, at_once=False)
    journal.append(ev.encode(ev.RunEnded("first", 0.0)))
    submitted.clock.advance(100.0 - submitted.clock.monotonic())
    assert stream.start_jobs(100.0)
    submitted.clock.advance(took)
    submitted.end()
    journal.append(ev.encode(ev.RunEnded("second", 0.0)))
    return stream.due_at(submitted.clock.monotonic())


@pytest.mark.parametrize("took", [0.01, 1.0, 30.0])
def test_pushing_takes_a_twentieth_of_the_time(paths: ExperimentPaths, journal: JournalWriter, took: float) -> None:
    assert next_push(paths, journal, None, took=took) == pytest.approx(100.0 + 20 * took)


@pytest.mark.parametrize(("text", "after"), [("300", 400.0), ("0.5", 100.5), ("auto", 120.0), ("", 120.0)])
def test_the_variable_sets_the_seconds_from_push_to_push(
    paths: ExperimentPaths, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch, text: str, after: float
) -> None:
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", text)

    took = 1.0 if text in ("", "auto") else 0.25
    assert next_push(paths, journal, knobs.journal_push_s(), took=took) == pytest.approx(after)
