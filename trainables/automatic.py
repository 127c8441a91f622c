"""The keys that every result gets besides the user's."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

DATE = "date"
DEFAULT_METRIC = "_metric"
DONE = "done"
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
TRAINING_ITERATION = "training_iteration"
TRIAL_ID = "trial_id"


class TimeSource(Protocol):
    """The two clocks of the standard module `time`, which is one."""

    def time(self) -> float: ...

    def monotonic(self) -> float: ...


class AutomaticKeys:
    """Counts iterations and measures time between results.

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
    ) -> None:
        self.iteration = iteration
        self.time_total_s = time_total_s
        self._clock = clock
        self._since_restore = 0
        self._time_since_restore = 0.0
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
        self._since_restore += 1
        self._time_since_restore += took
        wall = int(self._clock.time())
        return {
            DONE: False,
            **metrics,
            TRAINING_ITERATION: self.iteration,
            TIME_THIS_ITER_S: took,
            TIME_TOTAL_S: self.time_total_s,
            TIME_SINCE_RESTORE: self._time_since_restore,
            ITERATIONS_SINCE_RESTORE: self._since_restore,
            TIMESTAMP: wall,
            DATE: _date_of(wall),
            **self.constant,
        }


@lru_cache(maxsize=1)
def _date_of(wall: int) -> str:
    """A second as people read it: kept, for results of the same second are many."""
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(wall))
