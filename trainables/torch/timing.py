"""`TimestampedTimer`: how long each part of a script takes, one line each."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from trainables.automatic import TimeSource
from trainables.torch.ranks import rank_or_zero
from trainables.validation import invalid


class TimestampedTimer:
    """Writes a line with the time of day, a text, the milliseconds since the line before and the seconds in all.

    Only rank 0 writes; outside of a distributed job everybody does. Durations are of the monotonic clock: setting the
    time of day changes nothing.

    Args:
        report: text of the first line; None: "Start".
        start_time: seconds since the epoch from which the first duration counts; None: now.
        running: seconds that count as gone already, of an earlier life of the script.
        file: where the lines go; None: standard output.
        clock: the module `time`, or what stands for it.

    Source: the interface is that of StrongResearch/cycling_utils.

    Example:
        >>> timer = TimestampedTimer("Imported everything")  # doctest: +ELLIPSIS
        [ ... ] Imported everything ... 0.000 ms, ... 0.00 s total
        >>> timer.report("Loaded the data")  # doctest: +ELLIPSIS
        [ ... ] Loaded the data ... ms, ... s total
    """

    def __init__(
        self,
        report: str | None = None,
        start_time: float | None = None,
        running: float = 0.0,
        *,
        file: TextIO | None = None,
        clock: TimeSource = time,
    ) -> None:
        for name, value in (("start_time", 0 if start_time is None else start_time), ("running", running)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise invalid(f"TimestampedTimer: {name}", value, "a number of seconds")
        self.running = float(running)
        self._file, self._clock = file, clock
        now = clock.time()
        self.start_time = now if start_time is None else start_time
        self._since = clock.monotonic() - max(0.0, now - self.start_time)
        self._write("Start" if report is None else report, 0.0)

    def report(self, annot: str) -> None:
        """Write how long it took since the last line."""
        now = self._clock.monotonic()
        duration, self._since = now - self._since, now
        self.running += duration
        self.start_time = self._clock.time()
        self._write(annot, duration)

    def state_dict(self) -> dict[str, Any]:
        """The seconds that have gone in all."""
        return {"running": self.running}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Count on from a state."""
        if not isinstance(state_dict, dict) or not isinstance(state_dict.get("running"), int | float):
            raise invalid("load_state_dict: state_dict", state_dict, "what TimestampedTimer.state_dict() returned")
        self.running = float(state_dict["running"])

    def _write(self, text: str, duration: float) -> None:
        if rank_or_zero() != 0:
            return
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._clock.time()))
        file = sys.stdout if self._file is None else self._file
        file.write(f"[ {stamp} ] {text:<70}{1000 * duration:>12,.3f} ms, {self.running:>12,.2f} s total\n")
        file.flush()
