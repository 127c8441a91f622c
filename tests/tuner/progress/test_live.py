"""What a person sees of a run: enough, not more, and where to look when something is wrong."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tuner.progress.harness import ERROR, plain, terminal
from tuner.clock import VirtualClock
from tuner.experiment import events as ev
from tuner.progress import (
    ProgressFacts,
    default_reporter,
)
from tuner.progress.run_view import RunView


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

    heading = next(number for number, line in enumerate(last) if "error.txt" in line)
    assert last[heading + 1].lstrip() == 'File "user.py", line 12, in train'
    assert last[-1] == "ValueError: boom"


def test_the_traceback_that_is_raised_next_is_not_shown_before(lab: Any) -> None:
    progress, out = plain()
    run = lab(progress)
    for number in range(2):
        run.end(run.trial(lr=number), ERROR)
    progress.failures_are_raised = True
    run.finish()
    assert out.getvalue().splitlines()[-1] == "failed: train_ab_00001: ValueError: boom"
    assert "File" not in out.getvalue()


def test_a_failure_is_one_line_when_it_happens(lab: Any) -> None:
    progress, out = plain(verbose=1)
    run = lab(progress)
    run.end(run.trial(), ERROR)

    assert out.getvalue() == "train_ab_00000 failed: ValueError: boom\n"


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
    drawn: list[RunView] = []
    monkeypatch.setattr(progress._screen, "show", drawn.append)
    run = lab(progress)
    trial = run.trial(lr=1)
    for step in range(1000):
        clock.advance(0.01)
        run.report(trial, loss=step)
        run.callbacks.on_step_end(step, run.state.trials)

    assert 18 <= len(drawn) <= 20
    assert [row.number for row in drawn[-1].rows] == ["0"]


def test_a_look_at_many_trials_shows_running_ones_and_the_best(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    progress, _ = terminal(clock)
    drawn: list[RunView] = []
    monkeypatch.setattr(progress._screen, "show", drawn.append)
    run = lab(progress)
    for number in range(100):
        trial = run.trial(lr=number)
        run.report(trial, loss=(number * 37) % 100)
        if number < 98:
            run.end(trial)
    clock.advance(1)
    run.callbacks.on_step_end(0, run.state.trials)
    (view,) = drawn

    assert len(view.rows) == 19 and view.hidden == 81
    assert {"98", "99"} <= {row.number for row in view.rows}
    assert view.rows[0].metric == "0"


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


def test_every_event_is_a_line_for_who_wants_all(lab: Any) -> None:
    progress, out = plain(verbose=3)
    run = lab(progress)
    trial = run.trial(lr=1)
    run.report(trial, loss=1, time_total_s=75)
    run.report(trial, other=1)
    progress.on_checkpoint(0, run.state.trials, trial, SimpleNamespace(path="/x/checkpoint_000002"))
    run.start(trial)
    run.end(trial)
    run.end(run.trial(lr=2))
    assert out.getvalue().splitlines() == [
        "train_ab_00000 started",
        "train_ab_00000 loss=1, iteration 1, 1:15 min",
        "train_ab_00000 loss=(not reported), iteration 2",
        "train_ab_00000 saved checkpoint_000002",
        "train_ab_00000 started at iteration 2",
        "train_ab_00000 finished: loss=(not reported), iteration 2",
        "train_ab_00001 started",
        "train_ab_00001 finished: no result",
    ]


def test_a_failure_that_is_tried_again_is_a_line_with_its_cause(lab: Any) -> None:
    progress, out = plain()
    run = lab(progress)
    trial = run.trial()
    error = ev.ErrorInfo("KeyError", "x" * 500)
    run.facts.apply(ev.AttemptEnded(trial.trial_id, trial.attempt, "failed", error))
    progress.on_trial_recover(0, run.state.trials, trial)
    (line,) = out.getvalue().splitlines()
    assert line.startswith("train_ab_00000 failed and will be tried again: KeyError: xxx") and len(line) < 250


def test_copies_are_in_the_headline_and_what_hinders_them_in_the_next(lab: Any) -> None:
    progress, _ = plain()
    progress.facts = lambda: ProgressFacts(to_copy=3, bytes_to_copy=2_000_000, copy_error="no route")
    lines = progress.headlines(lab(progress).state.trials)
    assert lines[0].startswith("0 trials: none yet | ") and lines[0].endswith(" | 3 to copy, 2.0 MB")
    assert lines[1:] == ["not copied just now: no route"]


def test_without_a_metric_the_newest_trials_are_shown(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    progress, _ = terminal(clock, metric=None, mode=None)
    drawn: list[RunView] = []
    monkeypatch.setattr(progress._screen, "show", drawn.append)
    run = lab(progress)
    for number in range(40):
        run.end(run.trial(lr=number))
    clock.advance(1)
    run.callbacks.on_step_end(0, run.state.trials)
    (view,) = drawn
    assert [row.number for row in view.rows][:2] == ["39", "38"]
    assert len(view.rows) + view.hidden == 40


def test_many_failures_are_named_and_the_rest_is_counted(lab: Any) -> None:
    progress, out = plain(verbose=1)
    run = lab(progress)
    for _ in range(9):
        run.end(run.trial(), ev.ErrorInfo("KeyError", "boom"))
    run.finish()
    last = out.getvalue().splitlines()[-7:]
    assert last[:4] == [f"failed: train_ab_0000{n}: KeyError: boom" for n in (1, 2, 3, 4)]
    assert last[4] == "failed: 4 more"
    assert last[5].startswith("failed: train_ab_00000 (all of it in ") and last[5].endswith("/error.txt)")
    assert last[6] == "KeyError: boom", "without a traceback of its own"


def test_who_failed_first_and_ended_well_is_not_named(lab: Any) -> None:
    progress, out = plain(verbose=1)
    run = lab(progress)
    trial = run.trial()
    run.end(trial, ERROR)
    run.start(trial)
    run.end(trial)
    run.finish()
    assert out.getvalue().count("failed") == 1, "when it happened"


def test_a_trial_that_printed_nothing_is_silent_too(lab: Any) -> None:
    clock = VirtualClock()
    progress, out = plain(clock)
    run = lab(progress)
    run.trial()
    clock.advance(400)
    progress.look(run.state.trials)
    assert "train_ab_00000 silent for 6:40 min; it printed nothing so far" in out.getvalue()
