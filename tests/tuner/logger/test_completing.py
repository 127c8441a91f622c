"""At a resume the files of trials get the results that they lack, and say so of those that nobody has."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from trainables import tagged
from trainables.result_history import frame, missing_row, read_history
from trainables.wire import CheckpointRef
from tuner.experiment import events as ev
from tuner.experiment.standing import Results, StandingResult
from tuner.experiment.state import ExperimentState
from tuner.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback
from tuner.logger.completing import complete
from tuner.logger.tensorboard import EventFile, _events, steps

KINDS = JsonLoggerCallback, CSVLoggerCallback, TBXLoggerCallback


def raw(iteration: int, loss: float) -> msgspec.Raw:
    return msgspec.Raw(tagged.dumps({"loss": loss, "done": False, "training_iteration": iteration}))


def losses(trial: Any) -> tuple[dict[int, Any], dict[int, Any]]:
    """By iteration, as the two files of rows have them; each iteration once, in order."""
    with open(trial.directory / "progress.csv", newline="") as file:
        table = {int(row["training_iteration"]): row["loss"] for row in csv.DictReader(file)}
    lines = (trial.directory / "result.json").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["training_iteration"] for row in rows] == list(range(1, len(rows) + 1)) == list(table)
    return {row["training_iteration"]: row.get("loss") for row in rows}, table


def reported(lab: Any, count: int) -> Any:
    """A trial whose files have so many results, of losses 1, 2, ..."""
    run = lab(*(kind() for kind in KINDS))
    trial = run.trial()
    for number in range(1, count + 1):
        run.report(trial, loss=float(number))
    run.finish()
    return trial


def test_rows_that_the_journal_has_are_written_again_in_every_file(lab: Any) -> None:
    trial = reported(lab, 3)
    trial.iteration = 5

    assert complete([kind() for kind in KINDS], trial, StandingResult({4: raw(4, 4.0), 5: raw(5, 5.0)})) == []

    assert losses(trial)[0] == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0, 5: 5.0}
    assert losses(trial)[1] == {1: "1.0", 2: "2.0", 3: "3.0", 4: "4.0", 5: "5.0"}
    assert steps(trial.directory) == {1, 2, 3, 4, 5}


def test_what_is_whole_is_left_as_it_is(lab: Any) -> None:
    trial = reported(lab, 3)
    before = {file.name: (file.stat().st_ino, file.read_bytes()) for file in trial.directory.iterdir()}

    complete([kind() for kind in KINDS], trial, StandingResult({3: raw(3, 3.0)}))

    assert before == {file.name: (file.stat().st_ino, file.read_bytes()) for file in trial.directory.iterdir()}


def test_a_result_that_nobody_has_is_a_row_that_says_so(lab: Any) -> None:
    trial = reported(lab, 3)
    trial.iteration = 6

    assert complete([kind() for kind in KINDS], trial, StandingResult({6: raw(6, 6.0)})) == [4, 5]

    rows, table = losses(trial)
    assert rows == {1: 1.0, 2: 2.0, 3: 3.0, 4: None, 5: None, 6: 6.0}
    assert table == {1: "1.0", 2: "2.0", 3: "3.0", 4: "", 5: "", 6: "6.0"}
    history = read_history(trial.directory / "result.json")
    assert history[3:5] == [{"training_iteration": 4, "missing": True}, missing_row(5)]
    assert frame(history)["missing"].eq(True).tolist() == [False, False, False, True, True, False]
    assert pd.read_csv(trial.directory / "progress.csv")["missing"].eq(True).tolist()[3:] == [True, True, False]
    assert steps(trial.directory) == {1, 2, 3, 6}
    before = {file.name: file.read_bytes() for file in trial.directory.iterdir()}
    assert complete([kind() for kind in KINDS], trial, StandingResult()) == []  # it was said
    assert before == {file.name: file.read_bytes() for file in trial.directory.iterdir()}


def test_a_trial_with_a_marked_row_goes_on(lab: Any) -> None:
    trial = reported(lab, 1)
    trial.iteration = 3
    loggers = [kind() for kind in KINDS]
    complete(loggers, trial, StandingResult({3: raw(3, 3.0)}))
    run = lab(*loggers)
    run.state.apply(ev.TrialCreated(trial.trial_id, 0, trial.raw_config, dirname=trial.dirname))
    (again,) = run.state.trials
    again.iteration = 3
    run.start(again)
    run.report(again, loss=4.0)
    run.finish()

    assert losses(trial)[0] == {1: 1.0, 2: None, 3: 3.0, 4: 4.0}
    assert steps(trial.directory) == {1, 3, 4}


@pytest.mark.parametrize("fetched", [True, False])
def test_t03_rows_of_an_attempt_that_was_void_give_way_where_a_replica_still_had_them(lab: Any, fetched: bool) -> None:
    """The replica got its files before the trial went back to 2, and its journal after that."""
    trial = reported(lab, 6)
    trial.iteration = 4
    standing = StandingResult({3: raw(3, -3.0), 4: raw(4, -4.0)}, void_after=2, fetched=fetched)

    complete([kind() for kind in KINDS], trial, standing)

    rows, _ = losses(trial)
    if fetched:
        assert rows == {1: 1.0, 2: 2.0, 3: -3.0, 4: -4.0}
        assert steps(trial.directory) == {1, 2, 3, 4}
    else:  # here they were cut when it went back: what is there came after that
        assert rows == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0, 5: 5.0, 6: 6.0}


def test_a_last_row_that_says_done_is_kept(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial()
    run.report(trial, loss=1.0, then="stop")
    run.end(trial)
    line = (trial.directory / "result.json").read_bytes()
    assert b'"done":true' in line

    complete([JsonLoggerCallback()], trial, StandingResult({1: raw(1, 1.0)}, void_after=0, fetched=True))

    assert (trial.directory / "result.json").read_bytes() == line


def test_without_result_json_the_table_keeps_the_rows_that_it_has(lab: Any) -> None:
    run = lab(CSVLoggerCallback())
    trial = run.trial()
    for number in range(1, 4):
        run.report(trial, loss=float(number), text='a "b",\nc')
    run.finish()
    trial.iteration = 4

    complete([CSVLoggerCallback()], trial, StandingResult({4: raw(4, 4.0)}))

    with open(trial.directory / "progress.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["training_iteration"], row["loss"], row["text"]) for row in rows] == [
        *((str(number), f"{number}.0", 'a "b",\nc') for number in (1, 2, 3)),
        ("4", "4.0", ""),
    ]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_an_event_file_that_a_killed_writer_left_torn_is_continued(lab: Any, cut: int) -> None:
    trial = reported(lab, 3)
    (file,) = trial.directory.glob("events*")
    file.write_bytes(file.read_bytes()[:-cut])
    assert steps(trial.directory) == {1, 2}

    complete([TBXLoggerCallback()], trial, StandingResult({number: raw(number, number) for number in (1, 2, 3)}))

    assert steps(trial.directory) == {1, 2, 3}


@pytest.mark.torch
def test_what_is_written_again_in_event_files_follows_a_purge(lab: Any) -> None:
    from tensorboardX.proto.event_pb2 import Event

    trial = reported(lab, 5)
    trial.iteration = 6
    standing = StandingResult({3: raw(3, -3.0), 4: raw(4, -4.0), 5: raw(5, -5.0), 6: raw(6, -6.0)}, 2, fetched=True)
    complete([kind() for kind in KINDS], trial, standing)

    shown: list[tuple[int, float]] = []
    for file in sorted(trial.directory.glob("events*")):
        for event in map(Event.FromString, _events(file.read_bytes())):
            if event.HasField("session_log"):  # as TensorBoard does
                shown = [point for point in shown if point[0] < event.step]
            shown += [(event.step, value.simple_value) for value in event.summary.value if value.tag == "loss"]
    assert shown == [(1, 1.0), (2, 2.0), (3, -3.0), (4, -4.0), (5, -5.0), (6, -6.0)]


def test_files_of_other_libraries_are_not_taken_for_ours(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.scalars(1, {"loss": 1.0})
    file.close()
    (mine,) = tmp_path.iterdir()
    mine.rename(tmp_path / "events.out.tfevents.1700000000.host.12345.0")

    assert steps(tmp_path) == set()


def test_a_checkpoint_that_was_found_brings_its_result_along_and_tells_of_a_gap() -> None:
    state, results = ExperimentState(Path("e")), Results()
    for name in ("t", "u", "v"):
        state.apply(ev.TrialCreated(name, 0, ev.NO_RAW, dirname=name))

    def published(name: str, iteration: int, metrics: msgspec.Raw = ev.NO_RAW) -> ev.CheckpointPublished:
        ref = CheckpointRef(name, f"checkpoint_{iteration:06}", 1, 1, iteration, iteration)
        return ev.CheckpointPublished(ref, 1, "", 0.0, metrics)

    told = [
        ev.ResultReported("t", 1, 1, raw(1, 1.0)),
        published("t", 7, raw(7, 7.0)),  # 2 to 6 are not told of
        published("u", 1),  # its result was told
        ev.AttemptStarted("v", 2, 1, 0.0, iteration=4),
        published("v", 5, raw(5, 5.0)),
    ]
    for fact in results.noting(told, state):
        state.apply(fact)

    assert results.by_trial["t"] == StandingResult({1: raw(1, 1.0), 7: raw(7, 7.0)}, ahead_of=1)
    assert results.by_trial["v"] == StandingResult({5: raw(5, 5.0)})
    assert set(results.by_trial) == {"t", "v"}
    assert results.by_trial["t"].gaps({1, 7}, 7) == [2, 3, 4, 5, 6]
    assert StandingResult(ahead_of=0).gaps({3}, 3) == [1, 2]
    assert StandingResult().gaps({3}, 3) == StandingResult().gaps({3, 4, 5}, 4) == []


def test_of_a_trial_without_any_row_nothing_is_said(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial()
    assert complete([JsonLoggerCallback()], trial, StandingResult()) == []
    trial.iteration = 3  # no file of rows was kept
    assert complete([JsonLoggerCallback()], trial, StandingResult()) == []
    assert not (trial.directory / "result.json").exists()
