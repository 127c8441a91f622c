"""The config dataclasses (`RunConfig`, `ScalingConfig`, `FailureConfig` and others), which validate themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from trainables.checkpoint_config import (
    RECENCY,
    Budget,
    CheckpointConfig,
    CheckpointStrategy,
    ScoreOrder,
    parse_score_attr,
)
from trainables.sync_config import SyncConfig
from trainables.validation import (
    Config,
    checked_names,
    flag,
    instance_of,
    invalid,
    no_effect,
    one_of,
    parse_bytes,
    path_or_none,
    seconds,
    text_or_none,
    whole_number,
)

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


@checked_names
@dataclass(repr=False)
class FailureConfig(Config):
    """What happens when a trial fails.

    Args:
        max_failures: how often a trial is continued after a failure; -1: always.
        fail_fast: True ends the experiment at the first failure, "raise" raises it at once; both need `max_failures=0`.
    """

    max_failures: int = 0
    fail_fast: bool | str = False
    controller_failure_limit: int = -1

    def __post_init__(self) -> None:
        accepted = "-1 (retried for ever), 0 (never retried), or a whole number >= 1"
        self.max_failures = whole_number("FailureConfig: max_failures", self.max_failures, least=-1, accepted=accepted)
        if isinstance(self.fail_fast, str) and self.fail_fast.lower() == "raise":
            self.fail_fast = "raise"  # Ray takes it in any case
        one_of("FailureConfig: fail_fast", self.fail_fast, (True, False, "raise"))
        if self.fail_fast and self.max_failures != 0:
            raise invalid("FailureConfig: max_failures", self.max_failures, f"0 with fail_fast={self.fail_fast!r}")
        if self.controller_failure_limit != -1:
            no_effect("FailureConfig(controller_failure_limit=)", "there is no controller process to restart")


_WITHOUT_EFFECT = "accelerator_type use_tpu topology bundle_label_selector _max_cpu_fraction_per_node".split()
_PLACEMENTS = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


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

    Every value may also be a domain of a search space.
    """

    trainer_resources: Any = None
    num_workers: Any = 1
    use_gpu: Any = False
    resources_per_worker: Any = None
    placement_strategy: Any = "PACK"
    accelerator_type: str | None = None
    use_tpu: bool = False
    topology: str | None = None
    bundle_label_selector: Any = None
    _max_cpu_fraction_per_node: float | None = None

    def __post_init__(self) -> None:
        if self.num_workers is None:
            self.num_workers = 1  # Ray 2.0's default
        if isinstance(self.num_workers, bool | int | float | str):
            self.num_workers = whole_number("ScalingConfig: num_workers", self.num_workers, least=0)
        if isinstance(self.use_gpu, int | float | str) or self.use_gpu is None:
            flag("ScalingConfig: use_gpu", self.use_gpu)
        for name in ("trainer_resources", "resources_per_worker"):
            self._check_resources(name)
        if isinstance(self.placement_strategy, str) or self.placement_strategy is None:
            one_of("ScalingConfig: placement_strategy", self.placement_strategy, _PLACEMENTS)
        if isinstance(self.resources_per_worker, Mapping) and isinstance(self.use_gpu, bool):
            self._check_gpu()
        for field in fields(self):
            if field.name in _WITHOUT_EFFECT and getattr(self, field.name) != field.default:
                no_effect(f"ScalingConfig({field.name}=)", "workers are placed by their resources alone")

    def _check_resources(self, name: str) -> None:
        value = getattr(self, name)
        accepted = 'None, or a dict of amounts >= 0 like {"CPU": 1, "GPU": 0.5}'
        if value is None:
            return
        if isinstance(value, str | int | float | list | tuple):
            raise invalid(f"ScalingConfig: {name}", value, accepted)
        if not isinstance(value, Mapping):
            return  # a domain
        for amount in value.values():
            if isinstance(amount, bool | str) or (isinstance(amount, int | float) and not amount >= 0):
                raise invalid(f"ScalingConfig: {name}", value, accepted)

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

    @property
    def total_resources(self) -> dict[str, float]:
        """What the whole group reserves. A trainer that is given nothing reserves nothing: it only waits."""
        total = dict(self.trainer_resources or {})
        for key, amount in self.worker_resources.items():
            total[key] = total.get(key, 0) + amount * self.num_workers
        return total


