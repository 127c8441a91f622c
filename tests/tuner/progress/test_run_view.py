"""The live view as it is drawn: head and table, in a terminal, in a notebook and as text."""

from __future__ import annotations

import io

from rich.console import Console, Group

from tuner.progress.run_view import HeadLine, RunView
from tuner.progress.trial_rows import TrialRow

DONE = TrialRow("1", "0.25", "9", "1.0 s", "done", "ASHA's limit: 9 iterations", {"lr": "<b>"})
FAILED = TrialRow("0", "", "2", "0.2 s", "failed", "failed: ValueError: [red]no[/red]", {"lr": "0.1"})
VIEW = RunView(0.5, [HeadLine("1 of 2 trials done"), HeadLine("best <x>", "bold")], [DONE], [FAILED], "loss", 7)


def drawn(view: RunView, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(Group(*view.lines(width), *view.trials(width)))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_a_terminal() -> None:
    assert drawn(VIEW) == (
        "██████████░░░░░░░░░░ 1 of 2 trials done\n"
        "best <x>\n"
        "#  loss  iter   time  state                              lr\n"
        "1  0.25     9  1.0 s  ASHA's limit: 9 iterations         <b>\n"
        "0           2  0.2 s  failed: ValueError: [red]no[/red]  0.1\n"
        "... and 7 more"
    )


def test_no_bar_where_the_end_is_not_known_and_no_table_without_trials() -> None:
    assert drawn(RunView(None, [HeadLine("no trials")], [])) == "no trials"


def test_a_notebook_gets_a_bar_and_a_table_with_everything_escaped() -> None:
    html = VIEW.html()
    assert html.startswith('<div><progress max="100" value="50"></progress> 1 of 2 trials done</div>')
    assert "<div>best &lt;x&gt;</div><table><thead><tr><th>#</th><th>loss</th>" in html
    assert "<td>&lt;b&gt;</td>" in html and html.endswith("<div>... and 7 more</div>")
    assert "<table>" not in RunView(None, [HeadLine("no trials")], []).html()


def test_an_exported_notebook_has_the_table_as_text() -> None:
    told = VIEW.plain().splitlines()
    assert told[:2] == ["1 of 2 trials done", "best <x>"] and told[2].split() == [
        "#",
        "loss",
        "iter",
        "time",
        "state",
        "lr",
    ]
    assert VIEW.brief() == "1 of 2 trials done  best <x>"
