"""Opening an experiment's directory: new, resumed or replaced; claimed before anything is read or written."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle

from trainables.config import Budget
from trainables.places import kernels_filesystem
from trainables.store import fs
from tuner.clock import Clock
from tuner.error import (
    ExperimentDamagedError,
    ExperimentExistsError,
    OwnedElsewhereError,
    ResumeError,
    SettingError,
    StorageError,
    StorageFullError,
    TuneError,
)
from tuner.experiment import formats, replacing, unpickling
from tuner.experiment.blobs import Blobs
from tuner.experiment.generations import read_records
from tuner.experiment.journal import JournalContents, read_journal
from tuner.experiment.leftovers import trials_with_results
from tuner.experiment.lock import claim
from tuner.experiment.ownership import Ownership
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import is_experiment, load_state, read_settings
from tuner.experiment.resume import Base
from tuner.opening import temporary
from tuner.opening.undo import Beginning
from tuner.schedulers import FIFOScheduler, create_scheduler
from tuner.search import BasicVariantGenerator, create_searcher
from tuner.search.described import described
from tuner.search.space import fingerprint, space_difference, space_warnings
from tuner.spec import Spec
from tuner.syncer.adoption import bring_back

log = logging.getLogger(__name__)

STORED_SPACE_BYTES = 256 * 1024
TUNE_SETTINGS = (
    "time_budget_s",
    "search_alg",
    "scheduler",
    "max_concurrent_trials",
    "trial_name_creator",
    "trial_dirname_creator",
    "chdir_to_trial_dir",
)
RUN_SETTINGS = (
    "stop",
    "checkpoint_config",
    "failure_config",
    "checkpoint_budget",
    "log_to_file",
    "trial_timeout_s",
    "callbacks",
    "verbose",
    "sync_config",
)
STORED_SETTINGS = (*TUNE_SETTINGS, *RUN_SETTINGS)
"""Fields of a `Spec` that are pickled for a `Tuner.restore` without a TuneConfig, or without a RunConfig."""


class Action(Enum):
    """What happens to the directory."""

    START = "start"
    RESUME = "resume"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done, and the line that says why."""

    action: Action
    note: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run will be, found by looking only."""

    plan: Plan
    settings: dict[str, Any]
    space: bytes | None
    """The search space of a new experiment, pickled for a `Tuner.restore` that is not given it again."""
    stored: bytes
    """The settings that such a restore takes over, pickled; only it unpickles them."""
    changes: list[str]
    """What is another at this resume than it was, one line each."""


@dataclass(slots=True)
class Opened:
    """A directory that this driver owns."""

    note: str
    """Why it was resumed, started or replaced, as a line for the user."""
    paths: ExperimentPaths
    ownership: Ownership
    settings: dict[str, Any]
    contents: JournalContents | None
    temporary: Path
    changes: list[str]
    """What is another at this resume than it was, one line each for the user."""
    beginning: Beginning
    """Takes a new one back, until its first trial has started."""
    write_settings: Callable[[], None]
    """Write down what holds from now on: for a resume, once it cannot fail any more."""


def plan(spec: Spec, paths: ExperimentPaths, *, asked: bool = False) -> Plan:
    """Decide by looking only. Raises before anything is touched. `asked`: a person has said yes already."""
    base, root = spec.resume_choice.base, paths.root
    if not is_experiment(paths):
        place = next(parent for parent in root.parents if parent.exists())
        if not place.is_dir():
            raise SettingError(f"{_storage(spec)} is not accepted: {place} is a file, no directory")
        if kind := kernels_filesystem(root):
            raise SettingError(
                f"{_storage(spec)} is not accepted: {kind} is the kernel's own filesystem, and keeps no files; give a "
                "directory on a disk"
            )
        if root.exists() and not root.is_dir():
            raise ExperimentDamagedError(f"{root} is a file, not a directory; choose another name or storage_path")
        foreign = [name for name in (os.listdir(root) if root.is_dir() else ()) if not _ours(name)]
        if base in (Base.LOCAL, Base.REMOTE):
            raise ResumeError(_nothing_to_resume(spec, paths))
        if foreign:
            raise ExperimentDamagedError(
                f"{root} holds {', '.join(sorted(foreign)[:3])} but no experiment.json: it is not an experiment of "
                "ours and is left alone; choose another name or storage_path"
            )
        return Plan(Action.START, f"starting new because there is no experiment at {root}")
    if base is Base.REMOTE and not spec.has_replica:
        raise ResumeError(
            f'resume="REMOTE" needs a replica: set SyncConfig(upload_dir=...); there is a local experiment at {root}'
        )
    settings = read_settings(paths)
    formats.check_books(paths)
    if spec.overwrite:
        return Plan(Action.REPLACE, f"starting new because overwrite=True replaces the experiment at {root}")
    if base is Base.NEW:
        told = any(trial.told for trial in load_state(paths).trials) or any(trials_with_results(paths))
        if spec.name is not None and not told:
            return Plan(Action.REPLACE, f"starting new because the experiment at {root} never had a result")
        raise ExperimentExistsError(
            f'there is an experiment with results at {root}: resume="AUTO" continues it, overwrite=True replaces it, '
            "another name leaves it alone"
        )
    if base is Base.PROMPT and not asked and not ask(root):
        raise ExperimentExistsError(f"not resumed as answered: {root} is left alone; overwrite=True replaces it")
    check_same(spec, settings, paths)
    return Plan(Action.RESUME, f"resuming from {root}")


def _storage(spec: Spec) -> str:
    """The setting as it was given."""
    return f"storage_path={str(spec.storage if spec.storage_path is None else spec.storage_path)!r}"


def _ours(name: str) -> bool:
    return name in ("generations", "journal", "blobs", "driver.log", "driver.log.1") or name.startswith(".")


def _nothing_to_resume(spec: Spec, paths: ExperimentPaths) -> str:
    storage = paths.root.parent
    found = (
        sorted(entry.name for entry in storage.iterdir() if (entry / "experiment.json").exists())
        if storage.is_dir()
        else []
    )
    there = f"; there are: {', '.join(found[:10])}" if found else "; there is no experiment in that directory"
    return f"resume={spec.resume!r}: there is no experiment at {paths.root}{there}"


def ask(root: Path | str) -> bool:
    """Ask on the terminal whether that experiment is to be resumed. Raises ResumeError where there is none."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ResumeError(f'resume="PROMPT" needs a terminal to ask on; say resume="AUTO" to continue {root}')
    return input(f"Resume the experiment at {root}? [Y/n] ").strip().lower() in ("", "y", "yes")


