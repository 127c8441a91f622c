"""`PlotSource`: what plots look at, and what all of them need: plotly, an order of the trials, the colours."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainables.errors import MissingExtraError
from trainables.extras import how_to_install
from trainables.metrics import rank_of
from trainables.printable import one_line
from tuner.analysis import scopes
from tuner.experiment.trial import Trial

if TYPE_CHECKING:
    import optuna

SHADES = ("#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b")
"""From the worst to the best, in every plot that colours by the metric. Even the worst is seen on white."""
TEXT = 60
"""Characters of a value beside a plot at most."""


@dataclass(frozen=True)
class PlotSource:
    """What plots look at."""

    trials: Sequence[Trial]
    metrics: Sequence[str]
    modes: Sequence[str]
    study: Callable[[], optuna.Study]
    """Made once, when the first plot needs it."""


class NothingToPlot(Exception):
    """Why this kind of plot shows nothing of this experiment."""


def plotly() -> Any:
    """plotly's `graph_objects`. Raises MissingExtraError."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise MissingExtraError(f"plots need plotly: {how_to_install('plot')}") from error
    return go


def best_first(seen: PlotSource, number: int) -> list[Trial]:
    """The trials, those without a number there last."""
    metric, mode = seen.metrics[number], seen.modes[number]
    scores = [(scopes.score(trial, metric, mode, "last"), trial) for trial in seen.trials]
    ranked = [(rank_of(math.nan if value is None else value, mode), trial) for value, trial in scores]
    return [trial for _, trial in sorted(ranked, key=lambda pair: pair[0], reverse=True)]


def goodness(count: int) -> list[float]:
    """For so many things, best first: 1 for the best, in equal steps down to 0 for the worst."""
    return [1.0] if count == 1 else [1 - place / (count - 1) for place in range(count)]


def shade(good: float) -> str:
    """The colour of a goodness from 0 to 1."""
    return SHADES[min(int(good * len(SHADES)), len(SHADES) - 1)]


def scale() -> list[list[Any]]:
    """The shades as plotly takes them."""
    return [[place / (len(SHADES) - 1), colour] for place, colour in enumerate(SHADES)]


def scale_trace(title: str) -> Any:
    """A trace without a point, whose colour bar says what light and dark are."""
    bar = {"title": title, "tickvals": [0, 1], "ticktext": ["worst", "best"], "thickness": 14}
    marker = {"color": [0, 1], "cmin": 0, "cmax": 1, "colorscale": scale(), "showscale": True, "colorbar": bar}
    return plotly().Scatter(
        x=[None, None], y=[None, None], mode="markers", marker=marker, showlegend=False, hoverinfo="skip"
    )


def text_of(value: Any, room: int = TEXT) -> str:
    """A name or a value as plotly shows it: it reads a few tags of HTML, and what comes from a config is text."""
    said = f"{value:.5g}" if isinstance(value, float) else one_line(str(value))
    return html.escape(said if len(said) <= room else said[: room - 1] + "…")
