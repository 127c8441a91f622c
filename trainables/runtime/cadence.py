"""When a trial saves by itself: so that what saving costs and what interruptions undo are least together.

The interval is that of Young (1974) in Daly's higher order (J. T. Daly, "A higher order estimate of the optimum
checkpoint interval for restart dumps", 2006), from measured times and from the interruptions that the run has seen.
"""

from __future__ import annotations

import math

from trainables.automatic import TimeSource
from trainables.job import SavePace

SHARE = 0.02
"""Of the time may go into saving as long as no trial of the run was interrupted."""
ASSUMED_S, WEIGHT = 1800.0, 0.5
"""Before a run has seen anything, half an interruption in a quarter of an hour is assumed: more would outweigh the
first few that it sees, less would save too seldom until then."""
_APART = 4.0
"""So many times what was seen is the most that is assumed beside it."""
_NEW = 0.3
"""The weight of a new measurement of a save or a step; the rest is that of all before."""


def best_interval(save_s: float, between_s: float) -> float:
    """Seconds of training between two saves for which saving and lost work cost least.

    Args:
        save_s: what a save takes of a trial's time.
        between_s: mean time between two interruptions.
    """
    if save_s >= 2 * between_s:
        return between_s
    ratio = save_s / (2 * between_s)
    return math.sqrt(2 * save_s * between_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s


def mean_between(trained_s: float, interruptions: int) -> float:
    """Seconds between two interruptions, as far as so many in so much time tell."""
    assumed_s = min(ASSUMED_S, _APART * trained_s / interruptions) if interruptions else ASSUMED_S
    return (trained_s + WEIGHT * assumed_s) / (interruptions + WEIGHT)


def recent_mean(before: float | None, measured: float) -> float:
    """The mean of measurements in which the newest weigh most; None: there were none before."""
    return measured if before is None else (1 - _NEW) * before + _NEW * measured


class SaveCadence:
    """Measures the steps and saves of one attempt, and says when a save pays.

    Args:
        pace: what the run had seen when the attempt began.
    """

    def __init__(self, pace: SavePace, clock: TimeSource) -> None:
        self.pace = pace
        self.measured_s = 0.0
        """What the last save took, until it is told."""
        self._clock = clock
        self._save_s, self._step_s = pace.save_s, math.nan
        self._began = self._since = self._left = self._begun = clock.monotonic()
        self._writing = math.nan

    def step_done(self) -> None:
        """A result is there; if a save began to be written before it, that took its part of the time."""
        self._begun = self._clock.monotonic()
        if math.isnan(self._writing):
            self._step(self._begun - self._left)

    def reported(self, *, saved: bool) -> None:
        """The result was taken, with what a function saved or without."""
        now = self._clock.monotonic()
        if saved:
            longest = now - (self._begun if math.isnan(self._writing) else self._writing)
            took = longest if math.isnan(self._step_s) else now - self._left - self._step_s
            self._saved(now, min(longest, max(now - self._begun, took)))
        self._left, self._writing = now, math.nan

    def saved(self) -> None:
        """A class trainable has saved, since its result was taken."""
        now = self._clock.monotonic()
        self._saved(now, now - self._left)
        self._left = now

    def begins(self) -> None:
        """A save may be written from now on."""
        if math.isnan(self._writing):
            self._writing = self._clock.monotonic()

    def asked(self) -> bool:
        """Whether a function that asks now is to save; the same until its next report."""
        if not math.isnan(self._writing):
            return True
        if not self.due():
            return False
        self.begins()
        return True

    def ahead(self) -> bool:
        """Whether the step that begins now is to end with a save: for processes that have to agree on it."""
        due = not math.isnan(self._step_s) and self.due(self._step_s)
        if due:
            self.begins()
        return due

    def due(self, ahead_s: float = 0.0) -> bool:
        """Whether it pays to save now, or after so many seconds more, rather than a step later."""
        step_s, save_s, now = self._step_s, self._save_s, self._clock.monotonic() + ahead_s
        if math.isnan(step_s):
            return False
        if save_s is None:
            return True
        if self.pace.deadline is not None and self._is_last(self.pace.deadline - self._clock.time() - ahead_s):
            return True
        since = now - self._since
        if not self.pace.interruptions and since < save_s / SHARE:
            return False
        between_s = mean_between(self.pace.trained_s + (now - self._began), self.pace.interruptions)
        return since * (since + step_s) >= best_interval(save_s, between_s) ** 2

    def _is_last(self, left_s: float) -> bool:
        """Whether a save after the next step may come too late. A time that has passed was not the end."""
        assert self._save_s is not None
        return 0 <= left_s < 1.5 * (self._step_s + 2 * self._save_s)

    def _step(self, took_s: float) -> None:
        self._step_s = recent_mean(None if math.isnan(self._step_s) else self._step_s, took_s)

    def _saved(self, now: float, took_s: float) -> None:
        self._save_s = recent_mean(self._save_s, took_s)
        self._since, self.measured_s = now, took_s

    def take_measured(self) -> float:
        """What the last save took, in seconds, the first time that this is asked after it; else 0."""
        took, self.measured_s = self.measured_s, 0.0
        return took
