"""Ray's reporters, subclasses of them, and which callback shows a run."""

from __future__ import annotations

from typing import Any

import pytest

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
        "total_samples": 3,
        "max_progress_rows": 1,
        "max_error_rows": 2,
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
