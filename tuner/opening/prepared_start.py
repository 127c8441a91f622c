"""A start as far as looking goes: surveyed, decided, and what it needs laid out beside the experiment's place."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from trainables.quick_dataclass import dataclass
from tuner.clock import Clock
from tuner.error import ExperimentExistsError, ResumeError
from tuner.experiment.blobs import Blobs
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import read_settings
from tuner.opening import moving_aside, restore
from tuner.opening.decide import Action, StartPlan, decide
from tuner.opening.fetch import fetch_rest
from tuner.opening.reach import ReplicaConnection
from tuner.opening.settings import Description, Settings, changes, description_of, refuse_another
from tuner.opening.survey import StartStanding, survey, usable
from tuner.opening.trainable_code import is_another
from tuner.opening.undo import recover


@dataclass(frozen=True, slots=True)
class PreparedStart:
    """What a run will be, found by looking only."""

    settings: Settings
    paths: ExperimentPaths
    standing: StartStanding
    plan: StartPlan
    note: str
    """Why it is started, resumed or replaced, as a line for the user."""
    description: Description
    before: Mapping[str, Any]
    """What the experiment that is resumed says of itself so far."""
    changes: Sequence[str]
    """What is another at this resume than it was, one line each."""
    staged: ExperimentPaths | None
    """Where what is brought here lies, until it gets its place."""

    @property
    def code_changed(self) -> bool:
        """The code of the trainable is another than that of the results so far."""
        return is_another(self.before.get("code"), str(self.description.plain["code"]))

    def write_description(self, *, runs: bool = True) -> None:
        """Write down what holds from now on: for a resume, once it cannot fail any more, and is known to run some."""
        self.description.write(self.paths, self.before, runs=runs)


def prepare(
    settings: Settings,
    source: restore.RestoreSource | None,
    connection: ReplicaConnection | None,
    paths: ExperimentPaths,
    *,
    clock: Clock,
    scratch: ExitStack,
) -> PreparedStart:
    """Find out what this start is; `scratch` removes what was laid out for it.

    Raises what refuses it, before anything is touched.
    """
    spec = settings.spec
    with usable(spec, paths):
        recover(spec, paths, clock)
    look = partial(survey, settings, paths, connection, restores=source is not None, clock=clock, scratch=scratch)
    standing = look()
    if connection is not None and moving_aside.interrupted(paths, standing):
        with usable(spec, paths):
            moving_aside.recover(spec, paths, standing, connection, clock)
        standing = look()
    remote = standing.remote
    if source is not None and not standing.local.exists and remote is not None and remote.exists:
        settings = settings.continuing(remote.description, None)  # it was restored before, on another machine
    plan = decide(settings, standing)
    if plan.refusal is not None:
        raise plan.refusal
    if plan.asks and not _ask(plan.asks):
        raise ExperimentExistsError(f"not resumed as answered: {plan.asks} is left alone; overwrite=True replaces it")
    staged, note = None, plan.note
    before: Mapping[str, Any] = standing.local.description if plan.action is Action.RESUME else {}
    if plan.action is Action.FETCH:
        assert remote is not None
        staged = fetch_rest(standing.local, remote, artifacts=spec.sync_config.sync_artifacts)
        before = remote.description
    elif plan.action is Action.RESTORE:
        assert source is not None
        staged, note = restore.stage(settings, source, paths, scratch)
        before = read_settings(staged)
        settings = settings.continuing(before, None)
        refuse_another(settings, before, paths.root)
    if before:
        settings = settings.with_stored(before, lambda hash: _blobs(paths, staged, hash).get(hash), paths.root)
    description = description_of(settings, before, name=paths.root.name, now=clock.time())
    changed = changes(before, description.plain) if before else []
    return PreparedStart(settings, paths, standing, plan, note, description, before, changed, staged)


def _blobs(paths: ExperimentPaths, staged: ExperimentPaths | None, hash: str) -> Blobs:
    """Those among which a blob is: what is here already was not brought again."""
    return Blobs(staged.blobs if staged is not None and (staged.blobs / hash).exists() else paths.blobs)


def _ask(place: str) -> bool:
    """Ask on the terminal whether that experiment is to be resumed. Raises ResumeError where there is none."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ResumeError(f'resume="PROMPT" needs a terminal to ask on; say resume="AUTO" to continue {place}')
    return input(f"Resume the experiment at {place}? [Y/n] ").strip().lower() in ("", "y", "yes")
