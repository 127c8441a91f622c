"""What attempts of this machine run in: shares of it, and processes that wait for another attempt."""

from __future__ import annotations

from collections import deque

from tuner.executors.base import Launch, Resources
from tuner.executors.local.kept import KeptProcess, KeptProcesses
from tuner.executors.local.local_attempts import Deadlines
from tuner.executors.pool import Pool, Share


class Room:
    """Lets launches wait, in their order, and says when and where the next one begins.

    Args:
        idle_s: a process that waited so long for another attempt ends; None: it waits until its share is needed.
    """

    def __init__(self, pool: Pool, deadlines: Deadlines, idle_s: float | None = None) -> None:
        self.kept = KeptProcesses(pool, deadlines, idle_s)
        self.queue: deque[Launch] = deque()
        """Launched, perhaps together with others, and without room beside them."""
        self.pool = pool
        self._afresh: set[str] = set()
        """Trials whose attempt no process has taken that was kept."""

    def fits(self, asked: Resources) -> bool:
        """Whether there is so much that nobody uses, now or when processes that wait have gone."""
        return self.pool.fits(asked) or (bool(self.kept.all) and self.kept.would_fit(asked))

    def add_again(self, launch: Launch) -> None:
        """An attempt that has not begun after all: it does in a process of its own, before all others."""
        self._afresh.add(launch.job.trial_id)
        self.queue.appendleft(launch)

    def remove(self, trial_id: str) -> Launch | None:
        """Give up a launch that waits; None: there is none."""
        launch = next((each for each in self.queue if each.job.trial_id == trial_id), None)
        if launch is not None:
            self.queue.remove(launch)
        return launch

    def clear(self) -> None:
        """Nothing begins any more."""
        self.queue.clear()

    def take(self, running: int) -> tuple[Launch, Share, KeptProcess | None] | None:
        """The next of the queue with its share and the process that waits for it, if it may begin beside so many."""
        launch, kept = self.queue[0], None
        if launch.reuse:
            self.kept.began(running + 1)
            kept = None if launch.job.trial_id in self._afresh else self.kept.fitting(launch)
        if kept is not None:
            return self.queue.popleft(), kept.share, kept
        if self.kept.all and not self.kept.make_way(launch, running):
            return None
        if not self.pool.fits(launch.resources):
            return None
        self._afresh.discard(launch.job.trial_id)
        return self.queue.popleft(), self.pool.take(launch.resources), None
