"""What a notebook shows of an experiment and of a trial: the best first, everything as text."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import tuner as tune
from tests.trainables.test_html_tables import OURS, Tags
from tests.tuner.analysis.harness import NASTY, run_trials, tuned
from tests.tuner.lab import Lab
from tuner.analysis import ResultGrid
from tuner.logger import JsonLoggerCallback


@pytest.mark.parametrize(("mode", "order"), [("min", [1, 2, 0, 3, 4]), ("max", [0, 2, 1, 3, 4])])
def test_the_best_come_first_and_those_without_a_number_last(lab: Lab, mode: str, order: list[int]) -> None:
    run_trials(lab, [3.0], [1.0], [2.0], [math.nan], [None])

    analysis = lab.analysis("loss", mode)

    assert shown_numbers(analysis._repr_html_()) == order
    assert ResultGrid(analysis)._repr_html_() == analysis._repr_html_()


def shown_numbers(made: str) -> list[int]:
    """The trials of the table, as another parser of HTML reads it."""
    rows = made.split("<tbody>")[1].split("<tr>")[1:]
    return [int(Tags("<td" + row.split("<td")[1]).text) for row in rows]


def test_of_many_trials_ten_are_shown_and_the_rest_is_counted(many: tune.ExperimentAnalysis) -> None:
    made = many._repr_html_()

    assert len(shown_numbers(made)) == 10 and "... and 290 more" in made and "(300 done), by acc (max)" in made
    scores = [trial.last_result["acc"] for trial in many.trials]
    assert shown_numbers(made)[0] == scores.index(max(scores))
    assert len(made) < 10_000


def test_what_is_in_configs_and_errors_is_text(lab: Lab) -> None:
    analysis = tuned(lab).analysis("loss", "min")
    made = Tags(analysis._repr_html_() + "".join(trial._repr_html_() for trial in analysis.trials))

    assert made.tags <= OURS
    assert "</script><script>" in made.text and f"RuntimeError: {NASTY[:20]}" in made.text


def test_an_experiment_without_trials_or_a_metric_is_shown_too(tmp_path: Path) -> None:
    empty = Lab(tmp_path / "experiment", JsonLoggerCallback())
    assert "0 trials" in empty.analysis()._repr_html_()
    run_trials(empty, [1.0], [2.0])
    assert shown_numbers(empty.analysis(None, None)._repr_html_()) == [0, 1]
    assert shown_numbers(empty.analysis("loss", None)._repr_html_()) == [0, 1]


def test_a_trial_says_its_state_metrics_config_and_checkpoint(lab: Lab) -> None:
    trial = lab.trial(lr=0.25)
    lab.report(trial, loss=0.5)
    lab.save(trial)

    shown = Tags(trial._repr_html_()).text
    assert all(said in shown for said in ("Trial 0", "RUNNING", "loss=0.5", "lr=0.25", "checkpoint_000001", trial.path))
