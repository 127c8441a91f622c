"""Every config dataclass. Each checks itself when it is made; design.md section 6 says what the values mean."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from trainables.settings import (
    checked_names,
    flag,
    invalid,
    no_effect,
    one_of,
    parse_bytes,
    seconds,
    whole_number,
)

ScoreOrder = Literal["max", "min"]

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

_PREFIX = re.compile(r"(max|min)-(.+)", re.DOTALL)
RECENCY = "_timestamp"
"""The score attribute of Ray Train's first generation that means: the newest, by save order."""


def parse_score_attr(text: Any, *, name: str = "checkpoint_score_attr") -> tuple[str, ScoreOrder]:
    """`"auc"` and `"max-auc"`: higher is better; `"min-loss"`: lower is better.

    >>> parse_score_attr("min-eval/loss")
    ('eval/loss', 'min')
    """
    if not isinstance(text, str) or not text or text in ("min-", "max-"):
        raise invalid(name, text, 'a metric\'s name, as "auc", "max-auc", "min-loss" or nested "eval/auc"')
    match = _PREFIX.fullmatch(text)
    if match is None:
        return text, "max"
    return match[2], "min" if match[1] == "min" else "max"


def _resolve_score(owner: str, attribute: str | None, order: str) -> tuple[str | None, ScoreOrder]:
    """Attribute and order as they count; a prefix counts here too, and may not contradict `"min"`."""
    literal: ScoreOrder = "min" if order == "min" else "max"
    if attribute is None:
        return None, "max"
    name, prefixed = parse_score_attr(attribute, name=f"{owner}: checkpoint_score_attribute")
    if name == attribute:
        return name, literal
    if prefixed == "max" and literal == "min":
        raise invalid(f"{owner}: checkpoint_score_order", order, f'"max" with checkpoint_score_attribute={attribute!r}')
    return name, prefixed


def _name_or_none(name: str, value: Any) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise invalid(name, value, "None, or a text that is not empty")


def _path_or_none(name: str, value: Any, accepted: str) -> None:
    if value is not None and (not isinstance(value, str | os.PathLike) or not os.fspath(value)):
        raise invalid(name, value, accepted)


def _instance(name: str, value: Any, kinds: tuple[type, ...]) -> None:
    if not isinstance(value, kinds):
        raise invalid(name, value, "None, or " + " or ".join(kind.__name__ for kind in kinds))


class _Config:
    """What the config classes share: a repr that shows what differs from the defaults and can be evaluated."""

    def __repr__(self) -> str:
        default = type(self)._defaults()
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)  # type: ignore[arg-type]
            if field.name not in default or getattr(self, field.name) != default[field.name]
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        blank = cls()
        return {field.name: getattr(blank, field.name) for field in fields(blank)}  # type: ignore[arg-type]


