"""The keys that every result gets besides the user's."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol

DATE = "date"
DEFAULT_METRIC = "_metric"
DONE = "done"
EPISODES_THIS_ITER = "episodes_this_iter"
EPISODES_TOTAL = "episodes_total"
EXPERIMENT_TAG = "experiment_tag"
HOSTNAME = "hostname"
ITERATIONS_SINCE_RESTORE = "iterations_since_restore"
NODE_IP = "node_ip"
PID = "pid"
SHOULD_CHECKPOINT = "should_checkpoint"
TIME_SINCE_RESTORE = "time_since_restore"
TIME_THIS_ITER_S = "time_this_iter_s"
TIME_TOTAL_S = "time_total_s"
TIMESTAMP = "timestamp"
TIMESTEPS_THIS_ITER = "timesteps_this_iter"
TIMESTEPS_TOTAL = "timesteps_total"
TRAINING_ITERATION = "training_iteration"
TRIAL_ID = "trial_id"


class TimeSource(Protocol):
    """The two clocks of the standard module `time`, which is one."""

    def time(self) -> float: ...

    def monotonic(self) -> float: ...


_SUMMED = ((TIMESTEPS_THIS_ITER, TIMESTEPS_TOTAL), (EPISODES_THIS_ITER, EPISODES_TOTAL))


class AutomaticKeys:
    """Counts iterations and measures time between results.

    From the first result on that has `timesteps_this_iter` or `episodes_this_iter` it adds the totals; then `earlier`
    is asked, once, for the result that the trial continues from.

    Durations come from the monotonic clock, so that a jump of the wall clock changes only `timestamp` and `date`.
    """

    def __init__(
        self,
        *,
        clock: TimeSource = time,
        trial_id: str = "",
        experiment_tag: str = "",
        iteration: int = 0,
        time_total_s: float = 0.0,
        earlier: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.iteration = iteration
        self.time_total_s = time_total_s
        self._clock = clock
        self.since_restore = 0
        self.time_since_restore = 0.0
        self.totals: dict[str, float] = {}
        self._earlier: Callable[[], Mapping[str, Any]] | None = earlier
        self._last = clock.monotonic()
        self.constant: dict[str, Any] = {
            TRIAL_ID: trial_id,
            EXPERIMENT_TAG: experiment_tag,
            PID: os.getpid(),
            HOSTNAME: socket.gethostname(),
            NODE_IP: "127.0.0.1",  # looking it up may ask a name server and hang
        }

    def start_step(self) -> None:
        """The time of the next result counts from now: what came before was setup."""
        self._last = self._clock.monotonic()

    def complete(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """One result: the user's metrics and then the automatic keys, the iteration counted up by one.

        A number that the user gives as `time_this_iter_s` replaces the measured one, also in the totals; `done` is the
        user's as well. The other automatic keys win over metrics of the same name.
        """
        now = self._clock.monotonic()
        took = metrics.get(TIME_THIS_ITER_S)
        if not isinstance(took, (int, float)):
            took = now - self._last
        self._last = now
        self.iteration += 1
        self.time_total_s += took
        self.since_restore += 1
        self.time_since_restore += took
        wall = int(self._clock.time())
        if self.totals or TIMESTEPS_THIS_ITER in metrics or EPISODES_THIS_ITER in metrics:
            metrics = {**self._summed(metrics), **metrics}
        return {
            DONE: False,
            **metrics,
            TRAINING_ITERATION: self.iteration,
            TIME_THIS_ITER_S: took,
            TIME_TOTAL_S: self.time_total_s,
            TIME_SINCE_RESTORE: self.time_since_restore,
            ITERATIONS_SINCE_RESTORE: self.since_restore,
            TIMESTAMP: wall,
            DATE: _date_of(wall),
            **self.constant,
        }

    def at(self, now: datetime | None = None) -> dict[str, Any]:
        """The keys as they are, and when it is; nothing is counted."""
        wall = int(self._clock.time() if now is None else now.timestamp())
        return {
            TRAINING_ITERATION: self.iteration,
            TIME_TOTAL_S: self.time_total_s,
            TIME_SINCE_RESTORE: self.time_since_restore,
            ITERATIONS_SINCE_RESTORE: self.since_restore,
            TIMESTAMP: wall,
            DATE: _date_of(wall),
            **self.constant,
        }

    def _summed(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        if self._earlier is not None:
            before, self._earlier = self._earlier(), None
            for _, total in _SUMMED:
                if isinstance(before.get(total), (int, float)):
                    self.totals.setdefault(total, before[total])
        for one, total in _SUMMED:
            if isinstance(metrics.get(one), (int, float)):
                self.totals[total] = self.totals.get(total, 0) + metrics[one]
        return self.totals


@lru_cache(maxsize=1)
def _date_of(wall: int) -> str:
    """A second as people read it: kept, for results of the same second are many."""
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(wall))
