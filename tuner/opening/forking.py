"""An experiment of its own from one checkpoint of another: `tuner fork EXPERIMENT TRIAL@ITERATION --into NAME`.

It holds the trunk, as far as it came to that checkpoint, as a trial that has ended, and an order in its mailbox to fork
from there: what follows is what follows in any experiment. All of it is laid out beside the new name first, and gets it
in one step.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trainables.addresses import Selector
from trainables.places import is_elsewhere, parent_and_name
from trainables.store import fs, verify
from trainables.transfer.open import shown
from tuner.addresses import selected
from tuner.clock import Clock, SystemClock
from tuner.error import ExperimentExistsError, OrderError
from tuner.experiment import events as ev
from tuner.experiment.forks import raw_config_at
from tuner.experiment.incoming import beside
from tuner.experiment.paths import (
    ExperimentPaths,
    TrialPaths,
    as_local_path,
    check_experiment_name,
    default_storage,
)
from tuner.experiment.reader import load_state, read_settings
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.opening import restore
from tuner.orders.giving import GivenOrder, new_id
from tuner.orders.mailbox import Mailbox
from tuner.orders.order import ForkOrder, check_id, encode, made
from tuner.syncer import views
from tuner.syncer.brief_owner import owned_briefly

_BLOB = re.compile(rb"[0-9a-f]{64}")
_NOT_TAKEN_OVER = ("inherited_from", "inherited_at", "inherited_copies", "moved", "moved_from", "settings_lost")


class _ForkedExperiment(NamedTuple):
    """The experiment that is forked, as far as it was read."""

    address: str
    paths: ExperimentPaths
    bring: Callable[[Trial, CheckpointRecord, Path], None]
    """Puts a checkpoint of it, verified, into a directory."""


def place_of(source: str, into: str | None) -> Path:
    """Where the new experiment is made: a path; or a name, beside the other one, or under the default storage.

    Args:
        into: None: the other one's name and "-fork".

    Raises SettingError for what is no name of an experiment.
    """
    if into is not None and os.sep in into:
        root = as_local_path(into)
    else:
        above = default_storage() if is_elsewhere(source) else Path(source).absolute().parent
        root = above / (f"{parent_and_name(source)[1]}-fork" if into is None else into)
    check_experiment_name(root.name)
    return root


def fork_into(
    source: str, checkpoint: str, config: Mapping[str, Any] | None, root: Path, order_id: str | None = None
) -> GivenOrder:
    """Make an experiment at `root` that forks a checkpoint when it is run; returns the order that waits in it.

    Args:
        source: an experiment's directory or URI; nothing of it is changed.
        checkpoint: TRIAL@ITERATION, or a tag.
        config: what is changed, key or path as "model/lr" -> value.
        order_id: as of any order.

    Raises ExperimentExistsError where something is at `root`, CheckpointNotFoundError, CheckpointCorruptError or
    TransferError for one that is damaged here or there, OrderError.
    """
    start, config, clock = Selector.read(checkpoint), dict(config or {}), SystemClock()
    if start is None:
        raise OrderError(f"checkpoint={checkpoint!r:.90} is not accepted; accepted are TRIAL@ITERATION, and a tag")
    order_id = new_id() if order_id is None else check_id(order_id)
    order = made(ForkOrder, trial="0", iteration=1, config=config)  # refused before anything is fetched
    if fs.exists(root):
        raise ExperimentExistsError(f"there is something at {root}: into= (--into) takes a name that is free")
    with _opened(source) as read, beside(root, "forked") as staged:
        state = load_state(read.paths)
        trunk, record = selected(state.trials, start, of=read.address)
        settings = read_settings(read.paths)
        paths = ExperimentPaths(staged)
        lineage = {"experiment": shown(read.address), "trial": trunk.trial_id, "iteration": record.iteration}
        _lay_description(settings, read.paths, trunk, root.name, lineage | {"config": config}, paths, clock)
        fs.make_dirs(staged / trunk.dirname)
        read.bring(trunk, record, staged / trunk.dirname / record.ref.name)
        _lay_results(read.paths.root / trunk.dirname, staged / trunk.dirname, record.iteration)
        _tell(paths, state, trunk, record, int(settings.get("num_samples") or 0), clock)
        order = msgspec.structs.replace(order, trial=trunk.trial_id, iteration=record.iteration)
        Mailbox(staged).put(order_id, encode(order))
        if not restore.place(paths, ExperimentPaths(root)):
            raise ExperimentExistsError(f"there is an experiment at {root} since just now: it is left alone")
    return GivenOrder(root, order_id)


@contextmanager
def _opened(source: str) -> Iterator[_ForkedExperiment]:
    if not is_elsewhere(source):
        yield _ForkedExperiment(source, ExperimentPaths(Path(source)), _copy)
        return
    with views.view(source, _needed) as paths, views.opened(source) as remote:

        def fetch(trial: Trial, record: CheckpointRecord, target: Path) -> None:
            trial.__dict__["root"] = target.parent
            remote.fetch_checkpoint(trial, record)  # each of its files is hashed

        yield _ForkedExperiment(source, paths, fetch)


def _copy(trial: Trial, record: CheckpointRecord, target: Path) -> None:
    """By reflinks where the file system can."""
    path = Path(trial.open_checkpoint(record).path)
    verify.check(path, digest=record.digest or None)
    restore.copy_tree(path, target)


def _needed(paths: ExperimentPaths, state: ExperimentState, there: Collection[str]) -> Collection[str]:
    """What of a copy is looked at: results, and blobs that configs and settings name."""
    settings = read_settings(paths)
    blobs = [settings[name] for name in ("settings_blob", "space_blob") if settings.get(name)]
    return [*views.results(paths, state, there), *(f"{paths.blobs.name}/{name}" for name in blobs)]


def _lay_description(
    settings: Mapping[str, Any],
    source: ExperimentPaths,
    trunk: Trial,
    name: str,
    lineage: Mapping[str, Any],
    paths: ExperimentPaths,
    clock: Clock,
) -> None:
    now = datetime.datetime.fromtimestamp(clock.time(), datetime.UTC).isoformat(timespec="seconds")
    plain = {key: value for key, value in settings.items() if key not in _NOT_TAKEN_OVER}
    plain |= {"name": name, "id": secrets.token_hex(4), "created": now, "forked_from": lineage, "trials_in_all": 0}
    fs.make_dirs(paths.blobs)
    named = {found.decode() for found in _BLOB.findall(bytes(trunk.raw_config))}
    for blob in {*named, settings.get("settings_blob"), settings.get("space_blob")} - {None}:
        if fs.exists(source.blobs / str(blob)):
            fs.copy_file(source.blobs / str(blob), paths.blobs / str(blob))
    if fs.exists(source.config_yaml):
        fs.copy_file(source.config_yaml, paths.config_yaml)  # `tuner resume` continues it by that
    fs.replace_file(paths.experiment_json, json.dumps(plain, indent=1).encode())


def _lay_results(source: Path, target: Path, iteration: int) -> None:
    """The trunk's results up to there, where they are at hand: they are only shown."""
    file = TrialPaths(source).result_json
    rows = fs.read_file(file).splitlines(keepends=True) if fs.exists(file) else []
    kept = []
    for row in rows:
        try:
            read = json.loads(row)
        except ValueError:
            continue
        if isinstance(read, dict) and read.get("training_iteration", iteration + 1) <= iteration:
            kept.append(row)
    fs.replace_file(TrialPaths(target).result_json, b"".join(kept))


