"""A driver's life in which no trial runs: it claims the next generation here and in the replica, tells facts, pushes.

So it is refused beside a live driver, and of two histories neither is ever lost.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from trainables.config import SyncConfig
from trainables.transfer.client import InlineClient, ProcessClient, TransferClient
from tuner import knobs
from tuner.clock import Clock
from tuner.error import ExperimentDivergedError, OwnedElsewhereError
from tuner.experiment import events as ev
from tuner.experiment import formats
from tuner.experiment.continuing import how_to_choose, starter_of
from tuner.experiment.journal import JournalWriter, read_journal
from tuner.experiment.lock import claim
from tuner.experiment.ownership import Ownership
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import read_settings, state_of
from tuner.experiment.state import ExperimentState
from tuner.syncer.claim import RemoteClaim, take_generation
from tuner.syncer.drain import drain
from tuner.syncer.inventory import take_inventory
from tuner.syncer.relation import Relation, relate
from tuner.syncer.remote_experiment import RemoteExperiment
from tuner.syncer.replica import Replica


class BriefOwner:
    """An experiment that is owned for a moment."""

    def __init__(self, paths: ExperimentPaths, ownership: Ownership, clock: Clock, *, unsaid: str) -> None:
        self.paths, self.clock = paths, clock
        self.replica: Replica | None = None
        """None: it has none that is claimed."""
        self._ownership = ownership
        contents = read_journal(paths)
        self.state: ExperimentState = state_of(paths, contents.snapshot, contents.bodies)
        formats.raise_to_ours(paths)
        self._journal = JournalWriter(
            paths,
            ownership.generation,
            next_seq=contents.last_seq + 1,
            clock=clock,
            sync="inline",
            parents=contents.chain,
            guard=ownership.check,
            history_bytes=knobs.history_bytes(),
        )
        ended = self.state.run_ended
        known = contents.generation or None
        self.add(ev.GenerationStarted(ownership.generation, known, contents.generation_id, contents.last_seq))
        self.add(ev.RunEnded(unsaid if ended is None else ended, clock.time()))
        self.sync()

    def take_up(self, remote: RemoteExperiment, config: SyncConfig, *, journal_only: bool) -> None:
        """Keep a replica in step too, which is claimed. Raises TransferError."""
        self.replica = Replica(
            remote.uploader,
            remote.uri,
            config,
            paths=self.paths,
            journal=self._journal,
            generation=self._ownership.generation,
            clock=self.clock,
            journal_only=journal_only,
        )
        self.replica.start(self.state, take_inventory(remote, self.state, new=False))

    def add(self, fact: ev.AnyFact) -> None:
        """Journal a fact; it is durable after `sync`."""
        self.state.apply(fact)
        self._journal.append(ev.encode(fact))

    def sync(self) -> None:
        """Return when all facts are on the disk. Raises StorageFullError."""
        self._journal.sync_now()

    def push(self, told: Callable[[ev.CheckpointCopied], None] = lambda fact: None) -> list[str]:
        """Bring to the replica what it lacks; returns what did not arrive, one line each.

        Args:
            told: gets each checkpoint that has arrived.
        """
        if self.replica is None:
            return []

        def take(facts: Sequence[ev.CheckpointCopied]) -> bool:
            for fact in facts:
                self.add(fact)
                told(fact)
            self._journal.flush()
            return bool(facts)

        replica = self.replica
        replica.closing()
        drain(
            replica,
            take,
            ownership=self._ownership,
            clock=self.clock,
            done=lambda: replica.complete or replica.given_up,
        )
        return replica.missing

    def close(self) -> None:
        """Leave, here and in the replica; what was told is durable."""
        try:
            if self.replica is not None:
                self.replica.release()
        finally:
            self._journal.close()


@contextlib.contextmanager
def owned_briefly(
    paths: ExperimentPaths,
    config: SyncConfig | None,
    *,
    clock: Clock,
    inline: bool = False,
    takeover: bool = False,
    journal_only: bool = False,
    unsaid: str = "killed",
) -> Iterator[BriefOwner]:
    """Own an experiment that nobody runs, to tell facts and to push them.

    Args:
        config: its replica, which is claimed too; None: it has none.
        inline: copy in this process.
        takeover: do not wait for a sign of life of the last owner as the record here names it: it was looked at in the
            replica.
        journal_only: push nothing but the journal, which is done in a moment: a driver that starts meanwhile waits.
        unsaid: what is said of the end of a run before this one that said nothing.

    Raises OwnedElsewhereError beside a live driver, ExperimentDivergedError when the replica has facts that are not
    here, SettingError, TransferError.
    """
    with ExitStack() as life:
        remote, highest = None, 0
        if config is not None:
            uploader: TransferClient = InlineClient(config.place()) if inline else ProcessClient(config.place())
            life.callback(uploader.close)
            remote = RemoteExperiment(uploader, uploader.uri, paths.root.name, timeout_s=config.sync_timeout)
            claims = RemoteClaim(remote, paths, clock)
            highest = claims.free(claims.last_owner(), takeover=False).highest
            _check_older(remote, paths)
        ownership = claim(paths, clock=clock, above=highest, takeover=takeover, wait=clock.sleep, brief=journal_only)
        life.callback(ownership.release)
        if remote is not None and not take_generation(remote, ownership.record):
            raise OwnedElsewhereError(f"{remote.uri} was claimed by another driver just now")
        owner = BriefOwner(paths, ownership, clock, unsaid=unsaid)
        life.callback(owner.close)
        if remote is not None and config is not None:
            owner.take_up(remote, config, journal_only=journal_only)
        yield owner


def _check_older(remote: RemoteExperiment, paths: ExperimentPaths) -> None:
    with tempfile.TemporaryDirectory(prefix="journal-") as directory:
        relation = relate(remote, paths, Path(directory) / "incoming")
    if relation is Relation.NEWER:
        raise ExperimentDivergedError(
            f"{remote.uri} continues what is at {paths.root}: `tuner sync --from {shlex.quote(remote.uri)}` brings it "
            "here"
        )
    if relation is Relation.DIVERGED:
        raise diverged(remote, paths)


def diverged(remote: RemoteExperiment, paths: ExperimentPaths) -> ExperimentDivergedError:
    """Nobody can tell which of the two is meant."""
    return ExperimentDivergedError(
        f"{paths.root} and {remote.uri} are two experiments, or two histories of one: nothing was touched; "
        f"{how_to_choose(paths.root, remote.uri, starter_of(paths, read_settings(paths)))}, `tuner cp` copies one of "
        "them to another place"
    )
