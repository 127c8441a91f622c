"""Ray's reporters, subclasses of them, and which callback shows a run."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tuner.progress.harness import ERROR
from tuner.clock import VirtualClock
from tuner.error import SettingError
from tuner.experiment.trial import Trial
from tuner.progress import (
    Announcer,
    CLIReporter,
    JupyterNotebookReporter,
    Progress,
    ProgressReporter,
    default_reporter,
)
from tuner.progress.screen import PlainScreen


def test_a_cli_reporter_prints_its_columns(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    reporter = CLIReporter(metric_columns=["loss"], parameter_columns={"lr": "rate"}, max_progress_rows=1)
    reporter.add_metric_column("acc", "accuracy")
    progress = default_reporter(reporter, metric="loss", mode="min")
    run = lab(progress)
    run.callbacks.setup(stop=None, num_samples=2, total_num_samples=2)
    for number in (1, 2):
        run.report(run.trial(lr=number), loss=number, acc=0.5)
    run.callbacks.on_step_end(0, run.state.trials)
    first = capsys.readouterr().out
    run.callbacks.on_step_end(0, run.state.trials)

    assert "rate" in first
    assert "accuracy" in first
    assert "... and 1 more" in first
    assert "best last loss: 1" in first
    assert capsys.readouterr().out == "", "not again within max_report_frequency"


def test_a_reporter_of_ones_own_decides_when_and_how(lab: Any) -> None:
    said: list[tuple[int, bool]] = []

    class Mine(ProgressReporter):
        def should_report(self, trials: Any, done: bool = False) -> bool:
            return done or len(trials) == 2

        def report(self, trials: Any, done: bool, *sys_info: Any) -> None:
            said.append((len(trials), done))

    run = lab(default_reporter(Mine()))
    run.callbacks.setup(stop=None)
    for _ in range(3):
        run.trial()
        run.callbacks.on_step_end(0, run.state.trials)
    run.finish()

    assert said == [(2, False), (3, True)]


def test_a_subclass_of_cli_reporter_may_report_at_the_end_of_trials_only(
    lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class AtTermination(CLIReporter):
        def should_report(self, trials: Any, done: bool = False) -> bool:
            return any(trial.status == Trial.TERMINATED for trial in trials)

    run = lab(default_reporter(AtTermination()))
    run.callbacks.setup(stop=None)
    trial = run.trial()
    run.callbacks.on_step_end(0, run.state.trials)
    assert capsys.readouterr().out == ""
    run.end(trial)
    run.callbacks.on_step_end(0, run.state.trials)

    assert "TERMINATED" in capsys.readouterr().out


@pytest.mark.parametrize("verbose", [4, -1, "loud", 1.5])
def test_d20_an_unknown_verbosity_is_refused(verbose: Any) -> None:
    with pytest.raises(SettingError, match="0, 1, 2, 3"):
        default_reporter(None, verbose=verbose)


def test_d20_every_documented_verbosity_is_accepted() -> None:
    kinds = [type(default_reporter(None, verbose=verbose)) for verbose in (0, 1, 2, 3, None)]

    assert kinds == [Announcer, Progress, Progress, Progress, Progress]


@pytest.mark.parametrize("given", ["CLIReporter", CLIReporter, 3])
def test_what_is_no_reporter_is_refused(given: Any) -> None:
    with pytest.raises(SettingError, match="progress_reporter"):
        default_reporter(given)


@pytest.mark.parametrize(
    "arguments", [{"metric_columns": "loss"}, {"parameter_columns": 3}, {"max_progress_rows": -1}, {"infer_limit": "x"}]
)
def test_reporters_check_their_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        CLIReporter(**arguments)


def test_reporters_of_both_kinds_take_rays_arguments() -> None:
    arguments: dict[str, Any] = {
        "metric_columns": ["a"],
        "parameter_columns": ["b"],
        "max_progress_rows": 1,
        "max_column_length": 10,
        "max_report_frequency": 30,
        "print_intermediate_tables": True,
        "infer_limit": 2,
        "metric": "a",
        "mode": "max",
        "sort_by_metric": True,
    }
    CLIReporter(**arguments)
    JupyterNotebookReporter(True, **arguments)


@pytest.mark.parametrize("name", ["total_samples", "max_error_rows"])
def test_arguments_of_rays_reporters_without_a_subject_here_are_said_to_have_no_effect(name: str) -> None:
    with pytest.warns(UserWarning, match=f"{name}=2 has no effect"):
        CLIReporter(**{name: 2})  # type: ignore[arg-type]


def test_the_runs_metric_is_taken_over_where_none_was_given() -> None:
    bare, half, own = CLIReporter(), CLIReporter(metric="acc"), CLIReporter(metric="acc", mode="max")
    for reporter in (bare, half, own):
        reporter.setup(metric="loss", mode="min")
    assert [(each._columns.metric, each._columns.mode) for each in (bare, half, own)] == [
        ("loss", "min"),
        ("acc", "min"),
        ("acc", "max"),
    ]
    bare.set_search_properties(None, None)
    assert bare._columns.metric == "loss"


def test_it_reports_at_most_so_often_and_at_the_end_in_any_case() -> None:
    clock = VirtualClock()
    reporter = CLIReporter(max_report_frequency=5)
    reporter._clock = clock
    said = []
    for seconds in (0, 4.9, 0.2, 1, 4, 0):
        clock.advance(seconds)
        said.append(reporter.should_report([]))
    assert said == [True, False, True, False, True, False]
    assert reporter.should_report([], done=True)


def test_tables_only_at_the_end_leave_the_lines(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = lab()
    run.report(run.trial(lr=1), loss=1)
    reporter = CLIReporter(print_intermediate_tables=False)
    reporter.report(run.state.trials, False, "a line")
    assert capsys.readouterr().out == "a line\n"
    reporter.report(run.state.trials, True, "a line")
    assert capsys.readouterr().out.splitlines()[0].startswith("trial")


def test_a_notebooks_cell_is_replaced_or_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    updated: list[str] = []
    handle = SimpleNamespace(update=lambda made: updated.append(made._repr_html_()))

    def display(made: Any, display_id: bool) -> Any:
        shown.append(made._repr_html_())
        return handle

    kernel = SimpleNamespace(kernel=object())
    module = SimpleNamespace(display=SimpleNamespace(display=display), get_ipython=lambda: kernel)
    monkeypatch.setitem(sys.modules, "IPython", module)  # type: ignore[arg-type]
    for overwrite, cells in ((None, 1), (True, 1), (False, 2)):
        shown.clear()
        updated.clear()
        reporter = JupyterNotebookReporter(overwrite)
        reporter.report([], False, "one")
        reporter.report([], True, "<two>")
        assert (len(shown), len(updated)) == (cells, 2 - cells)
        assert "&lt;two&gt;" in [*shown, *updated][-1]


def test_a_notebooks_reporter_prints_where_there_is_no_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    JupyterNotebookReporter().report([], True, "a line")
    assert capsys.readouterr().out == "a line\n"


def test_columns_may_be_added_to_both_kinds(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    reporter = CLIReporter(metric_columns=[], parameter_columns={})
    reporter.add_metric_column("eval/auc", "AUC")
    reporter.add_parameter_column("lr")
    run = lab()
    run.report(run.trial(lr=0.5), eval={"auc": 0.25}, other=1)
    reporter.report(run.state.trials, True)
    header, row, *_ = capsys.readouterr().out.splitlines()
    assert header.split() == ["trial", "status", "lr", "iter", "total", "time", "AUC"]
    assert row.split()[-1] == "0.25" and "0.5" in row.split()


def test_a_progress_of_ones_own_stays_what_it_is() -> None:
    progress = Progress(screen=PlainScreen())
    assert default_reporter(progress, verbose=0) is progress
    assert type(default_reporter(CLIReporter(), verbose=0)) is Announcer, "nothing at all is nothing at all"


def test_of_several_objectives_the_first_is_shown() -> None:
    progress = default_reporter(None, metric=["loss", "size"], mode=["min", "max"])
    assert isinstance(progress, Progress)
    assert (progress.columns.metric, progress.columns.mode) == ("loss", "min")


def test_a_reporter_is_told_of_the_run_and_asked_every_second(lab: Any) -> None:
    told: dict[str, Any] = {}

    class Mine(CLIReporter):
        def setup(self, **given: Any) -> None:
            told.update(given)

    progress = default_reporter(Mine(), metric="loss", mode="min")
    progress.setup(stop=None, total_num_samples=7)
    assert (told["total_samples"], told["metric"], told["mode"]) == (7, "loss", "min") and told["start_time"] > 0
    assert progress.next_refresh() == 1.0


def test_failures_are_named_at_the_end_under_every_reporter(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    class Silent(ProgressReporter):
        def should_report(self, trials: Any, done: bool = False) -> bool:
            return False

        def report(self, trials: Any, done: bool, *sys_info: Any) -> None:
            raise AssertionError("it said no")

    run = lab(default_reporter(Silent()))
    run.callbacks.setup(stop=None)
    run.end(run.trial(), ERROR)
    run.finish()
    assert capsys.readouterr().out.splitlines()[-1] == "ValueError: boom"