def check_same(spec: Spec, settings: dict[str, Any], paths: ExperimentPaths) -> None:
    """Refuse to go on with another trainable or another search space."""
    if settings.get("trainable") not in (None, spec.trainable_name):
        raise ResumeError(
            f"{paths.root} was run with the trainable {settings['trainable']!r}, not {spec.trainable_name!r}: "
            "give the run another name"
        )
    if not spec.space_given:
        if settings.get("space") and not settings.get("space_blob"):
            raise ResumeError(
                f"the search space of {paths.root} was too large to be stored; give it again: "
                "Tuner.restore(path, trainable, param_space=...)"
            )
        return
    changed = space_difference(settings.get("space", {}), fingerprint(spec.param_space))
    if changed:
        raise ResumeError(
            f"the search space is not the one that {paths.root} was started with; "
            "give the run another name, or restore the space:\n  " + "\n  ".join(changed)
        )


def prepare(spec: Spec, paths: ExperimentPaths, clock: Clock) -> Prepared:
    """Plan the run and find its settings, by looking only; of a resume, `spec` takes over what is not given anew.

    Raises before anything is touched.
    """
    with _usable(spec, paths):
        planned = plan(spec, paths)
    changes: list[str] = []
    if planned.action is Action.RESUME:
        settings = read_settings(paths)
        if not spec.space_given and settings.get("space_blob"):
            spec.param_space = unpickling.loads(Blobs(paths.blobs).get(settings["space_blob"]))
        if spec.stored:
            _take_over(spec, settings, paths)
        holds: dict[str, Any] = {**spec.settings(), **_plugins_of(spec)}
        changes = _changes(settings, holds)
        if spec.space_given:
            holds["space"] = fingerprint(spec.param_space)
            changes += space_warnings(settings.get("space", {}), holds["space"])
        # What holds from now on, also for readers; the format before the journal has a line of it.
        settings = {**settings, **holds, "format": formats.FORMAT}
    else:
        settings = _new_settings(spec, paths, clock)
    # Before the searcher is told of the run: a restore tells it again.
    space = None if planned.action is Action.RESUME else _pickled("search space", spec.param_space)
    values = {name: getattr(spec, name) for name in STORED_SETTINGS}
    pickled = {name: _pickled(name, value) for name, value in values.items() if value is not None}
    stored = {name: data for name, data in pickled.items() if data is not None}
    settings["settings_lost"] = [name for name, data in pickled.items() if data is None]
    return Prepared(planned, settings, space, cloudpickle.dumps(stored), changes)


