"""The experiment that a command line names: a path, a URI, or a name under the default storage."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from trainables.places import parent_and_name, split_query
from trainables.transfer.open import shown
from tuner.addresses import checkpoint_at
from tuner.error import ExperimentNotFoundError, SettingError
from tuner.experiment.finding import find_experiment
from tuner.experiment.paths import ExperimentPaths, as_local_path, is_elsewhere
from tuner.experiment.reader import is_experiment
from tuner.experiment.trial import Trial
from tuner.experiment.trials import find_trial
from tuner.inspection.journal_view import journal_view

fact_log = journal_view


def whole(given: str) -> str:
    """A path or URI as it does not depend on where the command is typed."""
    return given if is_elsewhere(given) else str(as_local_path(given))


def checkpoint(given: str) -> str | None:
    """The path or URI of the checkpoint that EXPERIMENT@TAG, or EXPERIMENT@TRIAL@ITERATION, means; None: it is none."""
    found = checkpoint_at(given)
    if found is None:
        return None
    uri = found.checkpoint.uri
    return uri if uri is not None and is_elsewhere(uri) else str(found.checkpoint.path)


def experiment(given: str) -> Path:
    """The directory of the experiment that `given` means. Raises ExperimentNotFoundError with the places looked at."""
    return find_experiment(given)


def target(given: str, name: str) -> tuple[str, str]:
    """(place, name) of what a copy that is called `name` becomes at DST. Raises SettingError."""
    if split_query(given)[0].endswith("/"):
        return whole(given), name
    above, new = parent_and_name(whole(given))
    if not new:
        raise SettingError(f"{shown(given)!r} is not accepted: DST is a path or URI to copy to, or one with a slash")
    return above, new


def experiments(storage: Path) -> list[Path]:
    """Every experiment directly under a storage directory, by name."""
    if not storage.is_dir():
        raise ExperimentNotFoundError(f"there is no directory {storage}")
    return sorted(place for place in storage.iterdir() if place.is_dir() and is_experiment(ExperimentPaths(place)))


def trial(trials: Sequence[Trial], given: str) -> Trial:
    """The trial of that id, name or number. Raises SettingError with the nearest."""
    found = find_trial(trials, given)
    if found is not None:
        return found
    near = difflib.get_close_matches(given, [each.trial_id for each in trials])
    hint = f"; did you mean {near[0]}?" if near else f"; there are {len(trials)}, numbered from 0"
    raise SettingError(f"there is no trial {given!r}{hint}")
