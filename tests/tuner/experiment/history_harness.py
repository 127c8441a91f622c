"""Drivers that write histories, and readers of these."""

from __future__ import annotations

import json
import os
from typing import Any

from tuner.clock import VirtualClock
from tuner.experiment.history import History
from tuner.experiment.journal import JournalWriter, read_journal
from tuner.experiment.paths import ExperimentPaths


class Life:
    """A driver that writes facts; the snapshot of n facts is the number n."""

    def __init__(self, paths: ExperimentPaths, generation: int = 1, **more: Any) -> None:
        contents = read_journal(paths)
        self.paths, self.clock = paths, VirtualClock()
        settings = {"sync": "inline", "clock": self.clock, "parents": contents.chain, **more}
        self.journal = JournalWriter(paths, generation, next_seq=contents.last_seq + 1, **settings)
        head: dict[str, Any] = {"kind": "generation", "generation": generation}
        if contents.generation:
            head |= {"parent": contents.generation, "parent_seq": contents.last_seq}
        self.tell(head)

    def tell(self, *facts: dict[str, Any]) -> None:
        for fact in facts:
            self.journal.append(json.dumps(fact).encode())
        self.journal.flush()

    def write(self, count: int, *, width: int = 0) -> None:
        for _ in range(count):
            number = self.journal.last_seq + 1
            self.tell({"kind": "x", "number": number, "at": 1000.0 + number, "pad": os.urandom(width).hex()})

    def compact(self, *, grace_s: float = 0.0) -> None:
        assert self.journal.compact(b"%d" % self.journal.last_seq, grace_s=grace_s)

    def die(self) -> None:
        """As by `kill -9`."""
        self.journal._segment.abandon()


def numbers(history: History) -> list[int]:
    return [fact.seq for fact in history.facts()]


def read(paths: ExperimentPaths) -> History:
    return History(paths, read_journal(paths))


def whole(paths: ExperimentPaths) -> History:
    """The history, which lacks nothing."""
    history = read(paths)
    assert history.is_whole and history.base is None and history.notes == []
    assert numbers(history) == list(range(1, history.contents.last_seq + 1))
    return history
