"""A finished trial in as few bytes as can be: an experiment may come to have a hundred thousand of them."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import msgspec

from tuner.experiment.events import NO_RAW
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import tight

SHARED: dict[str, Any] = {
    "summary": {}, "unsaved": {}, "checkpoints": [], "forgotten": [], "clones": [], "notes": [], "rests": []
}  # fmt: skip
"""What finished trials have in common where they have none of it: nobody adds to these where they are."""


def compact(trial: Trial) -> None:
    """Give up what can be made again from the rest when somebody reads it."""
    if trial.summary:
        trial.raw_summary = msgspec.Raw(msgspec.json.encode(trial.summary))
        trial.summary = {}
    trial.raw_result = tight(trial.raw_result)
    for record in trial.checkpoints:
        record.raw_metrics = tight(record.raw_metrics)
        if trial.status == Trial.TERMINATED:  # a failed trial may go back to it
            record.summary = {}
        record.__dict__.pop("metrics", None)
    trial.unsaved = {}
    for name in ("last_result", "config"):
        trial.__dict__.pop(name, None)
    if "home" in trial.__dict__:
        trial.__dict__.pop("root", None)
    share(trial)


def loosen(trial: Trial) -> None:
    """Make it again what a trial that runs has, and no other one."""
    trial.summary = {key: list(entry) for key, entry in trial._summary().items()}
    trial.raw_summary, trial.unsaved = NO_RAW, {}


def share(trial: Trial) -> None:
    """Hold what is the same in most finished trials in common with them, if it is one."""
    if not trial.is_finished():
        return
    for name, nothing in SHARED.items():
        if not getattr(trial, name):
            setattr(trial, name, nothing)
    for name in ("status", "trainable_name", "told_then"):
        setattr(trial, name, sys.intern(getattr(trial, name)))
    if len(trial.lineage) == 1:
        trial.lineage = _lineage(*trial.lineage)
    if trial.raw_evaluated == trial.raw_config:  # nothing in the config but what was searched
        trial.raw_evaluated = trial.raw_config
    if trial.dirname == trial.name:
        trial.dirname = trial.name
    reason = trial.end_reason
    if reason is not None and reason == Reason(reason.kind, reason.by, reason.iteration):
        trial.end_reason = _reason(reason.kind, reason.by, reason.iteration)
    elif reason == trial.told_reason:
        trial.end_reason = trial.told_reason


@lru_cache(1024)
def _lineage(attempt: tuple[int, int]) -> list[tuple[int, int]]:
    return [attempt]


@lru_cache(1024)
def _reason(kind: ReasonKind, by: str, iteration: int) -> Reason:
    return Reason(kind, by, iteration)
