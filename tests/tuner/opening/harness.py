"""Starts on real directories, one step at a time, for tests of what a start looks at and does."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tuner as tune
from tuner.clock import SystemClock
from tuner.experiment import events as ev
from tuner.experiment.paths import ExperimentPaths
from tuner.opening.apply import OwnedExperiment, apply
from tuner.opening.prepared_start import PreparedStart, prepare
from tuner.opening.reach import ReplicaConnection, connect
from tuner.opening.restore import settled
from tuner.spec import Spec

CLOCK = SystemClock()


def train(config: dict[str, Any]) -> None:
    tune.report({"a": 1}, checkpoint=tune.Checkpoint.from_dict({"a": 1}))


class Opening:
    """The start of one run: in `results`, with copies at `place`, made by an agent if not `inline`."""

    def __init__(self, results: Path, place: Path | None, *, inline: bool = True, **settings: Any) -> None:
        copies = tune.SyncConfig(upload_dir=None if place is None else str(place))
        spec = Spec(**{"trainable": train, "name": "e", "storage_path": results, "sync_config": copies, **settings})
        self.settings, self.source = settled(spec, datetime.datetime(2026, 1, 1))
        self.connection: ReplicaConnection | None = connect(
            self.settings.spec, inline=inline, wake=lambda: None, hosts=False
        )

    def look(self, scratch: ExitStack) -> PreparedStart:
        spec = self.settings.spec
        paths = ExperimentPaths(spec.storage / spec.named(datetime.datetime.fromtimestamp(CLOCK.time())))
        return prepare(self.settings, self.source, self.connection, paths, clock=CLOCK, scratch=scratch)

    def start(self, meanwhile: Any = None) -> OwnedExperiment | None:
        with ExitStack() as scratch:
            prepared = self.look(scratch)
            if meanwhile is not None:
                meanwhile()
            return apply(prepared, self.connection, clock=CLOCK, inline=True)


def ran(results: Path, place: Path | str | None = None, **settings: Any) -> None:
    copies = tune.SyncConfig(upload_dir=None if place is None else str(place))
    arguments = {"name": "e", "storage_path": results, "sync_config": copies, "executor": "inline", "verbose": 0}
    tune.run(settings.pop("trainable", train), **{**arguments, **settings})


def files(root: Path) -> dict[str, bytes]:
    """What lies below, but for the records of drivers, which stay."""
    found = [path for path in sorted(root.rglob("*")) if path.is_file() and "generations" not in path.parts]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def killed_after(root: Path, last: Callable[[ev.AnyFact], bool]) -> None:
    """Leave of the journal what a driver leaves that is killed right after the first such fact."""
    (segment,) = ExperimentPaths(root).journal.glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    facts = [ev.decode(line[line.index(b'"f":') + 4 : -2]) for line in lines]
    count = next(count for count, fact in enumerate(facts, 1) if last(fact))
    segment.write_bytes(b"".join(lines[:count]))