@checked_names
@dataclass(repr=False)
class CheckpointConfig(_Config):
    """Which checkpoints are made and which of them stay.

    With `num_to_keep=N` the best N stay, and the latest when it is not among them: up to N + 1 directories.

    Args:
        num_to_keep: how many of the best stay; None keeps all.
        checkpoint_score_attribute: the metric that ranks them, nested as "eval/auc"; None ranks by recency.
        checkpoint_score_order: "max" or "min".
        checkpoint_frequency: class trainables save every so many iterations; 0: not by themselves.
        checkpoint_at_end: class trainables save when they end; None is False.
        keep: policies of `trainables.store.retention`; a checkpoint stays when one of them, or `num_to_keep`, keeps it.
        publish: "background" (a report does not wait for the disk) or "blocking".

    Raises InvalidSettingError (a ValueError).

    >>> CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min").score
    ('loss', 'min')
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None
    _checkpoint_keep_all_ranks: bool = False
    _checkpoint_upload_from_workers: bool = False
    keep: Sequence[Any] | None = None
    publish: str = "background"

    def __post_init__(self) -> None:
        if self.num_to_keep is not None:
            accepted = "None (all are kept), or a whole number >= 1 (the best so many, and the latest beside them)"
            self.num_to_keep = whole_number(
                "CheckpointConfig: num_to_keep", self.num_to_keep, least=1, accepted=accepted
            )
        one_of("CheckpointConfig: checkpoint_score_order", self.checkpoint_score_order, ("max", "min"))
        _name_or_none("CheckpointConfig: checkpoint_score_attribute", self.checkpoint_score_attribute)
        _resolve_score("CheckpointConfig", self.checkpoint_score_attribute, self.checkpoint_score_order)
        accepted = "0 (class trainables do not save by themselves), or a whole number >= 1 (every so many iterations)"
        frequency: Any = self.checkpoint_frequency
        if frequency is None:
            frequency = 0  # Ray types it Optional
        self.checkpoint_frequency = whole_number(
            "CheckpointConfig: checkpoint_frequency", frequency, least=0, accepted=accepted
        )
        one_of("CheckpointConfig: checkpoint_at_end", self.checkpoint_at_end, (None, True, False))
        for private in ("_checkpoint_keep_all_ranks", "_checkpoint_upload_from_workers"):
            # Ray 2.3-2.6 typed both Optional[bool], default False.
            value = one_of(f"CheckpointConfig: {private}", getattr(self, private), (None, True, False))
            setattr(self, private, bool(value))
        one_of("CheckpointConfig: publish", self.publish, ("background", "blocking"))
        self._check_keep()

    def _check_keep(self) -> None:
        if self.keep is None:
            return
        policies = [self.keep] if callable(getattr(self.keep, "keep", None)) else self.keep
        accepted = "None, or a list of policies: Latest(3), Best(2, 'auc'), EveryN(10), EveryT(3600), Pinned([5])"
        if not isinstance(policies, list | tuple) or not policies:
            raise invalid("CheckpointConfig: keep", self.keep, accepted)
        for policy in policies:
            if isinstance(policy, type) or not callable(getattr(policy, "keep", None)):
                raise invalid("CheckpointConfig: keep", self.keep, accepted)
        self.keep = tuple(policies)

    @property
    def score(self) -> tuple[str | None, ScoreOrder]:
        """(attribute, order) as they count: `"min-loss"` is ("loss", "min")."""
        return _resolve_score("CheckpointConfig", self.checkpoint_score_attribute, self.checkpoint_score_order)


@checked_names
@dataclass(repr=False)
class CheckpointStrategy(_Config):
    """Retention of the first generation's `Trainer.run`: exactly the best `num_to_keep` stay when the run has ended.

    Args:
        num_to_keep: how many stay; None keeps all, 0 leaves none on disk.
        checkpoint_score_attribute: the metric that ranks them; "_timestamp" (the default) and None: recency.
        checkpoint_score_order: "max" or "min".
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = RECENCY
    checkpoint_score_order: str = "max"

    def __post_init__(self) -> None:
        if self.num_to_keep is not None:
            accepted = "None (all are kept), 0 (none stays on disk), or a whole number >= 1 (the best so many)"
            self.num_to_keep = whole_number(
                "CheckpointStrategy: num_to_keep", self.num_to_keep, least=0, accepted=accepted
            )
        one_of("CheckpointStrategy: checkpoint_score_order", self.checkpoint_score_order, ("max", "min"))
        _name_or_none("CheckpointStrategy: checkpoint_score_attribute", self.checkpoint_score_attribute)
        _resolve_score("CheckpointStrategy", self.checkpoint_score_attribute, self.checkpoint_score_order)

    @property
    def score(self) -> tuple[str | None, ScoreOrder]:
        """(attribute, order) as they count."""
        return _resolve_score("CheckpointStrategy", self.checkpoint_score_attribute, self.checkpoint_score_order)


@checked_names
@dataclass(repr=False)
class FailureConfig(_Config):
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


