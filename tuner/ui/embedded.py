"""The data of all views of an experiment, under the addresses by which the page asks for it: for a page in one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any
from urllib.parse import quote, quote_plus

import numpy as np

from tuner.analysis import scopes
from tuner.analysis.goal import goal_of
from tuner.analysis.reported import check_reported
from tuner.error import ExperimentDamagedError, ExperimentNotFoundError
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import read_settings
from tuner.experiment.trial import Trial
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.seen import Seen
from tuner.ui.served_places import Places
from tuner.ui.thinning import LISTED, thinned
from tuner.ui.trial_columns import STATES
from tuner.ui.trial_story import TrialStory, story_of
from tuner.ui.views.machines import machines
from tuner.ui.views.orders import orders
from tuner.ui.views.overview import overview
from tuner.ui.views.result_curves import chosen, curves
from tuner.ui.views.searched_space import importance, parameters
from tuner.ui.views.tree import tree
from tuner.ui.views.trial_list import trials
from tuner.ui.views.trial_page import trial_page
from tuner.ui.views.verification import looked_at

WAIT_S = 600.0
FAILED = 10
"""Trials that failed, the newest, have pages beside those that run and the best."""
_ROWS_OF_PARAMETERS = ("id", "index", "state", "config", "last", "value", "checkpoint")
"""What the data of parameters repeat of the table of trials."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of an experiment a page in one file has."""

    rows: int = 20_000
    """Trials in the table and in the plots."""
    trials: int = 50
    """Trials with curves and a page of their own."""
    results: int = 400
    """Results of each of these."""
    metrics: int = 6
    """Metrics that have curves."""

    @classmethod
    def of(cls, live: LiveExperiment) -> Extent:
        """The most that stands in any page, of this experiment."""
        return cls(rows=min(cls().rows, max(len(live.picture.table), 1)))

    def smaller(self) -> Extent | None:
        """About half of it; None: that would be too little."""
        if self.rows <= 50:
            return None
        fewer = max(self.metrics // 2, 1)
        return Extent(self.rows // 2, max(self.trials // 2, 5), max(self.results // 2, 50), fewer)


@contextmanager
def reading(
    place: str | PathLike[str], metrics: Sequence[str] = (), modes: Sequence[str | None] = ()
) -> Iterator[LiveExperiment]:
    """An experiment that has been read.

    Args:
        place: a path, or a URI.
        metrics, modes: what is best, instead of what the experiment says; modes alone: of its metrics.

    Raises ExperimentNotFoundError, ExperimentDamagedError; SettingError for a metric that no trial has reported, or
    one of which nobody has said what is best.
    """

    def settings_at(paths: ExperimentPaths) -> dict[str, Any]:
        settings = read_settings(paths)
        return settings | _goals(settings, metrics, modes)

    places = Places([fspath(place)])
    try:
        live = _only(place, places.all())
        live.settings_at = settings_at
        live.start()
        if not live.ready.wait(WAIT_S) or not live.is_read:
            raise ExperimentDamagedError(f"{place} cannot be read: {live.error or 'it takes too long'}")
        if metrics or modes:
            _check(live, metrics)
        yield live
    finally:
        places.close()


def _only(place: str | PathLike[str], found: Sequence[LiveExperiment]) -> LiveExperiment:
    if len(found) != 1:
        names = ", ".join(live.name for live in found[:10]) or "none"
        raise ExperimentNotFoundError(f"{fspath(place)} is no experiment; in it: {names}")
    return found[0]


def _goals(settings: dict[str, Any], metrics: Sequence[str], modes: Sequence[str | None]) -> dict[str, Any]:
    known = goal_of(settings)
    names = list(metrics) or known.metrics
    given = list(modes) if len(modes) == len(names) else list(modes[:1] or [None]) * len(names)
    ways = [way or goal_of(settings, name).mode or known.mode for name, way in zip(names, given, strict=True)]
    return {"metric": names, "mode": ways} if names else {}


def _check(live: LiveExperiment, metrics: Sequence[str]) -> None:
    with live.lock:
        settings, state, table = live.picture.settings, live.picture.state, live.picture.table
        for name, way in zip(settings.get("metric") or (), settings.get("mode") or (), strict=True):
            scopes.check(name, way)
        for name in metrics:
            if name not in table.last.columns:
                check_reported(name, [state.trial(trial_id) for trial_id in table.ids if state.has(trial_id)])


def views(live: LiveExperiment, extent: Extent | None = None) -> dict[str, Any]:
    """{"e/NAME/overview.json": {...}, ...}, the overview first; for `as_json`."""
    extent = extent or Extent()
    with live.lock:
        seen = Seen(live, live.picture)
        shown = chosen(seen, "", str(extent.trials))
        pages = _with_pages(seen, shown, extent.trials)
        rows = _rows(seen, pages, extent.rows)
        made = _of_all(seen, pages, rows, extent)
        metrics = _numeric(seen)[: extent.metrics]
    index = live.index()
    results = 0
    told: dict[str, dict[str, TrialStory]] = {name: {} for name in metrics or [""]}
    for trial_id in pages:
        story = story_of(index.facts(trial_id), seen.picture.seq)
        results = max(results, len(story.points))
        for name, stories in told.items():
            stories[trial_id] = thinned(story, _first(name, metrics), extent.results)
    found = {trial_id: looked_at(seen, trial_id) for trial_id in pages}
    with live.lock:
        for name, stories in told.items():
            drawn = curves(seen, shown, name or None, stories.__getitem__) | {"metrics": metrics}
            made.setdefault("curves.json", drawn)
            made[f"curves.json?metric={_as_browsers_write(name)}"] = drawn
        del made[f"curves.json?metric={_as_browsers_write(next(iter(told)))}"]  # it is the first
        for trial_id, story in next(iter(told.values())).items():
            made[f"trial/{quote(trial_id, safe='')}.json"] = trial_page(seen, trial_id, story, found[trial_id])
    made["overview.json"]["left_out"] = list(_left_out(seen, rows, pages, results, extent))
    base = f"e/{quote(live.name, safe='')}/"
    return {base + address: data for address, data in made.items()}


def _of_all(seen: Seen, pages: Sequence[str], rows: Sequence[int], extent: Extent) -> dict[str, Any]:
    """The views that are about all trials."""
    weighed = parameters(seen, importance(seen))
    lineage, hosts = tree(seen), machines(seen)
    lineage["schedules"] = {name: steps for name, steps in lineage["schedules"].items() if name in pages}
    hosts["spans"] = {name: values[-extent.rows :] for name, values in hosts["spans"].items()}
    table = trials(seen)
    return {
        "overview.json": overview(seen),
        "trials.json": table if len(rows) == len(seen.picture.table) else _picked(table, rows),
        "parameters.json": {name: told for name, told in weighed.items() if name not in _ROWS_OF_PARAMETERS},
        "lineage.json": lineage,
        "machines.json": hosts,
        "orders.json": orders(seen),
    }


def _with_pages(seen: Seen, shown: Sequence[str], most: int) -> list[str]:
    """Those that have curves, the newest failures, and of a small experiment the others too."""
    table = seen.picture.table
    pages = dict.fromkeys([*shown, *_failed(seen)])
    return list(pages | dict.fromkeys(table.ids)) if len(table) <= most else list(pages)


def _failed(seen: Seen) -> list[str]:
    table = seen.picture.table
    rows = np.flatnonzero(np.array(table.states) == STATES.index(Trial.ERROR))
    ended = np.nan_to_num(np.array(table.floats["ended_at"])[rows])
    return [table.ids[row] for row in rows[np.argsort(-ended, kind="stable")][:FAILED].tolist()]


def _rows(seen: Seen, pages: Sequence[str], most: int) -> list[int]:
    """The rows that are shown, in their order: of too many those with pages, those that go on, and the best."""
    table = seen.picture.table
    if len(table) <= most:
        return list(range(len(table)))
    going_on = [trial.trial_id for trial in seen.picture.state.unfinished][:most]
    wanted = dict.fromkeys(table.row_of[trial_id] for trial_id in (*pages, *going_on))
    column = None if seen.metric is None else table.last.columns.get(seen.metric)
    if column is None:
        best = np.arange(len(table))[::-1]
    else:
        column.extend_to(len(table))
        best = np.argsort(column.numbers() * (-1 if seen.mode == "max" else 1), kind="stable")
    return sorted(list(wanted | dict.fromkeys(best[:most].tolist()))[:most])


def _picked(columns: dict[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    """Some rows of columns, and of those one level down."""
    made: dict[str, Any] = {}
    for name, values in columns.items():
        if isinstance(values, dict):
            made[name] = _picked(values, rows)
        elif isinstance(values, np.ndarray):
            made[name] = values[list(rows)]
        else:
            made[name] = [values[row] for row in rows] if isinstance(values, list) else values
    return made


def _numeric(seen: Seen) -> list[str]:
    """The metrics that have numbers, the experiment's own first."""
    last = seen.picture.table.last.columns
    return [name for name in seen.picture.table.metrics if name in last and last[name].is_numeric]


def _first(name: str, metrics: Sequence[str]) -> list[str]:
    return [name, *(other for other in metrics if other != name)] if name else []


def _as_browsers_write(name: str) -> str:
    """As `URLSearchParams` does."""
    return quote_plus(name, safe="*", errors="replace").replace("~", "%7E")


def _left_out(seen: Seen, rows: Sequence[int], pages: Sequence[str], results: int, extent: Extent) -> Iterator[str]:
    every = len(seen.picture.table)
    if len(rows) < every:
        kept = "those that go on, the newest failures, and the best" if seen.metric else "the newest"
        yield f"The table and the plots have {len(rows):,} of {every:,} trials: {kept}."
    if len(pages) < every:
        yield f"{len(pages):,} of {every:,} trials have their curve and their page: those that run, the best, failures."
    if results > extent.results:
        yield (
            f"Of a trial's results, about {extent.results} stand here, the best and the last of each metric among "
            f"them; of what became of checkpoints, and of decisions, the newest {LISTED}."
        )
    numbers = len(_numeric(seen))
    if numbers > extent.metrics:
        yield f"{extent.metrics} of {numbers} metrics have curves."
