"""Files of rows: one row per result that stands, whatever happened."""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tuner.logger.reading import csv_rows, iterations, iterations_of, json_rows
from trainables import tagged
from trainables.store import fs
from tuner.experiment.events import ErrorInfo
from tuner.experiment.standing import StandingResult
from tuner.logger import CSVLoggerCallback, ErrorFileCallback, JsonLoggerCallback, LoggerCallback
from tuner.logger import rows as rows_module
from tuner.logger.rows import RowFile, gather


def test_a_row_is_in_the_file_before_the_loop_goes_on(lab: Any) -> None:
    run = lab(JsonLoggerCallback(), CSVLoggerCallback())
    trial = run.trial()
    for number in range(1, 4):
        run.report(trial, loss=number)
        assert iterations(trial) == (list(range(1, number + 1)),) * 2


def test_rows_of_one_turn_are_written_together_before_the_journal(lab: Any) -> None:
    run = lab(JsonLoggerCallback(), CSVLoggerCallback())
    write_out = gather(run.callbacks.callbacks)
    first, second = run.trial(), run.trial()
    for number in range(1, 4):
        run.report(first, loss=number)
    run.report(second, loss=1)
    assert iterations(first) == iterations(second) == ([], [])
    write_out()
    assert (iterations(first), iterations(second)) == (([1, 2, 3],) * 2, ([1],) * 2)
    run.report(first, loss=4, new=1)  # a column more: the file is written anew
    run.report(first, loss=5, new=2)
    run.rollback(first, 4)
    assert iterations(first) == ([1, 2, 3, 4],) * 2
    run.report(second, loss=2)
    run.end(second)
    assert [row["done"] for row in json_rows(second)] == [False, True]
    assert [row["done"] for row in csv_rows(second)] == ["False", "True"]


def test_a_first_row_that_waits_says_done_and_keeps_its_columns(lab: Any) -> None:
    run = lab(CSVLoggerCallback())
    gather(run.callbacks.callbacks)
    trial = run.trial()
    run.report(trial, loss=1)
    run.end(trial)
    assert [(row["done"], row["loss"]) for row in csv_rows(trial)] == [("True", "1")]


def test_many_rows_do_not_wait_for_the_end_of_a_turn(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    gather(run.callbacks.callbacks)
    trial = run.trial()
    for number in range(3000):
        run.report(trial, loss=number)
    assert len(iterations_of(trial)) > 700


def test_rows_do_not_wait_where_somebody_reads_them_as_they_come(lab: Any) -> None:
    class Reading(LoggerCallback):
        reads_result_json = True

    run = lab(JsonLoggerCallback(), Reading())
    gather(run.callbacks.callbacks)
    trial = run.trial()
    run.report(trial, loss=1)
    assert iterations_of(trial) == [1]


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


def test_the_last_row_says_done_of_a_function_that_returned_and_not_of_one_that_failed(lab: Any) -> None:
    run = lab(JsonLoggerCallback(), CSVLoggerCallback())
    good, bad = run.trial(), run.trial()
    for trial in (good, bad):
        run.report(trial, loss=1)
        run.report(trial, loss=2)
    run.end(good)
    run.end(bad, ErrorInfo("ValueError", "no"))
    short = run.trial()
    run.report(short, loss=1)
    run.end(short)

    assert [row["done"] for row in json_rows(good)] == [False, True]
    assert [row["done"] for row in csv_rows(good)] == ["False", "True"]
    assert [row["done"] for row in json_rows(short)] == [True]
    assert [(row["loss"], row["done"]) for row in csv_rows(short)] == [("1", "True")], "the header stays"
    assert good.last_result["done"] is True
    assert [row["done"] for row in json_rows(bad)] == [False, False]
    assert bad.last_result["done"] is False


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


# --- a file of rows


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[RowFile]:
    file = RowFile(tmp_path / "rows")
    yield file
    with contextlib.suppress(OSError):
        file.close()


def refuses(monkeypatch: pytest.MonkeyPatch, after: int = 0) -> None:
    """A disk that takes so many bytes more of a row, and says then that it is full."""
    write = fs.write

    def full(fd: int, data: bytes) -> None:
        write(fd, data[:after])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fs, "write", full)