@checked_names
@dataclass(repr=False)
class SyncConfig(_Config):
    """Where copies of the experiment go.

    Args:
        upload_dir: a bucket ("s3://..."), a shared directory or a host; None: nowhere.
        syncer: "auto" (by the form of `upload_dir`), None (no syncing), a command with {source} and {target},
            a function (source, target), or a `Syncer`.
        sync_on_checkpoint: queue an upload at every checkpoint, and not only every `sync_period`.
        sync_period: seconds between two uploads of what is not a checkpoint.
        sync_timeout: seconds without progress after which one operation is given up, and how long the end waits.
        sync_artifacts: upload the other files of a trial's directory too.
        sync_artifacts_on_checkpoint: upload them at every checkpoint.
        excludes: patterns of files that are not copied.
    """

    upload_dir: str | os.PathLike[str] | None = None
    syncer: Any = "auto"
    sync_on_checkpoint: bool = True
    sync_period: float = 300
    sync_timeout: float = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True
    excludes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        _path_or_none("SyncConfig: upload_dir", self.upload_dir, 'None, or a URI or path like "s3://bucket/path"')
        self._check_syncer()
        for name in ("sync_on_checkpoint", "sync_artifacts", "sync_artifacts_on_checkpoint"):
            flag(f"SyncConfig: {name}", getattr(self, name))
        seconds("SyncConfig: sync_period", self.sync_period, zero=True)
        seconds("SyncConfig: sync_timeout", self.sync_timeout, zero=False)
        if self.excludes is not None:
            if isinstance(self.excludes, str) or not all(isinstance(item, str) for item in self.excludes):
                raise invalid("SyncConfig: excludes", self.excludes, 'None, or a list of patterns like ["*.tmp"]')
            self.excludes = tuple(self.excludes)

    def _check_syncer(self) -> None:
        syncer = self.syncer
        accepted = '"auto", None, a command with {source} and {target}, a function (source, target), or a Syncer'
        if syncer is None or syncer == "auto":
            return
        if isinstance(syncer, str):
            missing = [place for place in ("{source}", "{target}") if place not in syncer]
            if missing:
                raise invalid("SyncConfig: syncer", syncer, f"{accepted} (missing: {', '.join(missing)})")
        elif not callable(syncer) and not callable(getattr(syncer, "sync_up", None)):
            raise invalid("SyncConfig: syncer", syncer, accepted)


@checked_names
@dataclass(frozen=True)
class Budget:
    """How much disk all checkpoints of an experiment may take.

    Args:
        bytes: a number, or a text like "50GB".
        top_k: the best checkpoint of so many best trials is never removed for it.
    """

    bytes: int | str
    top_k: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "bytes", parse_bytes(self.bytes, name="Budget: bytes"))
        object.__setattr__(self, "top_k", whole_number("Budget: top_k", self.top_k, least=0))

    @property
    def size(self) -> int:
        """`bytes` as the number that it is after construction."""
        return int(self.bytes)

    @classmethod
    def of(cls, value: Budget | str | float | None) -> Budget | None:
        """A budget from what people write: "50GB", a number of bytes, a `Budget`, None."""
        if value is None or isinstance(value, Budget):
            return value
        return cls(parse_bytes(value))


_PLACEMENTS = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@checked_names
@dataclass(repr=False)
class ScalingConfig(_Config):
    """How many workers a trainer starts, and what each of them gets.

    Args:
        trainer_resources: what the trainer itself reserves beside its workers; None: nothing.
        num_workers: processes of the group.
        use_gpu: one GPU per worker, unless `resources_per_worker` says how many.
        resources_per_worker: {"CPU": 1, "GPU": 0.5, "custom": 2}; None: one CPU, or one GPU.

    Every value may also be a domain of a search space. What concerns placement has no effect on one machine.
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
        for name, default in _PLACEMENT_DEFAULTS.items():
            if getattr(self, name) != default:
                no_effect(f"ScalingConfig({name}=)", "nothing is placed on nodes here")

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


_PLACEMENT_DEFAULTS: dict[str, Any] = {
    "placement_strategy": "PACK",
    "accelerator_type": None,
    "use_tpu": False,
    "topology": None,
    "bundle_label_selector": None,
    "_max_cpu_fraction_per_node": None,
}


@checked_names
@dataclass(repr=False)
class RunConfig(_Config):
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
        executor: "local", "inline", "simulated", or an executor; None: local processes.
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
        _name_or_none("RunConfig: name", self.name)
        for name in ("storage_path", "local_dir"):
            value = getattr(self, name)
            _path_or_none(f"RunConfig: {name}", value, "None, or a path or URI")
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
        _instance("RunConfig: failure_config", self.failure_config, (FailureConfig,))
        _instance("RunConfig: checkpoint_config", self.checkpoint_config, (CheckpointConfig, CheckpointStrategy))
        _instance("RunConfig: sync_config", self.sync_config, (SyncConfig,))

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
