"""An experiment is read once and followed: what pages see is what its journal adds up to."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tuner.ui.served import client, data, serving, stream
from trainables import tagged
from trainables.wire import CheckpointRef
from tuner.clock import SystemClock
from tuner.experiment import events as ev
from tuner.experiment import journal_format as form
from tuner.experiment.journal_writer import JournalWriter
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.trial_records import Clone
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.sources import LocalSource
from tuner.ui.views.data import data_of

SCRIPT = Path(__file__).parents[2] / "scripts" / "live_run.py"


@contextmanager
def read(experiment: Path) -> Iterator[LiveExperiment]:
    live = LiveExperiment("one", LocalSource(ExperimentPaths(experiment)))
    live.start()
    try:
        assert live.ready.wait(60)
        yield live
    finally:
        live.close()


def test_a_trial_that_cannot_be_read_is_a_row_that_says_so(experiment: Path, tmp_path: Path) -> None:
    shutil.copytree(experiment, tmp_path / "one")
    (segment,) = (tmp_path / "one" / "journal").glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    facts = form.parse_lines(b"".join(lines))[0]
    damaged = [
        body.replace(b'"loss":1.0', b'"loss":{"$":"tuple","v":7}') if b'"kind":"result"' in body else body
        for _, body in facts
    ]
    segment.write_bytes(b"".join(form.line(seq, body) for (seq, _), body in zip(facts, damaged, strict=True)))
    with read(tmp_path / "one") as live, live.lock:
        assert live.is_read and len(live.picture.table) == 6


def test_what_a_user_has_set_counts(experiment: Path, tmp_path: Path) -> None:
    shutil.copytree(experiment, tmp_path / "one")
    (segment,) = (tmp_path / "one" / "journal").glob("*.jsonl")
    last = form.parse_lines(segment.read_bytes())[0][-1][0]
    changes = (("num_samples", 2, 12), ("max_concurrent", 3, None))
    with segment.open("ab") as file:
        for number, (name, value, total) in enumerate(changes, start=last + 1):
            file.write(form.line(number, ev.encode(ev.SettingChanged(name, value, 1, 1e9, total))))
    with serving([tmp_path / "one"]) as one, client(one) as pages:
        told = data(pages, "e/one/overview.json")
    assert told["total"] == 12 and told["slots"]["limit"] == 3


def test_a_run_under_open_pages(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, str(SCRIPT), str(tmp_path), str(tmp_path / "go")]) as run:
        try:
            with serving([tmp_path]) as one, client(one) as pages:
                while "live" not in data(pages, "experiments.json")["experiments"]["name"]:
                    assert run.poll() is None
                with stream(pages, "e/live/events?since=0") as events:
                    rows: dict[str, str] = {}
                    points: list[tuple[str, int]] = []
                    last = 0
                    for event in events:
                        if event.kind != "changes":
                            continue
                        assert event.id > last
                        last = event.id
                        changed = event.data["trials"]
                        rows |= dict(zip(changed["id"], changed["state"], strict=True))
                        told = event.data["results"]
                        points += zip(told["id"], told["iteration"], strict=True)
                        if event.data["counts"]["RUNNING"] == 2 and not (tmp_path / "go").exists():
                            (tmp_path / "go").touch()
                        if event.data["overview"]["run_ended"]:
                            break
                assert run.wait(60) == 0
                now = data(pages, "e/live/trials.json")
                assert rows == dict(zip(now["id"], now["state"], strict=True)) and now["seq"] == last
                done = zip(now["id"], now["iteration"], strict=True)
                wanted = [(trial, step + 1) for trial, steps in done for step in range(steps)]
                assert sorted(points) == sorted(wanted), "each result once"
        finally:
            run.kill()


def test_what_a_kill_made_void_is_marked_and_the_time_until_the_resume_was_lost(tmp_path: Path) -> None:
    """Trials have a checkpoint of their third result when the driver is killed, and a fourth result behind it."""
    command = [sys.executable, str(SCRIPT), str(tmp_path), str(tmp_path / "go")]
    with serving([tmp_path]) as one, client(one) as pages:
        with subprocess.Popen(command) as run:
            try:
                while "live" not in data(pages, "experiments.json")["experiments"]["name"]:
                    assert run.poll() is None
                with stream(pages, "e/live/events?since=0") as events:
                    behind: set[str] = set()
                    for event in events:
                        if event.kind != "changes":
                            continue
                        rows = event.data["trials"]
                        told = zip(rows["id"], rows["iteration"], rows["checkpoints"], strict=True)
                        behind |= {trial for trial, iteration, saved in told if iteration == 4 and saved}
                        if len(behind) == 2:
                            break
                    run.kill()
                    assert run.wait(60)
                    while (event := next(events)).data.get("overview", {}).get("liveness") != "killed":
                        pass
                    assert set(event.data["trials"]["said"]) == {"running: the driver was killed"}
            finally:
                run.kill()
        spans = data(pages, "e/live/machines.json")["spans"]
        lost = [number for number, what in enumerate(spans["what"]) if what == "lost"]
        assert {spans["id"][number] for number in lost} == behind and {spans["end"][number] for number in lost} == {
            None
        }
        (tmp_path / "go").touch()
        assert subprocess.run(command, timeout=120, check=False).returncode == 0
        while data(pages, "e/live/overview.json")["run_ended"] is None:
            pass
        told = data(pages, f"e/live/curves.json?trials={','.join(sorted(behind))}")
        for start, count in zip(told["trials"]["start"], told["trials"]["count"], strict=True):
            points = {name: values[start : start + count] for name, values in told["points"].items()}
            assert points["iteration"] == [1, 2, 3, 4, *range(4, 10)] and points["void"] == [0, 0, 0, 1, *[0] * 6]
        page = data(pages, f"e/live/trial/{min(behind)}.json")
        assert page["results"]["void"] == [0, 0, 0, 1, *[0] * 6] and page["iteration"] == 9
        spans = data(pages, "e/live/machines.json")["spans"]
        assert None not in spans["end"] and "saving" in spans["what"]


def result(trial: str, iteration: int, at: int) -> ev.ResultReported:
    return ev.ResultReported(trial, 1, iteration, msgspec.Raw(tagged.dumps({"loss": 1.0, "timestamp": at})))


CONFIG = msgspec.Raw(tagged.dumps({"x": 1}))
SAVED = CheckpointRef("a", "checkpoint_000001", 1, 1, 1, 1)
FORKED = [
    ev.GenerationStarted(1),
    ev.TrialCreated("a", 0, CONFIG, CONFIG, name="a", dirname="a"),
    ev.AttemptStarted("a", 1, 1, 100.0),
    result("a", 1, 110),
    ev.CheckpointPublished(SAVED, 10, "", 115.5),
    ev.AttemptEnded("a", 1, "failed", ev.ErrorInfo("OSError", "no"), 120.0),
    ev.AttemptStarted("a", 2, 1, 130.0, SAVED, 1),
    ev.TrialEnded("a", "ERROR", 140.5, ev.ErrorInfo("OSError", "no")),
    ev.RunEnded("finished", 141.0),
    ev.GenerationStarted(2),
    ev.TrialReopened("a"),
    ev.AttemptStarted("a", 3, 2, 90_000.0, SAVED, 1),
    ev.TrialCreated("b", 1, CONFIG, CONFIG, name="b", dirname="b", fork=Clone(1, SAVED)),
    ev.AttemptStarted("b", 1, 2, 90_001.0, SAVED, 1),
    result("a", 2, 90_010),
    ev.TrialEnded("a", "TERMINATED", 90_020.0),
    result("b", 2, 90_030),
]
"""Trial "a" fails twice, and is tried again a day later, when "b" is forked from its checkpoint."""


@pytest.fixture
def forked(tmp_path: Path) -> LiveExperiment:
    paths = ExperimentPaths(tmp_path / "one")
    paths.root.mkdir()
    paths.experiment_json.write_text('{"format": 1}')
    journal = JournalWriter(paths, 1, next_seq=1, clock=SystemClock(), sync="inline")
    for fact in FORKED:
        journal.append(ev.encode(fact))
    journal.close()
    live = LiveExperiment("one", LocalSource(paths))
    live.look()
    return live


def view(live: LiveExperiment, name: str, **query: object) -> Any:
    return json.loads(data_of(live, name, {key: str(value) for key, value in query.items()}, {}))


def test_a_trial_that_does_not_run_holds_no_slot(forked: LiveExperiment) -> None:
    spans = view(forked, "machines")["spans"]
    held = [*zip(spans["id"], spans["what"], spans["start"], spans["end"], strict=True)]
    assert held == [
        ("a", "running", 100.0, 120.0),
        ("a", "running", 130.0, 140.5),
        ("a", "running", 90_000.0, 90_020.0),
        ("b", "running", 90_001.0, None),
    ]


def test_an_attempt_of_a_fork_is_none_of_its_parent(forked: LiveExperiment) -> None:
    parent, fork = (view(forked, "trial", trial=name)["attempts"] for name in "ab")
    assert parent["number"] == [1, 2, 3] and parent["ended_at"] == [120.0, 140.5, 90_020.0]
    assert fork["number"] == [1] and fork["ended_at"] == [None] and fork["from"] == [SAVED.name]


def test_an_earlier_moment_has_its_own_time(forked: LiveExperiment) -> None:
    times = [view(forked, "overview", at=at)["time"] for at in range(1, len(FORKED))]
    assert times == [
        None,
        None,
        100,
        110,
        115.5,
        120,
        130,
        140.5,
        141,
        141,
        141,
        90_000,
        90_000,
        90_001,
        90_010,
        90_020,
    ]
    assert view(forked, "overview")["time"] > 1e9, "now"


def test_who_listens_is_told_and_who_has_left_is_not(experiment: Path) -> None:
    told: queue.Queue[int] = queue.Queue()
    live = LiveExperiment("one", LocalSource(ExperimentPaths(experiment)))

    def listener() -> None:
        told.put(1)

    live.listen(listener)
    live.start()
    assert told.get(timeout=60)
    live.unlisten(listener)
    live.close()
