"""What trials need at the end of a job: measured from what passes the driver."""

from __future__ import annotations

import time
from collections.abc import Iterable

from trainables import wire
from trainables.runtime.cadence import recent_mean
from tuner.executors.base import Event, Exited, Message, Started

_LEAST_S = 5.0
"""Of a job's rest: to tell the trials, and for the unexpected."""


class Paces:
    """How long steps and saves of the run's trials take; of the slowest, for what is too short is lost."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._staged: dict[str, float] = {}
        self._step_s: float | None = None
        self._save_s: float | None = None

    def heard(self, events: Iterable[Event]) -> None:
        """Measure what events tell: starts, results, saves, and ends."""
        now = time.monotonic()
        for event in events:
            trial = event.trial_id
            if type(event) is Exited:
                self._since.pop(trial, None)
                self._staged.pop(trial, None)
            elif type(event) is Started:
                self._since[trial] = now
            elif type(event) is not Message:
                continue
            elif type(event.body) is wire.Report:
                if (since := self._since.get(trial)) is not None:
                    self._step_s = _slow(self._step_s, now - since)
                self._since[trial] = now
                if event.body.save_s:
                    self._save_s = _slow(self._save_s, event.body.save_s)
                if event.body.saving is not None:
                    self._staged[trial] = now
            elif type(event.body) is wire.SavePublished and trial in self._staged:
                self._save_s = _slow(self._save_s, now - self._staged.pop(trial))

    def leave_s(self, lasts_s: float) -> float:
        """So long before its end the trials of a job are told to save and leave: a step and two saves.

        Args:
            lasts_s: how long the job lasts in all: half of that is for trials, whatever they need.
        """
        return min(_LEAST_S + 1.5 * ((self._step_s or 0.0) + 2 * (self._save_s or 0.0)), lasts_s / 2)

    def begin_s(self, lasts_s: float) -> float:
        """With less than that left of a job no trial begins there: another step and save would not fit."""
        return min(self.leave_s(lasts_s) + (self._step_s or 0.0) + (self._save_s or 0.0), lasts_s * 3 / 4)


def _slow(before: float | None, measured: float) -> float:
    """The longest of late: what is longer counts at once, what is shorter little by little."""
    return measured if before is None or measured > before else recent_mean(before, measured)
