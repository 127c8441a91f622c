"""The table of trials: which rows and columns it has."""

from __future__ import annotations

from typing import Any

from tuner.progress.table import Columns, build


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
