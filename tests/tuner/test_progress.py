"""What a person sees of a run: enough, not more, and where to look when something is wrong."""

from __future__ import annotations

import io
import logging
import math
import random
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lab import Lab

from tuner.callback import CallbackList
from tuner.clock import VirtualClock
from tuner.error import SettingError
from tuner.experiment import events as ev
from tuner.experiment.trial import Trial
from tuner.logger import JsonLoggerCallback
from tuner.progress import (
    Announcer,
    CLIReporter,
    JupyterNotebookReporter,
    Progress,
    ProgressFacts,
    ProgressReporter,
    default_reporter,
    screen,
    traceback_tail,
)
from tuner.progress.screen import NotebookScreen, PlainScreen, Status, TerminalScreen
from tuner.progress.table import Columns, build

ERROR = ev.ErrorInfo(
    "ValueError",
    "boom\nand more",
    'Traceback (most recent call last):\n  File "user.py", line 12, in train\n    step(model)\n'
    + "".join(f'  File "lib.py", line {n}, in f{n}\n    f{n}()\n' for n in range(40))
    + "ValueError: boom\n",
)


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    return lambda *callbacks: Lab(tmp_path / "experiment", *callbacks)


def plain(clock: Any = None, **settings: Any) -> tuple[Progress, io.StringIO]:
    out = io.StringIO()
    settings = {"metric": "loss", "mode": "min", "verbose": 2, **settings}
    return Progress(screen=PlainScreen(out), clock=clock, **settings), out


def terminal(clock: Any = None, **settings: Any) -> tuple[Progress, io.StringIO]:
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, height=30, legacy_windows=False)
    settings = {"metric": "loss", "mode": "min", "verbose": 2, **settings}
    return Progress(screen=TerminalScreen(console), clock=clock, **settings), out


# --- how much -----------------------------------------------------------------------------------------


def whole_run(run: Any, progress: Any) -> None:
    progress.announce("starting new because there is no experiment at /x")
    run.callbacks.setup(stop=None, num_samples=4, total_num_samples=4)
    for number in range(4):
        trial = run.trial(lr=number)
        for step in range(5):
            run.report(trial, loss=number + 1 / (step + 1))
            run.callbacks.on_step_end(step, run.state.trials)
        logging.getLogger("tuner.driver.loop").warning("%s: checkpoint %s was not saved", trial.name, number)
        run.end(trial, ERROR if number == 3 else None)
    run.finish()


def test_f52_verbose_0_prints_nothing(lab: Any, capfd: pytest.CaptureFixture[str], unconfigure: Any) -> None:
    unconfigure()
    progress = default_reporter(None, verbose=0, metric="loss", mode="min")
    whole_run(lab(progress), progress)

    assert capfd.readouterr() == ("", "")


def test_f52_default_prints_at_most_a_line_per_event_and_each_warning_once(
    lab: Any, capfd: pytest.CaptureFixture[str], unconfigure: Any
) -> None:
    unconfigure()
    progress = default_reporter(None, metric="loss", mode="min")
    whole_run(lab(progress), progress)
    out, err = capfd.readouterr()
    before_table = out[: out.index("trial  ")].splitlines()

    assert err == ""
    assert len([line for line in before_table if "ab_0000" in line and "warning" not in line]) == 4
    assert len([line for line in out.splitlines() if "was not saved" in line]) == 1
    assert "3 warnings like those above are not shown" in out
    assert out.startswith("starting new because there is no experiment at /x\n")


@pytest.mark.parametrize(("verbose", "lines"), [(1, 0), (2, 1), (3, 7)])
def test_verbosity_decides_how_many_lines_an_uneventful_trial_gets(lab: Any, verbose: int, lines: int) -> None:
    progress, out = plain(verbose=verbose)
    run = lab(progress)
    trial = run.trial(lr=1)
    for _ in range(5):
        run.report(trial, loss=1)
    run.end(trial)

    assert len(out.getvalue().splitlines()) == lines


def test_f52_the_users_line_is_in_the_last_15_lines_of_a_failed_run(lab: Any) -> None:
    progress, out = plain()
    run = lab(progress)
    for number in range(30):
        run.end(run.trial(lr=number), ERROR)
    run.finish()
    last = out.getvalue().splitlines()[-15:]

    assert any('File "user.py", line 12, in train' in line for line in last)
    assert last[-1] == "ValueError: boom"
    assert any("error.txt" in line for line in last)