def _tell(
    paths: ExperimentPaths,
    state: ExperimentState,
    trunk: Trial,
    record: CheckpointRecord,
    samples: int,
    clock: Clock,
) -> None:
    """The trunk as facts: it was not asked for by the searcher, which is asked for no more trials either."""
    now, trial, ref = clock.time(), trunk.trial_id, record.ref
    why = Reason(ReasonKind.ORDER, "you", record.iteration)
    config = msgspec.Raw(raw_config_at(trunk, record.iteration))
    with owned_briefly(paths, None, clock=clock, unsaid="forked") as owner:
        for fact in (
            ev.TrialCreated(
                trial,
                0,
                config,
                trunk.raw_evaluated,
                tag=trunk.experiment_tag,
                name=trunk.name,
                dirname=trunk.dirname,
                trainable=trunk.trainable_name,
                order=f"trunk-{trial}"[:64],
            ),
            ev.AttemptStarted(trial, ref.attempt, ref.generation, now),
            ev.ResultReported(trial, ref.attempt, record.iteration, record.raw_metrics, saves=True),
            ev.CheckpointPublished(ref, record.bytes, record.digest, record.saved_at),
            ev.TrialEnded(trial, "TERMINATED", now, reason=why),
            ev.SearchEnded(samples),
            ev.RunEnded("forked", now),
        ):
            owner.add(fact)
        owner.sync()
