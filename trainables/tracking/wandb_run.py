"""Weights & Biases within a trial: `setup_wandb`, and the mixin and decorator of Ray Tune up to 2.6."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainables import knobs
from trainables.reporting import library
from trainables.session import get_context
from trainables.tracking.plain import plain_config
from trainables.trainable import Trainable
from trainables.validation import invalid

log = logging.getLogger(__name__)

__all__ = ["WandbTrainableMixin", "setup_wandb", "wandb_mixin"]


def setup_wandb(
    config: Mapping[str, Any] | None = None,
    api_key: str | None = None,
    api_key_file: str | None = None,
    rank_zero_only: bool = True,
    **kwargs: Any,
) -> Any:
    """Start a run of Weights & Biases in this trial, or go on with the one that it has, and return it.

    The run's id is the trial's id, so that a trial that is continued goes on in the same run; its name is the trial's,
    its group the experiment's. Log with `step=` the iteration: after a kill a step that is there already is not taken
    twice. What was logged after the checkpoint that a trial goes back to stays as it was; `WandbLoggerCallback` holds
    such results back.

    Args:
        config: the run's config.
        api_key: of Weights & Biases; else WANDB_API_KEY, or what `wandb login` has stored.
        api_key_file: a file that holds it.
        rank_zero_only: in a group only rank 0 logs, the others get a run that is disabled.
        kwargs: go to `wandb.init`, before the defaults above.

    Raises MissingExtraError without wandb, InvalidSettingError for a key that is given twice, or is nowhere.
    """
    wandb = library("wandb", extra="wandb")
    here = get_context()
    if rank_zero_only and here.get_world_rank():
        return wandb.init(mode="disabled")
    offline = str(kwargs.get("mode") or "") in ("offline", "disabled")
    set_api_key(wandb, api_key, api_key_file, offline=offline)
    group = here.get_experiment_name() or knobs.tracker_variable("WANDB_GROUP_NAME") or None
    names = {"id": here.get_trial_id(), "name": here.get_trial_name(), "group": group}
    given = {"id": kwargs.pop("trial_id", None), "name": kwargs.pop("trial_name", None)}
    names |= {key: value for key, value in given.items() if value}
    how: dict[str, Any] = dict(
        resume="allow",
        reinit="finish_previous",
        allow_val_change=True,
        config=plain_config(config or {}),
        project=project_name(None),
        **names,
    )
    run = wandb.init(**{**how, **kwargs})
    process_run(run)
    return run


class WandbTrainableMixin:
    """Goes before `Trainable`: the trial has a run, `self.wandb`, made of the config's key `wandb`.

    That key holds `project`, and what else `setup_wandb` takes.
    """

    _wandb: Any = None

    def __init__(self, config: dict[str, Any] | None = None, *args: Any, **kwargs: Any) -> None:
        if not isinstance(self, Trainable):
            raise TypeError(f"class {type(self).__name__}(WandbTrainableMixin, Trainable): both are needed")
        own, settings = split(config or {}, "wandb", "project")
        self.wandb = setup_wandb(own, **{"group": type(self).__name__, **settings})
        super().__init__(own, *args, **kwargs)  # type: ignore[call-arg]

    def cleanup(self) -> None:
        """End the tracker's run, then do as the class that is mixed in does."""
        self.wandb.finish()
        super().cleanup()  # type: ignore[misc]


def wandb_mixin(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function: it has a run, made of the config's key `wandb`, and may call `wandb.log`.

    As `WandbTrainableMixin`; the function gets the config without that key.
    """

    @functools.wraps(function)
    def within_run(config: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        own, settings = split(config, "wandb", "project")
        run = setup_wandb(own, **{"group": function.__name__, **settings})
        code = 1
        try:
            result = function(own, *args, **kwargs)
            code = 0
            return result
        finally:
            run.finish(exit_code=code)

    return within_run


# --- what the callback does too ----------------------------------------------------------------------------------


def split(config: Mapping[str, Any], key: str, needed: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the config without a tracker's settings, these settings). Raises InvalidSettingError where they are missing."""
    own = dict(config)
    settings = own.pop(key, None)
    if not isinstance(settings, Mapping) or not settings.get(needed):
        raise invalid(f'config["{key}"]', settings, f'a dict with "{needed}" and what else the tracker is to be told')
    return own, dict(settings)


def set_api_key(wandb: Any, api_key: str | None, api_key_file: str | None, *, offline: bool = False) -> None:
    """Find the key where Ray finds it: given, in a file, in WANDB_API_KEY, stored, from WANDB_SETUP_API_KEY_HOOK.

    Raises InvalidSettingError where there is none, and one is needed.
    """
    if offline or knobs.tracker_variable("WANDB_MODE") in ("offline", "disabled"):
        return
    if api_key and api_key_file:
        raise invalid("api_key_file", api_key_file, "one of api_key and api_key_file, not both")
    if api_key_file:
        api_key = Path(api_key_file).expanduser().read_text("utf-8").strip()
    if not api_key and not knobs.tracker_variable("WANDB_API_KEY"):
        if wandb.login(prompt=False):
            return
        api_key = _called("WANDB_SETUP_API_KEY_HOOK")
    if api_key:
        knobs.set_tracker_variable("WANDB_API_KEY", api_key)
    elif not knobs.tracker_variable("WANDB_API_KEY"):
        raise invalid("api_key", None, 'api_key=, api_key_file=, WANDB_API_KEY, `wandb login`, or mode="offline"')


def project_name(given: str | None) -> str | None:
    """The project: given, in WANDB_PROJECT_NAME (WANDB_POPULATE_RUN_LOCATION_HOOK may set it), or in WANDB_PROJECT."""
    if not given and not knobs.tracker_variable("WANDB_PROJECT_NAME"):
        _called("WANDB_POPULATE_RUN_LOCATION_HOOK")
    return given or knobs.tracker_variable("WANDB_PROJECT_NAME") or knobs.tracker_variable("WANDB_PROJECT") or None


def process_run(run: Any) -> None:
    """Show a run that has started to WANDB_PROCESS_RUN_INFO_HOOK."""
    _called("WANDB_PROCESS_RUN_INFO_HOOK", run)


def _called(variable: str, *arguments: Any) -> Any:
    """What the function returns that a variable names ("module.function"); one that fails is a warning."""
    if not (named := knobs.tracker_variable(variable)):
        return None
    module, _, name = named.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)(*arguments)
    except Exception as error:
        log.warning("%s=%s failed: %r", variable, named, error)
        return None
