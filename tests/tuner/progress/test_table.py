"""The table of trials: which rows and columns it has."""

from __future__ import annotations

import io
import math
import shutil
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.error import SettingError
from tuner.experiment.events import ErrorInfo
from tuner.progress.table import Columns, TrialTable, build


def test_rows_are_sorted_by_the_metric_and_limited(lab: Any) -> None:
    run = lab()
    for value in (3, float("nan"), 1, None, 2):
        run.report(run.trial(lr=1), loss=value)

    grid = build(run.state.trials, Columns(metric="loss", mode="min", max_rows=4))

    assert [row[-1] for row in grid.rows] == ["1", "2", "3", "nan"]
    assert grid.hidden == 1
    assert grid.plain().splitlines()[-1] == "... and 1 more"


def test_columns_are_inferred_from_what_is_searched_and_reported(lab: Any) -> None:
    run = lab()
    run.report(run.trial(lr=1, depth=2), loss=1.0, note="x", eval={"auc": 0.5}, a=1, b=2, c=3)

    grid = build(run.state.trials, Columns(metric="eval/auc", mode="max"))

    assert grid.header == ["trial", "status", "lr", "depth", "iter", "total time", "eval/auc", "loss", "a", "b"]


def test_f12_nested_names_work_in_columns(lab: Any) -> None:
    run = lab()
    run.report(run.trial(model={"lr": 0.5}), eval={"auc": 0.25})

    grid = build(run.state.trials, Columns(metrics={"eval/auc": "AUC"}, parameters={"model/lr": "rate"}, infer_limit=0))

    assert grid.header == ["trial", "status", "rate", "iter", "total time", "AUC"]
    assert (grid.rows[0][2], grid.rows[0][5]) == ("0.5", "0.25")


# --- columns


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metrics": "loss"}, r"metric_columns='loss' is not accepted; accepted are \[key, ...\], \{key: heading\}"),
        ({"parameters": 3}, "parameter_columns=3"),
        ({"metrics": {"a", "b"}}, "metric_columns="),
        ({"max_rows": -1}, "max_rows=-1 is not accepted; accepted are 0, 1, 2"),
        ({"max_rows": True}, "max_rows=True"),
        ({"infer_limit": 1.5}, "infer_limit=1.5"),
    ],
)
def test_columns_that_are_none_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Columns(**arguments)


def test_a_column_more_keeps_those_there_are_and_their_headings() -> None:
    first = Columns(metrics=["loss"], parameters={"lr": "rate"})
    second = first.add("metrics", "acc", "accuracy").add("parameters", "depth")
    assert second.metrics == {"loss": "loss", "acc": "accuracy"}
    assert second.parameters == {"lr": "rate", "depth": "depth"}
    assert first.metrics == ["loss"], "it is another one"
    assert Columns().add("metrics", "a").metrics == {"a": "a"}


# --- which rows


def test_without_a_metric_running_trials_come_first(lab: Any) -> None:
    run = lab()
    first, second, third = (run.trial() for _ in range(3))
    run.end(first)
    run.end(second, ErrorInfo("ValueError", "boom"))
    run.report(third, loss=1.0)
    for columns in (Columns(), Columns(metric="loss", mode="min", sort_by_metric=False)):
        grid = build(run.state.trials, columns)
        assert [row[1] for row in grid.rows] == ["RUNNING", "TERMINATED", "ERROR"]


@pytest.mark.parametrize(("mode", "order"), [("min", ["1", "2", "inf"]), ("max", ["inf", "2", "1"])])
def test_what_has_no_number_comes_last_whichever_way_is_best(lab: Any, mode: str, order: list[str]) -> None:
    run = lab()
    for value in (math.nan, 2, None, math.inf, "text", 1):
        run.report(run.trial(), loss=value)
    found = [row[-1] for row in build(run.state.trials, Columns(metric="loss", mode=mode)).rows]
    assert found == [*order, "nan", "", "text"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 12), st.integers(0, 3))