@checked_names
@dataclass(repr=False)
class RunConfig(Config):
    """What concerns a whole experiment.

    Args:
        name: its name; None: made from the trainable's name and the time.
        storage_path: directory (or URI) that holds the experiment's directory; None: ~/tuner_results.
        failure_config, checkpoint_config, sync_config: None means their defaults.
        verbose: 0 (prints nothing) to 3; None: the default view.
        stop: {"metric": limit}, a function (trial_id, result), or a Stopper.
        callbacks: a list of Callback.
        log_to_file: True, one file name, or (stdout's, stderr's); relative to the trial's directory.
        local_dir: Ray 1.x's name of `storage_path`.
        checkpoint_budget: "50GB" or `Budget(...)`: disk for all checkpoints of the experiment.
        executor: "local" (processes of this machine), "inline" (this process), "ray" (the Ray cluster that runs here),
            or an executor, as `RayExecutor(address=...)`; None: processes of this machine.
        seed: seeds every trial; None: drawn once and recorded.
        trial_timeout_s: hard limit on the wall time of one attempt, in seconds.
        overwrite: replace an experiment of this name.
        takeover: do not wait for another owner's heartbeat to go stale.
    """

    name: str | None = None
    storage_path: str | os.PathLike[str] | None = None
    storage_filesystem: Any = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | CheckpointStrategy | None = None
    sync_config: SyncConfig | None = None
    verbose: int | None = None
    stop: Mapping[str, Any] | Callable[..., bool] | Any = None
    callbacks: Sequence[Any] | None = None
    progress_reporter: Any = None
    log_to_file: bool | str | Sequence[str] = False
    local_dir: str | os.PathLike[str] | None = None
    worker_runtime_env: Any = None
    checkpoint_budget: Budget | str | int | None = None
    executor: Any = None
    seed: int | None = None
    trial_timeout_s: float | None = None
    overwrite: bool = False
    takeover: bool = False

    def __post_init__(self) -> None:
        text_or_none("RunConfig: name", self.name)
        for name in ("storage_path", "local_dir"):
            value = getattr(self, name)
            path_or_none(f"RunConfig: {name}", value, "None, or a path or URI")
            if isinstance(value, Path):
                setattr(self, name, str(value))
        self._fill_configs()
        if self.verbose is not None:
            self._check_verbose()
        if self.callbacks is not None:
            if isinstance(self.callbacks, str) or not isinstance(self.callbacks, Sequence):
                raise invalid("RunConfig: callbacks", self.callbacks, "None, or a list of Callback objects")
            for callback in self.callbacks:
                if isinstance(callback, type):
                    raise invalid("RunConfig: callbacks", callback, f"objects: {callback.__name__}(), not the class")
        self._check_log_to_file()
        self.checkpoint_budget = Budget.of(self.checkpoint_budget)
        if self.seed is not None:
            self.seed = whole_number("RunConfig: seed", self.seed, least=0, accepted="None, or a whole number >= 0")
        if self.trial_timeout_s is not None:
            seconds("RunConfig: trial_timeout_s", self.trial_timeout_s, zero=False)
        flag("RunConfig: overwrite", self.overwrite)
        flag("RunConfig: takeover", self.takeover)
        if self.storage_filesystem is not None:
            no_effect("RunConfig(storage_filesystem=)", "storage_path says where things are, as a path or a URI")
        if self.worker_runtime_env is not None:
            no_effect("RunConfig(worker_runtime_env=)", "trials run in this environment")

    def _fill_configs(self) -> None:
        self.failure_config = FailureConfig() if self.failure_config is None else self.failure_config
        self.checkpoint_config = CheckpointConfig() if self.checkpoint_config is None else self.checkpoint_config
        self.sync_config = SyncConfig() if self.sync_config is None else self.sync_config
        instance_of("RunConfig: failure_config", self.failure_config, (FailureConfig,))
        instance_of("RunConfig: checkpoint_config", self.checkpoint_config, (CheckpointConfig, CheckpointStrategy))
        instance_of("RunConfig: sync_config", self.sync_config, (SyncConfig,))

    def _check_verbose(self) -> None:
        accepted = "None, 0 (nothing), 1 (status), 2 (and brief results), 3 (and detailed results)"
        if not isinstance(self.verbose, int) or not 0 <= self.verbose <= 3:
            raise invalid("RunConfig: verbose", self.verbose, accepted)

    def _check_log_to_file(self) -> None:
        value: Any = self.log_to_file
        if isinstance(value, bool) or (isinstance(value, str) and value):
            return
        pair = isinstance(value, list | tuple) and len(value) == 2
        if not pair or not all(isinstance(item, str) and item for item in value):
            accepted = 'True, False, a file name, or two file names ("stdout.txt", "stderr.txt")'
            raise invalid("RunConfig: log_to_file", value, accepted)
