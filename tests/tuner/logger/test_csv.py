"""progress.csv: nested keys as columns, more columns later, and cells that every reader takes."""

from __future__ import annotations

import errno
import shutil
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tuner.logger.reading import csv_rows, json_rows
from trainables import tagged
from trainables.store import fs
from tuner.experiment.standing import StandingResult
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


@pytest.mark.parametrize("before", [0, 1])
def test_f30_rows_that_a_full_disk_refused_are_there_with_more_columns(
    lab: Any, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    run = lab(CSVLoggerCallback())
    trial = run.trial()
    for number in range(before):
        run.report(trial, loss=number)
    with monkeypatch.context() as patch:
        patch.setattr(fs, "write", full)
        for number in range(before, 3):
            run.report(trial, loss=number)
    run.report(trial, loss=3, accuracy=0.5)

    rows = csv_rows(trial)

    assert [row["loss"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["accuracy"] for row in rows] == ["", "", "", "0.5"]


def full(fd: int, data: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


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


# --- what was lost is put back


def raw(iteration: int, **metrics: Any) -> msgspec.Raw:
    return msgspec.Raw(tagged.dumps({**metrics, "training_iteration": iteration}))


def reported(lab: Any, count: int, *more: Any) -> Any:
    """A trial with so many results, of losses 1, 2, ..."""
    run = lab(CSVLoggerCallback(), *more)
    trial = run.trial()
    for number in range(1, count + 1):
        run.report(trial, loss=number, deep={"n": number})
    run.finish()
    return trial


def losses(trial: Any) -> list[tuple[str, str]]:
    return [(row["training_iteration"], row["loss"]) for row in csv_rows(trial)]


@pytest.mark.parametrize("without", ["nothing", "the last row", "half a row", "a row in between", "all", "the header"])
def test_a_file_that_lost_something_is_whole_again_from_history_and_journal(lab: Any, without: str) -> None:
    trial = reported(lab, 4, JsonLoggerCallback())
    file = trial.directory / "progress.csv"
    lines = file.read_bytes().splitlines(keepends=True)
    kept = {
        "nothing": lines,
        "the last row": lines[:-1],
        "half a row": [*lines[:-1], lines[-1][:3]],
        "a row in between": [*lines[:2], *lines[3:]],
        "all": [],
        "the header": lines[1:],
    }[without]
    file.write_bytes(b"".join(kept))
    assert CSVLoggerCallback().complete(trial, StandingResult({5: raw(5, loss=5, deep={"n": 5}, new="x")})) == []
    assert losses(trial) == [(str(n), str(n)) for n in range(1, 6)]
    assert [row["deep/n"] for row in csv_rows(trial)] == ["1", "2", "3", "4", "5"]
    assert [row["new"] for row in csv_rows(trial)] == ["", "", "", "", "x"]


def test_a_whole_file_is_not_written_again_and_what_was_being_written_beside_it_goes(lab: Any) -> None:
    trial = reported(lab, 3)
    file, beside = trial.directory / "progress.csv", trial.directory / ".progress.csv.tmp"
    beside.write_text("half of it")
    before = (file.stat().st_ino, file.read_bytes())
    assert CSVLoggerCallback().complete(trial, StandingResult({3: raw(3, loss=3)})) == []
    assert (file.stat().st_ino, file.read_bytes()) == before
    assert not beside.exists()


def test_rows_of_a_replica_that_became_void_count_only_as_the_journal_has_them(lab: Any) -> None:
    trial = reported(lab, 5)
    standing = StandingResult({3: raw(3, loss=-3)}, void_after=2, fetched=True)
    CSVLoggerCallback().complete(trial, standing)
    assert losses(trial) == [("1", "1"), ("2", "2"), ("3", "-3")]


def test_without_any_file_there_is_one_with_what_the_journal_has(lab: Any) -> None:
    trial = lab().trial()
    CSVLoggerCallback().complete(trial, StandingResult({2: raw(2, loss=2), 1: raw(1, loss=1)}))
    assert losses(trial) == [("1", "1"), ("2", "2")]


def test_a_table_without_iterations_is_cut_at_its_last_whole_row(lab: Any) -> None:
    trial = lab().trial()
    (trial.directory / "progress.csv").write_text("a,b\n1,2\n3,4\n5,")
    CSVLoggerCallback().log_trial_rollback(trial, 0)
    assert (trial.directory / "progress.csv").read_text() == "a,b\n1,2\n3,4\n"


CELLS = st.text(max_size=6) | st.integers() | st.floats(allow_nan=False) | st.none() | st.booleans()
RESULTS = st.lists(
    st.dictionaries(st.sampled_from(["a", "b,c", "d\n", 'e"']), CELLS, max_size=4), min_size=1, max_size=6
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RESULTS, st.integers(0, 6))
def test_whatever_is_reported_is_read_back_cell_by_cell(lab: Any, results: list[dict[str, Any]], back: int) -> None:
    run = lab(CSVLoggerCallback())
    shutil.rmtree(run.state.root, ignore_errors=True)
    trial = run.trial()
    for result in results:
        run.report(trial, **result)
    kept = len(results)
    if back < len(results):
        kept = back
        run.rollback(trial, back)
    rows = csv_rows(trial)
    assert [int(row["training_iteration"]) for row in rows] == list(range(1, kept + 1))
    for row, result in zip(rows, results, strict=False):
        for name, value in result.items():
            text = "" if value is None else str(value).encode("utf-8", "backslashreplace").decode()
            assert row[name] == text
    run.finish()
