"""The config dataclasses (`RunConfig`, `ScalingConfig`, `FailureConfig` and others), which validate themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trainables import validation as check
from trainables.bundles import STRATEGIES, PlacementGroupFactory
from trainables.checkpoint_config import (
    RECENCY,
    Budget,
    CheckpointConfig,
    CheckpointStrategy,
    ScoreOrder,
    parse_score_attr,
)
from trainables.quick_dataclass import dataclass
from trainables.sync_config import SyncConfig
from trainables.validation import Check, Config, checked_names, ignored, invalid, optional, parse_bytes, setting

__all__ = [
    "RECENCY",
    "Budget",
    "CheckpointConfig",
    "CheckpointStrategy",
    "FailureConfig",
    "RunConfig",
    "ScalingConfig",
    "ScoreOrder",
    "SyncConfig",
    "parse_bytes",
    "parse_score_attr",
]


def _fail_fast(name: str, value: Any) -> Any:
    if isinstance(value, str) and value.lower() == "raise":
        value = "raise"  # Ray takes it in any case
    return check.one_of(name, value, (True, False, "raise"))


_RETRIES = "-1 (retried for ever), 0 (never retried), or a whole number >= 1"


@checked_names
@dataclass(repr=False)
class FailureConfig(Config):
    """What happens when a trial fails.

    Args:
        max_failures: how often a trial goes on from its newest checkpoint after a failure: at once the first time, then
            after 1, 2, 4 ... 60 seconds; -1: always.
        fail_fast: True ends the experiment at the first failure, "raise" raises it at once; both need `max_failures=0`.
        controller_failure_limit: accepted, without effect.

    Example:
        >>> FailureConfig(max_failures=3).max_failures
        3
    """

    max_failures: int = setting(partial(check.whole_number, least=-1, accepted=_RETRIES), 0)
    fail_fast: bool | str = setting(_fail_fast, False)
    controller_failure_limit: int = ignored("there is no controller process to restart", -1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fail_fast and self.max_failures != 0:
            raise invalid("FailureConfig: max_failures", self.max_failures, f"0 with fail_fast={self.fail_fast!r}")


_BY_RESOURCES = "workers are placed by their resources alone"


def _plain(fits: Check) -> Check:
    """The same check; what is neither None nor a plain value is a domain of a search space."""
    return lambda name, value: fits(name, value) if isinstance(value, str | int | float | None) else value


def _workers(name: str, value: Any) -> int:
    return check.whole_number(name, 1 if value is None else value, least=0)  # None is Ray 2.0's default


def _amounts(name: str, value: Any) -> Any:
    wrong = isinstance(value, str | int | float | list | tuple)
    for amount in value.values() if isinstance(value, Mapping) else ():
        wrong |= isinstance(amount, bool | str) or (isinstance(amount, int | float) and not amount >= 0)
    if wrong:
        raise invalid(name, value, 'None, or a dict of amounts >= 0 like {"CPU": 1, "GPU": 0.5}')
    return value


@checked_names
@dataclass(repr=False)
class ScalingConfig(Config):
    """How many workers a trainer starts, and what each of them gets.

    Args:
        trainer_resources: what the trainer itself reserves beside its workers; None: nothing.
        num_workers: processes of the group.
        use_gpu: one GPU per worker, unless `resources_per_worker` says how many.
        resources_per_worker: {"CPU": 1, "GPU": 0.5, "custom": 2}; None: one CPU, or one GPU.
        placement_strategy: on a cluster, "PACK" (on one node if that holds all, else on as few as possible), "SPREAD",
            "STRICT_PACK" (on one node) or "STRICT_SPREAD" (each worker on a node of its own). A trainer's own counts
            for all its trials.
        accelerator_type, use_tpu, topology, bundle_label_selector: accepted, without effect.
        _max_cpu_fraction_per_node: accepted, without effect.

    Every value may also be a domain of a search space.

    Example:
        >>> ScalingConfig(num_workers=4, resources_per_worker={"CPU": 2}).num_workers
        4
    """

    trainer_resources: Any = setting(optional(_amounts))
    num_workers: Any = setting(_plain(_workers), 1)
    use_gpu: Any = setting(_plain(check.flag), False)
    resources_per_worker: Any = setting(optional(_amounts))
    placement_strategy: Any = setting(_plain(partial(check.one_of, accepted=STRATEGIES)), "PACK")
    accelerator_type: str | None = ignored(_BY_RESOURCES)
    use_tpu: bool = ignored(_BY_RESOURCES, False)
    topology: str | None = ignored(_BY_RESOURCES)
    bundle_label_selector: Any = ignored(_BY_RESOURCES)
    _max_cpu_fraction_per_node: float | None = ignored(_BY_RESOURCES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.resources_per_worker, Mapping) and isinstance(self.use_gpu, bool):
            self._check_gpu()

    def _check_gpu(self) -> None:
        gpus = self.resources_per_worker.get("GPU")
        if not self.use_gpu and isinstance(gpus, int | float) and gpus > 0:
            raise invalid(
                "ScalingConfig: resources_per_worker", self.resources_per_worker, "no GPU unless use_gpu=True"
            )
        if self.use_gpu and gpus == 0:
            raise invalid("ScalingConfig: resources_per_worker", self.resources_per_worker, "GPU > 0 with use_gpu=True")

    @property
    def worker_resources(self) -> dict[str, float]:
        """What one worker reserves."""
        if self.resources_per_worker is None:
            return {"GPU": 1} if self.use_gpu else {"CPU": 1}
        amounts = {key: amount for key, amount in self.resources_per_worker.items() if amount != 0}
        return {"GPU": 1, **amounts} if self.use_gpu else amounts

    @property
    def num_cpus_per_worker(self) -> float:
        """CPUs that one worker reserves."""
        return self.worker_resources.get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        """GPUs that one worker reserves."""
        return self.worker_resources.get("GPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """What one worker reserves besides CPUs and GPUs."""
        return {key: amount for key, amount in self.worker_resources.items() if key not in ("CPU", "GPU")}

    def as_placement_group_factory(self) -> PlacementGroupFactory:
        """The same as bundles: what the trainer reserves, then one for each worker."""
        bundles = [self.trainer_resources or {}, *[self.worker_resources] * self.num_workers]
        return PlacementGroupFactory(bundles, strategy=self.placement_strategy)

    @classmethod
    def from_placement_group_factory(cls, pgf: PlacementGroupFactory) -> ScalingConfig:
        """Of bundles: the first is the trainer's, the others, which have to be alike, are those of the workers.

        Raises InvalidSettingError for workers that are not alike.
        """
        workers = pgf.bundles if pgf.head_bundle_is_empty else pgf.bundles[1:]
        if any(worker != workers[0] for worker in workers):
            raise invalid("ScalingConfig.from_placement_group_factory: bundles", pgf.bundles, "workers that are alike")
        return cls(
            trainer_resources={} if pgf.head_bundle_is_empty else pgf.bundles[0],
            num_workers=len(workers),
            use_gpu=bool(workers and workers[0].get("GPU")),
            resources_per_worker=workers[0] if workers else None,
            placement_strategy=pgf.strategy,
        )

    @property
    def total_resources(self) -> dict[str, float]:
        """What the whole group reserves. A trainer that is given nothing reserves nothing: it only waits."""
        total = dict(self.trainer_resources or {})
        for key, amount in self.worker_resources.items():
            total[key] = total.get(key, 0) + amount * self.num_workers
        return total


def _verbose(name: str, value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or not 0 <= value <= 3):
        raise invalid(name, value, "None, 0 (nothing), 1 (status), 2 (and brief results), 3 (and detailed results)")
    return value


def _callbacks(name: str, value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise invalid(name, value, "None, or a list of Callback objects")
    for callback in value:
        if isinstance(callback, type):
            raise invalid(name, callback, f"objects: {callback.__name__}(), not the class")
    return value


_HOOKS = "None, a command (a text for the shell, or a list of its words), or an http(s) URL"


def _hook(name: str, value: Any) -> Any:
    words = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    if not words or not all(isinstance(word, str) for word in words) or not words[0].strip():
        hint = "; a function is for callbacks=[...]" if callable(value) else ""
        raise invalid(name, value, _HOOKS + hint)
    if isinstance(value, str) and "://" in value.split()[0]:
        scheme, _, rest = value.strip().partition("://")
        host = rest.partition("/")[0]
        if scheme.lower() not in ("http", "https") or not host or "@" in host or len(value.split()) > 1:
            raise invalid(name, value, _HOOKS + " without a user in it")
    return value


def _log_to_file(name: str, value: Any) -> Any:
    files = value if isinstance(value, list | tuple) and len(value) == 2 else [value]
    if not isinstance(value, bool) and not all(isinstance(file, str) and file for file in files):
        raise invalid(name, value, 'True, False, a file name, or two file names ("stdout.txt", "stderr.txt")')
    return value


@checked_names
@dataclass(repr=False)
class RunConfig(Config):
    """What concerns a whole experiment.

    Args:
        name: of the experiment, and of its directory; None: the trainable's name and the time.
        storage_path: directory (or URI) that holds the experiment's directory; None: TUNE_RESULT_DIR, else
            ~/tuner_results.
        failure_config, checkpoint_config, sync_config: None means their defaults: a trial that fails is not tried
            again, all checkpoints stay, and nothing is copied.
        verbose: how much the driver prints: 0 nothing; 1 the state of the run, failures and a table at the end; 2 also
            a line for each trial that ends, where there is no live view; 3 also one for each start, result and
            checkpoint. None: 2. Its warnings are in `driver.log`, in the experiment's directory, all the same.
        stop: {"training_iteration": 10, "accuracy": 0.9, "loss": tune.at_most(0.1)} (a number stops at or above it,
            whichever comes first), a function (trial_id, result) -> bool, a Stopper, or a list. None: trials end by
            themselves.
        callbacks: a list of Callback objects, besides those that write result.json, progress.csv and TensorBoard's
            files. None: only these.
        log_to_file: the names of the files that get what a trial prints, in the trial's directory (it never comes to
            the terminal): True and False: "stdout" and "stderr"; "NAME": both go there; ("OUT", "ERR").
        local_dir: Ray 1.x's name of `storage_path`; None: not given.
        checkpoint_budget: bytes, "50GB" or `Budget(...)`: disk for all checkpoints of the experiment. None: no limit.
        executor: "local" (processes of this machine), "inline" (this process), "ray" (the Ray cluster that runs here),
            "slurm" (jobs of Slurm), or an executor, as `RayExecutor(address=...)`; None: processes of this machine.
        seed: of searcher and trials, a whole number from 0; None: drawn once and recorded.
        trial_timeout_s: hard limit on the wall time of one attempt, in seconds. None: there is none.
        overwrite: True: an experiment of this name is replaced.
        takeover: True: do not wait (60 s) for another owner's heartbeat to go stale.
        progress_reporter: what shows the run; None: the default view.
        on_end, on_failure: a command (a text for the shell, or a list of words) or an http(s) URL that is told, in
            JSON, when the run has ended, and when a trial has failed for good (docs/hooks.md). Never stored: a resume
            has those that it is given anew. No call holds up the run, or lasts longer than TUNE_HOOK_TIMEOUT_S (10 s).
            None: nobody is told.
        ui: True: a live page of the run, whose address is printed at the start (extra: ui). None: as TUNE_UI says, else
            False.
        storage_filesystem, worker_runtime_env: accepted, without effect.

    Example:
        >>> RunConfig(name="first", stop={"training_iteration": 10}).name
        'first'
    """

    name: str | None = setting(check.text_or_none)
    storage_path: str | os.PathLike[str] | None = setting(check.path_or_none)
    storage_filesystem: Any = ignored("storage_path says where things are, as a path or a URI")
    failure_config: FailureConfig | None = setting(check.one_config(FailureConfig))
    checkpoint_config: CheckpointConfig | CheckpointStrategy | None = setting(
        check.one_config(CheckpointConfig, CheckpointStrategy)
    )
    sync_config: SyncConfig | None = setting(check.one_config(SyncConfig))
    verbose: int | None = setting(_verbose)
    stop: Mapping[str, Any] | Callable[..., bool] | Any = None
    callbacks: Sequence[Any] | None = setting(optional(_callbacks))
    progress_reporter: Any = None
    log_to_file: bool | str | Sequence[str] = setting(_log_to_file, False)
    local_dir: str | os.PathLike[str] | None = setting(check.path_or_none)
    worker_runtime_env: Any = ignored("trials run in this environment")
    checkpoint_budget: Budget | str | int | None = setting(lambda name, value: Budget.of(value, name=name))
    executor: Any = None
    seed: int | None = setting(optional(partial(check.whole_number, least=0, accepted="None, or a whole number >= 0")))
    trial_timeout_s: float | None = setting(check.duration_or_none)
    overwrite: bool = setting(check.flag, False)
    takeover: bool = setting(check.flag, False)
    on_end: str | Sequence[str] | None = setting(optional(_hook))
    on_failure: str | Sequence[str] | None = setting(optional(_hook))
    ui: bool | None = setting(optional(check.flag))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("storage_path", "local_dir"):
            if isinstance(value := getattr(self, name), Path):
                setattr(self, name, str(value))
