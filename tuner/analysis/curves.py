"""Plots of a metric over time: learning curves of trials, and the history of a search with its best so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainables.metrics import rank_of, score_of
from tuner.analysis import scopes
from tuner.analysis.plot_source import (
    SHADES,
    NothingToPlot,
    PlotSource,
    best_first,
    goodness,
    plotly,
    scale_trace,
    shade,
    text_of,
)
from tuner.experiment.trial import Trial

if TYPE_CHECKING:
    import plotly.graph_objects as go

CURVES = 200
"""At most so many trials have a curve, the best ones: a browser has to draw them."""
NAMED = 10
"""Up to so many curves have a name and a colour each; more are coloured from the worst to the best."""
POINTS = 100
"""Points of a curve, about: of a longer one the extremes of each stretch are drawn."""


def curves(seen: PlotSource, number: int) -> go.Figure:
    """A metric over `training_iteration`, one line per trial."""
    made = plotly().Figure()
    metric = seen.metrics[number]
    chosen = best_first(seen, number)[:CURVES]
    drawn = [(trial, points) for trial in chosen if (points := _points(seen.trials, trial, metric))]
    if not drawn:
        raise NothingToPlot(f"no trial has reported a number {metric!r}")
    named = len(drawn) <= NAMED
    ranked = list(zip(goodness(len(drawn)), drawn, strict=True))
    ranked.sort(key=lambda each: each[1][0].index if named else each[0])  # the best is drawn last, above the others
    for good, (trial, points) in ranked:
        made.add_scatter(
            x=[x for x, _ in points],
            y=[y for _, y in points],
            mode="lines+markers" if named and len(points) < 50 else "lines",
            name=f"{trial.index} {trial.status}",
            showlegend=named,
            line={} if named else {"color": shade(good), "width": 1.2},
            hovertext=f"trial {trial.index} ({trial.trial_id})<br>{_params(trial)}",
        )
    if not named:
        made.add_trace(scale_trace("by the last"))
    few = f" (the best {CURVES} of {len(seen.trials)} trials)" if len(seen.trials) > CURVES else ""
    return made.update_layout(
        title=f"Learning curves: {text_of(metric)}{few}", xaxis_title="training_iteration", yaxis_title=text_of(metric)
    )


def _points(trials: Sequence[Trial], trial: Trial, metric: str) -> list[tuple[int, float]]:
    """Of a fork from where it began: up to there it is another one's curve."""
    rows = scopes.history(trial)
    if rows and trial.forked:
        rows = [*scopes.whole_history(trials, trial)[-len(rows) - 1 : -len(rows)], *rows]
    scored = [(row.get("training_iteration", 0), score) for row in rows if (score := score_of(row, metric)) is not None]
    return thinned(scored)


def thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most about POINTS of them, with the lowest and the highest of each stretch, the first and the last.

    >>> thinned([(1, 0.5), (2, 0.25)])
    [(1, 0.5), (2, 0.25)]
    """
    if len(points) <= POINTS:
        return list(points)
    kept = {0, len(points) - 1}
    stretches = POINTS // 2
    for stretch in range(stretches):
        inside = range(len(points) * stretch // stretches, len(points) * (stretch + 1) // stretches)
        real = [place for place in inside if points[place][1] == points[place][1]] or list(inside)  # NaN is a gap
        kept |= {min(real, key=lambda place: points[place][1]), max(real, key=lambda place: points[place][1])}
    return [points[place] for place in sorted(kept)]


def _params(trial: Trial) -> str:
    return "<br>".join(f"{text_of(key)} = {text_of(value)}" for key, value in trial.evaluated_params.items())


def history(seen: PlotSource, number: int) -> go.Figure:
    """The last value of each trial, in order of creation, and the best so far."""
    metric, mode = seen.metrics[number], seen.modes[number]
    scored = [(trial, value) for trial in seen.trials if (value := scopes.score(trial, metric, mode, "last")) == value]
    found = [(trial, value) for trial, value in scored if value is not None]
    if not found:
        raise NothingToPlot(f"no trial has reported a number {metric!r}")
    best = found[0][1]
    so_far = []
    for _, value in found:
        best = value if rank_of(value, mode) > rank_of(best, mode) else best
        so_far.append(best)
    indices = [trial.index for trial, _ in found]
    made = plotly().Figure()
    made.add_scatter(
        x=indices,
        y=[value for _, value in found],
        mode="markers",
        name="last value",
        marker={"color": SHADES[2], "size": 6},
        hovertext=[f"trial {trial.index} {trial.status}" for trial, _ in found],
    )
    made.add_scatter(
        x=indices, y=so_far, mode="lines", name="best so far", line={"shape": "hv", "color": SHADES[-1], "width": 2}
    )
    return made.update_layout(
        title=f"History: {text_of(metric)}",
        xaxis={"title": "trial", "tickformat": "d"},
        yaxis_title=text_of(metric),
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"},
    )
