"""An experiment as it was after one of its facts: the nearest snapshot before it, and the facts up to it."""

from __future__ import annotations

from tuner.experiment.history import History
from tuner.experiment.journal_reader import read_journal
from tuner.experiment.replacing import standing
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.picture import Picture, picture_of

KEPT = 3
"""Moments in memory, as they were looked at last."""


def picture_at(live: LiveExperiment, at: int) -> Picture:
    """The picture after that fact, which the history reaches."""
    with live.past_lock:
        key = (live.epoch, at)
        if key not in live.past:
            live.past[key] = _made(live, at)
            while len(live.past) > KEPT:
                live.past.popitem(last=False)
        live.past.move_to_end(key)
        return live.past[key]


def _made(live: LiveExperiment, at: int) -> Picture:
    paths = standing(live.source.paths)
    history = History(paths, read_journal(paths))
    base = history.nearest(at)
    snapshot = history.snapshot(base) if base else None
    facts = [(fact.seq, fact.body) for fact in history.facts() if base < fact.seq <= at]
    picture = picture_of(paths, (base, snapshot), facts)
    picture.seq = at
    return picture
