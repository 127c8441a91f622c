"""What an attempt is told at its start, made of the settings, the trial, and the checkpoint it starts from."""

from __future__ import annotations

import errno
import json
import logging
from dataclasses import field, replace
from pathlib import Path
from typing import NamedTuple

from trainables import tagged
from trainables.checkpoint import Checkpoint
from trainables.group.group_trainable import GroupTrainable
from trainables.job import Job, Replicated, SavePace
from trainables.quick_dataclass import dataclass
from trainables.runtime.seeding import trial_seed
from trainables.store import fs
from trainables.store.manifest import is_published
from trainables.store.manifest import read as read_manifest
from trainables.trainable import resets
from trainables.wire import CheckpointRef
from tuner import knobs
from tuner.executors.base import Executor, Launch, Resources
from tuner.experiment.paths import TrialPaths
from tuner.experiment.reserve import cannot_write, is_full
from tuner.experiment.resume import start_of
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.opening.earlier import EarlierTrials, ReadEarlier
from tuner.search.containers import close
from tuner.spec import Spec

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a loop goes by: the settings, and what no setting says."""

    spec: Spec
    experiment_name: str
    temporary: Path
    seed: int
    """The given one, or the one that was drawn."""
    only: frozenset[str] | None = None
    """The trials that may run, and none is created; None: all."""
    start_from: Path | None = None
    """A checkpoint that trials without one of their own start from."""
    earlier: EarlierTrials | None = None
    """What trials without a checkpoint may begin with; None: nothing."""
    replicated: Replicated | None = None
    """Where the workers of a trainer's group copy what they save, the experiment's key as its directory; None: they do
    not."""
    needs_reports: bool = False
    """A run in which no trial reports anything is a mistake."""
    original_cwd: Path = field(default_factory=Path.cwd)
    max_publish_failures: int = field(default_factory=knobs.max_publish_failures)
    grace_s: float = field(default_factory=knobs.grace_s)
    """After a SIGTERM: how long running trials have to save."""
    stop_grace_s: float = field(default_factory=knobs.stop_grace_s)
    """The same after any other early end."""


class Beginnings(NamedTuple):
    """What trials begin with that have no checkpoint yet."""

    checkpoint: Path | Checkpoint | None
    """That of `restore=`."""
    earlier: ReadEarlier


def restore_directory(restore: Path | Checkpoint | None, temporary: Path) -> Path | None:
    """Where the checkpoint of `restore=` lies; one from memory is written out for as long as the run takes."""
    if isinstance(restore, Checkpoint):
        return Path(restore.to_directory(temporary / "restore"))
    return None if restore is None else Path(restore)


def needs_reports(spec: Spec) -> bool:
    """Whether a run without any report is a mistake: a trainer of its own may have nothing to report."""
    return knobs.needs_reports() and not spec.class_api and not isinstance(spec.trainable, GroupTrainable)


@dataclass(frozen=True, slots=True)
class Start:
    """Where an attempt begins."""

    checkpoint: CheckpointRef | None
    path: Path | None
    iteration: int
    """The trial's own count at that checkpoint."""
    time_total_s: float
    digest: str = ""


def start_at(trial: Trial, record: CheckpointRecord | None, plan: RunPlan, *, holder: Trial) -> Start:
    """From a checkpoint of the trial's own or of a donor (`holder`), else from that of `restore=`, or from nothing."""
    ref, iteration, spent = start_of(trial, record)
    if ref is not None:
        digest = record.digest if record is not None else ""
        return Start(ref, holder.directory / ref.name, iteration, spent, digest)
    restore = plan.start_from
    if restore is None or not is_published(restore):
        return Start(None, restore, 0, 0.0)
    manifest = read_manifest(restore).manifest
    spent = tagged.loads(bytes(manifest.metrics)).get("time_total_s", 0.0)
    return Start(None, restore, manifest.iteration, float(spent))


def launch_of(
    trial: Trial,
    start: Start,
    plan: RunPlan,
    executor: Executor,
    *,
    attempt: int,
    generation: int,
    resources: Resources,
    save_pace: SavePace | None = None,
) -> Launch:
    """The attempt as the executor takes it."""
    spec = plan.spec
    job = Job(
        trial_id=trial.trial_id,
        trial_name=trial.name,
        experiment_name=plan.experiment_name,
        index=trial.seed_index,
        directory=trial.directory,
        temporary=plan.temporary,
        config=close(spec.param_space, trial.config),
        attempt=attempt,
        generation=generation,
        seed=plan.seed,
        experiment_tag=trial.experiment_tag,
        checkpoint=start.checkpoint,
        checkpoint_path=start.path,
        start_iteration=start.iteration,
        start_time_total_s=start.time_total_s,
        resources=dict(resources),
        save_count=trial.saves,
        replicated=_of_trial(plan.replicated, trial),
        save_pace=save_pace,
        max_publish_failures=plan.max_publish_failures,
        original_cwd=plan.original_cwd,
        grace_s=plan.grace_s,
        **spec.for_worker() | ({"publish": "blocking"} if executor.inline else {}),
    )
    stdout, stderr = [trial.directory / name for name in spec.log_files] if executor.directories else (None, None)
    return Launch(
        job,
        resources,
        timeout_s=spec.trial_timeout_s,
        stdout=stdout,
        stderr=stderr,
        tee=(spec.verbose or 0) >= 3,
        digest=start.digest,
        reuse=bool(spec.reuse_actors) and spec.class_api and resets(spec.trainable),
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
        "seed": trial_seed(seed, trial.seed_index),
    }
    return json.dumps(facts).encode()