def test_rows_that_were_refused_together_come_together(rows: RowFile, monkeypatch: pytest.MonkeyPatch) -> None:
    rows.add(b"one\n")
    rows.add(b"two\n")
    with monkeypatch.context() as patch:
        refuses(patch, after=6)
        with pytest.raises(OSError, match="No space"):
            rows.write_out()
    assert rows.path.read_bytes() == b""
    rows.add(b"three\n")
    rows.write_out()
    assert rows.path.read_bytes() == b"one\ntwo\nthree\n"


def test_rows_follow_what_is_there(tmp_path: Path, rows: RowFile) -> None:
    rows.append(b"one\n")
    rows.append(b"two\n")
    rows.close()
    again = RowFile(rows.path)
    again.append(b"three\n")
    again.close()
    assert rows.path.read_bytes() == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("after", [0, 2])
def test_a_row_that_is_refused_is_in_memory_whole_and_comes_with_the_next(
    rows: RowFile, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    rows.append(b"one\n")
    with monkeypatch.context() as patch:
        refuses(patch, after)
        for row in (b"two\n", b"three\n"):
            with pytest.raises(OSError, match="No space"):
                rows.append(row)
        assert rows.path.read_bytes() == b"one\n", "no half row"
        with pytest.raises(OSError, match="No space"):
            rows.close()
    again = RowFile(rows.path)
    assert again.path.read_bytes() == b"one\n"
    again.close()


def test_what_was_refused_is_written_by_the_next_row_or_at_the_close(
    rows: RowFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row, wanted in ((b"two\n", b"one\ntwo\n"), (b"", b"one\n")):
        rows = RowFile(rows.path.with_name(f"rows {row!r}"))
        with monkeypatch.context() as patch:
            refuses(patch)
            with pytest.raises(OSError, match="No space"):
                rows.append(b"one\n")
        if row:
            rows.append(row)
        rows.close()
        assert rows.path.read_bytes() == wanted


def test_only_so_much_is_kept_in_memory(rows: RowFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "LATE_LIMIT", 8)
    with monkeypatch.context() as patch:
        refuses(patch)
        for row in (b"1234567\n", b"8\n"):
            with pytest.raises(OSError, match="No space"):
                rows.append(row)
    rows.append(b"9\n")
    assert rows.path.read_bytes() == b"1234567\n9\n", "what was over the limit is lost, and is in the journal"


@pytest.mark.parametrize(
    ("row", "content"),
    [(b"TWO\n", b"one\nTWO\n"), (b"2\n", b"one\n2\n"), (b"longer\n", b"one\ntwo\n")],
)
def test_the_last_row_is_written_anew_in_place_unless_it_is_longer(rows: RowFile, row: bytes, content: bytes) -> None:
    rows.append(b"one\n")
    rows.append(b"two\n")
    rows.replace_last(row)
    assert rows.path.read_bytes() == content
    rows.append(b"three\n")
    assert rows.path.read_bytes() == content + b"three\n"


def test_a_row_that_an_earlier_opening_wrote_is_not_written_anew(rows: RowFile) -> None:
    rows.append(b"one\n")
    rows.close()
    again = RowFile(rows.path)
    again.replace_last(b"ONE\n")
    again.close()
    assert rows.path.read_bytes() == b"one\n"


# --- loggers of rows


def test_a_disk_that_refuses_while_rows_are_put_back_costs_a_warning(
    lab: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trial = lab().trial()
    standing = StandingResult({1: msgspec.Raw(tagged.dumps({"loss": 1, "training_iteration": 1}))})

    def full(path: Path, data: bytes, **more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fs, "replace_file", full)
    logger = CSVLoggerCallback()
    assert logger.complete(trial, standing) == logger.complete(trial, standing) == []
    assert len(caplog.records) == 1 and "No space left" in caplog.text


def test_a_directory_that_is_gone_is_made_again(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial()
    shutil.rmtree(trial.directory)
    run.report(trial, loss=1)
    assert iterations_of(trial) == [1]


def test_a_result_that_comes_again_takes_the_place_of_the_first(lab: Any) -> None:
    run = lab(JsonLoggerCallback(), CSVLoggerCallback())
    trial = run.trial()
    for loss in (1, 2, 3):
        run.report(trial, loss=loss)
    trial.iteration = 1
    run.report(trial, loss=-2)
    assert iterations(trial) == ([1, 2], [1, 2])
    assert [row["loss"] for row in json_rows(trial)] == [1, -2]
