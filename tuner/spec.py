"""Everything that describes one experiment as one validated value, whose fields are the table of all settings."""

from __future__ import annotations

import datetime
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

from trainables.checkpoint import Checkpoint
from trainables.config import Budget, CheckpointConfig, CheckpointStrategy, FailureConfig, SyncConfig
from trainables.group.group_trainable import GroupTrainable
from trainables.trainable import Trainable, saves
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

Check = Callable[[str, Any], Any]
"""(name, value) -> the value as it holds; raises SettingError."""


class Giver(Enum):
    """Which of the objects that describe a run has a setting."""

    TUNE = "TuneConfig"
    RUN = "RunConfig"
    CALL = "an argument of its own"


# --- what is accepted -------------------------------------------------------------------------------------------


def _refused(name: str, value: Any, accepted: str) -> SettingError:
    return SettingError(f"{name}={value!r} is not accepted; accepted {accepted}")


def _any(name: str, value: Any) -> Any:
    return value


def _when(accepts: Callable[[Any], object], accepted: str) -> Check:
    """A check that lets pass what `accepts` says yes to."""

    def check(name: str, value: Any) -> Any:
        if not accepts(value):
            raise _refused(name, value, accepted)
        return value

    return check


def _kind(kinds: Any, accepted: str, default: Callable[[], Any] | None = None) -> Check:
    """A check of an object's class; None stands for the `default` where there is one."""

    def check(name: str, value: Any) -> Any:
        if value is None and default is not None:
            return default()
        if not isinstance(value, kinds) or isinstance(value, bool) or value == "":
            raise _refused(name, value, f"is {accepted}")
        return value

    return check


def _seconds(name: str, value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
        raise _refused(name, value, "are seconds above 0, or None")
    return value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_pair(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(part, str) for part in value)


def _mode(name: str, value: Any) -> Any:
    for mode in [] if value is None else value if isinstance(value, (list, tuple)) else [value]:
        if mode not in ("min", "max"):
            raise _refused(name, mode, "are 'min' and 'max'")
    return value


def _metric(name: str, value: Any) -> Any:
    named = list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]
    if not all(isinstance(part, str) and part for part in named) or (value is not None and not named):
        raise _refused(name, value, "are the name of a metric, a list of names, and None")
    return value


def _callbacks(name: str, value: Any) -> Any:
    if value is None:
        return ()
    _kind((list, tuple), "a list of tune.Callback objects")(name, value)
    for callback in value:
        if not isinstance(callback, Callback):
            raise SettingError(f"callbacks: {callback!r} is not accepted; accepted are tune.Callback objects")
    return value


def _budget(name: str, value: Any) -> Any:
    Budget.of(value)
    return value


def _name(name: str, value: Any) -> Any:
    if value is not None:
        check_experiment_name(value)
    return value


_flag = _when(lambda value: isinstance(value, bool), "are True and False")
_namer = _when(lambda value: value is None or callable(value), "is a function (trial) -> str")


def _setting(check: Check = _any, default: Any = None, *, giver: Giver = Giver.CALL, stored: bool = False) -> Any:
    """One row of the table: a field with what is accepted, who gives it, and whether an experiment keeps it."""
    return field(default=default, metadata={"check": check, "giver": giver, "stored": stored})


def _tune(check: Check = _any, default: Any = None, *, stored: bool = True) -> Any:
    return _setting(check, default, giver=Giver.TUNE, stored=stored)


def _run(check: Check = _any, default: Any = None, *, stored: bool = False) -> Any:
    return _setting(check, default, giver=Giver.RUN, stored=stored)


