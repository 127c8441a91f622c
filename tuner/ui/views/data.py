"""Which function makes the data of which view, and of which moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuner.error import ExperimentNotFoundError
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.seen import Seen, as_json
from tuner.ui.views.orders import orders
from tuner.ui.views.overview import overview
from tuner.ui.views.trial_list import trials

Query = Mapping[str, str]
View = Callable[[Seen, Query], dict[str, Any]]


_VIEWS: dict[str, View] = {
    "overview": lambda seen, query: overview(seen),
    "trials": lambda seen, query: trials(seen, query.get("columns")),
    "orders": lambda seen, query: orders(seen),
}
"""Name in the address -> what makes its data, for which the experiment is held."""


def data_of(live: LiveExperiment, view: str, query: Query, *, takes_orders: bool = False) -> bytes:
    """The JSON of a view.

    Args:
        query: what follows the question mark.
        takes_orders: the server does.

    Raises ExperimentNotFoundError for a view or a moment that there is not, SettingError for what is not accepted.
    """
    made = _VIEWS.get(view)
    if made is None:
        raise ExperimentNotFoundError(f"there is no view {view!r:.80}; there are {', '.join(_VIEWS)}")
    with live.lock:
        return as_json(made(Seen(live, live.picture, takes_orders=takes_orders), query))
