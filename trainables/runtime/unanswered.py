"""How far a trial goes on before the driver has answered: as far as nobody decides, and not too far."""

from __future__ import annotations

from trainables.wire import Answer

AHEAD_BYTES = 32 * 1024
"""Results of that size together are sent without an answer at most: a driver that is slow, or waits for a full disk,
has no more to catch up with, and they fit into what the kernel keeps of a socket."""


class Ahead:
    """Which results of an attempt wait for their answer."""

    def __init__(self) -> None:
        self.went = False
        """A result has not waited."""
        self.exact = False
        """Somebody looks at what was answered, and is to see it at once: all wait."""
        self._until = self._bytes = 0

    def waits(self, iteration: int, size: int) -> bool:
        """Whether the result of that iteration, of so many bytes, does."""
        self._bytes += size
        if self.exact or iteration >= self._until or self._bytes > AHEAD_BYTES:
            return True
        self.went = True
        return False

    def answered(self, answer: Answer) -> None:
        """All that was sent before is decided."""
        self._until, self._bytes = answer.free_until, 0

    def waits_next(self) -> None:
        """Something was decided: the driver says anew how far the trial may go."""
        self._until = 0
