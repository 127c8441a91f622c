"""Paused and runnable trials of a scheduler that pauses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tuner.schedulers.base import T


class Holding:
    """The trials of a scheduler that pauses: held ones wait until they are freed, free ones run or wait for room.

    Costs grow with the free trials only: they are as many as run, and a few more.
    """

    def __init__(self) -> None:
        self.held: dict[str, None] = {}
        self.free: dict[str, None] = {}
        self._running_on: set[str] = set()
        """Held ones that were not seen waiting yet: they save first. What is here too long only costs time."""

    def hold(self, trial_id: str) -> None:
        """It waits from its next save on."""
        if trial_id not in self.held:
            self.free.pop(trial_id, None)
            self.held[trial_id] = None
            self._running_on.add(trial_id)

    def let_run(self, trial_id: str) -> None:
        """It is new, or has waited long enough."""
        if trial_id not in self.free:
            self.drop(trial_id)
            self.free[trial_id] = None

    def drop(self, trial_id: str) -> None:
        """It has ended."""
        self.held.pop(trial_id, None)
        self.free.pop(trial_id, None)
        self._running_on.discard(trial_id)

    def runnable(self, pending: Sequence[T]) -> list[T]:
        """Those who wait and need not; in the order in which they became free."""
        find = finder(pending)
        found = [trial for trial_id in self.free if (trial := find(trial_id)) is not None]
        if found:
            return found
        self._running_on.difference_update([trial_id for trial_id in self._running_on if find(trial_id) is not None])
        if len(pending) > len(self.held) - len(self._running_on):  # somebody who had ended and came back
            return [trial for trial in pending if trial.trial_id not in self.held]
        return []

    def get_state(self) -> dict[str, Any]:
        return {"held": list(self.held), "free": list(self.free)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.held, self.free = dict.fromkeys(state["held"]), dict.fromkeys(state["free"])
        self._running_on = set(self.held)


def finder(pending: Sequence[T]) -> Callable[[str], T | None]:
    """Looks up who waits by trial_id: the loop's own view has `get`, another sequence is walked over once."""
    get: Callable[[str], T | None] | None = getattr(pending, "get", None)
    return get or {trial.trial_id: trial for trial in pending}.get