def test_rows_and_those_that_are_hidden_are_all_there_are(lab: Any, values: list[int], most: int, unseen: int) -> None:
    run = lab()
    shutil.rmtree(run.state.root, ignore_errors=True)
    for value in values:
        run.report(run.trial(), loss=value)
    grid = build(run.state.trials, Columns(metric="loss", mode="min", max_rows=most), hidden=unseen)
    assert len(grid.rows) == min(most, len(values))
    assert len(grid.rows) + grid.hidden == len(values) + unseen
    assert [int(row[-1]) for row in grid.rows] == sorted(values)[:most]
    assert all(len(row) == len(grid.header) for row in grid.rows)


def test_notes_stand_behind_the_status_and_cells_are_cut(lab: Any) -> None:
    run = lab()
    trial = run.trial(text="x" * 100)
    grid = build([trial], Columns(max_width=9), notes={trial.trial_id: "(silent)"})
    assert grid.rows[0][1] == "RUNNING (silent)"
    assert len(grid.rows[0][2]) == 9


def test_a_key_that_is_not_searched_comes_from_the_config(lab: Any) -> None:
    run = lab()
    trial = run.trial(lr=1)
    trial.__dict__["evaluated_params"] = {"lr": 1}
    trial.__dict__["config"] = {"lr": 1, "deep": {"constant": 7}}
    grid = build([trial], Columns(parameters=["lr", "deep/constant", "nothing"]))
    assert grid.rows[0][2:5] == ["1", "7", ""]


def test_iterations_and_time_are_those_of_the_last_result(lab: Any) -> None:
    run = lab()
    new, trained = run.trial(), run.trial()
    for seconds in (1, 75):
        run.report(trained, time_total_s=seconds)
    run.report(odd := run.trial(), time_total_s="long")
    cells = [row[2:4] for row in build([new, trained, odd], Columns(infer_limit=0)).rows]
    assert cells == [["", ""], ["2", "1:15 min"], ["1", ""]]


def test_without_a_metric_trials_that_wait_come_after_those_that_run_and_before_those_that_ended(lab: Any) -> None:
    run = lab()
    order = ["ERROR", "TERMINATED", "PENDING", "PAUSED", "RUNNING"]
    for status in order:
        run.trial().status = status
    assert [row[1] for row in build(run.state.trials, Columns()).rows] == order[::-1]


def test_six_searched_keys_are_columns_and_all_that_are_asked_for(lab: Any) -> None:
    run = lab()
    trial = run.trial(**{f"key{number}": number for number in range(9)})
    assert build([trial], Columns()).header[2:-2] == [f"key{number}" for number in range(6)]
    asked = [f"key{number}" for number in range(9)]
    assert build([trial], Columns(parameters=asked)).header[2:-2] == asked


# --- how it looks

GRID = TrialTable(["trial", "[b]loss[/b]"], [["a\nb", "<1>"], ["long name", "2"]], hidden=3)


def test_as_text_every_column_is_as_wide_as_its_widest_cell() -> None:
    assert GRID.plain().splitlines() == [
        "trial      [b]loss[/b]",
        "a\\nb       <1>",
        "long name  2",
        "... and 3 more",
    ]
    assert TrialTable(["trial"], []).plain() == "trial"


def test_as_html_everything_is_escaped() -> None:
    text = GRID.html()
    assert "<td>&lt;1&gt;</td>" in text and "<td>a\\nb</td>" in text and text.endswith("... and 3 more")
    assert text.count("<tr>") == 3 and "<1>" not in text


def test_in_a_terminal_names_in_brackets_are_no_markup() -> None:
    from rich.console import Console

    console = Console(width=80, record=True, file=io.StringIO())
    console.print(GRID.rich())
    text = console.export_text()
    assert "[b]loss[/b]" in text and "a\\nb" in text and "... and 3 more" in text
