"""Forks: trials that began at a checkpoint of another one, whose results up to there are theirs too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from trainables import tagged
from trainables.result_history import flatten
from trainables.wire import CheckpointRef
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import Clone
from tuner.experiment.trials import find_trial


def config_at(trial: Trial, iteration: int) -> dict[str, Any]:
    """Return the config with which a trial reported its result of an iteration: changes of later clonings are undone.

    What has to be unpickled is, as `Trial.config` says.
    """
    if not clones_after(trial, iteration):
        return trial.config
    config: dict[str, Any] = trial.read_config(raw_config_at(trial, iteration))
    return config


def raw_config_at(trial: Trial, iteration: int) -> bytes:
    """Return the same as it is stored, tagged JSON."""
    undone = clones_after(trial, iteration)
    if not undone:
        return bytes(trial.raw_config)
    raw: dict[str, Any] = msgspec.json.decode(trial.raw_config)
    for clone in reversed(undone):
        if clone.replaced or clone.added:
            raw = {key: value for key, value in raw.items() if key not in clone.added} | clone.replaced
        else:  # an older version recorded it
            for path, (old, _) in clone.changed.items():
                _put(raw, path, old)
    return msgspec.json.encode(raw)


def evaluated_at(trial: Trial, iteration: int) -> dict[str, Any]:
    """Return `Trial.evaluated_params` as they were when it reported its result of an iteration."""
    if not clones_after(trial, iteration):
        return trial.evaluated_params
    config = flatten(tagged.loads(raw_config_at(trial, iteration)))
    return {key: config.get(key, value) for key, value in trial.evaluated_params.items()}


def clones_after(trial: Trial, iteration: int) -> Sequence[Clone]:
    """Return the clonings of a trial, since it last started anew, that came after its result of an iteration."""
    begun = max(trial.past_clones, 1 if trial.forked else 0)
    return [clone for clone in trial.clones[begun:] if clone.iteration >= iteration]


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    """Set a value at "a/b", where a key may itself have a slash in it."""
    if path in config or "/" not in path:
        config[path] = value
        return
    for end in (at for at, letter in enumerate(path) if letter == "/"):
        inner = config.get(path[:end])
        if isinstance(inner, dict):
            _put(inner, path[end + 1 :], value)
            return
    config[path] = value


def result_before(trials: Sequence[Trial], trial: Trial) -> dict[str, Any]:
    """Of a fork the result that its first one follows on; empty where the checkpoint that has it is gone."""
    return result_at(trials, None if trial.fork is None else trial.fork.donor)


def result_at(trials: Sequence[Trial], ref: CheckpointRef | None) -> dict[str, Any]:
    """The result that a checkpoint belongs to; empty for none, and where it is gone."""
    if ref is None or (trial := find_trial(trials, ref.trial_id)) is None:
        return {}
    return next((record.metrics for record in trial.checkpoints if record.order == ref.order), {})


def chain(trials: Sequence[Trial], trial: Trial) -> list[tuple[Trial, int]]:
    """(trial, up to which iteration its results are the fork's too) of those that it goes back to, the first of all
    first; empty for a trial that is no fork.
    """
    found: list[tuple[Trial, int]] = []
    begins, until = trial.fork, math.inf
    while begins is not None and (trunk := find_trial(trials, begins.donor.trial_id)) is not None:
        until = min(until, begins.iteration)
        found.append((trunk, int(until)))
        begins = trunk.fork
    return found[::-1]


def is_reuse(trial: Trial, attempt: int) -> bool:
    """Whether that attempt of it had no process: in it the trial became what an earlier one had come to."""
    return trial.reused is not None and bool(trial.lineage) and trial.lineage[0][1] == attempt


def lines_of(trials: Sequence[Trial], trial: Trial) -> list[str]:
    """Where a trial comes from that did not begin anew, the newest first: "forked from 3@40: lr 0.1 -> 0.01"."""
    told: list[str] = []
    begins = trial.fork
    while begins is not None:
        trunk = find_trial(trials, begins.donor.trial_id)
        number = begins.donor.trial_id if trunk is None else trunk.index
        changed = ", ".join(f"{key} {_short(old)} -> {_short(new)}" for key, (old, new) in begins.changed.items())
        told.append(f"forked from {number}@{begins.iteration}: {changed or 'the same config'}")
        trial, begins = (trial, None) if trunk is None else (trunk, trunk.fork)
    if trial.reused is not None:
        told.append(f"reused from {trial.reused}: the same config")
    return told


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value!s:.60}"
