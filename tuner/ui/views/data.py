"""Which function makes the data of which view, and of which moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuner.error import ExperimentNotFoundError, SettingError
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.past import picture_at
from tuner.ui.seen import Seen, as_json
from tuner.ui.trial_story import TrialStory, story_of
from tuner.ui.views.comparison import comparison
from tuner.ui.views.machines import machines
from tuner.ui.views.orders import orders
from tuner.ui.views.overview import overview
from tuner.ui.views.result_curves import chosen, curves
from tuner.ui.views.searched_space import importance, parameters
from tuner.ui.views.tree import tree
from tuner.ui.views.trial_list import trials
from tuner.ui.views.trial_page import trial_page
from tuner.ui.views.verification import looked_at

Query = Mapping[str, str]
Others = Callable[[str], LiveExperiment]

_VIEWS: dict[str, Callable[[Seen, Query], dict[str, Any]]] = {
    "overview": lambda seen, query: overview(seen),
    "trials": lambda seen, query: trials(seen, query.get("columns")),
    "lineage": lambda seen, query: tree(seen),
    "machines": lambda seen, query: machines(seen),
    "orders": lambda seen, query: orders(seen),
}
"""Name in the address -> what makes its data, for which the experiment is held."""
NAMES = (*_VIEWS, "parameters", "curves", "compare", "trial")


def data_of(
    live: LiveExperiment, view: str, query: Query, others: Mapping[str, LiveExperiment], *, takes_orders: bool = False
) -> bytes:
    """The JSON of a view.

    Args:
        query: what follows the question mark.
        others: the experiments that it may be compared with, by name.
        takes_orders: the server does.

    Raises ExperimentNotFoundError for a view or a moment that there is not, SettingError for what is not accepted.
    """
    if view not in NAMES:
        raise ExperimentNotFoundError(f"there is no view {view!r:.80}; there are {', '.join(NAMES)}")
    seen = _seen(live, query.get("at", ""), takes_orders)
    if view == "trial":
        return _trial(seen, query.get("trial", ""))
    if view == "curves":
        return _curves(seen, query)
    if view == "compare":
        return _compared(seen, query.get("with", ""), others)
    if view == "parameters":
        return _parameters(seen)
    with live.lock:
        return as_json(_VIEWS[view](seen, query))


def _seen(live: LiveExperiment, given: str, takes_orders: bool) -> Seen:
    with live.lock:
        picture = live.picture
    if not given:
        return Seen(live, picture, takes_orders=takes_orders)
    if not given.isdecimal():
        raise SettingError(f"at={given!r:.80} is not accepted; accepted is the number of a fact")
    at = int(given)
    if at >= picture.seq:
        return Seen(live, picture, takes_orders=takes_orders)
    return Seen(live, picture_at(live, at), at, takes_orders=takes_orders)


def _story(seen: Seen) -> Callable[[str], TrialStory]:
    index = seen.live.index()
    return lambda trial_id: story_of(index.facts(trial_id), seen.at)


def _trial(seen: Seen, trial_id: str) -> bytes:
    if trial_id not in seen.picture.table.row_of:
        raise ExperimentNotFoundError(f"there is no trial {trial_id!r:.200}")
    story, found = _story(seen)(trial_id), looked_at(seen, trial_id)
    with seen.live.lock:
        return as_json(trial_page(seen, trial_id, story, found))


def _parameters(seen: Seen) -> bytes:
    weights = importance(seen)
    with seen.live.lock:
        return as_json(parameters(seen, weights))


def _curves(seen: Seen, query: Query) -> bytes:
    with seen.live.lock:
        trials = chosen(seen, query.get("trials", ""), query.get("limit", ""))
    return as_json(curves(seen, trials, query.get("metric"), _story(seen)))


def _compared(seen: Seen, name: str, others: Mapping[str, LiveExperiment]) -> bytes:
    other = None
    if name:
        if name not in others:
            raise ExperimentNotFoundError(f"there is no experiment {name!r:.200} here")
        found = others[name]
        found.start()
        found.ready.wait(60)
        with found.lock:
            other = Seen(found, found.picture)
    return as_json(comparison(seen, other, [one for one in others if one != seen.live.name]))
