"""What holds of an experiment's settings at this start: given now, stored with the experiment, or by default."""

from __future__ import annotations

import datetime
import json
import logging
import math
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import cloudpickle

from trainables.config import SyncConfig
from trainables.masking import masked
from trainables.quick_dataclass import dataclass
from trainables.store import fs
from trainables.store.retention import policy_for
from trainables.transfer.open import shown
from tuner.error import ResumeError
from tuner.experiment import formats, unpickling
from tuner.experiment.blobs import Blobs
from tuner.experiment.naming import script_hash
from tuner.experiment.paths import ExperimentPaths
from tuner.opening.trainable_code import fingerprint_of, fingerprint_parts, is_another
from tuner.retention.rules import parts_of, rule_of
from tuner.schedulers import create_scheduler, default_scheduler
from tuner.search import BasicVariantGenerator, create_searcher
from tuner.search.described import described
from tuner.search.resolve import Space
from tuner.search.space import fingerprint, space_difference, space_warnings
from tuner.spec import Spec, default_of, stored_settings

log = logging.getLogger(__name__)

STORED_SPACE_BYTES = 256 * 1024
_PLAIN = ("metric", "mode", "num_samples")
"""Settings that `restore=` takes over as experiment.json has them."""
_COMPARED = ("metric", "mode", "searcher", "scheduler", "stop")
"""What of experiment.json decides how a run goes on."""


class SettingOrigin(Enum):
    """Where the value of a setting comes from."""

    GIVEN = "given"
    """By the call."""
    STORED = "stored"
    """With the experiment that is continued: as it was started."""
    DEFAULT = "default"
    """Nobody said anything."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that hold, and where each comes from.

    A setting whose origin is STORED has its stored value once that was read (`holding`): of an experiment that is
    surveyed before anything is opened that is where its copies go, the others follow when it is known what is resumed.
    """

    spec: Spec
    origins: Mapping[str, SettingOrigin]

    @classmethod
    def of(cls, spec: Spec) -> Settings:
        """As they were given."""
        origins = dict.fromkeys(spec.inherits, SettingOrigin.STORED)
        for name in (*stored_settings(), *_PLAIN, "param_space"):
            if name not in origins:
                same = getattr(spec, name) == default_of(name)
                origins[name] = SettingOrigin.DEFAULT if same else SettingOrigin.GIVEN
        return cls(spec, origins)

    def holding(self, **values: Any) -> Settings:
        """The same with values that are stored."""
        return Settings(replace(self.spec, **values), {**self.origins, **dict.fromkeys(values, SettingOrigin.STORED)})

    def is_stored(self, name: str) -> bool:
        return self.origins.get(name) is SettingOrigin.STORED

    def continuing(self, description: Mapping[str, Any], found_at: SyncConfig | None) -> Settings:
        """What `restore=` an experiment does not give anew holds as its experiment.json says, or as it stored it.

        `found_at`: the place elsewhere in which it was found, where it goes on: not the one it was once written to.
        """
        free = [name for name, origin in self.origins.items() if origin is SettingOrigin.DEFAULT]
        values = {name: description[name] for name in _PLAIN if name in free and description.get(name) is not None}
        waits = [name for name in free if name not in (*_PLAIN, *values)]
        if "param_space" in waits and not description.get("space"):
            waits.remove("param_space")
        origins = {**self.origins, **dict.fromkeys([*waits, *values], SettingOrigin.STORED)}
        if found_at is not None and "sync_config" in free:
            values["sync_config"], origins["sync_config"] = found_at, SettingOrigin.GIVEN
        return Settings(replace(self.spec, **values, restore=None), origins)

    def with_stored_place(self, description: Mapping[str, Any], blob: Callable[[str], bytes]) -> Settings:
        """Where copies go, as it was stored: that is needed before the replica is looked at."""
        if not self.is_stored("sync_config") or not description.get("settings_blob"):
            return self
        pickled = unpickling.loads(blob(description["settings_blob"])).get("sync_config")
        return self if pickled is None else self.holding(sync_config=unpickling.loads(pickled))

    def with_stored(self, description: Mapping[str, Any], blob: Callable[[str], bytes], root: Path) -> Settings:
        """With everything that the experiment stored and is not given anew; `blob`: what a hash stands for.

        Raises ResumeError for what is lost.
        """
        values: dict[str, Any] = {}
        if self.is_stored("param_space") and description.get("space_blob"):
            values["param_space"] = unpickling.loads(blob(description["space_blob"]))
        wanted = [name for name in stored_settings() if self.is_stored(name)]
        lost = [name for name in description.get("settings_lost", ()) if name in wanted]
        if lost:
            raise ResumeError(
                f"{', '.join(lost)} of {root} could not be stored; give the settings again: "
                "Tuner.restore(path, trainable, tune_config=..., run_config=...)"
            )
        if wanted and description.get("settings_blob"):
            pickled = unpickling.loads(blob(description["settings_blob"]))
            values |= {name: unpickling.loads(data) for name, data in pickled.items() if name in wanted}
        return self.holding(**values)


