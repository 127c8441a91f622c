"""What an attempt is told at its start, made of the settings, the trial, and the checkpoint it starts from."""

from __future__ import annotations

import errno
import json
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainables import tagged
from trainables.job import Job, Replicated
from trainables.runtime.seeding import trial_seed
from trainables.store import fs
from trainables.store.manifest import is_published
from trainables.store.manifest import read as read_manifest
from trainables.wire import CheckpointRef
from tuner.executors.base import Launch, Resources
from tuner.experiment.paths import TrialPaths
from tuner.experiment.reserve import cannot_write, is_full
from tuner.experiment.resume import start_of
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What the loop itself needs to know of an experiment's settings."""

    experiment_name: str
    root: Path
    temporary: Path
    seed: int
    class_api: bool
    resources: Resources = field(default_factory=lambda: {"cpu": 1.0})
    max_concurrent: int | None = None
    max_failures: int = 0
    fail_fast: bool = False
    time_budget_s: float | None = None
    trial_timeout_s: float | None = None
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool = False
    publish: str = "background"
    name_by_index: bool = False
    keep_all_ranks: bool = False
    """The workers of a trainer's group save side by side."""
    replicated: Replicated | None = None
    """Where those workers copy what they save, the experiment's key as its directory; None: they do not."""
    only: frozenset[str] | None = None
    """The trials that may run, and none is created; None: all."""
    restore: Path | None = None
    """A checkpoint that trials without one of their own start from."""
    max_publish_failures: int = 3
    can_save: bool = True
    """The class trainable has save_checkpoint and load_checkpoint."""
    keep_local: int | None = None
    """So many checkpoints of a trial stay here once a replica holds them too; None: all."""
    stdout: str | None = "stdout"
    stderr: str | None = "stderr"
    tee: bool = False
    chdir: bool = True
    original_cwd: Path = Path(".")
    directories: bool = True
    """False: trials have none; nothing of them lies beside the journal."""
    grace_s: float = 30.0
    """After a SIGTERM: how long running trials have to save."""
    stop_grace_s: float = 5.0
    """After Ctrl-C, a spent budget or fail_fast."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where an attempt begins."""

    checkpoint: CheckpointRef | None
    path: Path | None
    iteration: int
    """The trial's own count at that checkpoint."""
    time_total_s: float
    digest: str = ""


def start_at(trial: Trial, record: CheckpointRecord | None, settings: LoopSettings, *, holder: Trial) -> Start:
    """From a checkpoint of the trial's own or of a donor (`holder`), else from that of `restore=`, or from nothing."""
    ref, iteration, spent = start_of(trial, record)
    if ref is not None:
        digest = record.digest if record is not None else ""
        return Start(ref, holder.directory / ref.name, iteration, spent, digest)
    restore = settings.restore
    if restore is None or not is_published(restore):
        return Start(None, restore, 0, 0.0)
    manifest = read_manifest(restore).manifest
    spent = tagged.loads(bytes(manifest.metrics)).get("time_total_s", 0.0)
    return Start(None, restore, manifest.iteration, float(spent))


def launch_of(
    trial: Trial, start: Start, settings: LoopSettings, *, attempt: int, generation: int, resources: Resources
) -> Launch:
    """The attempt as an executor takes it."""
    job = Job(
        trial_id=trial.trial_id,
        trial_name=trial.name,
        experiment_name=settings.experiment_name,
        index=trial.index,
        directory=trial.directory,
        temporary=settings.temporary,
        config=trial.config,
        attempt=attempt,
        generation=generation,
        seed=settings.seed,
        experiment_tag=trial.experiment_tag,
        checkpoint=start.checkpoint,
        checkpoint_path=start.path,
        start_iteration=start.iteration,
        start_time_total_s=start.time_total_s,
        resources=dict(resources),
        publish=settings.publish,
        name_by_index=settings.name_by_index,
        save_count=trial.saves,
        keep_all_ranks=settings.keep_all_ranks,
        replicated=_of_trial(settings.replicated, trial),
        max_publish_failures=settings.max_publish_failures,
        chdir=settings.chdir,
        original_cwd=settings.original_cwd,
        grace_s=settings.grace_s,
    )
    return Launch(
        job=job,
        resources=resources,
        digest=start.digest,
        timeout_s=settings.trial_timeout_s,
        stdout=None if settings.stdout is None else trial.directory / settings.stdout,
        stderr=None if settings.stderr is None else trial.directory / settings.stderr,
        tee=settings.tee,
    )


def _of_trial(replicated: Replicated | None, trial: Trial) -> Replicated | None:
    if replicated is None:
        return None
    return replace(replicated, directory=f"{replicated.directory}/{trial.dirname}")


def describe(trial: Trial, seed: int) -> None:
    """Make a trial's directory, with what identifies the trial. On a full disk the next start does it."""
    try:
        fs.make_dirs(trial.directory)
        fs.write_file(TrialPaths(trial.directory).trial_json, _description(trial, seed), fsync=False)
    except OSError as error:
        if error.errno == errno.EROFS:
            raise cannot_write(trial.directory, error) from error
        if not is_full(error):
            raise
        log.warning("%s is not described in its directory: %s", trial.name, error)


def describe_again(trial: Trial, seed: int) -> None:
    """The same where a power cut has taken it: nobody waits for the disk when it is written first."""
    try:
        if fs.read_file(TrialPaths(trial.directory).trial_json) == _description(trial, seed):
            return
    except FileNotFoundError:
        pass
    describe(trial, seed)


def _description(trial: Trial, seed: int) -> bytes:
    facts = {
        "trial_id": trial.trial_id,
        "index": trial.index,
        "name": trial.name,
        "seed": trial_seed(seed, trial.index),
    }
    return json.dumps(facts).encode()
