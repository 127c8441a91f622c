"""Draining a replica: wait until everything is there, with heartbeats, or until it is not waited for any longer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from trainables.errors import TransferError
from tuner.clock import Clock
from tuner.experiment import events as ev
from tuner.experiment.ownership import HEARTBEAT_S, Ownership
from tuner.syncer.replica import Replica
from tuner.syncer.sink import ReplicaSink

log = logging.getLogger(__name__)


def drain(
    replica: ReplicaSink,
    take: Callable[[Sequence[ev.CheckpointCopied]], bool],
    *,
    ownership: Ownership | None,
    clock: Clock,
    done: Callable[[], bool],
) -> None:
    """Let a replica go on until `done`, which is asked when nothing has arrived. Raises what both functions raise.

    Args:
        take: journals what has arrived; True: the journal has grown, and goes there too.
        ownership: of the experiment here, which needs heartbeats as well.
    """
    beat = clock.monotonic() + HEARTBEAT_S
    while True:
        if take(replica.finished()):
            continue
        if done():
            return
        if clock.monotonic() >= beat:  # other hosts must not take this one for dead meanwhile
            beat = clock.monotonic() + HEARTBEAT_S
            if ownership is not None:
                ownership.heartbeat()
            replica.heartbeat()
        replica.wait(replica.due())


def copy_inherited(replica: Replica, tell: Callable[[ev.AnyFact], None], *, ownership: Ownership, clock: Clock) -> None:
    """Return when all that was inherited is complete in the replica, or known to be lost; `tell` gets the facts.

    Raises TransferError when it cannot be copied, or nothing arrives any more; the next start goes on.
    """
    checkpoints = replica.checkpoints

    def take(facts: Sequence[ev.CheckpointCopied]) -> bool:
        lost, checkpoints.lost = checkpoints.lost, []
        for each in lost:
            log.warning("checkpoint %s of %s is not used: %s", each.ref.name, each.ref.trial_id, each.problem)
            tell(each)
        for fact in facts:
            tell(fact)
        return bool(lost or facts)

    def done() -> bool:
        left = checkpoints.inherited
        why = checkpoints.refusal
        if left and why is None and replica.stalled:
            why = replica.backlog.error or "nothing moves"
        if why is not None:
            raise TransferError(f"{replica.place}: {left} checkpoints that are inherited could not be copied: {why}")
        return not left

    replica.begin()
    drain(replica, take, ownership=ownership, clock=clock, done=done)
