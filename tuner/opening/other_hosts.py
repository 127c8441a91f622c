"""Checkpoints on the disks of other hosts, before the loop runs: looked at, brought here, or removed.

An attempt may have published what its driver never heard of, because the driver was killed. On one machine a resume
finds that on the disk; on a cluster it is brought here first, and what nobody needs any more is deleted over there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

from trainables.places import is_elsewhere, is_host
from trainables.store import fs
from trainables.sync_config import SyncConfig
from trainables.wire import CheckpointRef
from tuner.executors.base import Executor, Resources
from tuner.executors.ray.protocol import Place, Uploading
from tuner.experiment.generations import read_records
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.resume import Elsewhere
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.opening.fetch import Link
from tuner.opening.start import Opened
from tuner.syncer.uploader import ProcessUploader, Uploader

log = logging.getLogger(__name__)


class Cluster(Executor, Protocol):
    """What an executor has beside the rest whose trials run on other hosts, which may have disks of their own."""

    say: Callable[[str], None]
    """Where people are told what they should know."""
    sync: Mapping[str, Any]
    """How checkpoints come here: `syncer`, `options`, `ssh_key`, `ssh_port` of `open_backend`."""
    upload_to: Uploading | None
    """Where hosts copy their checkpoints themselves; None: they come here."""
    keeps: Callable[[str, CheckpointRef], bool]
    """Whether a checkpoint in that trial directory is needed; asked of nodes that come while the run goes on."""
    found: Sequence[tuple[str, str, CheckpointRef, str]]
    """(host, trial directory, checkpoint, digest) of what lay on the nodes' own disks at the start."""
    experiment: str
    """Its id, with which those of its trials begin."""

    def check_fits(self, resources: Resources, trainable: Any) -> None:
        """Raise ResourceError, naming the numbers, if the nodes can never hold what a trial asks for."""

    def take_place(self, place: Place) -> None:
        """Look at every node, and end what is left of older owners there; fills `found`.

        Raises SettingError where a node cannot write to the experiment's directory.
        """

    @property
    def uploads(self) -> bool:
        """Hosts copy their checkpoints to the replica, and get them from there, themselves."""

    def uploader(self, home: Uploader) -> Uploader:
        """The replica's uploader, of which hosts do the part that concerns their own files."""

    def holds(self, path: Path) -> bool:
        """A host that lives has the checkpoint that would lie at that path here."""

    def delete(self, host: str, path: Path) -> bool:
        """Delete a checkpoint here and on every host that has it; from any thread. `Delete` of the deleter."""

    def bring(self, host: str, dirname: str, ref: CheckpointRef, digest: str) -> str | None:
        """Copy a checkpoint of another host here, now; why that was not possible, or None."""

    def drop(self, host: str, dirname: str, ref: CheckpointRef) -> None:
        """Delete what another host has and nobody needs. Raises KeyError when it is gone, OSError."""

    def release(self) -> None:
        """Let go of the nodes: until then their stores do what they are asked for. Doing it twice is no error."""


def cluster_of(executor: Executor) -> Cluster | None:
    """The executor, if its trials run on other hosts too."""
    return cast(Cluster, executor) if hasattr(executor, "take_place") else None


def join(
    cluster: Cluster,
    opened: Opened,
    state: ExperimentState,
    link: Link | None,
    sync: SyncConfig,
    say: Callable[[str], None],
) -> None:
    """Tell the nodes where the experiment lies; what is left of older owners there is ended.

    What has an address of its own they copy there themselves; a directory may be this host's alone.
    """
    ownership = opened.ownership
    older = tuple(record.id for record in read_records(opened.paths) if record.generation < ownership.generation)
    cluster.say = say
    replaced = _Replaced(cluster, opened, state)
    cluster.keeps = partial(_keeps, state, str(opened.settings["id"]), replaced)
    cluster.sync = {
        "syncer": sync.syncer if sync.upload_dir is None else "auto",
        "options": sync.options if sync.upload_dir is None else "",
        "ssh_key": sync.ssh_key,
        "ssh_port": sync.ssh_port,
    }
    if link is not None and isinstance(link.uploader, ProcessUploader) and is_elsewhere(str(sync.upload_dir)):
        cluster.upload_to = Uploading(sync.place(), sync.sync_timeout, needed=not is_host(str(sync.upload_dir)))
    record = opened.paths.generation(ownership.generation)
    cluster.take_place(Place(opened.paths.root, record, ownership.id, str(opened.settings["id"]), older))
    if link is not None and cluster.uploads:
        link.uploader = cluster.uploader(link.uploader)
    opened.beginning.elsewhere = replaced.remove


