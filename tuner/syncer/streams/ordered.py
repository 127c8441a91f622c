"""The streams of a replica as one: in their order, each as far as those before it let it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.experiment.state import ExperimentState
from tuner.syncer.inventory import Inventory
from tuner.syncer.streams.stream import Stream


class OrderedStreams:
    """Streams that a replica runs one after another; the first one begins."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = streams

    def take_up(self, state: ExperimentState, held: Inventory) -> None:
        for stream in self._streams:
            stream.take_up(state, held)

    def begin(self) -> None:
        """A trial runs: nothing is touched in the replica before one does."""
        for stream in self._streams:
            stream.begun = True

    def close(self) -> None:
        """Nothing more will be told."""
        for stream in self._streams:
            stream.begun = stream.closing = True

    def start_jobs(self, now: float) -> bool:
        started = False
        for stream in self._going():
            started |= stream.start_jobs(now)
        return started

    def due_at(self, now: float) -> list[float]:
        return [time for stream in self._going() if (time := stream.due_at(now)) is not None]

    def look_at(self, now: float) -> list[float]:
        return [time for stream in self._going() if (time := stream.look_at(now)) is not None]

    @property
    def drained(self) -> bool:
        return all(stream.drained for stream in self._streams)

    @property
    def refused(self) -> bool:
        """Nothing is left but what was refused again and again."""
        return not self.drained and all(stream.drained or stream.refused for stream in self._streams)

    def missing(self) -> list[str]:
        return [line for stream in self._streams for line in stream.missing()]

    def _going(self) -> Iterator[Stream]:
        for stream in self._streams:
            if stream.early or stream.begun:
                yield stream
            if stream.holds:
                return


class SyncPeriod(Stream):
    """Tells streams when it is time for what does not go there at once.

    Args:
        streams: those that have such things.
        period_s: seconds between two times; at the end of the run it is time always.
    """

    drained = True

    def __init__(self, streams: Sequence[Stream], *, period_s: float, now: float) -> None:
        self._streams, self._period_s, self._at = streams, period_s, now + period_s

    def start_jobs(self, now: float) -> bool:
        if now >= self._at or self.closing:
            self._at = now + self._period_s
            for stream in self._streams:
                stream.period()
        return False

    def due_at(self, now: float) -> float | None:
        return None if self.closing else self._at
