"""What an attempt on another host has saved, on its way to the driver's disk: it saves no faster than that goes."""

from __future__ import annotations

import dataclasses
from collections import deque

from trainables.wire import Answer, CheckpointRef
from tuner.executors.base import Message

ON_THE_WAY = 2
"""With so many checkpoints on their way the answer to a result with one more waits until one has arrived."""
LONG_S = 5.0
"""A wait of so long is spoken of."""


@dataclasses.dataclass(slots=True, eq=False)
class Coming:
    """A checkpoint that is on its way here."""

    message: Message
    ref: CheckpointRef
    told: Message | None = None
    """What the loop is told of it, once that is known."""


class Arriving:
    """Of one attempt."""

    def __init__(self) -> None:
        self.failed = 0
        """So many in a row did not come here."""
        self.saves = False
        """Its last result has a checkpoint."""
        self._coming: deque[Coming] = deque()
        self._held: Answer | None = None
        self._held_since = 0.0

    def __bool__(self) -> bool:
        return bool(self._coming)

    def __contains__(self, coming: Coming) -> bool:
        return coming in self._coming

    def add(self, message: Message, ref: CheckpointRef) -> Coming:
        """It was saved on its host just now."""
        self._coming.append(Coming(message, ref))
        return self._coming[-1]

    def take(self) -> list[Message]:
        """What is known of the oldest, in the order in which they were saved, whichever came first."""
        told = []
        while self._coming and (first := self._coming[0].told) is not None:
            self._coming.popleft()
            told.append(first)
        return told

    def give_up(self) -> None:
        """Nothing arrives any more."""
        self._coming.clear()
        self._held = None

    def holds(self, answer: Answer, now: float) -> bool:
        """Whether an answer is to wait, because the trial saves faster than that comes here: `freed` gives it."""
        wants = (self.saves or answer.save) and answer.then == "continue" and not answer.should_stop
        if not wants or len(self._coming) < ON_THE_WAY:
            return False
        self._held, self._held_since = answer, now
        return True

    def freed(self, now: float, *, at_once: bool = False) -> tuple[Answer, bool] | None:
        """The answer that waited and need not any more, and whether that was long; None: there is none."""
        if self._held is None or (len(self._coming) >= ON_THE_WAY and not at_once):
            return None
        answer, self._held = self._held, None
        return answer, now - self._held_since >= LONG_S
