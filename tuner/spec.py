"""Everything that describes one experiment as one validated value, whose fields are the table of all settings."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from enum import Enum
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

from trainables.checkpoint import Checkpoint
from trainables.checkpoint_config import AUTO
from trainables.config import Budget, CheckpointConfig, CheckpointStrategy, FailureConfig, RunConfig, SyncConfig
from trainables.errors import InvalidSettingError
from trainables.group.group_trainable import GroupTrainable
from trainables.quick_dataclass import dataclass
from trainables.runtime.function_trainable import is_class_api
from trainables.trainable import saves
from trainables.transfer.open import shown
from trainables.tunable_trainer import TunableTrainer
from trainables.validation import Check, duration_or_none, flag, optional
from tuner import knobs
from tuner.callback import Callback
from tuner.error import SettingError, require
from tuner.experiment.existing import Rerun
from tuner.experiment.finding import named_places
from tuner.experiment.naming import script_hash
from tuner.experiment.paths import (
    as_local_path,
    cache_of,
    check_experiment_name,
    default_storage,
    is_elsewhere,
    safe_name,
)
from tuner.experiment.resume import Base, Resume, parse
from tuner.orders.settable import is_count, samples, trials_at_once
from tuner.registry import resolve_trainable
from tuner.resources import resources_of
from tuner.search.containers import lay_open

Named = str | dict[str, dict[str, Any] | None]
"""A plug-in in a config file: `asha`, or `{asha: {max_t: 10}}`."""
Limit = dict[Literal["at_least", "at_most"], float]
"""`{loss: {at_most: 0.1}}`; a plain number stops at or above it, like `at_least`."""
Mode = Literal["min", "max"]


class Giver(Enum):
    """Which of the objects that describe a run has a setting."""

    TUNE = "TuneConfig"
    RUN = "RunConfig"
    CALL = "an argument of its own"


# --- what is accepted, beside what `RunConfig` says of its own -----------------------------------------------------


def _only(fits: Callable[[Any], object], accepted: str) -> Check:
    """A check that lets pass what fits."""

    def check(name: str, value: Any) -> Any:
        require(fits(value), name, value, f"accepted {accepted}")
        return value

    return check


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def _mode(name: str, value: Any) -> Any:
    for mode in _listed(value):
        require(mode in ("min", "max"), name, mode, "accepted are 'min' and 'max'")
    return value


def _callbacks(name: str, value: Any) -> Any:
    require(isinstance(value, (list, tuple, type(None))), name, value, "accepted is a list of tune.Callback objects")
    for callback in value or ():
        if not isinstance(callback, Callback):
            raise SettingError(f"callbacks: {callback!r} is not accepted; accepted are tune.Callback objects")
    return () if value is None else value


def _space(name: str, value: Any) -> Any:
    space = {} if value is None else value
    fits = isinstance(space, Mapping) or callable(space)
    require(fits, "config", value, "accepted are a dict and a define-by-run function")
    return space


_metric = _only(
    lambda value: value not in ([], ()) and all(isinstance(part, str) and part for part in _listed(value)),
    "are the name of a metric, a list of names, and None",
)
_namer = optional(_only(callable, "is a function (trial) -> str"))
_seed = optional(_only(is_count, "is a whole number, or None: one is drawn"))
_formats = _only(lambda value: all(isinstance(each, str) for each in _listed(value)), "is a list of names, or None")
_start = _only(
    lambda value: isinstance(value, (str, os.PathLike, Checkpoint, SyncConfig, type(None))) and value != "",
    "is a checkpoint (a path, a URI or a Checkpoint), an experiment's path or URI, a SyncConfig, or None",
)


def _saving(config: CheckpointConfig | CheckpointStrategy) -> dict[str, Any]:
    return {
        "publish": config.publish,
        "keep_all_ranks": config._checkpoint_keep_all_ranks,
        "name_by_index": isinstance(config, CheckpointStrategy),
    }


def _chdir(value: bool | None) -> dict[str, Any]:
    return {"chdir": knobs.chdir_to_trial_dir() if value is None else value}


# --- the table --------------------------------------------------------------------------------------------------


def _setting(
    check: Check | None = None,
    default: Any = None,
    *,
    giver: Giver = Giver.CALL,
    stored: bool = False,
    file: Any = None,
    worker: Callable[[Any], dict[str, Any]] | None = None,
) -> Any:
    """One row of the table, as a field.

    Args:
        check: what is accepted; None: what `RunConfig` accepts, else anything.
        giver: which object of the user's has it.
        stored: whether an experiment keeps it.
        file: what a config file may say; True: what the field's type says. None: it is no key there.
        worker: the fields of a `Job` that it becomes.
    """
    columns = {"check": check, "giver": giver, "stored": stored, "file": file, "worker": worker}
    return field(default=default, metadata=columns)


_tune = partial(_setting, giver=Giver.TUNE, stored=True)
_run = partial(_setting, giver=Giver.RUN)


@dataclass(frozen=True, slots=True)
class Spec:
    """One experiment as the user described it. Validates itself, and is never changed.

    The fields are the table of settings: a name, a type, a default, and the columns of `_setting`.
    """

    trainable: Any = _setting(file=str)
    time_budget_s: float | None = _tune(duration_or_none, file=True)
    search_alg: Any = _tune(file=Named | None)
    scheduler: Any = _tune(file=Named | None)
    max_concurrent_trials: int | None = _tune(trials_at_once, file=True)
    reuse: Any = _tune(named_places, file=str | list[str] | None)
    trial_name_creator: Callable[[Any], str] | None = _tune(_namer)
    trial_dirname_creator: Callable[[Any], str] | None = _tune(_namer)
    reuse_actors: bool | None = _tune(optional(flag), False, file=True)
    chdir_to_trial_dir: bool | None = _tune(optional(flag), worker=_chdir)
    metric: str | Sequence[str] | None = _tune(_metric, stored=False, file=str | list[str] | None)
    mode: str | Sequence[str] | None = _tune(_mode, stored=False, file=Mode | list[Mode] | None)
    num_samples: int = _tune(samples, 1, stored=False, file=True)
    stop: Any = _run(stored=True, file=dict[str, float | Limit] | None)
    checkpoint_config: CheckpointConfig | CheckpointStrategy = _run(stored=True, worker=_saving)
    failure_config: FailureConfig = _run(stored=True)
    checkpoint_budget: Budget | None = _run(stored=True, file=int | str | None)
    log_to_file: bool | str | Sequence[str] = _run(default=False, stored=True, file=bool | str | list[str])
    trial_timeout_s: float | None = _run(stored=True, file=True)
    callbacks: Sequence[Any] = _run(_callbacks, stored=True, file=list[Named])
    verbose: int | None = _run(stored=True, file=True)
    sync_config: SyncConfig = _run(stored=True)
    name: str | None = _run(optional(lambda _, name: check_experiment_name(name)), file=True)
    storage_path: str | os.PathLike[str] | None = _run(file=str | None)
    progress_reporter: Any = _run()
    seed: int | None = _run(_seed, file=True)
    overwrite: bool = _run(default=False, file=True)
    takeover: bool = _run(default=False, file=True)
    on_end: str | Sequence[str] | None = _run()
    on_failure: str | Sequence[str] | None = _run()
    executor: Any = _run(file=Literal["local", "inline", "ray", "slurm"] | dict[str, Any] | None)
    param_space: Any = _setting(_space, file=dict[str, Any])
    resources_per_trial: Any = _setting(file=dict[str, float] | None)
    raise_on_failed_trial: bool = _setting(flag, True, file=True)
    resume: Resume | bool | str | None = _setting(file=bool | str | None)
    export_formats: Sequence[str] | None = _setting(
        _formats, file=list[str] | None, worker=lambda value: {"export_formats": tuple(_listed(value))}
    )
    restore: Any = _setting(_start, file=str | None)
    ui: bool | None = _run(file=True)
    inherits: Sequence[str] = _setting(default=())
    """Names of settings that a resume takes over as the experiment was started with them."""
    trainable_name: str = _setting(default="")
    rerun: Rerun = _setting(default=Rerun())
    """What becomes of an experiment of that name; the environment says so."""
    started_by: str = _setting(default="tune.run")  # messages on how to continue are in its form
    takes_max: bool = _setting(default=False)  # nobody has said which value of the metric is best
    resources_for: Callable[[Mapping[str, Any]], Any] | None = _setting()
    """What one trial asks for, from its config, where that is not the same for all; None from it: what all ask for."""

    def __post_init__(self) -> None:
        knobs.check_switches()
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        if given["restore"] is None and isinstance(given["trainable"], TunableTrainer):
            given["restore"] = given["trainable"].resume_from_checkpoint
        given["trainable"], name = resolve_trainable(given["trainable"])
        given["trainable_name"] = given["trainable_name"] or name
        settled = {name: checked(name, value) for name, value in given.items()}
        for name, value in (settled | _related(settled)).items():
            object.__setattr__(self, name, value)
        self._check_saving()

    @property
    def resume_choice(self) -> Resume:
        """The resume word, understood."""
        return parse(self.resume)

    @property
    def class_api(self) -> bool:
        """The trainable is a class, and none of a function, or is simulated as one."""
        return self._virtual or is_class_api(self.trainable)

    @property
    def can_save(self) -> bool:
        """The trainable is a class that has what a checkpoint takes, or is simulated as one."""
        return self._virtual or (self.class_api and saves(self.trainable))

    @property
    def _virtual(self) -> bool:
        return getattr(self.executor, "virtual_checkpoints", False)

    @property
    def log_files(self) -> tuple[str, str]:
        """Names of the files in a trial's directory that get what it prints, and what it prints as errors."""
        given = self.log_to_file
        if isinstance(given, bool):
            return "stdout", "stderr"
        return (given, given) if isinstance(given, str) else (given[0], given[1])

    def for_worker(self) -> dict[str, Any]:
        """What a `Job` has of the settings."""
        return {name: value for row, made in _SENT.items() for name, value in made(getattr(self, row)).items()}

    @property
    def storage(self) -> Path:
        """The directory that holds the experiment's own directory."""
        return default_storage() if self.storage_path is None else as_local_path(self.storage_path)

    def named(self, now: datetime.datetime) -> str:
        """The given name, a stable one for "AUTO", else one that no directory has yet, with the date."""
        if self.name is not None:
            return self.name
        stem = safe_name(self.trainable_name, limit=60)
        if self.resume_choice.base is Base.AUTO:
            return f"{stem}_{script_hash(self.trainable, self.trainable_name)}"
        base = f"{stem}_{now:%Y-%m-%d_%H-%M-%S}" if knobs.dated_names() else stem
        names = chain([base], (f"{base}_{number}" for number in count(2)))
        return next(name for name in names if not os.path.exists(self.storage / name))

    def _check_saving(self) -> None:
        """Refuse to have a trainable save that cannot, or that decides by itself."""
        for setting in ("checkpoint_frequency", "checkpoint_at_end"):
            if self._virtual or not (value := getattr(self.checkpoint_config, setting)):
                continue
            if not self.class_api and value != AUTO:  # for that a function asks should_save()
                how = "decides by itself: it passes checkpoint= to report(), or uses checkpoint_dir()"
                name = f"{self.trainable_name!r} is a function, which {how}"
                raise SettingError(f"{setting}={value!r} needs a class trainable; {name}")
            if self.class_api and not saves(self.trainable):
                name = f"{self.trainable.__name__} has no methods save_checkpoint(checkpoint_dir) and "
                raise SettingError(
                    f"{setting}={value!r} needs a class that can save; {name}load_checkpoint(checkpoint)"
                )