def test_a_failure_is_one_line_when_it_happens(lab: Any) -> None:
    progress, out = plain(verbose=1)
    run = lab(progress)
    run.end(run.trial(), ERROR)

    assert out.getvalue() == "train_ab_00000 failed: ValueError: boom\n"


@pytest.mark.parametrize("length", [1, 3, 9, 10, 11, 50])
def test_a_cut_traceback_keeps_both_ends(length: int) -> None:
    lines = ["Traceback (most recent call last):", '  File "user.py", line 1, in f', "    g()"]
    lines += [f"    line {n}" if n % 2 else f'  File "lib.py", line {n}' for n in range(length)] + ["KeyError: 1"]
    text = "\n".join(["Traceback (most recent call last):", "KeyError: cause", "", *lines])

    tail = traceback_tail(text, 10).splitlines()

    assert len(tail) <= 10
    assert tail[1:3] == lines[1:3]
    assert tail[-1] == "KeyError: 1"


def test_f52_a_line_of_a_traceback_is_cut() -> None:
    """A message may hold a whole array; the kind of the error stays."""
    tail = traceback_tail("Traceback (most recent call last):\n  ...\nValueError: " + "x" * 65536)
    assert len(tail) < 1000 and tail.splitlines()[-1].startswith("ValueError: xxx") and tail.endswith("...")


# --- what ---------------------------------------------------------------------------------------------


def test_the_headline_has_counts_time_checkpoints_resources_and_the_best(lab: Any) -> None:
    clock = VirtualClock()
    progress, _ = plain(clock)
    run = lab(progress)
    run.callbacks.setup(stop=None, num_samples=9, total_num_samples=9)
    first, second = run.trial(lr=1), run.trial(lr=2)
    run.report(first, loss=0.5)
    run.report(second, loss=0.25)
    run.report(second, loss=float("nan"))
    run.report(second, loss=0.75)
    clock.advance(75)
    progress.facts = lambda: ProgressFacts(
        running=2, pending=1, failed=1, checkpoints=3, checkpoint_bytes=1_500_000, used={"cpu": 2}, total={"cpu": 4}
    )

    assert progress.headlines(run.state.trials) == [
        "2 of 9 trials: 2 running, 1 pending, 1 failed | 1:15 min | 3 checkpoints kept, 1.5 MB | cpu 2/4",
        "best last loss: 0.5 (train_ab_00000, iteration 1)",
    ]


def test_without_facts_from_the_loop_trials_are_counted(lab: Any) -> None:
    progress, _ = plain()
    run = lab(progress)
    run.end(run.trial())
    progress.facts = lambda: ProgressFacts(done=1, checkpoints=1)
    (one,) = progress.headlines(run.state.trials)
    assert one.startswith("1 trial: 1 done | ") and one.endswith(" | 1 checkpoint kept, 0 B")
    progress.facts = None
    run.trial()

    assert progress.headlines(run.state.trials)[0].startswith("2 trials: 1 running, 1 done | ")


def test_t03_a_best_that_became_void_is_forgotten(lab: Any) -> None:
    progress, _ = plain()
    run = lab(progress)
    trial, other = run.trial(), run.trial()
    run.report(other, loss=0.5)
    run.report(trial, loss=0.1)
    run.rollback(trial, 0)
    run.report(trial, loss=0.9)

    best = progress.standing.best
    assert best is not None
    assert (best.score, best.trial) == (0.5, "train_ab_00001")


def test_t03_a_trial_that_went_back_stands_where_its_checkpoint_was(lab: Any) -> None:
    progress, _ = plain()
    run = lab(progress)
    trial = run.trial()
    run.report(trial, loss=0.4)
    run.save(trial)
    run.report(trial, loss=0.1)
    run.rollback(trial, 1)

    best = progress.standing.best
    assert best is not None
    assert (best.score, best.iteration) == (0.4, 1)


