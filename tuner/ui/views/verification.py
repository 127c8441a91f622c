"""Whether the checkpoints of a trial are as they were published: what can be said at once, and what is asked for."""

from __future__ import annotations

from tuner.error import ExperimentNotFoundError
from tuner.experiment.hostile import UNREADABLE
from tuner.ui.checked import FoundFiles
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.seen import Seen, as_json


def looked_at(seen: Seen, trial_id: str) -> dict[str, FoundFiles]:
    """What the files of its checkpoints are like now; nothing of an earlier moment, or of another place."""
    if seen.at is not None or not seen.live.source.is_local:
        return {}
    try:
        with seen.live.lock:
            trial = seen.picture.state.trial(trial_id)
            directory, records = seen.picture.root / trial.dirname, list(trial.checkpoints)
    except UNREADABLE:
        return {}
    return seen.live.checked.sizes(directory, records)


def verification_of(live: LiveExperiment, trial_id: str, name: str) -> bytes:
    """Every hash of a checkpoint looked at. Raises ExperimentNotFoundError for one that does not lie here."""
    with live.lock:
        known = live.picture.state.has(trial_id) and live.source.is_local
        trial = live.picture.state.trial(trial_id) if known else None
        root = live.picture.root
    kept = [] if trial is None else [one for one in trial.checkpoints if one.ref.name == name and one.here]
    if trial is None or not kept:
        raise ExperimentNotFoundError(f"{trial_id:.200} has no checkpoint {name!r:.200} here")
    found = live.checked.hashes(root / trial.dirname, kept[0])
    with live.lock:
        live.standing += 1
    return as_json({"name": live.name, "trial": trial_id, "checkpoint": name, **found.told})