@dataclass(frozen=True, slots=True)
class Description:
    """What experiment.json will say, and the blobs that go with it."""

    plain: Mapping[str, Any]
    space: bytes | None
    """The search space of a new experiment, pickled for a `Tuner.restore` that is not given it again."""
    stored: bytes
    """The settings that such a restore takes over, pickled; only it unpickles them."""

    def write(self, paths: ExperimentPaths, before: Mapping[str, Any], *, runs: bool = True) -> dict[str, Any]:
        """Write it, and return what it says now.

        Args:
            before: what it held so far.
            runs: something is left to run; else the results stay those of the code that it names so far.
        """
        blobs, plain = Blobs(paths.blobs), dict(self.plain)
        if before and not runs:
            plain |= {name: before.get(name) for name in ("code", "code_parts")}
        if not before:
            plain["space_blob"] = None if self.space is None else blobs.put(self.space)
        plain["settings_blob"] = blobs.put(self.stored)
        if plain != before:
            fs.replace_file(paths.experiment_json, json.dumps(plain, indent=1).encode())
        return plain


def description_of(settings: Settings, before: Mapping[str, Any], *, name: str, now: float) -> Description:
    """What a new experiment says of itself, or one that is resumed and says `before` so far."""
    spec = settings.spec
    if before:
        plain = {**_said(spec), "format": formats.FORMAT}
        if not settings.is_stored("param_space"):
            plain["space"] = fingerprint(spec.param_space)
    else:
        plain = {
            "format": formats.FORMAT,
            "name": name,
            "id": secrets.token_hex(4),
            "created": datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(timespec="seconds"),
            "seed": spec.seed if spec.seed is not None else secrets.randbits(31),
            "space": fingerprint(spec.param_space),
            "call": spec.rerun.number,
            "script": script_hash(spec.trainable, spec.trainable_name),
            **_said(spec),
        }
    # Before the searcher is told of the run: a restore tells it again.
    space = None if before else _pickled("search space", spec.param_space)
    values = {name: getattr(spec, name) for name in stored_settings()}
    pickled = {name: _pickled(name, value) for name, value in values.items() if value is not None}
    stored = {name: data for name, data in pickled.items() if data is not None}
    plain["settings_lost"] = [name for name, data in pickled.items() if data is None]
    # What holds from now on, also for readers; the format before the journal has a line of it.
    return Description({**before, **plain}, space, cloudpickle.dumps(stored))


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line per setting that decides differently from here on: what it was, and what it is."""
    lines = [
        f"{name}: was {_shown(name, before)}, now {_shown(name, now)}, which is used from here on"
        for name in _COMPARED
        if name in before and before[name] != now[name]
    ]
    if is_another(before.get("code"), str(now.get("code"))):
        lines.append(
            f"the code of {now['trainable']!r} has changed: trials that had ended keep what the older one came to, the "
            "others go on with the new one; overwrite=True, or another name, runs all of them anew"
        )
    return lines + space_warnings(before.get("space", {}), now.get("space", {}))


def refuse_another(settings: Settings, description: Mapping[str, Any], root: Path | str) -> None:
    """Raise ResumeError where the run is to go on with another trainable or another search space."""
    spec = settings.spec
    if description.get("trainable") not in (None, spec.trainable_name):
        raise ResumeError(
            f"{root} was run with the trainable {description['trainable']!r}, not {spec.trainable_name!r}: "
            "give the run another name"
        )
    if settings.is_stored("param_space"):
        if description.get("space") and not description.get("space_blob"):
            raise ResumeError(
                f"the search space of {root} was too large to be stored; give it again: "
                "Tuner.restore(path, trainable, param_space=...)"
            )
        return
    changed = space_difference(description.get("space", {}), fingerprint(spec.param_space))
    if changed:
        raise ResumeError(
            f"the search space is not the one that {root} was started with; "
            "give the run another name, or restore the space:\n  " + "\n  ".join(changed)
        )


# --- in words ---------------------------------------------------------------------------------------------------


def _said(spec: Spec) -> dict[str, Any]:
    """What experiment.json keeps of the settings: plain values, for readers and for a resume."""
    config, trainable = spec.checkpoint_config, spec.trainable
    named = hasattr(trainable, "__qualname__")
    return {
        "trainable": spec.trainable_name,
        "entry": f"{trainable.__module__}:{trainable.__qualname__}" if named else "",
        "class_api": spec.class_api,
        "started_by": spec.started_by,
        "code": fingerprint_of(trainable),
        "code_parts": fingerprint_parts(trainable),
        "metric": _plain(spec.metric),
        "mode": _plain(spec.mode),
        "num_samples": spec.num_samples,
        "num_to_keep": config.num_to_keep,
        "checkpoint_score_attribute": config.score[0],
        "checkpoint_score_order": config.score[1],
        "checkpoint_score_literal": config.literal_score,
        "retention": [rule_of(part) for part in parts_of(policy_for(config))],
        "log_files": list(spec.log_files),
        "max_failures": spec.failure_config.max_failures,
        "upload_dir": _shown_upload_dir(spec.sync_config),
        "sync_command": _sync_command(spec.sync_config),
        "s3_extra_args": spec.sync_config.s3_extra_args,
        "checkpoint_budget": None if spec.checkpoint_budget is None else spec.checkpoint_budget.size,
        "time_budget_s": spec.time_budget_s if spec.time_budget_s != math.inf else None,
        "max_concurrent_trials": spec.max_concurrent_trials or None,
        **_plugins_of(spec),
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else list(value)


def _plugins_of(spec: Spec) -> dict[str, Any]:
    """Searcher, scheduler and stopper in words; and what the searcher goes by."""
    searcher, scheduler = spec.search_alg, spec.scheduler
    if searcher is None:
        searcher = create_searcher("optuna") if callable(spec.param_space) else BasicVariantGenerator()
    elif isinstance(searcher, str):
        searcher = create_searcher(searcher)
    if scheduler is None:
        scheduler = default_scheduler(searcher, spec.param_space, spec.stop)
    elif isinstance(scheduler, str):
        scheduler = create_scheduler(scheduler)
    metric, mode = getattr(searcher, "metric", None), getattr(searcher, "mode", None) or spec.mode
    return {
        "searcher": described(searcher),
        "searches_for": {"metric": metric, "mode": mode} if metric and mode else None,
        "scheduler": described(scheduler),
        "stop": described(spec.stop or None),
        "trials_in_all": _trials_in_all(spec, searcher),
    }


def _trials_in_all(spec: Spec, searcher: Any) -> int | None:
    """How many trials there will be, for who watches from outside; None: no end is known."""
    number = spec.num_samples
    if not isinstance(number, int) or number < 0:
        return None
    grids = isinstance(searcher, BasicVariantGenerator) and isinstance(spec.param_space, Mapping)
    return number * Space(spec.param_space).grid_size if grids else number


def _shown_upload_dir(config: SyncConfig) -> str | None:
    """Where copies go, for people and `tuner sync`; None too where a user's own command or code makes them."""
    if config.upload_dir is None or config.syncer != "auto":
        return None
    return shown(os.fspath(config.upload_dir))


def _sync_command(config: SyncConfig) -> dict[str, Any] | None:
    """For `tuner sync`: the command that makes copies, as text; without one where a user's own code makes them."""
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


def _shown(name: str, description: Mapping[str, Any]) -> str:
    value = description[name]
    return repr(value) if name in ("metric", "mode") else str(value)


def _pickled(what: str, value: Any) -> bytes | None:
    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as error:  # whatever a user's object raises: it can still be given again
        log.debug("the %s cannot be stored: %s", what, error)
        return None
    return data if len(data) <= STORED_SPACE_BYTES else None
