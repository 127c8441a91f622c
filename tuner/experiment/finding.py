"""The experiment that somebody names: by its path, or by its bare name under the default storage."""

from __future__ import annotations

import os
from os import PathLike, fspath
from pathlib import Path

from tuner.error import ExperimentNotFoundError
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
