"""tuner export: every trial and every result in a file that other programs read."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tuner as tune
from tests.tuner.replicated import answer, refused
from trainables.errors import MissingExtraError
from trainables.result_history import read_line
from tuner.analysis import export
from tuner.analysis.file_target import put
from tuner.error import StorageError


def train(config: dict[str, Any]) -> None:
    if config["x"] == 2:
        raise RuntimeError("no, never")
    for step in range(3):
        tune.report({"loss": config["x"] / (step + 1), "eval": {"auc": 0.5}, "status": "own", "worst": float("nan")})


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three trials, of which the last one failed before its first result."""
    storage = tmp_path_factory.mktemp("export")
    space = {"x": tune.grid_search([0, 1, 2]), "net": {"layers": [8, 4], "name": 'a "b", c\nd'}}
    tune.run(
        train,
        name="mine",
        storage_path=storage,
        config=space,
        executor="inline",
        verbose=0,
        raise_on_failed_trial=False,
        metric="loss",
        mode="min",
    )
    return storage / "mine"


def exported(experiment: Path, target: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    return answer(capsys, "export", experiment, "-o", target, *more)


def test_each_trial_is_a_row_also_one_without_a_result(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "new" / "trials.csv"
    assert exported(experiment, target, capsys) == f"{target}: 3 trials\n"
    rows = list(csv.DictReader(io.StringIO(target.read_text(), newline="")))
    assert [row["trial"] for row in rows] == ["0", "1", "2"]
    assert [row["status"] for row in rows] == ["TERMINATED", "TERMINATED", "ERROR"]
    assert rows[0]["end_reason"] == "returned" and rows[2]["failure"] == "RuntimeError: no, never"
    assert (rows[1]["config/x"], rows[1]["eval/auc"], rows[1]["worst"], rows[2]["loss"]) == ("1", "0.5", "nan", "")
    assert rows[1]["config/net/layers"] == "[8,4]" and rows[2]["config/net/name"] == 'a "b", c\nd'
    assert rows[1]["result/status"] == "own", "what a trial reports is never lost to a column of the same name"


def test_each_result_is_a_row(experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "results.jsonl"
    assert exported(experiment, target, capsys, "--results") == f"{target}: 6 results\n"
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [(row["trial"], row["training_iteration"]) for row in rows] == [(n, i) for n in (0, 1) for i in (1, 2, 3)]
    assert [row["loss"] for row in rows[3:]] == [1.0, 0.5, 1 / 3]
    assert pandas.read_json(target, lines=True)["config/x"].tolist() == [0, 0, 0, 1, 1, 1]


def test_parquet_has_the_types(experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow", reason="Parquet is written by pyarrow, which the project does not need")
    exported(experiment, tmp_path / "trials.parquet", capsys)
    read = pandas.read_parquet(tmp_path / "trials.parquet")
    assert read["loss"].dtype == "float64" and read["config/x"].dtype == "int64"
    assert read["failure"].isna().tolist() == [True, True, False]


def test_a_suffix_that_cannot_be_written_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, "export", tmp_path / "nowhere", "-o", tmp_path / "x.xlsx")
    assert "x.xlsx" in said and ".csv, .parquet, .jsonl" in said


def test_who_lacks_pyarrow_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install pyarrow; or write \.csv or \.jsonl"):
        export.writer_for("results.parquet")


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    st.lists(st.integers(0, 9), max_size=3),
)
ROWS = st.lists(st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1), min_size=1, max_size=5)


@given(ROWS)
@example([{"a": 2**64 + 1}])
def test_any_values_come_back(rows: list[dict[str, Any]]) -> None:
    text = export.WRITERS[".csv"](rows).decode()
    for row, read in zip(rows, csv.DictReader(io.StringIO(text, newline="")), strict=True):
        for key, value in row.items():
            if isinstance(value, list):
                assert json.loads(read[key]) == value
            else:
                assert read[key] == ("" if value is None else str(value))
    lines = export.WRITERS[".jsonl"](rows).splitlines()
    assert [read_line(line) for line in lines] == rows


@given(ROWS)
def test_parquet_takes_any_mix_of_values(rows: list[dict[str, Any]]) -> None:
    pytest.importorskip("pyarrow", reason="Parquet is written by pyarrow, which the project does not need")
    read = pandas.read_parquet(io.BytesIO(export.WRITERS[".parquet"](rows)))
    assert len(read) == len(rows)
    for key in read:
        there = [row.get(key) is not None for row in rows]
        assert read[key].notna().tolist() == there


def test_what_cannot_be_written_is_said_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(StorageError, match="a file/x.csv cannot be written: "):
        put(str(tmp_path / "a file" / "x.csv"), b"")
