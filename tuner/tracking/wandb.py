"""`WandbLoggerCallback`: each trial is a run of Weights & Biases."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from trainables import knobs
from trainables.reporting import library
from trainables.result_history import flatten
from trainables.tracking.plain import numbers, plain_config, within
from trainables.tracking.wandb_run import (
    WandbTrainableMixin,
    process_run,
    project_name,
    set_api_key,
    setup_wandb,
    wandb_mixin,
)
from tuner.error import require
from tuner.tracking.tracker import OpenRun, Row, RunEnding, TrackedRun, Tracker, files_of
from tuner.tracking.tracker_callback import TrackerCallback
from tuner.tracking.wandb_file import in_use, last_step

__all__ = ["WandbLoggerCallback", "WandbTrainableMixin", "setup_wandb", "wandb_mixin"]

_LEFT_OUT = frozenset({"done", "should_checkpoint"})
_GONE_S = 10.0
"""How long the writing process of a killed driver may take to end."""


class WandbLoggerCallback(TrackerCallback):
    """Logs each trial as a run of Weights & Biases, all of them from the driver's process.

    The run's id is the trial's, and the step is `training_iteration`. A driver that was killed and resumed goes on in
    the same run. With `mode="offline"` each life of the driver leaves a directory `wandb/offline-run-...` in the
    trial's directory, of the same run; `wandb sync` takes them in their order.

    Args:
        project: the project; else WANDB_PROJECT_NAME. One of both is needed.
        group: the group of the runs; default: the experiment's name.
        api_key_file: a file that holds the API key.
        api_key: the key itself; else WANDB_API_KEY, or what `wandb login` has stored.
        excludes: keys of results and of the config that are not logged; what lies below them is not either.
        log_config: log the numbers of the config with each result, as `config/...`.
        upload_checkpoints: store checkpoints as artifacts `checkpoint_<trial>`.
        save_checkpoints: Ray's older name for it.
        upload_timeout: seconds to wait at the end of the run for what is not sent yet.
        video_kwargs: for `wandb.Video`, which a result's five-dimensional arrays become.
        image_kwargs: for `wandb.Image`, which its arrays of three dimensions become.
        hold_back: see `TrackerCallback`.
        kwargs: go to `wandb.init`.

    Raises MissingExtraError without wandb; when the run starts, SettingError for want of a project or a key.
    """

    AUTO_CONFIG_KEYS: ClassVar[list[str]] = [
        "trial_id",
        "experiment_tag",
        "node_ip",
        "experiment_id",
        "hostname",
        "pid",
        "date",
    ]
    """Keys of results that are kept in the run's config."""

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | None = None,
        api_key: str | None = None,
        excludes: Sequence[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        save_checkpoints: bool = False,
        upload_timeout: float = 1800,
        video_kwargs: Mapping[str, Any] | None = None,
        image_kwargs: Mapping[str, Any] | None = None,
        *,
        hold_back: bool = True,
        **kwargs: Any,
    ) -> None:
        library("wandb", extra="wandb")
        saves = upload_checkpoints or save_checkpoints
        super().__init__(hold_back=hold_back, upload_timeout=upload_timeout, saves=saves)
        self.project, self.group = project, group
        self.api_key_path, self.api_key = api_key_file, api_key
        self.excludes, self.log_config, self.upload_checkpoints = list(excludes or ()), log_config, saves
        self.video_kwargs, self.image_kwargs = dict(video_kwargs or {}), dict(image_kwargs or {})
        self.kwargs = kwargs

    def setup(self, *args: Any, **info: Any) -> None:
        wandb = library("wandb", extra="wandb")
        offline = self.kwargs.get("mode") in ("offline", "disabled")
        set_api_key(wandb, self.api_key, self.api_key_path, offline=offline)
        self.project = project_name(self.project)
        require(self.project, "project", self.project, "give WandbLoggerCallback(project=), or set WANDB_PROJECT_NAME")
        self.group = self.group or knobs.tracker_variable("WANDB_GROUP_NAME") or None
        super().setup(*args, **info)

    def make_tracker(self) -> Tracker:
        return _WandbTracker(self)


