"""What killed uploads left half done in a replica: found, and removed beside the run, where it is nobody's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from trainables.store import fs
from trainables.transfer import agent
from trainables.transfer.agent import AnyJob, Done, Failed
from trainables.transfer.backend import Leftover
from tuner.experiment.paths import is_trial_file, parse_checkpoint

log = logging.getLogger(__name__)

TRIES = 3
"""So often is looked in vain before it is left to the next start."""


class Orphans:
    """Looks once before this owner pushes anything, and again at its end where a push of its own may have been cut off.

    Args:
        place: how messages call the replica.
        root: the experiment here; its name is that over there.
        generation: this owner's.
        guard: the key whose appearance means that somebody has taken over.
        ours: whether that is the name of a directory of one of the experiment's trials.
        artifacts: what users put into those goes there too.
    """

    def __init__(
        self, *, place: str, root: Path, generation: int, guard: str, ours: Callable[[str], bool], artifacts: bool
    ) -> None:
        self._place, self._root, self._guard, self._ours, self._artifacts = place, root, guard, ours, artifacts
        self._below = generation
        """What saves of this and of later generations brought there may still be under way."""
        self._looks = True
        self._failures = 0
        self._busy = False
        self._found: list[Leftover] = []
        self._unknown: list[Leftover] = []
        """Of what no trial of the experiment is known yet."""
        self._cut_off = False

    @property
    def holds(self) -> bool:
        """It was not looked yet: what were pushed now could be taken for an older owner's."""
        return self._looks

    @property
    def left(self) -> bool:
        """There is something to do before the end."""
        return self._busy or self._looks or self._cut_off or bool(self._found or self._unknown)

    def cut_off(self) -> None:
        """A push of this owner has failed, or the processes of a trial pushed too."""
        self._cut_off = True

    def begin(self, *, at_rest: bool, touch: bool) -> AnyJob | None:
        """The next job; None: there is none, or one is under way.

        `at_rest`: nothing of this owner is under way any more, nor will be. `touch`: things may be removed.
        """
        if at_rest and self._unknown and not self.holds:
            unknown, self._unknown = self._unknown, []
            self._take(unknown)
            self._unknown = []  # whatever is of no trial still stays
        if at_rest and self._cut_off and not (self._busy or self._looks or self._found):
            self._cut_off, self._looks, self._failures = False, True, TRIES - 1
            self._below += 1
        if self._busy or not (self._looks or (self._found and touch)):
            return None
        self._busy = True
        if self._looks:
            return agent.FindLeftovers(prefix=self._root.name)
        return agent.RemoveLeftovers(leftovers=self._found, guard=self._guard)

    def ended(self, answer: Done | Failed) -> None:
        """The job has ended."""
        self._busy = False
        if isinstance(answer, Failed):
            self._failures += 1
            if not answer.transient or self._failures >= TRIES:
                log.debug("%s: what killed uploads left stays until the next start: %s", self._place, answer.message)
                self._looks, self._found, self._unknown = False, [], []
        elif self._looks:
            self._looks = False
            self._take(msgspec.json.decode(answer.data, type=list[Leftover]))
        else:
            log.info("%s: removed %d things that killed uploads had left", self._place, len(self._found))
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
            return name == "experiment.json" or (temporary and (name.startswith(".") or self._ours(name)))
        if top in ("journal", "blobs", "generations"):
            return True
        if not self._ours(top):
            return False
        saved_by = parse_checkpoint(below.partition("/")[0])
        if saved_by is not None:
            return saved_by[0] < self._below
        return leftover.target == "" or is_trial_file(below) or (self._artifacts and fs.exists(self._root / name))
