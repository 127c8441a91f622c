"""A read-only view of a remote experiment: its journal, and what else is looked at, in the cache. Nothing is unpickled.

A view is fetched anew each time, for the experiment goes on; checkpoints come when they are used
(`Trial.open_checkpoint`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from trainables.errors import ObjectNotFoundError
from trainables.places import child_of, parent_and_name, trim_slash
from trainables.result_history import RESULT_FILE
from trainables.store import fs
from trainables.store.manifest import stays_inside
from trainables.transfer import transfer_jobs
from trainables.transfer.cached import locked_cache
from trainables.transfer.client import InlineClient, TransferClient
from trainables.transfer.open import check_scheme, shown
from tuner.error import ExperimentNotFoundError, SettingError
from tuner.experiment.paths import ExperimentPaths, cache_of, is_history
from tuner.experiment.reader import lies_at, load_with_journal, read_settings
from tuner.experiment.state import ExperimentState
from tuner.syncer.remote_experiment import RemoteExperiment

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
_HASH = re.compile(rb"[0-9a-f]{64}")

More = Callable[[ExperimentPaths, ExperimentState, Collection[str]], Collection[str]]
"""What to bring besides the journal, relative to the experiment; what the replica lacks is left out.

It is given the journal's paths, its state, and the names of everything remote."""


def journal_only(paths: ExperimentPaths, state: ExperimentState, there: Collection[str]) -> Collection[str]:
    """Nothing more."""
    return []


def warnings(paths: ExperimentPaths, state: ExperimentState, there: Collection[str]) -> Collection[str]:
    """What its drivers warned of."""
    return [file.name for file in paths.driver_logs]


def history(paths: ExperimentPaths, state: ExperimentState, there: Collection[str]) -> Collection[str]:
    """What snapshots have replaced."""
    return [name for name in there if is_history(name)]


def results(paths: ExperimentPaths, state: ExperimentState, there: Collection[str]) -> Collection[str]:
    """What an analysis reads: histories, errors, and the blobs that configs name."""
    names = [f"{trial.dirname}/{name}" for trial in state.trials for name in (RESULT_FILE, "error.txt")]
    named = {found.decode() for trial in state.trials for found in _HASH.findall(bytes(trial.raw_config))}
    return names + [f"{paths.blobs.name}/{name}" for name in sorted(named)]


def stored_settings(paths: ExperimentPaths, state: ExperimentState, there: Collection[str]) -> Collection[str]:
    """The blob of the settings that a restore takes over."""
    name = read_settings(paths).get("settings_blob")
    return [f"{paths.blobs.name}/{name}"] if isinstance(name, str) else []


@contextmanager
def opened(uri: str) -> Iterator[RemoteExperiment]:
    """A remote experiment, to be read; it need not exist. Raises SettingError, TransferError."""
    check_scheme(uri)
    place, name = parent_and_name(uri)
    if not name:
        raise SettingError(f"{shown(uri)!r} is no experiment: scheme://bucket/experiment or host:/path is expected")
    uploader = InlineClient({"place": place}, check=False)
    try:
        yield RemoteExperiment(uploader, uploader.uri, name, timeout_s=TIMEOUT_S)
    finally:
        uploader.close()


@contextmanager
def view(uri: str, more: More = journal_only) -> Iterator[ExperimentPaths]:
    """The journal of a remote experiment as it is now, in the cache; nobody else changes it meanwhile.

    Raises ExperimentNotFoundError when there is none, ExperimentDamagedError, and what `opened` raises.
    """
    with opened(uri) as remote, locked_cache(f"{cache_of(uri).name}/{more.__name__}") as directory:
        incoming, root = directory / ".incoming", directory / remote.name
        if fs.exists(incoming):
            fs.rmtree(incoming)  # of a reader that was killed
        if not remote.exists:
            raise ExperimentNotFoundError(f"there is no experiment at {remote.uri}")
        fs.make_dirs(incoming)
        paths = remote.fetch_journal(incoming)
        there = set(remote.keys)
        with lies_at(incoming, remote.uri):
            names = [name for name in more(paths, load_with_journal(paths)[0], there) if name in there]
        remote.fetch(names, incoming)
        if fs.exists(root):
            fs.rmtree(root)
        fs.rename(incoming, root)
        with lies_at(root, remote.uri):
            yield ExperimentPaths(root)


def load(uri: str) -> tuple[dict[str, Any], ExperimentState]:
    """A remote experiment for an analysis: its settings and its state."""
    with view(uri, results) as paths:
        state, contents = load_with_journal(paths)
        for damage in contents.damaged:
            log.warning("%s", child_of(shown(uri), f"journal/{damage}"))
        return read_settings(paths), opened_from(uri, state)


def opened_from(uri: str, state: ExperimentState) -> ExperimentState:
    """The same state, whose checkpoints lie at that place, wherever they were once copied to."""
    for trial in state.trials:
        trial.__dict__["origin"] = trim_slash(uri)
    return state


def names_under(uri: str, known: Collection[str] = ()) -> tuple[str, list[str]]:
    """(the place as it may be shown, names of the experiments directly under it).

    Args:
        known: names that were experiments before; nothing but their being there is asked.
    """
    check_scheme(uri)
    uploader = InlineClient({"place": uri}, check=False)
    try:
        listed = uploader.call(transfer_jobs.Children(prefix=""), timeout_s=TIMEOUT_S)
        names = [name.rstrip("/") for name in msgspec.json.decode(listed, type=list[str]) if name.endswith("/")]
        inside = (name for name in names if stays_inside(name))
        return uploader.uri, [name for name in inside if name in known or is_experiment_at(uploader, name)]
    finally:
        uploader.close()


def is_at(uri: str) -> bool:
    """There is an experiment at a URI. Raises SettingError, TransferError."""
    check_scheme(uri)
    place, name = parent_and_name(uri)
    if not name:
        return False
    uploader = InlineClient({"place": place}, check=False)
    try:
        return is_experiment_at(uploader, name)
    finally:
        uploader.close()


def is_experiment_at(uploader: TransferClient, name: str) -> bool:
    """There is an experiment directly under the place, of that name."""
    try:
        uploader.call(transfer_jobs.Read(key=f"{name.rstrip('/')}/experiment.json"), timeout_s=TIMEOUT_S)
    except ObjectNotFoundError:
        return False
    return True
