"""Of several metrics a run shows the front, and who is the best in each."""

from __future__ import annotations

import math
from typing import Any

from tests.tuner.progress.harness import plain, terminal
from tuner.analysis import scopes
from tuner.clock import VirtualClock
from tuner.progress.counts import LastScores
from tuner.progress.front import LastPoints, standing_of

SEVERAL = {"metric": ["loss", "size"], "mode": ["min", "max"]}


def test_the_front_is_that_of_the_analysis_after_every_result(lab: Any) -> None:
    progress, _ = plain(**SEVERAL)
    run = lab(progress)
    trials = [run.trial(lr=number) for number in range(6)]
    for step in range(4):
        for number, trial in enumerate(trials):
            size = math.nan if (number, step) == (2, 1) else (number * 5 + step * 3) % 7
            run.report(trial, loss=(number * 3 + step * 4) % 5, size=size)
            standing = progress.standing
            assert isinstance(standing, LastPoints)
            expected = {each.trial_id for each in scopes.front(trials, ["loss", "size"], ["min", "max"])}
            assert {trial_id for _, _, trial_id in standing.front} == expected
    assert set(progress.standing.top(6)[: len(expected)]) == expected


def test_a_result_with_one_of_the_metrics_leaves_the_other_as_it_was(lab: Any) -> None:
    progress, _ = plain(**SEVERAL)
    run = lab(progress)
    first, second = run.trial(lr=0), run.trial(lr=1)
    run.report(first, loss=2.0)
    assert progress.standing.told() == ""  # type: ignore[attr-defined]
    run.report(first, size=5)
    run.report(second, loss=1.0, size=5)
    assert progress.standing.told() == (  # type: ignore[attr-defined]
        "none beats 1 trial in all of loss, size; best loss 1 (trial 1), size 5 (trial 1)"
    )
    run.report(second, loss=3.0)
    assert "best loss 2 (trial 0), size 5 (trial 0)" in progress.standing.told()  # type: ignore[attr-defined]


def test_the_last_lines_of_a_run_and_of_its_trials_tell_of_all_metrics(lab: Any) -> None:
    progress, out = plain(**SEVERAL)
    run = lab(progress)
    for number, (loss, size) in enumerate([(1.0, 3), (2.0, 9), (3.0, 4)]):
        trial = run.trial(lr=number)
        run.report(trial, loss=loss, size=size, other=7)
        run.end(trial)
    run.finish()
    lines = out.getvalue().splitlines()
    assert "none beats 2 trials in all of loss, size; best loss 1 (trial 0), size 9 (trial 1)" in lines
    assert any("finished: loss=2, size=9, iteration 1" in line for line in lines)
    header = next(line.split() for line in lines if line.startswith("trial  "))
    assert header[-3:] == ["loss", "size", "other"]


def test_the_live_view_has_the_front_above_and_its_members_first(lab: Any) -> None:
    progress, out = terminal(VirtualClock(), **SEVERAL)
    run = lab(progress)
    for number, (loss, size) in enumerate([(1.0, 3), (2.0, 9), (3.0, 4)]):
        run.report(run.trial(lr=number), loss=loss, size=size)
    progress.look(run.state.trials)
    assert "none beats 2 trials in all of loss, size; best loss 1 (trial 0), size 9 (trial 1)" in out.getvalue()
    assert progress.standing.top(2) == [trial.trial_id for trial in run.state.trials[:2]]


def test_one_metric_or_none_stands_as_ever() -> None:
    assert type(standing_of("loss", "min")) is LastScores and type(standing_of(None, None)) is LastScores
    assert type(standing_of(["loss"], ["min"])) is LastScores
    assert isinstance(standing_of(["loss", "size"], "min"), LastPoints)
