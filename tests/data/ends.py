"""What an experiment came to, read from its files without the package, and its trials' configs in words."""

from __future__ import annotations

import enum
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

import tuner as tune


def end_of(experiment: Path) -> dict[str, Any]:
    """The trials of an experiment that has ended, in their order, and the best of them."""
    analysis = tune.ExperimentAnalysis(experiment)
    trials = [trial_of(trial) for trial in analysis.trials]
    scored = [(max(found["scores"].values()), -index) for index, found in enumerate(trials) if found["scores"]]
    best = max(scored)[1] if scored else None
    return {"trials": trials, "best_trial": None if best is None else -best}


def trial_of(trial: Any) -> dict[str, Any]:
    """Its status, its config and its score at each iteration."""
    file = Path(trial.path, "result.json")
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    scores = {str(row["training_iteration"]): row["score"] for row in rows}
    assert len(scores) == len(rows), f"{file} holds an iteration twice"
    return {"status": trial.status, "config": _short(told(trial.config)), "scores": scores}


def _short(told: Any) -> Any:
    """With a hash in place of what is large."""
    text = json.dumps(told)
    if len(text) < 10_000:
        return told
    if "dict" in told:
        items = {"dict": [[key, _short(item)] for key, item in told["dict"]]}
        if len(json.dumps(items)) < 10_000:
            return items
    return {"large": hashlib.sha256(text.encode()).hexdigest()[:16]}


def stored_of(experiment: Path) -> dict[str, Any]:
    """What its journal says while it lies there: status, last iteration and checkpoints of each trial."""
    trials = [
        [trial.trial_id, trial.status, trial.iteration, sorted(record.ref.name for record in trial.checkpoints)]
        for trial in tune.ExperimentAnalysis(experiment).trials
    ]
    return {"trials": trials}


def told(value: Any) -> Any:
    """A value as JSON that says what it is: equal texts are equal values of equal types."""
    if value is None or type(value) in (bool, int, float, str):
        return value if type(value) is not float or value == value and abs(value) != float("inf") else repr(value)
    if type(value) is dict:
        return {"dict": [[told(key), told(item)] for key, item in value.items()]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [told(item) for item in value]}
    if isinstance(value, (set, frozenset)):
        return {type(value).__name__: sorted(json.dumps(told(item)) for item in value)}
    if isinstance(value, (np.ndarray, np.generic)):
        data = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
        return {type(value).__name__: [value.dtype.str, list(value.shape), data]}
    if isinstance(value, functools.partial):
        return {"partial": [told(value.func), told(value.args), told(value.keywords)]}
    if isinstance(value, enum.Enum) or not callable(value):
        return {type(value).__name__: repr(value)}
    return {"reference": f"{value.__module__}.{value.__qualname__}"}
