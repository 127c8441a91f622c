"""The experiment that somebody names: by its path, or by its bare name under the default storage."""

from __future__ import annotations

import os
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from tuner.error import ExperimentNotFoundError, SettingError
from tuner.experiment.paths import ExperimentPaths, as_local_path, default_storage
from tuner.experiment.reader import is_experiment


def find_experiment(given: str | PathLike[str]) -> Path:
    """The directory of the experiment that is meant.

    Args:
        given: its path, with ~ or file://; or its name alone: what lies here is preferred to the default storage's.

    Raises ExperimentNotFoundError with the places looked at, SettingError for what is no path.
    """
    places = [as_local_path(given)]
    name = fspath(given)
    if os.sep not in name and "://" not in name:
        places.append(default_storage() / name)
    for place in dict.fromkeys(places):
        if is_experiment(ExperimentPaths(place)):
            return place
    raise ExperimentNotFoundError(f"there is no experiment at {' nor at '.join(map(str, dict.fromkeys(places)))}")


def named_places(name: str, value: Any) -> tuple[str, ...]:
    """The paths, names and URIs of the experiments that a setting names, itself or by analyses of them.

    Raises SettingError for what names none.
    """
    given = [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
    places = [getattr(each, "experiment_path", each) for each in given]
    if any(not isinstance(place, (str, os.PathLike)) or not fspath(place) for place in places):
        accepted = "an experiment's path, name or URI, an analysis or ResultGrid, a list of them, and None"
        raise SettingError(f"{name}={value!r} is not accepted; accepted are {accepted}")
    return tuple(dict.fromkeys(map(fspath, places)))
