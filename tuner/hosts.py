"""Checkpoints on the disks of other hosts, before the loop runs: looked at, brought here, or removed.

An attempt may have published what its driver never heard of, because the driver was killed. On one machine a resume
finds that on the disk; on a cluster it is brought here first, and what nobody needs any more is deleted over there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trainables.places import is_elsewhere, is_host
from trainables.store import fs
from trainables.sync_config import SyncConfig
from trainables.wire import CheckpointRef
from tuner.executors import RayExecutor
from tuner.executors.ray.messages import Place, Uploading
from tuner.experiment.lock import read_records
from tuner.experiment.resume import Elsewhere
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.opening import Opened
from tuner.syncer.uploader import ProcessUploader
from tuner.syncing import Link


def join(
    executor: RayExecutor,
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
    executor.say = say
    executor.keeps = partial(_keeps, state, str(opened.settings["id"]))
    executor.sync = {
        "syncer": sync.syncer if sync.upload_dir is None else "auto",
        "options": sync.options if sync.upload_dir is None else "",
        "ssh_key": sync.ssh_key,
        "ssh_port": sync.ssh_port,
    }
    if link is not None and isinstance(link.uploader, ProcessUploader) and is_elsewhere(str(sync.upload_dir)):
        executor.upload_to = Uploading(sync.place(), sync.sync_timeout, needed=not is_host(str(sync.upload_dir)))
    record = opened.paths.generation(ownership.generation)
    executor.take_place(Place(opened.paths.root, record, ownership.id, str(opened.settings["id"]), older))
    if link is not None and executor.uploads:
        link.uploader = executor.uploader(link.uploader)


def gather(executor: RayExecutor, state: ExperimentState, elsewhere: Elsewhere) -> list[str]:
    """Bring what unfinished trials may go on from, delete the rest; returns what people should know.

    What is kept, and is in the replica too (`elsewhere`), stays where it is; so does what another experiment saved.
    """
    notes = []
    by_dirname = {trial.dirname: trial for trial in state.trials}
    for host, dirname, ref, digest in executor.found:
        trial = by_dirname.get(dirname)
        known = trial is not None and any(record.ref == ref for record in trial.checkpoints)
        if not ref.trial_id.startswith(executor.experiment):
            continue
        if trial is None or not (known or _continues(trial, ref)):
            executor.drop(host, dirname, ref)
        elif not fs.is_dir(trial.directory / ref.name) and not (known and elsewhere(trial, ref)):
            problem = executor.bring(host, dirname, ref, digest)
            if problem is not None:
                notes.append(f"{trial.name}: checkpoint {ref.name} could not be brought here: {problem}")
    return notes


def _keeps(state: ExperimentState, experiment: str, dirname: str, ref: CheckpointRef) -> bool:
    """Whether what a node has that comes while trials run is needed, or may be."""
    trial = state.trials.get(ref.trial_id)
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
