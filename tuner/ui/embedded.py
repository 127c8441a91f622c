"""The data of all views of an experiment, under the addresses by which the page asks for it: for a page in one file."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any
from urllib.parse import quote

import orjson

from tuner.error import ExperimentDamagedError
from tuner.ui.served_places import Places
from tuner.ui.views.data import data_of

VIEWS = ("overview", "trials", "curves", "parameters", "lineage", "machines", "orders")
WAIT_S = 600.0


def views(place: str | PathLike[str], *, trials: int = 20) -> dict[str, Any]:
    """{"e/NAME/overview.json": {...}, ...}, plain values as JSON has them.

    Args:
        place: a path, a URI, or a name under the default storage.
        trials: so many trials have their own page: those that run and the best.

    Raises ExperimentNotFoundError, ExperimentDamagedError.
    """
    places = Places([fspath(place)])
    try:
        (live,) = places.all()
        live.start()
        if not live.ready.wait(WAIT_S) or not live.is_read:
            raise ExperimentDamagedError(f"{place} cannot be read: {live.error or 'it takes too long'}")
        base = f"e/{quote(live.name, safe='')}"
        made = {f"{base}/{view}.json": orjson.loads(data_of(live, view, {}, {})) for view in VIEWS}
        for trial_id in made[f"{base}/curves.json"]["trials"]["id"][:trials]:
            page = data_of(live, "trial", {"trial": trial_id}, {})
            made[f"{base}/trial/{quote(trial_id, safe='')}.json"] = orjson.loads(page)
        return made
    finally:
        places.close()
