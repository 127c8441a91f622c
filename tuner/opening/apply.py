"""A start, done under one claim; until the first trial runs, all of it can be taken back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from trainables.quick_dataclass import dataclass
from trainables.store import fs
from tuner.clock import Clock
from tuner.experiment import replacing
from tuner.experiment.continuing import how_to_continue, starter_of
from tuner.experiment.generations import read_records
from tuner.experiment.journal import JournalContents, read_journal
from tuner.experiment.lock import claim
from tuner.experiment.ownership import Ownership
from tuner.experiment.paths import ExperimentPaths
from tuner.opening import moving_aside, restore, temporary
from tuner.opening.attach import OwnedReplica
from tuner.opening.decide import Action, decide
from tuner.opening.fetch import continues, lay
from tuner.opening.prepared_start import PreparedStart
from tuner.opening.reach import ReplicaConnection
from tuner.opening.survey import survey_local, usable
from tuner.opening.undo import StartUndo
from tuner.spec import Spec
from tuner.syncer.adoption import bring_back, quarantine
from tuner.syncer.claim import take_generation


@dataclass(frozen=True, slots=True)
class OwnedExperiment:
    """An experiment that this driver owns, here and in its replica."""

    start: PreparedStart
    ownership: Ownership
    contents: JournalContents | None
    """None: it is new."""
    temporary: Path
    undo: StartUndo
    """Takes the start back, until the first trial has started."""
    replica: OwnedReplica | None
    life: ExitStack = field(default_factory=ExitStack, repr=False)
    """What ends with the run, and what a failure takes back before its first trial has started."""

    @property
    def spec(self) -> Spec:
        """What holds."""
        return self.start.settings.spec

    @property
    def paths(self) -> ExperimentPaths:
        return self.start.paths

    @property
    def starter(self) -> str:
        """What started the run; messages on how to continue are in its form."""
        return starter_of(self.paths, self.description)

    @property
    def how_to_continue(self) -> str:
        """The call or command that continues the experiment."""
        return how_to_continue(self.paths.root, self.starter)

    @property
    def description(self) -> Mapping[str, Any]:
        """What its experiment.json says, or will."""
        return self.start.description.plain


def apply(
    prepared: PreparedStart,
    connection: ReplicaConnection | None,
    *,
    clock: Clock,
    inline: bool = False,
    say: Callable[[str], None] = lambda line: None,
    undone: Callable[[], None] = lambda: None,
) -> OwnedExperiment | None:
    """Claim the experiment, do what was decided, and read its journal.

    Args:
        inline: do the work on this thread.
        say: told of what takes long.
        undone: called before what was done is taken back: nothing is written there any more.

    None: another driver changed it since it was looked at, and it is as it was, or it was moved aside: look again.
    """
    with usable(prepared.settings.spec, prepared.paths), ExitStack() as life:
        if prepared.plan.action is Action.ASIDE:
            spec, standing = prepared.settings.spec, prepared.standing
            moving_aside.move(spec, prepared.paths, standing, connection, clock=clock, say=say)
            return None
        owned = _Start(prepared, connection, clock, life).run(partial(StartUndo, inline=inline, say=say, undone=undone))
        return None if owned is None else replace(owned, life=life.pop_all())


class _Start:
    """One start while it is done. `life` takes it back, until it is done and the first trial has started."""

    def __init__(
        self, prepared: PreparedStart, connection: ReplicaConnection | None, clock: Clock, life: ExitStack
    ) -> None:
        self._prepared, self._connection, self._clock, self._life = prepared, connection, clock, life
        self._paths, self._plan = prepared.paths, prepared.plan
        self._done = False

    def run(self, make_undo: Callable[..., StartUndo]) -> OwnedExperiment | None:
        prepared, paths, local = self._prepared, self._paths, self._prepared.standing.local
        expected, aside = local.last, None
        if self._plan.sets_aside:
            ownership = self._claim()
            try:
                if not self._is_as_surveyed(ownership):
                    return None
                aside, expected = quarantine(paths), None
                self._life.push(partial(_say_aside, paths, aside))
                fs.remove_quietly(ExperimentPaths(aside).generation(ownership.generation))
            finally:
                ownership.release()
        if self._plan.action is Action.RESTORE:
            assert prepared.staged is not None
            if not restore.place(prepared.staged, paths):
                return None  # a start beside this one was faster
            expected = records[-1].id if (records := read_records(paths)) else None
        made = list(local.missing)
        make_root(paths.root)
        try:
            ownership = self._claim()
        except FileNotFoundError:
            return None  # its driver could not start, and took it away just now
        self._life.callback(ownership.release)
        is_free = aside is None and self._plan.action is not Action.RESTORE
        if ownership.parent_id != expected or (is_free and not self._is_as_surveyed(ownership)):
            return None
        undo = make_undo(paths, ownership, made=made)
        self._life.callback(undo.close)
        self._life.push(partial(self._take_back, undo))
        if aside is not None:
            undo.add(lambda: bring_back(paths, aside))
        return self._owned(ownership, undo, aside)

    def _is_as_surveyed(self, ownership: Ownership) -> bool:
        """Nobody has changed what was decided on: no newer driver, nor the one whose generation was the last then."""
        settings, seen = self._prepared.settings, self._prepared.standing
        if ownership.parent_id != seen.local.last:
            return False
        now = survey_local(settings.spec, self._paths)
        same = now.description.get("id") == seen.local.description.get("id")
        return same and decide(settings, replace(seen, local=now)).action is self._plan.action

    def _owned(self, ownership: Ownership, undo: StartUndo, aside: Path | None) -> OwnedExperiment | None:
        prepared, paths, plan = self._prepared, self._paths, self._plan
        if replacing.put_back(paths):
            return None  # its replacement was killed since it was looked at
        if (plan.action is Action.NEW or undo.made) and aside is None:
            undo.add(undo.remove_made)
        if not self._take(ownership):
            return None
        replacing.remove_given_up(paths)
        replica = self._brought(aside)
        contents = None
        if plan.action is Action.REPLACE:
            undo.add(lambda: replacing.put_back(paths))
            replacing.move_aside(paths)
        if plan.resumes:
            _remove_unfinished(paths)
            contents = read_journal(paths)
        else:
            prepared.write_description()
        id = prepared.description.plain["id"]
        if (before := prepared.standing.local.description.get("id")) != id:
            temporary.remove_left(paths, before)
        directory = temporary.make(paths, id)
        self._life.callback(temporary.remove, directory)
        self._done = True
        return OwnedExperiment(prepared, ownership, contents, directory, undo, replica)

    def _claim(self) -> Ownership:
        remote = self._prepared.standing.remote
        known = False
        if remote is not None and remote.fetched is not None:
            # Of an owner whose generation is known there, it was looked at there whether it lives.
            known = self._prepared.standing.local.last in {record.id for record in read_records(remote.fetched)}
        spec, above = self._prepared.settings.spec, remote.highest if remote is not None else 0
        return claim(
            self._paths,
            takeover=spec.takeover or (known and self._plan.action is Action.FETCH),
            above=above,
            clock=self._clock,
            wait=self._clock.sleep,
        )

    def _take(self, ownership: Ownership) -> bool:
        """Claim the replica under the same number; False: another driver was faster there."""
        standing = self._prepared.standing.remote
        if self._connection is None or standing is None or standing.remote is None:
            return True
        if not take_generation(standing.remote, ownership.record):
            return False
        connection, remote = self._connection, standing.remote
        self._life.push(lambda kind, error, trace: None if error is None else connection.give_up(remote, ownership))
        return True

    def _take_back(self, undo: StartUndo, kind: object, error: BaseException | None, trace: object) -> None:
        """At the end of a start that came to nothing, and of a run that failed."""
        if error is not None and undo.replaces:
            error.add_note(f"no trial had started: the experiment that was at {self._paths.root} before is back")
        if error is not None or not self._done:
            undo.take_back()

    def _brought(self, aside: Path | None) -> OwnedReplica | None:
        """Give what was fetched its place, or what is void in the replica a place here."""
        local, standing, staged = self._prepared.standing.local, self._prepared.standing.remote, self._prepared.staged
        if self._connection is None or standing is None or standing.remote is None:
            return None
        replica = OwnedReplica.of(self._connection, standing.remote, self._paths, standing.void)
        if self._plan.voids_remote:
            assert standing.fetched is not None
            return replica.without_its_history(self._paths, standing.fetched)
        if self._plan.action is not Action.FETCH or staged is None:
            return replica
        if continues(local, standing):
            replica = replica.continuing(self._paths)
        lay(staged, self._paths)
        notes = [f"{self._paths.root} was set aside: it lies at {aside} now"] if aside is not None else []
        return replace(replica, fetched=True, notes=[*replica.notes, *notes])


def _say_aside(paths: ExperimentPaths, aside: Path, kind: object, error: BaseException | None, trace: object) -> None:
    if error is not None and fs.exists(aside):
        error.add_note(f"{paths.root} was set aside: it lies at {aside} now")


def make_root(root: Path) -> None:
    """Make the experiment's directory. A power cut does not take its name away with all that is durable in it."""
    missing = [path for path in (root, *root.parents) if not fs.exists(path)]
    fs.make_dirs(root)
    for path in reversed(missing or [root]):
        try:
            fs.fsync_dir(path.parent)
        except PermissionError:
            pass  # one that may not be read: whoever made it for us looks after it


def _remove_unfinished(paths: ExperimentPaths) -> None:
    """Remove files that a killed driver was about to give their names: nobody else writes here now."""
    for directory in (paths.root, paths.journal, paths.history, paths.blobs):
        for name in fs.listdir(directory) if fs.is_dir(directory) else ():
            if name.startswith(".") and (name.endswith(".tmp") or directory == paths.history):
                fs.remove_quietly(directory / name)
