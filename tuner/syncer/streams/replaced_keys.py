"""What is void in a replica: it goes before anything of this experiment comes."""

from __future__ import annotations

from functools import partial

from trainables.net.backoff import BackOff
from trainables.transfer import transfer_jobs
from trainables.transfer.transfer_jobs import Done
from tuner.experiment.state import ExperimentState
from tuner.syncer.inventory import Inventory
from tuner.syncer.remote_experiment import REPLACED
from tuner.syncer.streams.stream import Answer, ReplicaContext, Stream


class ReplacedKeys(Stream):
    """Deletes what another history, or the experiment that is replaced, has there, when the first trial starts.

    Of a whole experiment a mark says so as long as some of it is left: whoever is killed meanwhile leaves one that the
    next start knows to be void.
    """

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context
        self._names: list[str] = []
        self._unmarked = self._busy = False
        self._back_off = BackOff()

    def take_up(self, state: ExperimentState, held: Inventory) -> None:
        self._names = list(held.replaced)
        if held.replaced_whole and self._names:
            self._names = [*(name for name in self._names if name != REPLACED), REPLACED]
            self._unmarked = True

    @property
    def holds(self) -> bool:
        return bool(self._names) or self._busy

    @property
    def drained(self) -> bool:
        return not self.holds

    def due_at(self, now: float) -> float | None:
        return self._back_off.until if self._names and not self._busy else None

    def start_jobs(self, now: float) -> bool:
        if self._busy or not self._names or now < self._back_off.until:
            return False
        self._busy = True
        if self._unmarked:
            mark = transfer_jobs.Put(key=self._context.key(REPLACED), data=b"", guard=self._context.guard)
            self._context.submit(mark, self._marked)
        else:
            names, self._names = self._names, []
            self._context.delete(names, partial(self._deleted, names))
        return True

    def _marked(self, answer: Answer) -> None:
        self._unmarked = not self._ended(answer)

    def _deleted(self, names: list[str], answer: Answer) -> None:
        if not self._ended(answer):
            self._names = names

    def _ended(self, answer: Answer) -> bool:
        self._busy, well = False, isinstance(answer, Done)
        self._back_off.ended(self._context.clock.monotonic(), well=well)
        return well