class _WandbTracker(Tracker):
    name = "wandb"
    keeps_at_once: ClassVar[bool] = False

    def __init__(self, settings: WandbLoggerCallback) -> None:
        self._wandb = library("wandb", extra="wandb")
        self._settings = settings
        self._left_out = _LEFT_OUT | frozenset(settings.excludes)
        self._to_config = frozenset(settings.AUTO_CONFIG_KEYS)

    @property
    def destination(self) -> str:
        return f"{self._settings.kwargs.get('entity') or ''}/{self._settings.project}"

    def open(self, run: TrackedRun) -> OpenRun:
        wandb, settings = self._wandb, self._settings
        config = {key: value for key, value in plain_config(run.config).items() if key not in settings.excludes}
        how: dict[str, Any] = {
            "id": run.run_id or run.key,
            "name": run.name,
            "resume": "allow",
            "reinit": "create_new",
            "allow_val_change": True,
            "group": settings.group or run.experiment,
            "project": settings.project,
            "config": config,
            "dir": str(run.directory),
        }
        how |= settings.kwargs
        if run.number > 1:  # with an `id` in `kwargs` too
            how |= {"id": f"{how['id']}-{run.number}" if "id" in settings.kwargs else run.key}
        how["settings"] = _quiet(wandb, how.get("settings"))
        left = _left_by_others(Path(how["dir"] or "."), how["id"])
        handle = wandb.init(**how)
        handle.config.update({"trial_log_path": str(run.directory)}, allow_val_change=True)
        process_run(handle)
        if handle.resumed:
            reached: int | None = max(handle.starting_step - 1, 0)
        elif handle.offline:
            reached = max([run.safe, *(last_step(file) for file in left)]) if left else None
        else:
            reached = 0  # the server has none of that id
        return OpenRun(run, handle.id, handle, reached)

    def send(self, run: OpenRun, rows: Sequence[Row]) -> None:
        for iteration, result in rows:
            flat = flatten(result)
            told = {key: value for key, value in flat.items() if within(key, self._to_config)}
            known = run.handle.config
            changed = {key: value for key, value in told.items() if known.get(key) != value}
            if changed:
                known.update(changed, allow_val_change=True)
            logged: dict[str, Any] = numbers(result, left_out=self._left_out | self._to_config)
            logged |= self._media(flat)
            if self._settings.log_config:
                logged |= numbers({"config": run.run.config}, left_out=self._left_out)
            run.handle.log(logged, step=iteration, commit=True)
            run.given = iteration

    def update_config(self, run: OpenRun, config: Mapping[str, Any], iteration: int) -> None:
        plain = {key: value for key, value in plain_config(config).items() if key not in self._settings.excludes}
        run.handle.config.update(plain, allow_val_change=True)

    def save(self, run: OpenRun, directory: str, iteration: int) -> None:
        artifact = self._wandb.Artifact(name=f"checkpoint_{run.run.name}", type="model", metadata={"step": iteration})
        for file, name in files_of(directory):
            artifact.add_file(file, name=name)  # copied when it returns
        run.handle.log_artifact(artifact)

    def close(self, run: OpenRun, ending: RunEnding) -> None:
        if ending is RunEnding.UNFINISHED:
            run.handle.mark_preempting()
        elif ending is RunEnding.SUPERSEDED:
            run.handle.tags = (*(run.handle.tags or ()), "superseded")
        run.handle.finish(exit_code=0 if ending is RunEnding.FINISHED else 1)

    def _media(self, flat: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays as images and videos, where their dimensions say that they are."""
        made: dict[str, Any] = {}
        for key, value in flat.items():
            dimensions = getattr(value, "ndim", 0)
            if within(key, self._left_out):
                continue
            if dimensions == 3:
                made[key] = self._wandb.Image(value, **self._settings.image_kwargs)
            elif dimensions == 4:
                made[key] = [self._wandb.Image(each, **self._settings.image_kwargs) for each in value]
            elif dimensions == 5:
                made[key] = self._wandb.Video(value, **self._settings.video_kwargs)
        return made


def _quiet(wandb: Any, given: Any) -> Any:
    """Settings of a run that belongs to a trial and not to this process: no console, no statistics of the machine."""
    settings = wandb.Settings(console="off", silent=True, x_disable_stats=True)
    if given is not None:
        asked = given if isinstance(given, Mapping) else given.model_dump(exclude_unset=True)
        settings = settings.model_copy(update=dict(asked))
    return settings


def _left_by_others(place: Path, run_id: str) -> list[Path]:
    """The files of that run that earlier lives left, when nobody writes them any more."""
    files = sorted(place.glob(f"wandb/*run-*-{run_id}/run-{run_id}.wandb"))
    until = time.monotonic() + _GONE_S
    while files and time.monotonic() < until and in_use(files[-1]):
        time.sleep(0.1)  # the process that wrote for a killed driver sees that it is alone, and ends
    return files
