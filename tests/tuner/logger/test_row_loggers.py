"""result.json and progress.csv: one row per result that stands, whatever happened."""

from __future__ import annotations

import csv
import errno
import json
import logging
import math
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from trainables import tagged
from trainables.result_history import read_history
from trainables.store import fs
from tuner.experiment.events import ErrorInfo
from tuner.experiment.standing import StandingResult
from tuner.logger import CSVLoggerCallback, ErrorFileCallback, JsonLoggerCallback, LoggerCallback, default_loggers


def csv_rows(trial: Any) -> list[dict[str, str]]:
    with open(trial.directory / "progress.csv", newline="") as file:
        return list(csv.DictReader(file))


def json_rows(trial: Any) -> list[dict[str, Any]]:
    return read_history(trial.directory / "result.json")


def iterations(trial: Any) -> tuple[list[int], list[int]]:
    raw = [json.loads(line) for line in (trial.directory / "result.json").read_text().splitlines()]
    return [row["training_iteration"] for row in raw], [int(row["training_iteration"]) for row in csv_rows(trial)]


def test_every_result_is_read_back_exactly(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial(lr=0.1)
    odd = {"nan": math.nan, "inf": -math.inf, "text": 'a "b"\nc', "none": None, "list": [1, (2, 3)], "n": {"a": 1}}
    run.report(trial, **odd)
    run.report(trial, loss=0.5)

    first, second = json_rows(trial)

    assert math.isnan(first.pop("nan"))
    odd.pop("nan")
    assert {key: first[key] for key in odd} == odd
    assert second["loss"] == 0.5


def test_a_row_is_in_the_file_before_the_loop_goes_on(lab: Any) -> None:
    run = lab(JsonLoggerCallback(), CSVLoggerCallback())
    trial = run.trial()
    for number in range(1, 4):
        run.report(trial, loss=number)
        assert iterations(trial) == (list(range(1, number + 1)),) * 2


def test_params_json_holds_the_config_and_opens_no_blob(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial(lr=0.1, layers=[1, 2], window=(3, 4), np=np.float32(0.5))

    stored = json.loads((trial.directory / "params.json").read_text())

    assert stored["lr"] == 0.1
    assert stored["layers"] == [1, 2]
    assert stored["window"] == {"$": "tuple", "v": [3, 4]}


def test_nested_keys_become_columns(lab: Any) -> None:
    run = lab(CSVLoggerCallback())
    trial = run.trial()
    run.report(trial, eval={"auc": 0.9, "by": {"a": 1}}, loss=1.0)

    (row,) = csv_rows(trial)

    assert (row["eval/auc"], row["eval/by/a"], row["loss"]) == ("0.9", "1", "1.0")


@pytest.mark.parametrize("text", ["a,b", 'say "x"', "two\nlines", "carriage\rreturn", "", "ünï"])
def test_csv_values_survive(lab: Any, text: str) -> None:
    run = lab(CSVLoggerCallback())
    trial = run.trial()
    run.report(trial, text=text)
    run.report(trial, text=text)

    assert [row["text"] for row in csv_rows(trial)] == [text, text]


def test_a_later_key_widens_the_table_once(lab: Any) -> None:
    run = lab(CSVLoggerCallback())
    trial = run.trial()
    run.report(trial, loss=1)
    run.report(trial, loss=2, accuracy=0.5)
    run.report(trial, loss=3)
    run.report(trial, accuracy=0.7, loss=4, extra="x")

    rows = csv_rows(trial)

    assert [row["loss"] for row in rows] == ["1", "2", "3", "4"]
    assert [row["accuracy"] for row in rows] == ["", "0.5", "", "0.7"]
    assert [row["extra"] for row in rows] == ["", "", "", "x"]
    assert sorted(path.name for path in trial.directory.iterdir()) == ["progress.csv"]


def test_a_key_per_result_does_not_rewrite_for_ever(lab: Any, caplog: pytest.LogCaptureFixture) -> None:
    run = lab(CSVLoggerCallback())
    trial = run.trial()
    for number in range(60):
        run.report(trial, **{f"key{number}": number, "loss": number})

    rows = csv_rows(trial)

    assert [row["loss"] for row in rows] == [str(number) for number in range(60)]
    assert len([record for record in caplog.records if "no more columns" in record.message]) == 1


def test_t03_results_after_the_checkpoint_are_in_the_files_once(lab: Any) -> None:
    run = lab(JsonLoggerCallback(), CSVLoggerCallback())
    trial = run.trial()
    for number in range(1, 46):
        run.report(trial, loss=number)
    run.rollback(trial, 40)
    assert iterations(trial) == (list(range(1, 41)),) * 2
    run.start(trial)
    for number in range(41, 51):
        run.report(trial, loss=-number)

    assert iterations(trial) == (list(range(1, 51)),) * 2
    assert [row["loss"] for row in json_rows(trial)] == [*range(1, 41), *(-n for n in range(41, 51))]


def test_t03_a_new_driver_that_was_told_of_no_rollback_cuts_what_is_beyond(lab: Any) -> None:
    """The row of iteration 45 was written, its result was not journaled before the kill."""
    first = lab(JsonLoggerCallback(), CSVLoggerCallback())
    trial = first.trial()
    for number in range(1, 46):
        first.report(trial, loss=number)
    trial.iteration = 40

    second = lab(JsonLoggerCallback(), CSVLoggerCallback())
    second.state = first.state
    second.start(trial)
    second.report(trial, loss=0)

    assert iterations(trial) == (list(range(1, 42)),) * 2


@pytest.mark.parametrize("torn", [b'{"loss": 3, "training_it', b'{"loss": 3}garbage\n', b"\n\n", b"\0\0\0"])
def test_t03_a_torn_last_line_is_cut(lab: Any, torn: bytes) -> None:
    first = lab(JsonLoggerCallback())
    trial = first.trial()
    for number in (1, 2):
        first.report(trial, loss=number)
    first.finish()
    with open(trial.directory / "result.json", "ab") as file:
        file.write(torn)

    second = lab(JsonLoggerCallback())
    second.state = first.state
    second.start(trial)
    second.report(trial, loss=3)

    lines = (trial.directory / "result.json").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines] == [1, 2, 3]


@pytest.mark.parametrize("torn", ["5.0,3", 'False,"an open quote\nand more', "x,y,z\n"])
def test_t03_a_torn_last_csv_row_is_cut(lab: Any, torn: str) -> None:
    first = lab(CSVLoggerCallback())
    trial = first.trial()
    for number in (1, 2):
        first.report(trial, loss=number, text="two\nlines")
    first.finish()
    with open(trial.directory / "progress.csv", "a") as file:
        file.write(torn)

    second = lab(CSVLoggerCallback())
    second.state = first.state
    second.start(trial)
    second.report(trial, loss=3, text="two\nlines")

    assert [(row["loss"], row["text"]) for row in csv_rows(trial)] == [(str(n), "two\nlines") for n in (1, 2, 3)]


def test_going_back_to_the_start_leaves_the_files_empty_or_with_a_header(lab: Any) -> None:
    run = lab(JsonLoggerCallback(), CSVLoggerCallback())
    trial = run.trial()
    run.report(trial, loss=1)
    run.rollback(trial, 0)

    assert iterations(trial) == ([], [])
    run.report(trial, loss=2)
    assert iterations(trial) == ([1], [1])


def test_the_last_row_says_done_when_that_was_decided_later(lab: Any) -> None:
    run = lab(JsonLoggerCallback(), CSVLoggerCallback())
    trial = run.trial()
    run.report(trial, loss=1)
    run.report(trial, then="stop", loss=2)
    run.end(trial)

    assert [row["done"] for row in json_rows(trial)] == [False, True]
    assert [row["done"] for row in csv_rows(trial)] == ["False", "True"]
    assert (trial.directory / "progress.csv").read_text().count("\n") == 3


def test_f30_a_full_disk_is_one_warning_and_no_row_is_torn_or_lost(
    lab: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = lab(JsonLoggerCallback(), CSVLoggerCallback())
    trial = run.trial()
    run.report(trial, loss=1)
    write = fs.write

    def full(fd: int, data: bytes) -> None:
        write(fd, data[:7])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(fs, "write", full)
        for number in (2, 3, 4):
            run.report(trial, loss=number)
        assert iterations(trial) == ([1], [1])
    run.report(trial, loss=5)

    assert iterations(trial) == ([1, 2, 3, 4, 5],) * 2
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2, "one per file and cause"
    assert all("No space left" in text and "bytes free" in text and str(trial.directory) in text for text in warnings)


def test_rows_that_a_full_disk_refused_to_the_end_cost_a_warning_only(
    lab: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial()
    run.report(trial, loss=1)

    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fs, "write", full)
    run.report(trial, loss=2)
    run.end(trial)
    run.finish()

    assert iterations_of(trial) == [1]
    assert len(caplog.records) == 1


def iterations_of(trial: Any) -> list[int]:
    return [row["training_iteration"] for row in json_rows(trial)]


def test_a_directory_that_cannot_be_made_does_not_end_the_run(lab: Any, caplog: pytest.LogCaptureFixture) -> None:
    run = lab(JsonLoggerCallback(), CSVLoggerCallback(), ErrorFileCallback())
    trial = run.trial()
    (trial.directory / "file").touch()
    trial.__dict__["root"] = trial.directory / "file" / "below"
    run.report(trial, loss=1)
    run.report(trial, loss=2)
    run.end(trial, ErrorInfo("ValueError", "boom"))

    assert 1 <= len(caplog.records) <= 2


def test_many_paused_trials_do_not_use_up_descriptors(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trials = [run.trial() for _ in range(200)]
    for _ in range(2):
        for trial in trials:
            run.report(trial, loss=1)

    assert all(iterations_of(trial) == [1, 2] for trial in trials)
    assert len(run.callbacks.callbacks[0]._files) <= 64


def test_f52_every_failure_is_in_the_trials_error_txt(lab: Any) -> None:
    run = lab(ErrorFileCallback())
    trial = run.trial()
    run.end(trial, ErrorInfo("ValueError", "boom", 'Traceback (most ...):\n  File "x"\nValueError: boom\n'))
    run.end(trial, ErrorInfo("KeyError", "'a'"))

    text = (trial.directory / "error.txt").read_text()

    assert text.count("Failure #") == 2
    assert 'File "x"\nValueError: boom' in text
    assert "KeyError: 'a'" in text


def test_f52_a_trial_that_ends_well_after_all_has_no_error_txt(lab: Any) -> None:
    run = lab(ErrorFileCallback())
    trial = run.trial()
    run.end(trial, ErrorInfo("ValueError", "boom", "ValueError: boom"))
    run.end(trial)

    assert not (trial.directory / "error.txt").exists()
    assert "boom" in (trial.directory / "error_recovered.txt").read_text()


def test_a_users_logger_replaces_the_default_one() -> None:
    class Mine(JsonLoggerCallback):
        pass

    kinds = [type(each) for each in default_loggers([Mine()])]

    assert JsonLoggerCallback not in kinds
    assert CSVLoggerCallback in kinds


@pytest.mark.parametrize(
    ("variable", "left"),
    [
        ("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", {"ErrorFileCallback"}),
        ("TUNE_DISABLE_TENSORBOARD", {"ErrorFileCallback", "CSVLoggerCallback", "JsonLoggerCallback"}),
    ],
)
def test_default_loggers_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, variable: str, left: set[str]) -> None:
    monkeypatch.setenv(variable, "1")

    assert {type(each).__name__ for each in default_loggers([])} == left


def test_a_logger_of_ones_own_gets_the_trials_life(lab: Any) -> None:
    said: list[str] = []

    class Saying(LoggerCallback):
        def log_trial_start(self, trial: Any) -> None:
            said.append("start")

        def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
            said.append(f"result {result['training_iteration']}")

        def log_trial_end(self, trial: Any, failed: bool = False) -> None:
            said.append(f"end {failed}")

    run = lab(Saying())
    trial = run.trial()
    run.report(trial, loss=1)
    run.report(trial, loss=1)
    run.rollback(trial, 1)
    run.report(trial, loss=1)
    run.end(trial)

    assert said == ["start", "result 1", "result 2", "end False"], "told of iteration 2 once: it cannot take back"


def test_a_history_with_nan_and_infinities_is_read_by_pandas_and_json(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial()
    run.report(trial, loss=math.nan, deep={"a": [math.inf, -math.inf]}, text='{"$":"float","v":"nan"}', u="ü\r\n")
    run.report(trial, loss=-math.inf)
    run.report(trial, loss=0.5)
    path = trial.directory / "result.json"

    first, second, third = (json.loads(line) for line in path.read_text().splitlines())
    assert math.isnan(first["loss"]) and second["loss"] == -math.inf and third["loss"] == 0.5
    assert first["deep"] == {"a": [math.inf, -math.inf]}
    assert first["text"] == '{"$":"float","v":"nan"}' and first["u"] == "ü\r\n"
    frame = pd.read_json(path, lines=True)
    assert math.isnan(frame["loss"][0]) and list(frame["loss"][1:]) == [-math.inf, 0.5]
    assert frame["training_iteration"].tolist() == [1, 2, 3]
    assert [row["training_iteration"] for row in json_rows(trial)] == [1, 2, 3]
    assert math.isnan(json_rows(trial)[0]["loss"])


def test_a_history_with_nan_is_cut_continued_and_completed_like_any_other(lab: Any) -> None:
    run = lab(JsonLoggerCallback(), CSVLoggerCallback())
    trial = run.trial()
    for _ in range(4):
        run.report(trial, loss=math.nan)
    run.rollback(trial, 2)
    run.start(trial)
    run.report(trial, loss=math.inf, then="stop")
    run.end(trial)
    assert iterations(trial) == ([1, 2, 3],) * 2
    rows = json_rows(trial)
    assert rows[-1]["done"] is True and rows[-1]["loss"] == math.inf

    lost = tagged.dumps({"loss": math.nan, "training_iteration": 2})
    lines = (trial.directory / "result.json").read_bytes().splitlines(keepends=True)
    (trial.directory / "result.json").write_bytes(lines[0] + lines[2])
    JsonLoggerCallback().complete(trial, StandingResult({2: msgspec.Raw(lost)}))
    assert iterations(trial)[0] == [1, 2, 3]
    assert b"$" not in (trial.directory / "result.json").read_bytes()


def test_a_history_of_tagged_numbers_is_still_read(tmp_path: Any) -> None:
    (tmp_path / "result.json").write_bytes(tagged.dumps({"loss": math.inf, "training_iteration": 1}) + b"\n")
    assert read_history(tmp_path / "result.json") == [{"loss": math.inf, "training_iteration": 1}]


def test_a_cell_that_no_reader_takes_says_what_it_is(lab: Any) -> None:
    run = lab(CSVLoggerCallback(), JsonLoggerCallback())
    trial = run.trial(lr=0.1)
    large = {"text": "x" * 200_000, "items": list(range(50_000)), "fine": "y" * 100_000, "few": [1, 2]}
    run.report(trial, **large)

    (row,) = csv_rows(trial)

    assert (row["text"], row["items"]) == ("<str of 200000: in result.json>", "<list of 50000: in result.json>")
    assert (row["fine"], row["few"]) == ("y" * 100_000, "[1, 2]")
    assert {key: json_rows(trial)[0][key] for key in large} == large
