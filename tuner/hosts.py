"""Checkpoints on the disks of other hosts, before the loop runs: looked at, brought here, or removed.

An attempt may have published what its driver never heard of, because the driver was killed. On one machine a resume
finds that on the disk; on a cluster it is brought here first, and what nobody needs any more is deleted over there.
"""

from __future__ import annotations

from collections.abc import Callable

from trainables.store import fs
from trainables.sync_config import SyncConfig
from trainables.wire import CheckpointRef
from tuner.executors import RayExecutor
from tuner.executors.ray.messages import Place
from tuner.experiment.lock import read_records
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.opening import Opened


def join(executor: RayExecutor, opened: Opened, sync: SyncConfig, say: Callable[[str], None]) -> None:
    """Tell the nodes where the experiment lies; what is left of older owners there is ended."""
    ownership = opened.ownership
    older = tuple(record.id for record in read_records(opened.paths) if record.generation < ownership.generation)
    executor.say = say
    executor.sync = {
        "syncer": sync.syncer if sync.upload_dir is None else "auto",
        "options": sync.options if sync.upload_dir is None else "",
        "ssh_key": sync.ssh_key,
        "ssh_port": sync.ssh_port,
    }
    record = opened.paths.generation(ownership.generation)
    executor.take_place(Place(opened.paths.root, record, ownership.id, older))


def gather(executor: RayExecutor, state: ExperimentState) -> list[str]:
    """Bring what unfinished trials may go on from, delete the rest; returns what people should know."""
    notes = []
    by_dirname = {trial.dirname: trial for trial in state.trials}
    for host, dirname, ref, digest in executor.found:
        trial = by_dirname.get(dirname)
        if trial is not None and any(record.ref == ref for record in trial.checkpoints):
            continue  # it is here too, and retention knows of it
        if trial is not None and _continues(trial, ref):
            if not fs.is_dir(trial.directory / ref.name):
                problem = executor.bring(host, dirname, ref, digest)
                if problem is not None:
                    notes.append(f"{trial.name}: checkpoint {ref.name} could not be brought here: {problem}")
        else:
            executor.drop(host, dirname, ref)
    return notes


def _continues(trial: Trial, ref: CheckpointRef) -> bool:
    """Whether a checkpoint that the journal does not know is newer than those that it knows, and of the same life."""
    newest = trial.checkpoints[-1].order if trial.checkpoints else (0, 0, 0)
    in_life = (ref.generation, ref.attempt) in trial.lineage and ref not in trial.forgotten
    return not trial.is_finished() and ref.trial_id == trial.trial_id and in_life and ref.order > newest
