"""Plots of what the searched parameters do to a metric: parallel coordinates, slice, contour, rank."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tuner.analysis.plot_source import SHADES, PlotSource, plotly, scale, scale_trace, shade, text_of
from tuner.analysis.searched import SearchedParameter, finished, importances, searched

if TYPE_CHECKING:
    import plotly.graph_objects as go

    Numbers = Any
    """An array of 32-bit numbers: a page holds it in five characters a number."""

MOST_IN_PAIRS = 6
"""Parameters of a contour or rank plot at most: each has a panel with each other."""
MOST_IN_ROW = 12
"""Parameters of parallel coordinates and slices at most."""
CELLS = 24
"""Points along a side of a contour's grid."""
SMOOTH = 0.06
"""Of a side of a contour: nearer than so trials weigh alike, so that what is noise of single ones does not show."""
_COLUMNS = 3


def importances_plot(seen: PlotSource, number: int) -> go.Figure:
    """How much each parameter matters, the most important one above."""
    done = searched(seen, number, least=1, most=10**6)
    weights = importances(seen, number, [each.name for each in done.parameters])
    lowest_first = list(weights.items())[::-1][-30:]
    made = plotly().Figure()
    made.add_bar(
        x=[weight for _, weight in lowest_first],
        y=[text_of(key, 30) for key, _ in lowest_first],
        text=[f"{weight:.2f}" for _, weight in lowest_first],
        orientation="h",
        marker={"color": SHADES[4]},
        hoverinfo="skip",
    )
    return made.update_layout(
        title=f"Importances: {text_of(seen.metrics[number])}",
        xaxis_title="share",
        yaxis={"type": "category", "automargin": True},
        height=max(300, 150 + 25 * len(lowest_first)),
    )


