"""Orphans in a replica: what killed uploads left half done is found, and removed where it is nobody's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from trainables.decoding import decode
from trainables.store import fs
from trainables.transfer import transfer_jobs
from trainables.transfer.backend import Leftover
from trainables.transfer.transfer_jobs import JobFailed
from tuner.experiment.paths import is_trial_file, parse_checkpoint
from tuner.experiment.state import ExperimentState
from tuner.syncer.inventory import Inventory
from tuner.syncer.streams.stream import Answer, ReplicaContext, Stream

log = logging.getLogger(__name__)

TRIES = 3
"""So often is looked in vain before it is left to the next start."""


class Orphans(Stream):
    """Looks once before this owner pushes anything, and again at its end where a push of its own may have been cut off.

    Args:
        others: the streams that move this owner's own things.
    """

    early = True

    def __init__(self, context: ReplicaContext, others: Sequence[Stream]) -> None:
        self._context, self._others = context, others
        self._root = context.paths.root
        self._below = context.generation
        """What saves of this and of later generations brought there may still be under way."""
        self._can = self._looks = False
        self._is_ours: Callable[[str], bool] = lambda name: False
        """Whether that is the name of a directory of one of the experiment's trials."""
        self._failures = 0
        self._busy = False
        self._found: list[Leftover] = []
        self._unknown: list[Leftover] = []
        """Of what no trial of the experiment is known yet."""
        self._cut_off = False

    def take_up(self, state: ExperimentState, held: Inventory) -> None:
        self._can = self._looks = held.may_hold_orphans
        replaced, trials = held.replaced_directories, state.trials
        self._is_ours = lambda name: name in replaced or any(trial.dirname == name for trial in trials)

    @property
    def holds(self) -> bool:
        """It was not looked yet: what were pushed now could be taken for an older owner's."""
        return self._looks

    @property
    def drained(self) -> bool:
        return not (self._busy or self._looks or self._cut_off or self._found or self._unknown)

    @property
    def refused(self) -> bool:
        """While there is something else to wait for it cannot begin."""
        return not self._others_drained

    @property
    def _others_drained(self) -> bool:
        return all(stream.drained for stream in self._others)

    def cut_off(self) -> None:
        """A push of this owner has failed, or the processes of a trial pushed too."""
        self._cut_off = self._can

    def start_jobs(self, now: float) -> bool:
        at_rest = self.closing and bool(self._unknown or self._cut_off) and self._others_drained
        if at_rest and self._unknown and not self.holds:
            unknown, self._unknown = self._unknown, []
            self._take(unknown)
            self._unknown = []  # whatever is of no trial still stays
        if at_rest and self._cut_off and not (self._busy or self._looks or self._found):
            self._cut_off, self._looks, self._failures = False, True, TRIES - 1
            self._below += 1
        if self._busy or not (self._looks or (self._found and self.begun)):
            return False
        self._busy = True
        if self._looks:
            self._context.submit(transfer_jobs.FindLeftovers(prefix=self._root.name), self._ended)
        else:
            self._context.submit(
                transfer_jobs.RemoveLeftovers(leftovers=self._found, guard=self._context.guard), self._ended
            )
        return True

    def _ended(self, answer: Answer) -> None:
        self._busy = False
        if isinstance(answer, JobFailed):
            self._failures += 1
            if not answer.transient or self._failures >= TRIES:
                uri, why = self._context.uri, answer.message
                log.debug("%s: what killed uploads left stays until the next start: %s", uri, why)
                self._looks, self._found, self._unknown = False, [], []
                if self.closing:
                    self._cut_off = False  # that this failed is no reason to look once more
        elif self._looks:
            self._looks = False
            self._take(decode(answer.data, list[Leftover]))
        else:
            log.info("%s: removed %d things that killed uploads had left", self._context.uri, len(self._found))
            self._found = []

    def _take(self, leftovers: list[Leftover]) -> None:
        for leftover in leftovers:
            (self._found if self._is_nobodys(leftover) else self._unknown).append(leftover)

    def _is_nobodys(self, leftover: Leftover) -> bool:
        """It was to become something that an owner of this experiment puts there, and none that lives does."""
        name = (leftover.target or leftover.key).removeprefix(f"{self._root.name}/")
        temporary = leftover.key != leftover.target
        if temporary and fs.exists(self._root.parent / leftover.key):
            return False  # a user's, which happens to be called so
        top, _, below = name.partition("/")
        if not below:
            return name == "experiment.json" or (temporary and (name.startswith(".") or self._is_ours(name)))
        if top in ("journal", "blobs", "generations"):
            return True
        if not self._is_ours(top):
            return False
        saved_by = parse_checkpoint(below.partition("/")[0])
        if saved_by is not None:
            return saved_by[0] < self._below
        return (
            leftover.target == ""
            or is_trial_file(below)
            or (self._context.config.sync_artifacts and fs.exists(self._root / name))
        )
