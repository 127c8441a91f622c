"""Rows of the live view fit into any width; the metric is never cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tuner.progress.run_view import HeadLine, RunView
from tuner.progress.trial_rows import TrialRow, by_difference, fitted

TEXT = st.text(st.characters(exclude_categories=["C", "Z", "M"]), max_size=30)
KEYS = [f"parameter_{number}" for number in range(8)]


@st.composite
def rows(draw: st.DrawFn) -> list[TrialRow]:
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True))
    return [
        TrialRow(
            number=str(number),
            metric=draw(st.sampled_from(["", "0.123456", "-1.2345e-05", "1"])),
            iteration=draw(st.sampled_from(["", "7", "100000"])),
            time="10:01 min",
            state="running",
            standing=draw(st.sampled_from(["running", "stopped by ASHA at 3: 4th of 5"])) + draw(TEXT),
            parameters={key: draw(TEXT) for key in keys},
            metrics={"accuracy": "0.5"},
        )
        for number in range(draw(st.integers(1, 6)))
    ]


@given(rows(), st.one_of(st.none(), TEXT), st.integers(60, 200))
def test_no_line_is_wider_than_the_screen_and_the_metric_is_whole(
    shown: list[TrialRow], metric: str | None, width: int
) -> None:
    view = RunView(0.5, [HeadLine("x" * 300), HeadLine("漢" * 200)], shown, metric=metric, hidden=3)
    lines = [*view.lines(width), *view.trials(width)]
    assert max(cell_len(line.plain) for line in lines) <= width
    drawn = [line.plain for line in view.trials(width)]
    for row, line in zip(shown, drawn[1:], strict=False):
        assert line.split()[0] == row.number
        assert metric is None or row.metric in line


@given(rows(), st.integers(60, 200))
def test_what_does_not_fit_is_counted(shown: list[TrialRow], width: int) -> None:
    header = fitted(shown, "loss", width).header
    keys = {key for row in shown for key in row.parameters}
    more = [int(name[1:]) for name in header if name.startswith("+")]
    assert sum(name in keys for name in header) + sum(more) == len(keys)
    assert not (more and "accuracy" in header), "other metrics come after all parameters"


def test_parameters_that_differ_most_come_first() -> None:
    made = [
        TrialRow(str(n), "1", "1", "", "done", "done", {"same": "1", "two": str(n % 2), "all": str(n)})
        for n in range(4)
    ]
    assert by_difference(made) == ["all", "two", "same"]
    assert fitted(made, None, 80).header == ["#", "iter", "time", "state", "all", "two", "same"]


def test_a_reason_takes_what_parameters_leave() -> None:
    said = "stopped by ASHA at 3: 4th of 5, needed 0.123"
    row = TrialRow("0", "1", "3", "1.0 s", "done", said, {"lr": "0.1"})
    assert said in RunView(None, [HeadLine("")], [row], metric="loss").trials(80)[1].plain
    many = TrialRow("0", "1", "3", "1.0 s", "done", said, {f"parameter_{n}": "0.1234567890" for n in range(9)})
    line = RunView(None, [HeadLine("")], [many], metric="loss").trials(80)[1].plain
    assert "stopped by ASHA" in line and "…" in line and "0.1234567890" in line
