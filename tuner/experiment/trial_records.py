"""What a trial holds besides plain values: its kept checkpoints, clones and rests, and the summary of its metrics."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from math import inf
from typing import Any

import msgspec

from trainables import tagged
from trainables.result_history import flatten
from trainables.wire import CheckpointRef

NOT_SUMMED = frozenset(
    {"pid", "timestamp", "iterations_since_restore", "time_since_restore", "done", "training_iteration"}
)
"""Metrics that a summary leaves out."""

Summary = dict[str, list[float]]
"""metric -> [min, max, sum, count] over the results that stand; NaN is not counted.

Empty for a metric that was infinite once: JSON has no infinities, and the history knows better.
"""


def tight(raw: msgspec.Raw) -> msgspec.Raw:
    """A copy without the room to grow that the encoder left behind it: kilobytes per trial, for hundreds that count."""
    return msgspec.Raw(bytes(memoryview(raw)))


def add_to_summary(summary: Summary, metrics: Mapping[str, Any]) -> None:
    for key, value in metrics.items():
        kind = type(value)
        if (kind is float or kind is int) and key not in NOT_SUMMED and value == value and type(key) is str:
            entry = summary.get(key)
            if not -inf < value < inf:
                summary[key] = []
            elif entry:
                if value < entry[0]:
                    entry[0] = value
                elif value > entry[1]:
                    entry[1] = value
                entry[2] += value
                entry[3] += 1
            elif entry is None:
                summary[key] = [value, value, value, 1]


class CheckpointRecord(msgspec.Struct, dict=True, omit_defaults=True):
    """A published checkpoint that is kept."""

    ref: CheckpointRef
    bytes: int
    saved_at: float
    raw_metrics: msgspec.Raw
    digest: str = ""
    summary: Summary = {}
    """The trial's summary up to that result, to go back to."""
    number: int = 0
    """Counts the experiment's saves in the order of the journal: clocks jump."""
    copies: list[str] = []
    """Replicas that hold it completely: the experiment's address at each."""
    pinned: bool = False
    """A user wants it to stay."""
    tags: list[str] = []
    """Names that users gave it."""
    here: bool = True
    """False: given up on this machine, where a replica holds it."""

    @functools.cached_property
    def metrics(self) -> dict[str, Any]:
        """The result that it belongs to."""
        found: dict[str, Any] = tagged.loads(bytes(self.raw_metrics)) or {}
        return found

    @property
    def order(self) -> tuple[int, int, int]:
        return self.ref.order

    @property
    def iteration(self) -> int:
        return self.ref.iteration


class Clone(msgspec.Struct, frozen=True, omit_defaults=True):
    """A trial went on from another one's checkpoint."""

    iteration: int
    """The clone's own count."""
    donor: CheckpointRef
    changed: dict[str, tuple[Any, Any]] = {}
    """Flat key of the config -> what it was, what it is."""
    replaced: dict[str, Any] = {}
    """Top-level key of the config -> the value that it had, as tagged JSON, to put it back exactly."""
    added: list[str] = []
    """Top-level keys that the config did not have."""

    @classmethod
    def of(cls, iteration: int, donor: CheckpointRef, before: msgspec.Raw, after: msgspec.Raw) -> Clone:
        """Return the clone that got the config `after` in place of `before`, both as tagged JSON."""
        old, new = msgspec.json.decode(before), msgspec.json.decode(after)
        flat, now = flatten(old), flatten(new)
        changed = {key: (flat.get(key), now.get(key)) for key in sorted({*flat, *now}) if flat.get(key) != now.get(key)}
        replaced = {key: value for key, value in old.items() if key not in new or new[key] != value}
        return cls(iteration, donor, changed, replaced, [key for key in new if key not in old])

    def changes(self, key: str) -> bool:
        """Return whether the value at a flat key of the config was changed; one that JSON lacks is tagged below it."""
        return key in self.changed or any(name.startswith(f"{key}/") for name in self.changed)


class Rest(msgspec.Struct, omit_defaults=True):
    """A stretch in which a trial did not run: after an attempt that was not its last."""

    why: str
    """As the fact that ended the attempt says it."""
    since: float
    """Seconds since the epoch."""
    reached: int
    """The iteration that the attempt had come to."""
    until: float | None = None
    """When the next attempt began, or the trial was ended without one; None: it waits still."""
    iteration: int = 0
    """Where the next attempt begins."""
    unseen: bool = False
    """Nobody saw the attempt end: its driver was killed."""
