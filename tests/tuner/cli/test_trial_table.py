"""The table of trials: chosen, sorted, and cut so that what matters most stands whole."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.tuner.lab import Lab
from trainables import tagged
from tuner.analysis.goal import Goal, goal_of
from tuner.analysis.reported import check_reported
from tuner.cli.trial_table import Choice, arranged, fill_constants, row_of, text_of
from tuner.error import SettingError
from tuner.experiment import events as ev
from tuner.experiment.reason import Reason, ReasonKind

STATES = st.sampled_from(["done", "failed", "running"])
SCORES = st.one_of(st.none(), st.floats(allow_nan=True))


def rows_of(root: Path, trials: list[tuple[str, Any]], **config: Any) -> list[dict[str, Any]]:
    lab = Lab(root)
    for number, (state, score) in enumerate(trials):
        trial = lab.trial(lr=-float(number), **config)
        lab.report(trial, acc=number, **({} if score is None else {"loss": score}))
        if state == "failed":
            lab.end(trial, ev.ErrorInfo("ValueError", "no\nmore"))
        elif state == "done":
            reason = Reason(ReasonKind.WORSE, "AsyncHyperBandScheduler", 1, "loss", rank=9, of=12)
            lab.facts.apply(ev.TrialEnded(trial.trial_id, "TERMINATED", 1.0, reason=reason))
    return [row_of(trial, ["loss"], []) for trial in lab.state.trials]


@given(
    st.lists(st.tuples(STATES, SCORES), max_size=8),
    st.sampled_from(["min", "max"]),
    st.booleans(),
    st.integers(30, 200),
)
def test_the_best_come_first_failed_ones_last_and_every_line_fits(
    tmp_path_factory: Any, trials: list[tuple[str, Any]], mode: str, reverse: bool, width: int
) -> None:
    goal = Goal(["loss"], mode)
    rows = arranged(rows_of(tmp_path_factory.mktemp("e"), trials), goal, Choice(reverse=reverse))
    assert sorted(row["index"] for row in rows) == list(range(len(trials)))
    failed = [row["status"] == "ERROR" for row in rows]
    assert failed == sorted(failed)
    for part in (False, True):
        found = [row["metrics"]["loss"] for row in rows if (row["status"] == "ERROR") is part]
        scored = [value is not None and not math.isnan(value) for value in found]
        assert scored == sorted(scored, reverse=True), "who has no number comes behind"
        numbers = [value for value in found if value is not None and not math.isnan(value)]
        assert numbers == sorted(numbers, reverse=(mode == "max") is not reverse)
    lines = text_of(rows, goal, 0, width)
    assert max(map(cell_len, lines), default=0) <= width
    whole = text_of(rows, goal, 3, None)
    assert not rows or ("…" not in "".join(whole) and whole[-1] == "... and 3 more")


@given(st.lists(st.tuples(STATES, SCORES), min_size=1, max_size=8), st.sampled_from(["lr", "acc", "number", "id"]))
def test_any_column_sorts_the_smallest_first(tmp_path_factory: Any, trials: list[Any], column: str) -> None:
    rows = rows_of(tmp_path_factory.mktemp("e"), trials)
    for reverse in (False, True):
        kept = arranged(rows, Goal(["loss"], "min"), Choice(column, reverse, states=["done"]))
        order = [row["index"] for row in kept]
        assert order == sorted(order, reverse=(column == "lr") is not reverse)
        assert {row["status"] for row in kept} <= {"TERMINATED"}


def test_a_row_says_why_the_trial_ended(tmp_path: Path) -> None:
    done, failed, running = rows_of(tmp_path, [("done", 0.5), ("failed", 0.4), ("running", 0.3)])
    assert [row["reason"] for row in (done, failed, running)] == [
        "stopped by ASHA at iteration 1: 9th of 12",
        "failed: ValueError: no",
        None,
    ]
    (line,) = [line for line in text_of([done], Goal(["loss"], "min"), 0, 80) if "0.5" in line]
    assert line.split()[:2] == ["0", "0.5"] and "stopped by ASHA at 1: 9th of 12" in line


def test_parameters_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, [("done", 0.123456)], **{f"parameter_{number}": number for number in range(9)})
    header, row = text_of(rows, Goal(["loss"], "min"), 0, 80)
    assert header.split()[:5] == ["#", "loss", "iter", "time", "state"] and row.split()[1] == "0.12346"
    shown = header.split()[5:-1]
    assert 0 < len(shown) < 10 and header.split()[-1] == f"+{10 - len(shown)}"


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (
            lambda trials, rows: check_reported("los", trials),
            "no trial has reported a metric 'los'; .*first: loss, acc",
        ),
        (lambda trials, rows: arranged(rows, Goal([], None), Choice("ls")), "unknown column 'ls'; did you mean 'lr'"),
        (lambda trials, rows: Choice(states=["finished"]), "unknown state 'finished'.*: done, failed, paused, running"),
        (lambda trials, rows: Choice(limit=0), "--limit=0 is not accepted; accepted are 1, 2"),
    ],
)
def test_what_is_not_there_is_an_error_with_the_nearest(do: Any, said: str, tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    trial = lab.trial(lr=1)
    check_reported("loss", lab.state.trials)  # nothing has been reported yet
    lab.report(trial, loss=1.0, acc=2)
    lab.report(trial, acc=2)
    check_reported("loss", lab.state.trials)  # in an earlier result
    with pytest.raises(SettingError, match=said):
        do(lab.state.trials, [row_of(trial, [], [])])


def test_what_is_best_is_the_runs_or_its_searchers() -> None:
    assert goal_of({"metric": "loss", "mode": "min"}) == (["loss"], "min")
    assert goal_of({"searches_for": {"metric": "acc", "mode": "max"}}) == (["acc"], "max")
    several = {"metric": ["loss", "size"], "mode": ["min", "max"]}
    assert goal_of(several) == (["loss", "size"], "min") and goal_of(several, "size") == (["size"], "max")
    assert goal_of(several, "other") == (["other"], None) and goal_of({}) == ([], None)


def test_what_one_trial_alone_was_given_is_shown_of_the_others_as_their_configs_have_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    config = msgspec.Raw(tagged.dumps({"lr": 0.1, "net": {"width": 8}}))
    other = msgspec.Raw(tagged.dumps({"lr": 0.2, "net": {"width": 9}}))
    for index, (whole, searched) in enumerate([(config, {"lr": 0.1}), (other, {"lr": 0.2, "net/width": 9, "new": 1})]):
        name = f"ab_{index:05d}"
        lab.facts.apply(
            ev.TrialCreated(name, index, whole, msgspec.Raw(tagged.dumps(searched)), name, f"train_{name}", f"t_{name}")
        )
    problems: list[str] = []
    rows = [row_of(trial, ["loss"], problems) for trial in lab.state.trials]
    fill_constants(rows, lab.state.trials, problems)
    assert [row["params"] for row in rows] == [{"lr": 0.1, "net/width": 8}, {"lr": 0.2, "net/width": 9, "new": 1}]
    assert problems == []
