"""Checkpoints on the disks of other hosts, before the loop runs: looked at, brought here, or removed.

An attempt may have published what its driver never heard of, because the driver was killed. On one machine a resume
finds that on the disk; on a cluster it is brought here first, and what nobody needs any more is deleted over there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial

from trainables.places import is_elsewhere, is_host
from trainables.store import fs
from trainables.wire import CheckpointRef
from tuner.executors.remote_hosts import ExperimentPlace, RemoteHosts, Uploading
from tuner.experiment.generations import read_records
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.resume import Elsewhere
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.opening.apply import OwnedExperiment
from tuner.opening.attach import OwnedReplica

log = logging.getLogger(__name__)


def join(
    hosts: RemoteHosts, owned: OwnedExperiment, state: ExperimentState, say: Callable[[str], None]
) -> OwnedReplica | None:
    """Tell the nodes where the experiment lies, and end what is left of older owners there; returns its replica.

    What has an address of its own they copy there themselves; a directory may be this host's alone.
    """
    ownership, replica, sync = owned.ownership, owned.replica, owned.spec.sync_config
    older = tuple(record.id for record in read_records(owned.paths) if record.generation < ownership.generation)
    replaced = _Replaced(hosts, owned, state)
    itself = replica is not None and replica.connection.uploader.beside and is_elsewhere(str(sync.upload_dir))
    experiment = str(owned.description["id"])
    record = owned.paths.generation(ownership.generation)
    hosts.take_place(
        ExperimentPlace(owned.paths.root, record, ownership.id, experiment, older),
        sync={
            "syncer": sync.syncer if sync.upload_dir is None else "auto",
            "options": sync.options if sync.upload_dir is None else "",
            "ssh_key": sync.ssh_key,
            "ssh_port": sync.ssh_port,
        },
        upload_to=Uploading(sync.place(), sync.sync_timeout, needed=not is_host(str(sync.upload_dir)))
        if itself
        else None,
        keeps=partial(_keeps, state, experiment, replaced),
        say=say,
    )
    owned.undo.when_replaced(replaced.remove)
    return replica.through(hosts.uploader) if replica is not None and hosts.uploads else replica


class _Replaced:
    """What nodes have on their own disks of the experiment that `overwrite=True` replaces; nothing, where none is."""

    def __init__(self, hosts: RemoteHosts, owned: OwnedExperiment, state: ExperimentState) -> None:
        self._hosts, self._undo, self._state = hosts, owned.undo, state
        aside = ExperimentPaths(owned.paths.replaced)
        there = owned.undo.replaces
        self._id = str(json.loads(fs.read_file(aside.experiment_json))["id"]) if there else ""
        self._dirnames = frozenset(fs.listdir(aside.root) if there else ())

    def has(self, dirname: str, ref: CheckpointRef) -> bool:
        """Whether that checkpoint is one of it, and not a copy that somebody made."""
        mine = bool(self._id) and ref.trial_id.startswith(f"{self._id}_") and dirname in self._dirnames
        return mine and self._state.trials.get(ref.trial_id) is None

    def is_gone(self, dirname: str, ref: CheckpointRef) -> bool:
        """The same, and that experiment cannot come back any more."""
        return self.has(dirname, ref) and not self._undo.replaces

    def remove(self) -> None:
        """Delete it on every node."""
        for host, dirname, ref, _ in self._hosts.found:
            if self.has(dirname, ref):
                try:
                    self._hosts.drop(host, dirname, ref)
                except (OSError, KeyError) as error:  # the node does not answer, or is gone: so is what it had
                    log.info("checkpoint %s of the experiment that was replaced stays on a node: %s", ref.name, error)


def gather(hosts: RemoteHosts, state: ExperimentState, elsewhere: Elsewhere) -> list[str]:
    """Bring what unfinished trials may go on from, delete the rest; returns what people should know.

    What is kept, and is in the replica too (`elsewhere`), stays where it is; so does what another experiment saved.
    """
    notes = []
    by_dirname = {trial.dirname: trial for trial in state.trials}
    for host, dirname, ref, digest in hosts.found:
        trial = by_dirname.get(dirname)
        known = trial is not None and any(record.ref == ref for record in trial.checkpoints)
        if not ref.trial_id.startswith(hosts.experiment):
            continue
        if trial is None or not (known or _continues(trial, ref)):
            try:
                hosts.drop(host, dirname, ref)
            except KeyError:
                pass  # the node is gone, and what it had with it
            except OSError as error:  # it does not answer; the next start asks again
                notes.append(f"{dirname}: checkpoint {ref.name}, which nobody needs, stays on a node: {error}")
        elif not fs.is_dir(trial.directory / ref.name) and not (known and elsewhere(trial, ref)):
            problem = hosts.bring(host, dirname, ref, digest)
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
