"""The plots of an experiment, as plotly figures. Each is one function of what there is to see; plotly loads on use.

Optuna's own plots are used where it has one; curves, timeline and schedule are ours.
"""

from __future__ import annotations

import datetime
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from trainables import tagged
from trainables.errors import MissingExtraError
from trainables.metrics import rank_of, score_of
from trainables.result_history import flatten
from tuner.analysis import scopes
from tuner.analysis.spans import Span, last_heard_of, spans_of
from tuner.error import refused
from tuner.experiment.trial import Trial
from tuner.search.optuna_study import quiet, states

if TYPE_CHECKING:
    import optuna
    import plotly.graph_objects as go

CURVES = 200
"""At most so many trials have a curve, the best ones: a browser has to draw them."""
_PALETTE = "#1f77b4 #ff7f0e #2ca02c #d62728 #9467bd #8c564b #e377c2 #7f7f7f #bcbd22 #17becf".split()
_COLOURS = {"running": "#1f77b4", "paused": "#ffb000", "failed": "#d62728", "waiting": "#bbbbbb"}


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


def plotly() -> Any:
    """plotly's `graph_objects`. Raises MissingExtraError."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise MissingExtraError('plots need plotly: pip install "tuner[plot]"') from error
    return go


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna warns of trials without a value, and of what is experimental: a plot says what it shows by itself."""
    import optuna

    with quiet(optuna.logging.ERROR), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def curves(seen: PlotSource, number: int) -> go.Figure:
    """A metric over `training_iteration`, one line per trial."""
    made = plotly().Figure()
    metric = seen.metrics[number]
    for trial in sorted(best_first(seen, number)[:CURVES], key=lambda trial: trial.index):
        points = [
            (row.get("training_iteration"), score)
            for row in scopes.history(trial)
            if (score := score_of(row, metric)) is not None
        ]
        if points:
            made.add_scatter(
                x=[x for x, _ in points],
                y=[y for _, y in points],
                mode="lines+markers" if len(points) < 50 else "lines",
                name=f"{trial.index} {trial.status}",
                hovertext=f"{trial.trial_id}<br>{_params(trial)}",
            )
    if not made.data:
        raise NothingToPlot(f"no trial has reported a number {metric!r}")
    few = f" (the best {CURVES} of {len(seen.trials)} trials)" if len(seen.trials) > CURVES else ""
    return made.update_layout(
        title=f"Learning curves: {metric}{few}", xaxis_title="training_iteration", yaxis_title=metric
    )


def best_first(seen: PlotSource, number: int) -> list[Trial]:
    """The trials, those without a number there last."""
    metric, mode = seen.metrics[number], seen.modes[number]
    scores = [(scopes.score(trial, metric, mode, "last"), trial) for trial in seen.trials]
    ranked = [(rank_of(math.nan if value is None else value, mode), trial) for value, trial in scores]
    return [trial for _, trial in sorted(ranked, key=lambda pair: pair[0], reverse=True)]


def _params(trial: Trial) -> str:
    return "<br>".join(f"{key} = {value}" for key, value in trial.evaluated_params.items())


def _optunas(seen: PlotSource, number: int, *, draw: str, title: str, least: int = 1) -> go.Figure:
    """One of Optuna's plots, once there are so many parameters for it."""
    from optuna import visualization

    study = seen.study()
    done = [trial for trial in study.trials if trial.state is states().COMPLETE]
    if len(done) < 2:
        raise NothingToPlot(f"it takes two finished trials with {' and '.join(seen.metrics)}; there are {len(done)}")
    values: dict[str, set[Any]] = {}
    for name, value in (pair for trial in done for pair in trial.params.items()):
        values.setdefault(name, set()).add(value)
    varied = sorted(name for name in values if len(values[name]) > 1)
    if len(varied) < least:
        raise NothingToPlot(
            f"it takes {least} searched parameter{'s' * (least > 1)} with several values; there are {len(varied)}"
        )
    metric = seen.metrics[number]
    made = getattr(visualization, draw)(
        study, params=varied, target=lambda trial: trial.values[number], target_name=metric
    )
    grid = {"height": 250 + 130 * len(varied)} if least == 2 and len(varied) > 2 else {}
    return made.update_layout(title=f"{title}: {metric}", **grid)


def pareto(seen: PlotSource, number: int) -> go.Figure:
    """The finished trials in the plane, or the space, of two or three metrics, with their Pareto front."""
    from optuna.visualization import plot_pareto_front

    if len(seen.metrics) not in (2, 3):
        raise NothingToPlot(f"it takes two or three metrics; there are {len(seen.metrics)}")
    study = seen.study()
    if not any(trial.state is states().COMPLETE for trial in study.trials):
        raise NothingToPlot(f"no finished trial has all of {', '.join(seen.metrics)}")
    return plot_pareto_front(study, target_names=list(seen.metrics)).update_layout(title="Pareto front")


def timeline(seen: PlotSource, number: int) -> go.Figure:
    """When each trial ran, waited or was paused, its error, and the checkpoints that are kept."""
    go = plotly()
    until = last_heard_of(seen.trials)
    spans = [span for trial in seen.trials for span in spans_of(trial, until)]
    if not spans:
        raise NothingToPlot("no trial has started yet")
    made = go.Figure()
    for kind, colour in _COLOURS.items():
        own = [span for span in spans if span.kind == kind]
        if own:
            made.add_scatter(**_lines(own), mode="lines", name=kind, line={"color": colour, "width": 7})
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
            hovertext=[f"{trial.trial_id}<br>{error.type}: {error.message[:200]}" for trial, error in errors],
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
        made.update_yaxes(title_text=key, row=row, col=1)
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
                showlegend=row == 1,
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


@dataclass(frozen=True)
class PlotKind:
    """A kind of plot."""

    draw: Callable[[PlotSource, int], Any]
    per_metric: bool = True
    """One of it for each objective."""


KINDS = {
    "curves": PlotKind(curves),
    # One line per finished trial through its parameters and its value; how much each parameter matters; the metric,
    # and the rank of each trial, over pairs of parameters.
    "parallel": PlotKind(partial(_optunas, draw="plot_parallel_coordinate", title="Parallel coordinates")),
    "importances": PlotKind(partial(_optunas, draw="plot_param_importances", title="Importances")),
    "contour": PlotKind(partial(_optunas, draw="plot_contour", title="Contour", least=2)),
    "rank": PlotKind(partial(_optunas, draw="plot_rank", title="Rank", least=2)),
    "pareto": PlotKind(pareto, per_metric=False),
    "timeline": PlotKind(timeline, per_metric=False),
    "schedule": PlotKind(schedule, per_metric=False),
}
"""In the order of a report."""
_ALIASES = {"learning_curves": "curves"}
