"""How long a run still takes, and how sure that is: by how long the trials took that have ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

from trainables.quick_dataclass import dataclass
from tuner.progress import formatting


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """Seconds until a run is over."""

    likely: float
    least: float
    most: float
    trials: int
    """How many that have ended it is concluded from."""

    def __str__(self) -> str:
        if self.trials < 3:
            of = formatting.counted(self.trials, "trial")
            return f"about {formatting.duration(self.likely)} left, a guess from {of}"
        return (
            f"about {formatting.duration(self.likely)} left "
            f"({formatting.duration(self.least)} to {formatting.duration(self.most)})"
        )


@dataclass
class Pace:
    """How long trials run: told when each starts and stops, in seconds of one monotonic clock."""

    _since: dict[str, float] = field(default_factory=dict)
    """Trials that run now -> since when."""
    _before: dict[str, float] = field(default_factory=dict)
    """Trials that wait, or run again -> how long they have run in this run before."""
    _took: list[float] = field(default_factory=list)
    _slots: int = 1

    def started(self, trial_id: str, now: float) -> None:
        self._since[trial_id] = now
        self._slots = max(self._slots, len(self._since))

    def rested(self, trial_id: str, now: float) -> None:
        """It stopped, and may go on."""
        if (since := self._since.pop(trial_id, None)) is not None:
            self._before[trial_id] = self._before.get(trial_id, 0.0) + now - since

    def ended(self, trial_id: str, now: float) -> None:
        self.rested(trial_id, now)
        if (took := self._before.pop(trial_id, None)) is not None:
            self._took.append(took)

    def left(self, unfinished: int, now: float) -> TimeLeft | None:
        """How long this many trials still take, those that run now among them; None: no trial has ended yet.

        Every one is taken to be as long as those that have ended were on average. The range is one of about 95 %, if
        trials take times that are normally distributed.
        """
        begun = [self._before.get(one, 0.0) + now - since for one, since in self._since.items()]
        begun += [spent for one, spent in self._before.items() if one not in self._since]
        count = len(self._took)
        if not count or unfinished <= 0:
            return None
        import statistics  # with fractions and decimal: not before there is something to estimate

        mean = statistics.fmean(self._took)
        took = Took(count, mean, statistics.stdev(self._took) if count > 1 else mean)
        return time_left(took, begun, unfinished, self._slots)


@dataclass(frozen=True, slots=True)
class Took:
    """How long the trials took that have ended: their number, mean and standard deviation, in seconds."""

    count: int
    mean: float
    spread: float


def time_left(took: Took, begun: Sequence[float], unfinished: int, slots: int) -> TimeLeft:
    """How long so many trials still take.

    Args:
        took: at least one has ended.
        begun: seconds so far of each that has begun and not ended.
        unfinished: how many are to end, those among them.
        slots: how many run at once.
    """
    count, mean = took.count, took.mean
    rest = [max(mean - spent, 0.0) for spent in begun[:unfinished]]
    fresh = max(unfinished - len(begun), 0)
    slots = max(1, min(slots, unfinished))
    likely = max((sum(rest) + fresh * mean) / slots, max(rest, default=0.0))
    unsure = 2 * took.spread * math.sqrt(unfinished + fresh**2 / count) / slots
    return TimeLeft(likely, max(likely - unsure, 0.0), likely + unsure, count)