def test_what_an_earlier_driver_found_counts_with_its_iteration(lab: Any) -> None:
    run = lab()
    trial = run.trial()
    for loss in (0.1, 0.3):
        run.report(trial, loss=loss)
    run.end(trial)
    progress, _ = plain()
    run.callbacks = CallbackList([progress])
    run.report(run.trial(), loss=0.5)

    assert progress.headlines(run.state.trials)[1] == "best last loss: 0.3 (train_ab_00000, iteration 2)"


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("seen", ["live", "by the next driver"])
def test_the_best_that_is_shown_is_that_of_the_analysis(lab: Any, mode: str, seen: str) -> None:
    draw = random.Random(mode)
    progress, _ = plain(mode=mode)
    run = lab(JsonLoggerCallback(), *([progress] if seen == "live" else []))
    for _ in range(40):
        trial = run.trial()
        for _ in range(draw.randint(0, 4)):
            loss = draw.choice([0.1, 0.2, 0.3, math.nan, -math.inf, math.inf, None, "text"])
            run.report(trial, **({} if loss is None else {"loss": loss}))
        if draw.random() < 0.5:
            run.end(trial)
        if seen != "live":
            progress, _ = plain(mode=mode)
        progress.headlines(run.state.trials)
        best, wanted = progress.standing.best, run.analysis("loss", mode).get_best_trial()
        assert (best and best.trial) == (wanted and wanted.name)


def test_f41_a_silent_trial_is_named_once_with_its_last_line(lab: Any) -> None:
    clock = VirtualClock()
    progress, out = plain(clock)
    run = lab(progress)
    trial = run.trial()
    (trial.directory / "stdout").write_text("loading\nwaiting for lock /x\n\n")
    for _ in range(4):
        clock.advance(100)
        run.callbacks.on_step_end(0, run.state.trials)
    lines = [line for line in out.getvalue().splitlines() if "silent" in line]

    assert lines == ["train_ab_00000 silent for 5:00 min; its last line: waiting for lock /x"]
    run.report(trial, loss=1)
    clock.advance(100)
    run.callbacks.on_step_end(0, run.state.trials)
    assert out.getvalue().count("silent") == 1


# --- where --------------------------------------------------------------------------------------------


def test_lines_elsewhere_come_seldom_and_only_with_news(lab: Any) -> None:
    clock = VirtualClock()
    progress, out = plain(clock, verbose=1)
    run = lab(progress)
    trial = run.trial()
    for step in range(600):
        clock.advance(0.1)
        if step < 100:
            run.report(trial, loss=step)
        run.callbacks.on_step_end(step, run.state.trials)

    assert len(out.getvalue().splitlines()) == 1
    assert run.callbacks.next_refresh() == pytest.approx(30, abs=0.2)


