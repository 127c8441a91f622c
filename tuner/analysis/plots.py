"""The kinds of plots of an experiment, as plotly figures. plotly loads on use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.analysis import curves, parameter_plots, timeline
from tuner.analysis.plot_source import NothingToPlot, PlotSource, plotly
from tuner.error import refused
from tuner.search.optuna_study import quiet, states

if TYPE_CHECKING:
    import plotly.graph_objects as go


def figure(seen: PlotSource, kind: str, number: int = 0) -> go.Figure:
    """The figure of one kind, about one objective where it is about one.

    Raises NothingToPlot, MissingExtraError; SettingError for a kind that there is not.
    """
    known = KINDS.get(_ALIASES.get(kind, kind))
    if known is None:
        raise refused("kind", kind, f"accepted are None (all) and {', '.join(KINDS)}")
    plotly()
    if not seen.trials:
        raise NothingToPlot("there are no trials yet")
    if known.per_metric and not seen.metrics:
        raise NothingToPlot("the run has no metric; name one: metric= and mode=")
    with _quiet():
        made = known.draw(seen, number)
    return made.update_layout(template="plotly_white", margin={"t": 60, "l": 60, "r": 20, "b": 50})


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna warns of trials without a value, and of what is experimental: a plot says what it shows by itself.

    In a notebook its import warns of a progress bar that nobody draws.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import optuna

        with quiet(optuna.logging.ERROR):
            yield


def pareto(seen: PlotSource, number: int) -> go.Figure:
    """The finished trials in the plane, or the space, of two or three metrics, with their Pareto front."""
    from optuna.visualization import plot_pareto_front

    if len(seen.metrics) not in (2, 3):
        raise NothingToPlot(f"it takes two or three metrics; there are {len(seen.metrics)}")
    study = seen.study()
    if not any(trial.state is states().COMPLETE for trial in study.trials):
        raise NothingToPlot(f"no finished trial has all of {', '.join(seen.metrics)}")
    return plot_pareto_front(study, target_names=list(seen.metrics)).update_layout(title="Pareto front")


@dataclass(frozen=True)
class PlotKind:
    """A kind of plot."""

    draw: Callable[[PlotSource, int], Any]
    per_metric: bool = True
    """One of it for each objective."""


KINDS = {
    "history": PlotKind(curves.history),
    "curves": PlotKind(curves.curves),
    "parallel": PlotKind(parameter_plots.parallel),
    "importances": PlotKind(parameter_plots.importances_plot),
    "slice": PlotKind(parameter_plots.slices),
    "contour": PlotKind(parameter_plots.contour),
    "rank": PlotKind(parameter_plots.rank),
    "edf": PlotKind(parameter_plots.edf),
    "pareto": PlotKind(pareto, per_metric=False),
    "timeline": PlotKind(timeline.timeline, per_metric=False),
    "schedule": PlotKind(timeline.schedule, per_metric=False),
}
"""In the order of a report."""
_ALIASES = {"learning_curves": "curves"}
