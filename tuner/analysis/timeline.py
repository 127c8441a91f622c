"""Plots of what trials went through: when each ran, waited and saved, and what exploits made of its config."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainables import tagged
from trainables.result_history import flatten
from tuner.analysis.plot_source import NothingToPlot, PlotSource, plotly, text_of
from tuner.analysis.spans import Span, last_heard_of, spans_of
from tuner.experiment.outcome import headline
from tuner.experiment.trial import Trial

if TYPE_CHECKING:
    import plotly.graph_objects as go

_PALETTE = "#1f77b4 #ff7f0e #2ca02c #d62728 #9467bd #8c564b #e377c2 #7f7f7f #bcbd22 #17becf".split()
_COLOURS = {"running": "#1f77b4", "paused": "#ffb000", "failed": "#d62728", "waiting": "#bbbbbb"}
_NAMED = 20
"""Of more trials a schedule has no legend."""


def timeline(seen: PlotSource, number: int) -> go.Figure:
    """When each trial ran, waited or was paused, its error, and the checkpoints that are kept."""
    go = plotly()
    until = last_heard_of(seen.trials)
    spans = [span for trial in seen.trials for span in spans_of(trial, until)]
    if not spans:
        raise NothingToPlot("no trial has started yet")
    made = go.Figure()
    thick = max(1.0, min(7.0, 300 / len(seen.trials)))
    for kind, colour in _COLOURS.items():
        own = [span for span in spans if span.kind == kind]
        if own:
            made.add_scatter(**_lines(own), mode="lines", name=kind, line={"color": colour, "width": thick})
    kept = [(record, trial) for trial in seen.trials for record in trial.checkpoints]
    if kept:
        made.add_scatter(
            x=[_date(record.saved_at) for record, _ in kept],
            y=[trial.index for _, trial in kept],
            hovertext=[f"{trial.trial_id}<br>{record.ref.name}" for record, trial in kept],
            mode="markers",
            name="checkpoint (kept)",
            marker={"symbol": "diamond", "size": 7, "color": "#2ca02c", "line": {"width": 1, "color": "white"}},
        )
    errors = [(trial, trial.error) for trial in seen.trials if trial.error is not None and trial.status == Trial.ERROR]
    if errors:
        made.add_scatter(
            x=[_date(trial.ended_at or 0.0) for trial, _ in errors],
            y=[trial.index for trial, _ in errors],
            hovertext=[f"{trial.trial_id}<br>{text_of(headline(error), 200)}" for trial, error in errors],
            mode="markers",
            name="error",
            marker={"symbol": "x", "size": 9, "color": _COLOURS["failed"]},
        )
    return made.update_layout(
        title="Timeline", yaxis={"title": "trial", "autorange": "reversed", "tickformat": "d"}, xaxis={"type": "date"}
    )


def _lines(spans: Sequence[Span]) -> dict[str, list[Any]]:
    """Many horizontal lines as one trace: a gap stands between them."""
    x: list[Any] = []
    y: list[Any] = []
    text: list[Any] = []
    for span in spans:
        x += [_date(span.start), _date(span.end), None]
        y += [span.index, span.index, None]
        text += [f"{span.trial_id}<br>{span.said}"] * 2 + [None]
    return {"x": x, "y": y, "hovertext": text}


def _date(seconds: float) -> datetime.datetime:
    """Local time, as everywhere else."""
    return datetime.datetime.fromtimestamp(seconds)


def schedule(seen: PlotSource, number: int) -> go.Figure:
    """What exploits made of the configs: each trial's value of each parameter that they changed, over iterations."""
    plotly()
    from plotly.subplots import make_subplots

    changed = sorted({key for trial in seen.trials for clone in trial.clones for key in clone.changed})
    if not changed:
        cloned = any(trial.clones for trial in seen.trials)
        raise NothingToPlot("no exploit has changed a parameter" if cloned else "no trial was cloned from another")
    made = make_subplots(rows=len(changed), cols=1, shared_xaxes=True)
    for row, key in enumerate(changed, start=1):
        made.update_yaxes(title_text=text_of(key), row=row, col=1)
        for trial in seen.trials:
            points = _steps(trial, key)
            made.add_scatter(
                x=[x for x, _, _ in points],
                y=[y for _, y, _ in points],
                hovertext=[f"{trial.trial_id}<br>{said}" for _, _, said in points],
                mode="lines+markers",
                line={"shape": "hv", "color": _PALETTE[trial.index % len(_PALETTE)]},
                name=f"trial {trial.index}",
                legendgroup=trial.trial_id,
                showlegend=row == 1 and len(seen.trials) <= _NAMED,
                row=row,
                col=1,
            )
    made.update_xaxes(title_text="training_iteration", row=len(changed), col=1)
    return made.update_layout(title="Schedule", height=200 + 200 * len(changed))


def _steps(trial: Trial, key: str) -> list[tuple[int, Any, str]]:
    """(iteration, value from there on, where it came from) of one parameter."""
    changes = [(clone, clone.changed[key]) for clone in trial.clones if key in clone.changed]
    now = flatten(tagged.loads(bytes(trial.raw_config)) or {}).get(key)
    points: list[tuple[int, Any, str]] = [(0, changes[0][1][0] if changes else now, "at the start")]
    for clone, (_, value) in changes:
        donor = clone.donor
        points.append((clone.iteration, value, f"from {donor.trial_id} at iteration {donor.iteration}"))
    return [*points, (max(trial.iteration, points[-1][0]), now, "now")]
