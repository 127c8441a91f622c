"""Draining a replica: until it is done, with heartbeats to both sides, and no longer than anything moves."""

from __future__ import annotations

from typing import Any

import pytest

from trainables.errors import TransferError
from trainables.wire import CheckpointRef
from tuner.clock import VirtualClock
from tuner.experiment import events as ev
from tuner.syncer.drain import copy_inherited, drain
from tuner.syncer.sink import ReplicaBacklog, ReplicaSink

COPIED = ev.CheckpointCopied(CheckpointRef("t", "checkpoint_000001", 1, 1, 1, 1), "held://e")


class Slow(ReplicaSink):
    """Copies one checkpoint in each round that has one, and counts heartbeats."""

    def __init__(self, *rounds: list[ev.CheckpointCopied]) -> None:
        self.clock, self.rounds, self.beats = VirtualClock(), list(rounds), 0
        self.checkpoints, self.stalled, self.begun = Inherited(), False, False

    def finished(self) -> list[ev.CheckpointCopied]:
        facts = self.rounds.pop(0) if self.rounds else []
        self.checkpoints.inherited -= len(facts)
        return facts

    def heartbeat(self) -> None:
        self.beats += 1

    def begin(self) -> None:
        self.begun = True

    def wait(self, until: float | None) -> None:
        self.clock.advance(1.0)

    @property
    def backlog(self) -> ReplicaBacklog:
        return ReplicaBacklog(1, 1, "the store is dead")


class Inherited:
    """Of three, one is lost."""

    def __init__(self) -> None:
        self.inherited, self.refusal = 2, None
        self.lost = [ev.CheckpointSetAside(CheckpointRef("t", "checkpoint_000002", 1, 1, 2, 2), "damaged")]


class Owned:
    """An experiment here, which counts heartbeats."""

    def __init__(self) -> None:
        self.beats = 0

    def heartbeat(self) -> None:
        self.beats += 1


def test_it_goes_on_as_long_as_the_journal_grows_and_then_asks() -> None:
    replica, owned, took = Slow([COPIED], [], [COPIED], []), Owned(), []

    def take(facts: Any) -> bool:
        took.append(len(facts))
        return bool(facts)

    asked: list[int] = []

    def done() -> bool:
        asked.append(len(took))
        return replica.clock.monotonic() >= 25.0

    ownership: Any = owned
    drain(replica, take, ownership=ownership, clock=replica.clock, done=done)
    assert took[:4] == [1, 0, 1, 0] and asked[:2] == [2, 4], "after what arrived nobody asks"
    assert owned.beats == replica.beats == 2


def test_what_is_inherited_is_waited_for_and_what_is_lost_is_told() -> None:
    replica: Any = Slow([COPIED], [], [COPIED])
    ownership: Any = Owned()
    told: list[ev.AnyFact] = []
    copy_inherited(replica, told.append, ownership=ownership, clock=replica.clock)
    assert replica.begun and [type(fact).__name__ for fact in told] == [
        "CheckpointSetAside",
        "CheckpointCopied",
        "CheckpointCopied",
    ]


@pytest.mark.parametrize(("refusal", "why"), [(None, "the store is dead"), ("it is forbidden", "it is forbidden")])
def test_what_cannot_be_copied_ends_the_wait(refusal: str | None, why: str) -> None:
    replica: Any = Slow([COPIED])
    ownership: Any = Owned()
    replica.stalled, replica.checkpoints.refusal = refusal is None, refusal
    with pytest.raises(TransferError, match=f"held|1 checkpoints .*{why}"):
        copy_inherited(replica, lambda fact: None, ownership=ownership, clock=replica.clock)