@dataclass(frozen=True, slots=True)
class Spec:
    """One experiment as the user described it. Validates itself, and is never changed.

    The fields are the table of settings: a name, a type, what is accepted, a default, which object of the user's gives
    it, and whether the experiment stores it for a `Tuner.restore` that is not given that object again.
    """

    trainable: Any = _setting()
    time_budget_s: float | datetime.timedelta | None = _tune(_seconds)
    search_alg: Any = _tune()
    scheduler: Any = _tune()
    max_concurrent_trials: int | None = _tune(
        _when(
            lambda value: value is None or (_is_count(value) and value >= 0), "are 1, 2, ... and None or 0 (no limit)"
        )
    )
    trial_name_creator: Callable[[Any], str] | None = _tune(_namer)
    trial_dirname_creator: Callable[[Any], str] | None = _tune(_namer)
    chdir_to_trial_dir: bool | None = _tune(lambda name, value: value if value is None else _flag(name, value))
    metric: str | Sequence[str] | None = _tune(_metric, stored=False)
    mode: str | Sequence[str] | None = _tune(_mode, stored=False)
    num_samples: int = _tune(
        _when(lambda value: _is_count(value) and value and value >= -1, "are 1, 2, ... and -1 (no limit)"),
        1,
        stored=False,
    )
    stop: Any = _run(stored=True)
    checkpoint_config: CheckpointConfig | CheckpointStrategy = _run(
        _kind((CheckpointConfig, CheckpointStrategy), "a CheckpointConfig", CheckpointConfig), stored=True
    )
    failure_config: FailureConfig = _run(_kind(FailureConfig, "a FailureConfig", FailureConfig), stored=True)
    checkpoint_budget: Any = _run(_budget, stored=True)
    log_to_file: bool | str | Sequence[str] = _run(
        _when(
            lambda value: isinstance(value, (bool, str)) or _is_pair(value),
            "are True, False, a file name, and two: for stdout and for stderr",
        ),
        False,
        stored=True,
    )
    trial_timeout_s: float | None = _run(_seconds, stored=True)
    callbacks: Sequence[Any] = _run(_callbacks, stored=True)
    verbose: int | None = _run(stored=True)
    sync_config: SyncConfig = _run(_kind(SyncConfig, "a SyncConfig", SyncConfig), stored=True)
    name: str | None = _run(_name)
    storage_path: str | os.PathLike[str] | None = _run(
        _kind((str, os.PathLike, type(None)), "a path, one with ~, file:///..., or None")
    )
    progress_reporter: Any = _run()
    seed: int | None = _run(_kind((int, type(None)), "a whole number, or None: one is drawn"))
    overwrite: bool = _run(_flag, False)
    takeover: bool = _run(_flag, False)
    executor: Any = _run()
    param_space: Any = _setting(
        lambda name, value: _when(
            lambda value: isinstance(value, Mapping) or callable(value), "are a dict and a define-by-run function"
        )("config", {} if value is None else value)
    )
    resources: Any = _setting()
    raise_on_failed_trial: bool = _setting(_flag, True)
    resume: Resume | bool | str | None = _setting()
    restore: Any = _setting(
        _kind(
            (str, os.PathLike, Checkpoint, SyncConfig, type(None)),
            "a checkpoint (a path, a URI or a Checkpoint), an experiment's path or URI, a SyncConfig, or None",
        )
    )
    inherits: Sequence[str] = _setting(default=())
    """Names of settings that a resume takes over as the experiment was started with them."""
    trainable_name: str = _setting(default="")
    resources_for: Callable[[Mapping[str, Any]], Any] | None = _setting()
    """What one trial asks for, from its config, where that is not the same for all; None from it: what all ask for."""

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        if given["restore"] is None and isinstance(given["trainable"], TunableTrainer):
            given["restore"] = given["trainable"].resume_from_checkpoint
        given["trainable"], name = resolve_trainable(given["trainable"])
        given["trainable_name"] = given["trainable_name"] or name
        settled = {each.name: each.metadata["check"](each.name, given[each.name]) for each in fields(self)}
        for name, value in (settled | _related(settled)).items():
            object.__setattr__(self, name, value)
        self._check_saving()

    @property
    def resume_choice(self) -> Resume:
        """The resume word, understood."""
        return parse(self.resume)

    @property
    def class_api(self) -> bool:
        """The trainable is a class."""
        return inspect.isclass(self.trainable) and issubclass(self.trainable, Trainable)

    @property
    def budget(self) -> Budget | None:
        return Budget.of(self.checkpoint_budget)

    @property
    def storage(self) -> Path:
        """The directory that holds the experiment's own directory."""
        return default_storage() if self.storage_path is None else as_local_path(self.storage_path)

    def named(self, now: datetime.datetime) -> str:
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


def given_by(giver: Giver) -> tuple[str, ...]:
    """The settings that such an object has."""
    return tuple(each.name for each in fields(Spec) if each.metadata["giver"] is giver)


def stored_settings(*givers: Giver) -> tuple[str, ...]:
    """The settings that are stored with an experiment, of all givers or of these."""
    rows = [each for each in fields(Spec) if each.metadata["stored"]]
    return tuple(each.name for each in rows if not givers or each.metadata["giver"] in givers)


def default_of(name: str) -> Any:
    """What holds where a setting is not given."""
    (row,) = [each for each in fields(Spec) if each.name == name]
    return row.metadata["check"](name, row.default)


# --- what follows from several ----------------------------------------------------------------------------------


def _related(values: Mapping[str, Any]) -> dict[str, Any]:
    """What settings say of one another. Raises SettingError."""
    changed: dict[str, Any] = {}
    trainable, resume = values["trainable"], parse(values["resume"])
    asked, resources_for = values["resources"], values["resources_for"]
    if asked is None and resources_for is None:
        asked = resources_of(trainable)
        resources_for = trainable.resources_for if isinstance(trainable, GroupTrainable) else None
    if callable(asked) and not hasattr(asked, "bundles"):
        asked, resources_for = None, asked
    changed |= {"resources": asked, "resources_for": resources_for}
    if isinstance(values["param_space"], Mapping) and isinstance(trainable, GroupTrainable):
        changed["param_space"] = trainable.checked_space(values["param_space"])
    if values["overwrite"] and resume.base is not Base.NEW:
        raise SettingError(f"overwrite=True and resume={values['resume']!r} exclude each other: give one of them")
    if values["metric"] is not None and values["mode"] is None:
        changed["mode"] = "max"
    return changed | _places(values["storage_path"], values["sync_config"])


def _places(place: Any, sync: SyncConfig) -> dict[str, Any]:
    """A `storage_path` elsewhere is where copies go; what is here lies in a cache then."""
    copies = sync.upload_dir
    is_path = copies is not None and "://" not in os.fspath(copies) and not is_elsewhere(copies)
    if copies is not None and is_path and sync.syncer == "auto":
        # It is kept with the experiment, and read again from wherever a program then works.
        sync = replace(sync, upload_dir=str(as_local_path(copies)))
    if place is None or not isinstance(os.fspath(place), str) or not is_elsewhere(place):
        return {"sync_config": sync}
    uri = os.fspath(place)
    if sync.upload_dir is not None and os.fspath(sync.upload_dir) != uri:
        raise SettingError(
            f"storage_path={uri!r} and upload_dir={os.fspath(sync.upload_dir)!r} mean the same; give one of them"
        )
    return {"sync_config": replace(sync, upload_dir=uri), "storage_path": cache_of(uri)}