def edf(seen: PlotSource, number: int) -> go.Figure:
    """Which share of the finished trials is at or below each value: how much of the space is good."""
    values = sorted(trial.values[number] for trial in finished(seen, number))
    shares = [(place + 1) / len(values) for place in range(len(values))]
    step = max(1, len(values) // 1000)
    made = plotly().Figure()
    made.add_scatter(
        x=[values[0], *values[::step], values[-1]],
        y=[0.0, *shares[::step], 1.0],
        mode="lines",
        line={"shape": "hv", "color": SHADES[4]},
        showlegend=False,
    )
    metric = text_of(seen.metrics[number])
    return made.update_layout(
        title=f"EDF: {metric}", xaxis_title=metric, yaxis={"title": "share of trials", "range": [0, 1.02]}
    )


def slices(seen: PlotSource, number: int) -> go.Figure:
    """The metric over each parameter; the later a trial, the darker."""
    done = searched(seen, number, least=1, most=MOST_IN_ROW)
    columns = min(_COLUMNS, len(done.parameters))
    rows = math.ceil(len(done.parameters) / columns)
    made = _panels(rows, columns, [(place // columns, place % columns) for place in range(len(done.parameters))])
    values = _numbers(done.values)
    hover = [f"trial {index}" for index in done.indices]
    for place, parameter in enumerate(done.parameters):
        where = {"row": place // columns + 1, "col": place % columns + 1}
        made.add_scatter(
            x=_numbers(parameter.values) if parameter.numeric else _texts(parameter),
            y=values,
            text=hover,
            mode="markers",
            showlegend=False,
            marker={"size": 5, "color": _numbers(done.indices), "coloraxis": "coloraxis"},
            **where,
        )
        made.update_xaxes(title_text=text_of(parameter.name, 25), **_axis(parameter), **where)
    made.update_yaxes(matches="y").update_layout(yaxis_matches=None)
    bar = {"title": "trial", "thickness": 14}
    metric = text_of(seen.metrics[number])
    return made.update_layout(
        title=f"Slice: {metric}{done.few()}",
        yaxis_title=metric,
        height=110 + 260 * rows,
        coloraxis={"colorscale": scale(), "colorbar": bar},
    )


def contour(seen: PlotSource, number: int) -> go.Figure:
    """The metric over each pair of parameters, between the finished trials by their distance; the better, the darker.

    Outliers do not take the colours: what is worse than nine of ten has the lightest.
    """
    done = searched(seen, number, least=2, most=MOST_IN_PAIRS, numeric=True)
    best, worst = done.values[0], done.values[min(len(done.values) - 1, len(done.values) * 9 // 10)]
    low, high = min(best, worst), max(best, worst)
    coloured = {
        "colorscale": scale(),
        "cmin": low,
        "cmax": high if high > low else low + 1.0,
        "reversescale": best == low,  # the best is dark
        "colorbar": {"title": text_of(seen.metrics[number], 20), "thickness": 14},
    }
    made = _pairs(done.parameters)
    for where, across, up in _each_pair(done.parameters):
        x, y, z = _surface(across, up, [min(max(value, low), high) for value in done.values])
        made.add_contour(
            x=x, y=y, z=z, coloraxis="coloraxis", contours={"coloring": "heatmap"}, line={"width": 0.5}, ncontours=10,
            hoverinfo="skip", **where,
        )  # fmt: skip
        made.add_scatter(
            x=_numbers(across.values), y=_numbers(up.values), mode="markers", showlegend=False,
            text=[f"trial {index}: {value:.5g}" for index, value in zip(done.indices, done.values, strict=True)],
            marker={"size": 3, "color": "#444"}, **where,
        )  # fmt: skip
    return made.update_layout(
        title=f"Contour: {text_of(seen.metrics[number])}{done.few()}",
        height=200 + 140 * (len(done.parameters) - 1),
        coloraxis=coloured,
    )


def rank(seen: PlotSource, number: int) -> go.Figure:
    """Each finished trial over each pair of parameters, coloured by its rank; the better, the darker."""
    done = searched(seen, number, least=2, most=MOST_IN_PAIRS, numeric=True)
    made = _pairs(done.parameters)
    good = _numbers(done.good[::-1])
    for where, across, up in _each_pair(done.parameters):
        made.add_scatter(
            x=_numbers(across.values[::-1]), y=_numbers(up.values[::-1]), mode="markers", showlegend=False,
            text=[f"trial {i}: {value:.5g}" for i, value in zip(done.indices[::-1], done.values[::-1], strict=True)],
            marker={"size": 6, "color": good, "coloraxis": "coloraxis"}, **where,
        )  # fmt: skip
    bar = {"title": "rank", "tickvals": [0, 1], "ticktext": ["worst", "best"], "thickness": 14}
    return made.update_layout(
        title=f"Rank: {text_of(seen.metrics[number])}{done.few()}",
        height=200 + 140 * (len(done.parameters) - 1),
        coloraxis={"colorscale": scale(), "cmin": 0, "cmax": 1, "colorbar": bar},
    )


def parallel(seen: PlotSource, number: int) -> go.Figure:
    """One line per finished trial through its value and its parameters; the better, the darker."""
    done = searched(seen, number, least=1, most=MOST_IN_ROW)
    metric = SearchedParameter(seen.metrics[number], done.values, True, False)
    axes = [metric, *done.parameters]
    heights = [_heights(axis) for axis in axes]
    made = plotly().Figure()
    order = range(len(done.values) - 1, -1, -1)  # the worst first: the best are drawn above them
    for colour, places in groupby(order, key=lambda place: shade(done.good[place])):
        x: list[Any] = []
        y: list[Any] = []
        text: list[str] = []
        for place in places:
            for column, axis in enumerate(axes):
                x.append(column)
                y.append(heights[column][place])
                text.append(f"trial {done.indices[place]}<br>{text_of(axis.values[place])}")
            x.append(None)
            y.append(None)
            text.append("")
        line = {"color": colour, "width": 1.2}
        made.add_scatter(x=_numbers(x), y=_numbers(y), text=text, mode="lines", line=line, showlegend=False)
    made.add_trace(scale_trace(text_of(metric.name, 20)))
    return made.update_layout(
        title=f"Parallel coordinates: {text_of(metric.name)}{done.few()}",
        xaxis={
            "tickvals": list(range(len(axes))),
            "ticktext": [text_of(axis.name, 20) for axis in axes],
            "showgrid": True,
            "zeroline": False,
        },
        yaxis={"visible": False, "range": [-0.06, 1.06]},
        annotations=[_mark(column, *at) for column, axis in enumerate(axes) for at in _marks(axis)],
    )


def _marks(axis: SearchedParameter) -> list[tuple[float, Any]]:
    """(height, value) of what is written beside an axis."""
    known = [value for value in axis.values if value is not None]
    if axis.numeric:
        return [(-0.05, min(known)), (1.05, max(known))]
    texts = sorted({str(value) for value in known})
    return [(place / max(len(texts) - 1, 1), text) for place, text in enumerate(texts)] if len(texts) <= 12 else []


def _mark(column: int, height: float, value: Any) -> dict[str, Any]:
    look = {"showarrow": False, "font": {"size": 10}, "bgcolor": "rgba(255,255,255,0.8)"}
    return {"x": column, "y": height, "text": text_of(value, 16), **look}


def _heights(axis: SearchedParameter) -> list[float | None]:
    """Where its values stand on an axis, from 0 to 1."""
    if axis.numeric:
        numbers = axis.numbers()
        known = [number for number in numbers if number == number]
        low, room = min(known), (max(known) - min(known)) or 1.0
        return [None if number != number else (number - low) / room for number in numbers]
    texts = sorted({str(value) for value in axis.values if value is not None})
    places = {text: place / max(len(texts) - 1, 1) for place, text in enumerate(texts)}
    return [None if value is None else places[str(value)] for value in axis.values]


def _pairs(parameters: Sequence[SearchedParameter]) -> go.Figure:
    """Panels below a diagonal, one for each pair: (row, column) has parameter column across and row + 1 up."""
    size = len(parameters) - 1
    made = _panels(size, size, [(row, column) for row in range(size) for column in range(row + 1)])
    for where, across, up in _each_pair(parameters):
        row, column = where["row"], where["col"]
        made.update_xaxes(
            **_axis(across), showticklabels=row == size, title_text=text_of(across.name, 20) if row == size else None,
            tickangle=-90, nticks=4, **where,
        )  # fmt: skip
        made.update_yaxes(
            **_axis(up), showticklabels=column == 1, title_text=text_of(up.name, 20) if column == 1 else None,
            nticks=4, **where,
        )  # fmt: skip
    return made


def _each_pair(
    parameters: Sequence[SearchedParameter],
) -> Iterator[tuple[dict[str, int], SearchedParameter, SearchedParameter]]:
    """(where its panel is, what goes across, what goes up)"""
    for row, up in enumerate(parameters[1:]):
        for column, across in enumerate(parameters[: row + 1]):
            yield {"row": row + 1, "col": column + 1}, across, up


def _panels(rows: int, columns: int, used: Sequence[tuple[int, int]]) -> go.Figure:
    from plotly.subplots import make_subplots

    specs: list[list[dict[str, Any] | None]] = [
        [{} if (row, column) in used else None for column in range(columns)] for row in range(rows)
    ]
    gap = 0.16 / rows if columns <= _COLUMNS and rows > 1 else 0.02
    return make_subplots(rows=rows, cols=columns, specs=specs, horizontal_spacing=0.02, vertical_spacing=gap)


def _axis(parameter: SearchedParameter) -> dict[str, Any]:
    kind = "log" if parameter.log else "linear" if parameter.numeric else "category"
    return {"type": kind, "exponentformat": "e"}


def _surface(
    across: SearchedParameter, up: SearchedParameter, values: Sequence[float]
) -> tuple[Numbers, Numbers, Numbers]:
    """A grid of what the metric is about, each trial weighed by its distance.

    Source: Shepard 1968, "A two-dimensional interpolation function for irregularly-spaced data", power 4.
    """
    import numpy as np

    points = np.array([across.numbers(), up.numbers(), values])
    points = points[:, ~np.isnan(points).any(axis=0)]
    if points.shape[1] == 0:
        return _numbers([]), _numbers([]), np.zeros((0, 0), dtype=np.float32)
    low = points[:2].min(axis=1)
    room = np.maximum(points[:2].max(axis=1) - low, 1e-300)
    x, y = (points[:2] - low[:, None]) / room[:, None]
    grid = np.linspace(0.0, 1.0, CELLS)
    apart = (grid[None, :, None] - x) ** 2 + (grid[:, None, None] - y) ** 2
    weights = 1.0 / (apart + SMOOTH**2) ** 2
    z = (weights * points[2]).sum(axis=2) / weights.sum(axis=2)
    sides = [low[side] + room[side] * grid for side in (0, 1)]
    at = [10.0**side if each.log else side for side, each in zip(sides, (across, up), strict=True)]
    return _numbers(at[0]), _numbers(at[1]), z.astype(np.float32)


def _numbers(values: Any) -> Numbers:
    import numpy as np

    return np.array([math.nan if value is None else value for value in values], dtype=np.float32)


def _texts(parameter: SearchedParameter) -> list[str | None]:
    return [None if value is None else text_of(value, 16) for value in parameter.values]