class _Replaced:
    """What nodes have on their own disks of the experiment that `overwrite=True` replaces; nothing, where none is."""

    def __init__(self, cluster: Cluster, opened: Opened, state: ExperimentState) -> None:
        self._cluster, self._beginning, self._state = cluster, opened.beginning, state
        aside = ExperimentPaths(opened.paths.replaced)
        there = opened.beginning.replaces
        self._id = str(json.loads(fs.read_file(aside.experiment_json))["id"]) if there else ""
        self._dirnames = frozenset(fs.listdir(aside.root) if there else ())

    def has(self, dirname: str, ref: CheckpointRef) -> bool:
        """Whether that checkpoint is one of it, and not a copy that somebody made."""
        mine = bool(self._id) and ref.trial_id.startswith(f"{self._id}_") and dirname in self._dirnames
        return mine and self._state.trials.get(ref.trial_id) is None

    def is_gone(self, dirname: str, ref: CheckpointRef) -> bool:
        """The same, and that experiment cannot come back any more."""
        return self.has(dirname, ref) and not self._beginning.replaces

    def remove(self) -> None:
        """Delete it on every node."""
        for host, dirname, ref, _ in self._cluster.found:
            if self.has(dirname, ref):
                try:
                    self._cluster.drop(host, dirname, ref)
                except (OSError, KeyError) as error:  # the node does not answer, or is gone: so is what it had
                    log.info("checkpoint %s of the experiment that was replaced stays on a node: %s", ref.name, error)


def gather(cluster: Cluster, state: ExperimentState, elsewhere: Elsewhere) -> list[str]:
    """Bring what unfinished trials may go on from, delete the rest; returns what people should know.

    What is kept, and is in the replica too (`elsewhere`), stays where it is; so does what another experiment saved.
    """
    notes = []
    by_dirname = {trial.dirname: trial for trial in state.trials}
    for host, dirname, ref, digest in cluster.found:
        trial = by_dirname.get(dirname)
        known = trial is not None and any(record.ref == ref for record in trial.checkpoints)
        if not ref.trial_id.startswith(cluster.experiment):
            continue
        if trial is None or not (known or _continues(trial, ref)):
            try:
                cluster.drop(host, dirname, ref)
            except KeyError:
                pass  # the node is gone, and what it had with it
            except OSError as error:  # it does not answer; the next start asks again
                notes.append(f"{dirname}: checkpoint {ref.name}, which nobody needs, stays on a node: {error}")
        elif not fs.is_dir(trial.directory / ref.name) and not (known and elsewhere(trial, ref)):
            problem = cluster.bring(host, dirname, ref, digest)
            if problem is not None:
                notes.append(f"{trial.name}: checkpoint {ref.name} could not be brought here: {problem}")
    return notes


def _keeps(state: ExperimentState, experiment: str, replaced: _Replaced, dirname: str, ref: CheckpointRef) -> bool:
    """Whether what a node has that comes while trials run is needed, or may be."""
    trial = state.trials.get(ref.trial_id)
    if replaced.is_gone(dirname, ref):
        return False
    if trial is None:
        return not ref.trial_id.startswith(experiment)
    just_now = trial.status == Trial.RUNNING and (ref.generation, ref.attempt) == (
        trial.attempt_generation,
        trial.attempt,
    )
    return just_now or any(record.ref == ref for record in trial.checkpoints)


def _continues(trial: Trial, ref: CheckpointRef) -> bool:
    """Whether a checkpoint that the journal does not know is newer than those that it knows, and of the same life."""
    newest = trial.checkpoints[-1].order if trial.checkpoints else (0, 0, 0)
    in_life = (ref.generation, ref.attempt) in trial.lineage and ref not in trial.forgotten
    return not trial.is_finished() and ref.trial_id == trial.trial_id and in_life and ref.order > newest