def _plugins_of(spec: Spec) -> dict[str, Any]:
    """Searcher, scheduler and stopper in words; and what the searcher goes by."""
    searcher, scheduler = spec.search_alg, spec.scheduler
    if searcher is None:
        searcher = create_searcher("optuna") if callable(spec.param_space) else BasicVariantGenerator()
    elif isinstance(searcher, str):
        searcher = create_searcher(searcher)
    if scheduler is None or isinstance(scheduler, str):
        scheduler = FIFOScheduler() if scheduler is None else create_scheduler(scheduler)
    metric, mode = getattr(searcher, "metric", None), getattr(searcher, "mode", None) or spec.mode
    return {
        "searcher": described(searcher),
        "searches_for": {"metric": metric, "mode": mode} if metric and mode else None,
        "scheduler": described(scheduler),
        "stop": described(spec.stop or None),
    }


def _said(name: str, settings: dict[str, Any]) -> str:
    value = settings[name]
    return repr(value) if name in ("metric", "mode") else str(value)


def _changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """One line per setting that decides differently from here on: what it was, and what it is."""
    compared = ("metric", "mode", "searcher", "scheduler", "stop")
    return [
        f"{name}: was {_said(name, before)}, now {_said(name, now)}, which is used from here on"
        for name in compared
        if name in before and before[name] != now[name]
    ]


def take_over_place(spec: Spec, name: str) -> None:
    """Where copies go is needed before anything is opened: of a restore that is not told anew, as it was stored."""
    paths = ExperimentPaths(spec.storage / name)
    if "sync_config" in spec.stored and is_experiment(paths):
        settings = read_settings(paths)
        if settings.get("settings_blob"):
            stored = unpickling.loads(Blobs(paths.blobs).get(settings["settings_blob"]))
            if "sync_config" in stored:
                spec.sync_config = unpickling.loads(stored["sync_config"])


def open_experiment(
    spec: Spec,
    paths: ExperimentPaths,
    prepared: Prepared,
    *,
    clock: Clock,
    above: int = 0,
    confirm: Callable[[Ownership], bool] = lambda ownership: True,
    fetched: Sequence[Path] = (),
) -> Opened | None:
    """Claim the directory and bring its journal; a new or replaced one is made.

    None: another driver changed it since it was looked at, so look again. Until the first trial has started, all of
    it can be taken back (`Beginning`): what is replaced lies aside, whole.

    `above`: the generation is higher than that; `confirm` claims it elsewhere too, and may find it taken; `fetched`:
    the directories that were made to bring it here, its own first, where there was none.
    """
    with _usable(spec, paths):
        made = _make_root(paths.root) or fetched
        try:
            ownership = _claim(spec, paths, clock, above)
        except FileNotFoundError:
            return None  # its driver could not start, and took it away just now
    try:
        with _usable(spec, paths):
            opened = None if not confirm(ownership) else _open(spec, paths, prepared, ownership, made)
    except BaseException:
        ownership.release()
        raise
    if opened is None:
        ownership.release()
    return opened


def remove_fetched(
    spec: Spec,
    paths: ExperimentPaths,
    clock: Clock,
    made: Sequence[Path],
    highest: int,
    *,
    aside: Path | None = None,
) -> None:
    """Take back what was brought to a machine that had nothing, unless somebody else has gone on from it since.

    `made`: the directories that were made for it, its own first; `highest`: the last generation that came with it;
    `aside`: what was here and made room for it, which comes back.
    """
    if not (made or aside) or not is_experiment(paths):
        return
    try:
        ownership = _claim(spec, paths, clock)
    except OwnedElsewhereError:
        return
    try:
        since = [record for record in read_records(paths) if record.generation > highest]
        if any(record.owner != ownership.record.owner for record in since):
            return
        if aside is not None:
            bring_back(paths, aside)
        else:
            Beginning(paths, ownership, new=True, made=made).take_back()
    finally:
        ownership.release()


def recover(spec: Spec, paths: ExperimentPaths, clock: Clock) -> None:
    """Bring back an experiment whose replacement was killed before its first trial had started."""
    with _usable(spec, paths):
        if not replacing.interrupted(paths):
            return
        ownership = _claim(spec, paths, clock)
        try:
            replacing.put_back(paths)
        finally:
            ownership.release()


def _claim(spec: Spec, paths: ExperimentPaths, clock: Clock, above: int = 0) -> Ownership:
    return claim(paths, takeover=spec.takeover, above=above, clock=clock, wait=clock.sleep)


