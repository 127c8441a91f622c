"""What the plots about searched parameters show: of many parameters the most important, the best dark, hostile text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tuner as tune
from tests.tuner.analysis.harness import run_trials
from tests.tuner.lab import Lab
from tuner.analysis.curves import thinned
from tuner.analysis.plot_source import SHADES


def axes(made: Any, side: str) -> list[str]:
    """What stands beside the axes of panels."""
    keys = sorted((key for key in made.layout if key.startswith(f"{side}axis")), key=lambda key: (len(key), key))
    return [title for key in keys if (title := made.layout[key].title.text)]


@pytest.mark.parametrize("kind", ["contour", "rank"])
def test_pairs_are_of_the_six_most_important_numbers_each_pair_once(many: tune.ExperimentAnalysis, kind: str) -> None:
    made = many.plot(kind)

    across, up = axes(made, "x"), axes(made, "y")
    assert across[0] == "lr" and len({*across, *up}) == 6
    assert "opt" not in {*across, *up}
    assert sum(trace.type == "scatter" for trace in made.data) == 15
    assert [made.layout[axis].type for axis in ("xaxis", "yaxis")] == ["log", "linear"]


@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_best_is_dark(many: tune.ExperimentAnalysis, mode: str) -> None:
    scores = [trial.last_result["acc"] for trial in many.trials]
    best = int((np.argmin if mode == "min" else np.argmax)(scores))

    rank = many.plot("rank", mode=mode)
    assert rank.layout.coloraxis.colorscale[-1][1] == SHADES[-1]
    dark = int(np.argmax(rank.data[0].marker.color))
    assert rank.data[0].text[dark].startswith(f"trial {best}:")

    colours = many.plot("contour", mode=mode).layout.coloraxis
    assert bool(colours.reversescale) is (mode == "min")
    assert (colours.cmin if mode == "min" else colours.cmax) == scores[best]

    lines = [trace for trace in many.plot("curves", mode=mode).data if trace.hovertext]
    assert lines[-1].name == f"{best} TERMINATED" and lines[-1].line.color == SHADES[-1]
    assert many.plot("parallel", mode=mode).data[-2].line.color == SHADES[-1]


def test_many_curves_have_no_legend_and_few_have_one(many: tune.ExperimentAnalysis, lab: Lab) -> None:
    run_trials(lab, [1.0, 0.5], [2.0, 1.0])

    assert not any(trace.showlegend for trace in many.plot("curves").data)
    assert [trace.showlegend for trace in lab.analysis().plot("curves").data] == [True, True]


@pytest.mark.parametrize(("mode", "so_far"), [("max", [1.0, 3.0, 3.0, 4.0]), ("min", [1.0, 1.0, 0.5, 0.5])])
def test_the_history_has_the_best_so_far(lab: Lab, mode: str, so_far: list[float]) -> None:
    run_trials(lab, [1.0], [9.0, 3.0], [math.nan], [0.5], [4.0])

    last, best = lab.analysis("loss", mode).plot("history").data

    assert list(last.x) == [0, 1, 3, 4] and list(last.y) == [1.0, 3.0, 0.5, 4.0]
    assert list(best.y) == so_far


def test_the_edf_goes_from_none_to_all(many: tune.ExperimentAnalysis) -> None:
    (line,) = many.plot("edf").data

    assert (line.y[0], line.y[-1], len(line.x)) == (0.0, 1.0, 302)
    assert list(line.x) == sorted(line.x)


def test_a_slice_has_a_panel_for_each_parameter_the_most_important_first(many: tune.ExperimentAnalysis) -> None:
    made = many.plot("slice")

    assert axes(made, "x")[0] == "lr" and len(axes(made, "x")) == 8
    assert all(len(trace.x) == 300 for trace in made.data)


def test_with_max_importances_are_of_getting_among_the_highest(lab: Lab) -> None:
    """x matters only for high values, y only for low ones: whoever thinks of "min" takes y."""
    for number in range(100):
        x, y = number % 10, number // 10
        trial = lab.trial(x=float(x), y=float(y))
        lab.report(trial, loss=float(10 * (x == 9) - 10 * (y == 9)) + 0.001 * number)
        lab.end(trial)

    assert [lab.analysis("loss", mode).plot("importances").data[0].y[-1] for mode in ("max", "min")] == ["x", "y"]


def test_what_is_in_configs_is_text_in_plots(lab: Lab) -> None:
    for number, word in enumerate(["<b>one</b>", "<a href='http://x'>two</a>", "three"]):
        trial = lab.trial(**{"<i>key</i>": word, "x": float(number)})
        lab.report(trial, loss=float(number))
        lab.end(trial)

    for made in lab.analysis().plot().values():
        assert "<b>" not in made.to_json() and "<i>" not in made.to_json() and "<a " not in made.to_json()


def test_diverged_trials_leave_the_colours_to_the_others(lab: Lab) -> None:
    for number in range(40):
        trial = lab.trial(x=float(number % 7), y=float(number // 7))
        lab.report(trial, loss=1e30 if number > 37 else math.inf if number == 37 else float(number))
        lab.end(trial)

    colours = lab.analysis().plot("contour").layout.coloraxis
    assert (colours.cmin, colours.cmax) == (0.0, 35.0)


def test_equal_values_and_parameters_that_only_some_trials_have_are_drawn(lab: Lab) -> None:
    for number in range(12):
        more = {"x": number * 1.0} if number % 2 else {"z": number * 2.0}
        trial = lab.trial(y=float(number), **more)
        lab.report(trial, loss=1.0)
        lab.end(trial)

    made = lab.analysis().plot()
    assert {"parallel", "importances", "slice", "contour", "rank", "edf"} <= set(made)


def test_a_long_curve_keeps_its_ends_and_its_extremes() -> None:
    points = [(x, math.sin(x / 50)) for x in range(5000)]
    points[1234] = (1234, 99.0)
    points[77] = (77, math.nan)

    kept = thinned(points)

    assert len(kept) <= 102 and (1234, 99.0) in kept
    assert kept[0] == points[0] and kept[-1] == points[-1] and kept == sorted(kept)