def given_by(giver: Giver) -> tuple[str, ...]:
    """The settings that such an object has."""
    return tuple(each.name for each in fields(Spec) if each.metadata["giver"] is giver)


def stored_settings(*givers: Giver) -> tuple[str, ...]:
    """The settings that are stored with an experiment, of all givers or of these."""
    rows = [each for each in fields(Spec) if each.metadata["stored"]]
    return tuple(each.name for each in rows if not givers or each.metadata["giver"] in givers)


def default_of(name: str) -> Any:
    """What holds where a setting is not given."""
    return checked(name, next(each.default for each in fields(Spec) if each.name == name))


def checked(name: str, value: Any) -> Any:
    """The value of a setting as it holds, by its row's check or that of `RunConfig`. Raises SettingError."""
    check = _CHECKS.get(name)
    try:
        return value if check is None else check(name, value)
    except InvalidSettingError as error:
        raise SettingError(str(error)) from None


_ROWS = (*fields(RunConfig), *fields(Spec))
_SENT = {each.name: made for each in fields(Spec) if (made := each.metadata["worker"]) is not None}
_CHECKS = {each.name: check for each in _ROWS if (check := each.metadata.get("check")) is not None}


# --- what follows from several ----------------------------------------------------------------------------------


def _related(values: Mapping[str, Any]) -> dict[str, Any]:
    """What settings say of one another. Raises SettingError."""
    trainable, resume, changed = values["trainable"], parse(values["resume"]), dict[str, Any]()
    asked, resources_for = values["resources_per_trial"], values["resources_for"]
    if asked is None and resources_for is None:
        asked = resources_of(trainable)
        resources_for = trainable.resources_for if isinstance(trainable, GroupTrainable) else None
    if callable(asked) and not hasattr(asked, "bundles"):
        asked, resources_for = None, asked
    changed |= {"resources_per_trial": asked, "resources_for": resources_for}
    if isinstance(values["param_space"], Mapping):
        changed["param_space"] = lay_open(values["param_space"], getattr(trainable, "checked_space", None))
    if values["overwrite"] and resume.base is not Base.NEW:
        raise SettingError(f"overwrite=True and resume={values['resume']!r} exclude each other: give one of them")
    if values["metric"] is not None and values["mode"] is None:
        said = getattr(values["search_alg"], "mode", None) or getattr(values["scheduler"], "mode", None)
        changed |= {"mode": said} if isinstance(said, (str, list, tuple)) else {"mode": "max", "takes_max": True}
    return changed | _places(values["storage_path"], values["sync_config"])


def _places(place: Any, sync: SyncConfig) -> dict[str, Any]:
    """A `storage_path` elsewhere is where copies go; what is here lies in a cache then."""
    copies = sync.upload_dir
    is_path = copies is not None and "://" not in os.fspath(copies) and not is_elsewhere(copies)
    if copies is not None and is_path and sync.syncer == "auto":  # kept, and read again from wherever one then works
        sync = replace(sync, upload_dir=str(as_local_path(copies)))
    if place is None or not isinstance(os.fspath(place), str) or not is_elsewhere(place):
        return {"sync_config": sync}
    uri = os.fspath(place)
    if sync.upload_dir is not None and os.fspath(sync.upload_dir) != uri:
        one, other = shown(uri), shown(os.fspath(sync.upload_dir))
        raise SettingError(f"storage_path={one!r} and upload_dir={other!r} mean the same; give one of them")
    return {"sync_config": replace(sync, upload_dir=uri), "storage_path": cache_of(uri)}