@contextlib.contextmanager
def _usable(spec: Spec, paths: ExperimentPaths) -> Iterator[None]:
    """What the system says of the place where the experiment is to lie becomes an error that names the setting."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TuneError) or error.errno is None:
            raise  # not the system's word
        cause = error.strerror
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = fs.free_bytes(paths.root)
            raise StorageFullError(f"cannot write to {paths.root}: {cause}; {free} bytes free") from error
        raise StorageError(
            f"{_storage(spec)} cannot hold {paths.root.name}: {cause}: {error.filename or str(paths.root)!r}; "
            "give a directory in which this user may make directories and files"
        ) from error


def _open(
    spec: Spec, paths: ExperimentPaths, prepared: Prepared, ownership: Ownership, made: Sequence[Path]
) -> Opened | None:
    """`open_experiment`, now that nobody else writes there. `made`: the directories that were not there before."""
    if replacing.put_back(paths):
        return None  # its replacement was killed since it was looked at
    replacing.remove_given_up(paths)
    resumes = prepared.plan.action is Action.RESUME
    decision = plan(spec, paths, asked=resumes)
    before = read_settings(paths) if is_experiment(paths) else {}
    if (decision.action is Action.RESUME) != resumes or (resumes and before.get("id") != prepared.settings["id"]):
        return None  # it came, went or was replaced
    beginning = Beginning(paths, ownership, new=not resumes or bool(made), made=made)
    try:
        contents: JournalContents | None = None
        if resumes:
            _remove_unfinished(paths)
            contents = read_journal(paths)
        elif decision.action is Action.REPLACE:
            replacing.move_aside(paths)
        settings = dict(prepared.settings)
        write = partial(_write_settings, paths, prepared, settings, before if resumes else {})
        if not resumes:
            write()
        directory = temporary.make(paths, settings["id"])
    except BaseException:
        beginning.take_back()
        raise
    return Opened(decision.note, paths, ownership, settings, contents, directory, prepared.changes, beginning, write)


def _write_settings(
    paths: ExperimentPaths, prepared: Prepared, settings: dict[str, Any], before: dict[str, Any]
) -> None:
    """Write experiment.json and the blobs that it names, which `settings` gets too. `before`: what it held so far."""
    blobs = Blobs(paths.blobs)
    if not before:
        settings["space_blob"] = None if prepared.space is None else blobs.put(prepared.space)
    settings["settings_blob"] = blobs.put(prepared.stored)
    if settings != before:
        fs.replace_file(paths.experiment_json, json.dumps(settings, indent=1).encode())


def _make_root(root: Path) -> list[Path]:
    """Make the experiment's directory; returns what was not there, it first and then those above it.

    A power cut does not take its name away with all that is durable in it.
    """
    missing = [path for path in (root, *root.parents) if not fs.exists(path)]
    fs.make_dirs(root)
    for path in reversed(missing or [root]):
        try:
            fs.fsync_dir(path.parent)
        except PermissionError:
            pass  # one that may not be read: whoever made it for us looks after it
    return missing


def _remove_unfinished(paths: ExperimentPaths) -> None:
    """Remove files that a killed driver was about to give their names: nobody else writes here now."""
    for directory in (paths.root, paths.journal, paths.history, paths.blobs):
        for name in fs.listdir(directory) if fs.is_dir(directory) else ():
            if name.startswith(".") and (name.endswith(".tmp") or directory == paths.history):
                fs.remove_quietly(directory / name)


def _new_settings(spec: Spec, paths: ExperimentPaths, clock: Clock) -> dict[str, Any]:
    created = datetime.datetime.fromtimestamp(clock.time(), datetime.UTC)
    return {
        "format": formats.FORMAT,
        "name": paths.root.name,
        "id": secrets.token_hex(4),
        "created": created.isoformat(timespec="seconds"),
        "seed": spec.seed if spec.seed is not None else secrets.randbits(31),
        "space": fingerprint(spec.param_space),
        **spec.settings(),
        **_plugins_of(spec),
    }


def _take_over(spec: Spec, settings: dict[str, Any], paths: ExperimentPaths) -> None:
    lost = [name for name in settings.get("settings_lost", ()) if name in spec.stored]
    if lost:
        raise ResumeError(
            f"{', '.join(lost)} of {paths.root} could not be stored; give the settings again: "
            "Tuner.restore(path, trainable, tune_config=..., run_config=...)"
        )
    if settings.get("settings_blob"):
        for name, data in unpickling.loads(Blobs(paths.blobs).get(settings["settings_blob"])).items():
            if name in spec.stored:
                setattr(spec, name, unpickling.loads(data))
        spec.budget = Budget.of(spec.checkpoint_budget)


def _pickled(what: str, value: Any) -> bytes | None:
    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as error:  # whatever a user's object raises: it can still be given again
        log.debug("the %s cannot be stored: %s", what, error)
        return None
    return data if len(data) <= STORED_SPACE_BYTES else None
