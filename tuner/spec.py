"""Everything that describes one experiment: `tune.run(...)` or `Tuner(...)` as one validated value."""

from __future__ import annotations

import datetime
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainables.checkpoint import Checkpoint
from trainables.config import Budget, CheckpointConfig, CheckpointStrategy, FailureConfig, SyncConfig, parse_bytes
from trainables.group.group_trainable import GroupTrainable
from trainables.masking import masked
from trainables.store.retention import policy_for
from trainables.trainable import Trainable, saves
from trainables.transfer.open import shown
from trainables.tunable_trainer import TunableTrainer
from tuner.callback import Callback
from tuner.error import SettingError
from tuner.experiment.paths import (
    as_local_path,
    cache_of,
    check_experiment_name,
    default_storage,
    is_elsewhere,
    safe_name,
)
from tuner.experiment.resume import Base, Resume, parse
from tuner.registry import resolve_trainable
from tuner.resources import resources_of
from tuner.retention.rules import parts_of, rule_of

MODES = ("min", "max")


@dataclass(slots=True)
class Spec:
    """One experiment as the user described it. Validates itself."""

    trainable: Any
    name: str | None = None
    metric: str | Sequence[str] | None = None
    mode: str | Sequence[str] | None = None
    stop: Any = None
    time_budget_s: float | datetime.timedelta | None = None
    param_space: Any = field(default_factory=dict)
    num_samples: int = 1
    storage_path: str | os.PathLike[str] | None = None
    search_alg: Any = None
    scheduler: Any = None
    checkpoint_config: CheckpointConfig | CheckpointStrategy = field(default_factory=CheckpointConfig)
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    sync_config: SyncConfig = field(default_factory=SyncConfig)
    checkpoint_budget: Any = None
    resources: Any = None
    verbose: int | None = None
    progress_reporter: Any = None
    log_to_file: bool | str | Sequence[str] = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    callbacks: Sequence[Any] = ()
    max_concurrent_trials: int | None = None
    raise_on_failed_trial: bool = True
    resume: Any = None
    restore: Any = None
    overwrite: bool = False
    takeover: bool = False
    seed: int | None = None
    trial_timeout_s: float | None = None
    executor: Any = None
    chdir_to_trial_dir: bool | None = None
    stored: Sequence[str] = ()
    """Fields that a resume takes over as the experiment was started with them."""
    space_given: bool = True
    """False: a restore without param_space, the stored space holds."""
    has_replica: bool = field(init=False, default=False)
    """A replica was looked at, and what is newer there lies here now."""
    resume_choice: Resume = field(init=False)
    trainable_name: str = field(init=False)
    class_api: bool = field(init=False)
    budget: Budget | None = field(init=False)
    resources_for: Callable[[Mapping[str, Any]], Any] | None = field(init=False, default=None)
    """What one trial asks for, from its config, where that is not the same for all; None from it: what all ask for."""

    def __post_init__(self) -> None:
        if self.restore is None and isinstance(self.trainable, TunableTrainer):
            self.restore = self.trainable.resume_from_checkpoint
        self.trainable, self.trainable_name = resolve_trainable(self.trainable)
        self.class_api = inspect.isclass(self.trainable) and issubclass(self.trainable, Trainable)
        self._settle_resources()
        self.resume_choice = parse(self.resume)
        self._check_kinds()
        if isinstance(self.param_space, Mapping) and isinstance(self.trainable, GroupTrainable):
            self.param_space = self.trainable.checked_space(self.param_space)
        if self.overwrite and self.resume_choice.base is not Base.NEW:
            raise SettingError(f"overwrite=True and resume={self.resume!r} exclude each other: give one of them")
        self._put_storage()
        self._check_metric()
        if self.mode is not None:
            for mode in self.mode if isinstance(self.mode, (list, tuple)) else [self.mode]:
                if mode not in MODES:
                    raise SettingError(f"mode={mode!r} is not accepted; accepted are 'min' and 'max'")
        if self.metric is not None and self.mode is None:
            self.mode = "max"
        if (
            isinstance(self.num_samples, bool)
            or not isinstance(self.num_samples, int)
            or self.num_samples < -1
            or not self.num_samples
        ):
            raise SettingError(
                f"num_samples={self.num_samples!r} is not accepted; accepted are 1, 2, ... and -1 (no limit)"
            )
        if isinstance(self.time_budget_s, datetime.timedelta):
            self.time_budget_s = self.time_budget_s.total_seconds()
        for name in ("time_budget_s", "trial_timeout_s"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
                raise SettingError(f"{name}={value!r} is not accepted; accepted are seconds above 0, or None")
        limit = self.max_concurrent_trials
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise SettingError(
                f"max_concurrent_trials={limit!r} is not accepted; accepted are 1, 2, ... and None or 0 (no limit)"
            )
        self._check_saving()
        budget = self.checkpoint_budget
        self.budget = budget if budget is None or isinstance(budget, Budget) else Budget(parse_bytes(budget))
        if self.name is not None:
            check_experiment_name(self.name)

    def _settle_resources(self) -> None:
        """What trials ask for before there is a config, and the function that says it once there is one."""
        if self.resources is None:
            self.resources = resources_of(self.trainable)
            self.resources_for = self.trainable.resources_for if isinstance(self.trainable, GroupTrainable) else None
        if callable(self.resources) and not hasattr(self.resources, "bundles"):
            self.resources_for, self.resources = self.resources, None

    def _check_metric(self) -> None:
        metric = self.metric
        named = list(metric) if isinstance(metric, (list, tuple)) else [] if metric is None else [metric]
        if not all(isinstance(name, str) and name for name in named) or (metric is not None and not named):
            raise SettingError(
                f"metric={metric!r} is not accepted; accepted are the name of a metric, a list of names, and None"
            )

    def _put_storage(self) -> None:
        """A `storage_path` elsewhere is where copies go; what is here lies in a cache then."""
        place, copies = self.storage_path, self.sync_config.upload_dir
        is_path = copies is not None and "://" not in os.fspath(copies) and not is_elsewhere(copies)
        if copies is not None and is_path and self.sync_config.syncer == "auto":
            # It is kept with the experiment, and read again from wherever a program then works.
            self.sync_config = replace(self.sync_config, upload_dir=str(as_local_path(copies)))
        if place is None or not isinstance(os.fspath(place), str) or not is_elsewhere(place):
            return
        uri = os.fspath(place)
        if self.sync_config.upload_dir is not None and os.fspath(self.sync_config.upload_dir) != uri:
            raise SettingError(
                f"storage_path={uri!r} and upload_dir={os.fspath(self.sync_config.upload_dir)!r} mean the same; "
                "give one of them"
            )
        self.sync_config = replace(self.sync_config, upload_dir=uri)
        self.storage_path = cache_of(uri)

    def _check_saving(self) -> None:
        """Refuse to have a trainable save that cannot, or that decides by itself."""
        for setting in ("checkpoint_frequency", "checkpoint_at_end"):
            value = getattr(self.checkpoint_config, setting, None)
            if not value:
                continue
            if not self.class_api:
                raise SettingError(
                    f"{setting}={value!r} needs a class trainable; {self.trainable_name!r} is a function, which "
                    "decides by itself: it passes checkpoint= to report(), or uses checkpoint_dir()"
                )
            if not saves(self.trainable):
                raise SettingError(
                    f"{setting}={value!r} needs a class that can save; {self.trainable.__name__} has no methods "
                    "save_checkpoint(checkpoint_dir) and load_checkpoint(checkpoint)"
                )

    def _check_kinds(self) -> None:
        """Refuse what is of another kind; the parts themselves look closer when they are made."""
        kinds: dict[str, tuple[Any, str]] = {
            "checkpoint_config": ((CheckpointConfig, CheckpointStrategy), "a CheckpointConfig"),
            "failure_config": (FailureConfig, "a FailureConfig"),
            "sync_config": (SyncConfig, "a SyncConfig"),
            "storage_path": ((str, os.PathLike, type(None)), "a path, one with ~, file:///..., or None"),
            "seed": ((int, type(None)), "a whole number, or None: one is drawn"),
            "callbacks": ((list, tuple), "a list of tune.Callback objects"),
            "restore": (
                (str, os.PathLike, Checkpoint, SyncConfig, type(None)),
                "a checkpoint (a path, a URI or a Checkpoint), an experiment's path or URI, a SyncConfig, or None",
            ),
        }
        for name, (kind, accepted) in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or isinstance(value, bool) or value == "":
                raise SettingError(f"{name}={value!r} is not accepted; accepted is {accepted}")
        for name in ("raise_on_failed_trial", "overwrite", "takeover", "chdir_to_trial_dir"):
            value = getattr(self, name)
            if not isinstance(value, bool) and (value is not None or name != "chdir_to_trial_dir"):
                raise SettingError(f"{name}={value!r} is not accepted; accepted are True and False")
        for name in ("trial_name_creator", "trial_dirname_creator"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise SettingError(f"{name}={value!r} is not accepted; accepted is a function (trial) -> str")
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise SettingError(f"callbacks: {callback!r} is not accepted; accepted are tune.Callback objects")
        if not isinstance(self.param_space, Mapping) and not callable(self.param_space):
            raise SettingError(
                f"config={self.param_space!r} is not accepted; accepted are a dict and a define-by-run function"
            )
        files = self.log_to_file
        pair = isinstance(files, (list, tuple)) and len(files) == 2 and all(isinstance(part, str) for part in files)
        if not pair and not isinstance(files, (bool, str)):
            raise SettingError(
                f"log_to_file={files!r} is not accepted; accepted are True, False, a file name, and two: for stdout "
                "and for stderr"
            )

    @property
    def storage(self) -> Path:
        """The directory that holds the experiment's own directory."""
        return default_storage() if self.storage_path is None else as_local_path(self.storage_path)

    def experiment_name(self, now: datetime.datetime) -> str:
        """The given name, a stable one for "AUTO", else one with the date that no directory has yet."""
        if self.name is not None:
            return self.name
        stem = safe_name(self.trainable_name, limit=60)
        if self.resume_choice.base is Base.AUTO:
            return f"{stem}_{self._script_hash()}"
        name = base = f"{stem}_{now:%Y-%m-%d_%H-%M-%S}"
        number = 1
        while os.path.exists(self.storage / name):
            number += 1
            name = f"{base}_{number}"
        return name

    def _script_hash(self) -> str:
        """Short hash of the script's file name and the trainable's source name: the same from any checkout."""
        main = sys.modules.get("__main__")
        script = Path(getattr(main, "__file__", None) or "interactive").name
        source = f"{script}:{getattr(self.trainable, '__qualname__', self.trainable_name)}"
        return hashlib.sha256(source.encode()).hexdigest()[:8]

    def _shown_upload_dir(self) -> str | None:
        """Where copies go, for people and `tuner sync`; None too where a user's own command or code makes them."""
        config = self.sync_config
        if config.upload_dir is None or config.syncer != "auto":
            return None
        return shown(os.fspath(config.upload_dir))

    def _sync_command(self) -> dict[str, Any] | None:
        """For `tuner sync`: the command that makes copies, as text; without one where a user's own code makes them."""
        config = self.sync_config
        if config.upload_dir is None or config.syncer in (None, "auto"):
            return None
        place = os.fspath(config.upload_dir)
        found: dict[str, Any] = {"upload_dir": shown(place), "syncer": None}
        command = {"syncer": config.syncer, "delete_template": config.delete_template, "options": config.options}
        written = " ".join(map(str, command.values()))
        # What may not be shown is not written down.
        if isinstance(config.syncer, str) and shown(place) == place and masked(written) == written:
            found |= command
        return found

    def settings(self) -> Mapping[str, Any]:
        """What experiment.json keeps of it: plain values, for readers and for a resume."""
        config = self.checkpoint_config
        entry = (
            f"{self.trainable.__module__}:{self.trainable.__qualname__}"
            if hasattr(self.trainable, "__qualname__")
            else ""
        )
        return {
            "trainable": self.trainable_name,
            "entry": entry,
            "class_api": self.class_api,
            "metric": self.metric if self.metric is None or isinstance(self.metric, str) else list(self.metric),
            "mode": self.mode if self.mode is None or isinstance(self.mode, str) else list(self.mode),
            "num_samples": self.num_samples,
            "num_to_keep": config.num_to_keep,
            "checkpoint_score_attribute": config.score[0],
            "checkpoint_score_order": config.score[1],
            "retention": [rule_of(part) for part in parts_of(policy_for(config))],
            "max_failures": self.failure_config.max_failures,
            "upload_dir": self._shown_upload_dir(),
            "sync_command": self._sync_command(),
        }
