"""When the ranks of a group are told to stop: at the same call of `should_stop()`, all of them."""

from __future__ import annotations

from collections.abc import Sequence

from trainables.group.rank import Rank
from trainables.group.rank_messages import Flags, StopAt


class StopCall:
    """The call from which on all ranks are told to stop: the first that none of them has gone by.

    Nobody is waited for: a rank that looked before the notice may wait for the others now, in `report()` or in a
    collective call, and looks again only when they have come.
    """

    def __init__(self, ranks: Sequence[Rank], flags: Flags) -> None:
        self._ranks, self._flags = ranks, flags
        self._call: int | None = None

    def decide(self) -> bool:
        """Answer those that ask. All flags are known, those of other hosts too. True: some were told."""
        asking = [rank for rank in self._ranks if rank.asks is not None]
        if self._call is None and asking:
            going = [rank for rank in self._ranks if rank.last is None]
            self._call = max(self._flags.calls(rank.number) + 1 if rank.asks is None else rank.asks for rank in going)
        if self._call is None:
            return False
        for rank in asking:
            rank.asks = None
            rank.answer(StopAt(self._call))
        return bool(asking)