def test_a_terminal_is_drawn_at_most_twice_a_second(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    progress, _ = terminal(clock)
    drawn: list[Status] = []
    monkeypatch.setattr(progress._screen, "show", drawn.append)
    run = lab(progress)
    trial = run.trial(lr=1)
    for step in range(1000):
        clock.advance(0.01)
        run.report(trial, loss=step)
        run.callbacks.on_step_end(step, run.state.trials)

    assert 18 <= len(drawn) <= 20
    assert [row[0] for row in drawn[-1].grid.rows] == ["train_ab_00000"]


def test_a_look_at_many_trials_shows_running_ones_and_the_best(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    progress, _ = terminal(clock)
    drawn: list[Status] = []
    monkeypatch.setattr(progress._screen, "show", drawn.append)
    run = lab(progress)
    for number in range(100):
        trial = run.trial(lr=number)
        run.report(trial, loss=(number * 37) % 100)
        if number < 98:
            run.end(trial)
    clock.advance(1)
    run.callbacks.on_step_end(0, run.state.trials)
    (status,) = drawn

    assert len(status.grid.rows) == 20
    assert status.grid.hidden == 80
    shown = {row[0] for row in status.grid.rows}
    assert {"train_ab_00098", "train_ab_00099"} <= shown
    assert status.grid.rows[0][-1] == "0"


def test_the_terminal_is_left_as_it_was(lab: Any) -> None:
    clock = VirtualClock()
    progress, out = terminal(clock)
    run = lab(progress)
    run.report(run.trial(lr=1), loss=1)
    clock.advance(1)
    run.callbacks.on_step_end(0, run.state.trials)
    assert out.getvalue().rfind("\x1b[?25h") > out.getvalue().rfind("\x1b[?25l"), "visible also if killed now"
    run.finish()

    assert progress._screen._live is None  # type: ignore[attr-defined]
    assert sys.stdout is not None
    assert "FileProxy" not in type(sys.stdout).__name__
    assert "train_ab_00000" in out.getvalue().rsplit("\x1b", 1)[-1]


def test_the_terminal_is_left_as_it_was_by_an_exception_that_nobody_handles() -> None:
    code = """
import io, sys
from rich.console import Console
from tuner.progress.screen import Status, TerminalScreen
from tuner.progress.table import TrialTable
screen = TerminalScreen(Console(file=sys.stderr, force_terminal=True, width=80))
screen.show(Status(["1 trials"], TrialTable(["trial"], [["one"]])))
raise KeyboardInterrupt
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stderr.rfind("\x1b[?25h") > done.stderr.rfind("\x1b[?25l")
    assert "\x1b[1A\x1b[2K" in done.stderr[done.stderr.index("KeyboardInterrupt") :] or "\x1b[2K" in done.stderr


def test_names_in_brackets_are_no_markup(lab: Any) -> None:
    clock = VirtualClock()
    progress, out = terminal(clock)
    run = lab(progress)
    run.report(run.trial(layer="[bold]x[/bold]"), loss=1)
    clock.advance(1)
    run.callbacks.on_step_end(0, run.state.trials)

    assert "[bold]x[/bold]" in out.getvalue()


def test_in_a_notebook_one_cell_is_replaced(lab: Any) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, made: Any) -> None:
            shown[-1] = made._repr_html_()

    def display(made: Any, display_id: bool) -> Handle:
        shown.append(made._repr_html_())
        return Handle()

    clock = VirtualClock()
    progress = Progress(metric="loss", mode="min", screen=NotebookScreen(display), clock=clock)
    run = lab(progress)
    for name in ("<b>", "&"):
        run.report(run.trial(name=name), loss=1)
        clock.advance(2)
        run.callbacks.on_step_end(0, run.state.trials)
    run.finish()

    assert len(shown) == 1
    assert "<td>&lt;b&gt;</td>" in shown[0]
    assert "2 trials" in shown[0]


def test_the_screen_fits_where_output_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(screen.fitting_screen(), PlainScreen)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert isinstance(screen.fitting_screen(), TerminalScreen)
    shell = type("ZMQInteractiveShell", (), {"kernel": object()})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    assert isinstance(screen.fitting_screen(), NotebookScreen)


def test_a_closed_pipe_does_not_end_a_run(lab: Any) -> None:
    progress, out = plain()
    out.close()
    run = lab(progress)
    run.end(run.trial())
    run.finish()


# --- warnings -----------------------------------------------------------------------------------------


@pytest.fixture
def unconfigure(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Logging as a script has it that never heard of it; pytest puts its own handlers on the root for each call."""
    return lambda: monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_who_configured_logging_gets_the_warnings_there(lab: Any, caplog: pytest.LogCaptureFixture) -> None:
    progress, out = plain()
    run = lab(progress)
    run.callbacks.setup(stop=None)
    for _ in range(3):
        logging.getLogger("tuner.driver.loop").warning("the disk is slow")

    assert len(caplog.records) == 3
    assert "slow" not in out.getvalue()


def test_after_a_run_logging_is_as_it_was(lab: Any, unconfigure: Any) -> None:
    unconfigure()
    before = [list(logging.getLogger(name).handlers) for name in ("tuner", "trainables")]
    progress, _ = plain()
    run = lab(progress)
    run.callbacks.setup(stop=None)
    assert logging.getLogger("tuner").handlers
    run.finish()

    assert [list(logging.getLogger(name).handlers) for name in ("tuner", "trainables")] == before


# --- tables and reporters -----------------------------------------------------------------------------


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


def test_showing_a_run_costs_little_per_result(lab: Any) -> None:
    """Not a clock: the work per result does not grow with the number of trials."""
    progress, _ = plain()
    run = lab(progress)
    for number in range(50):
        run.report(run.trial(lr=1), loss=number)
    looked = []
    trials = type("Trials", (), {"__iter__": lambda self: looked.append(1), "__len__": lambda self: 50})()
    progress.on_trial_result(0, trials, run.state.trials[0], {"loss": 1, "training_iteration": 2})

    assert not looked
