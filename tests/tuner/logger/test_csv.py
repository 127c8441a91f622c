"""progress.csv: nested keys as columns, more columns later, and cells that every reader takes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tuner.logger.reading import csv_rows, json_rows
from tuner.logger import CSVLoggerCallback, JsonLoggerCallback


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


def test_a_cell_that_no_reader_takes_says_what_it_is(lab: Any) -> None:
    run = lab(CSVLoggerCallback(), JsonLoggerCallback())
    trial = run.trial(lr=0.1)
    large = {"text": "x" * 200_000, "items": list(range(50_000)), "fine": "y" * 100_000, "few": [1, 2]}
    run.report(trial, **large)

    (row,) = csv_rows(trial)

    assert (row["text"], row["items"]) == ("<str of 200000: in result.json>", "<list of 50000: in result.json>")
    assert (row["fine"], row["few"]) == ("y" * 100_000, "[1, 2]")
    assert {key: json_rows(trial)[0][key] for key in large} == large
