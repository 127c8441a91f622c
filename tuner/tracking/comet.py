"""`CometLoggerCallback`: each trial is an experiment at Comet."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from blake3 import blake3

from trainables import knobs
from trainables.reporting import library
from trainables.result_history import flatten
from trainables.store import fs
from trainables.tracking.plain import numbers, plain_config, within
from tuner.error import require
from tuner.tracking.tracker import OpenRun, Row, RunEnding, TrackedRun, Tracker, files_of
from tuner.tracking.tracker_callback import TrackerCallback

__all__ = ["CometLoggerCallback"]

_LEFT_OUT = frozenset({"done", "should_checkpoint", "config"})
_SYSTEM = frozenset({"node_ip", "hostname", "pid", "date"})
_OTHER = frozenset({"trial_id", "experiment_id", "experiment_tag"})
_CURVES = frozenset({"hist_stats/episode_reward", "hist_stats/episode_lengths"})
_ITERATION = "training_iteration"
_QUIET = dict.fromkeys(
    ("auto_output_logging", "log_git_metadata", "log_git_patch", "log_env_cpu", "log_env_gpu"), False
)


class CometLoggerCallback(TrackerCallback):
    """Logs each trial as an experiment at Comet, all of them from the driver's process.

    The experiment's key is made of the trial's id: a driver that was killed and resumed goes on in the same one.
    Offline, an archive is complete when its experiment ends; what a killed driver had not archived is sent again, and
    `comet upload` takes the archives of a trial in their order.

    Args:
        online: True sends to the server; False writes archives, into `offline_directory` or the trial's directory.
        tags: of every experiment.
        save_checkpoints: store checkpoints as artifacts `checkpoint_<trial>`; Comet takes none offline.
        hold_back, upload_timeout: see `TrackerCallback`.
        experiment_kwargs: go to `comet_ml.Experiment`, or `OfflineExperiment`.

    Raises MissingExtraError without comet_ml, SettingError for artifacts that are to be stored offline.
    """

    def __init__(
        self,
        online: bool = True,
        tags: Sequence[str] | None = None,
        save_checkpoints: bool = False,
        *,
        hold_back: bool = True,
        upload_timeout: float = 300.0,
        **experiment_kwargs: Any,
    ) -> None:
        _library()
        fits = online or not save_checkpoints
        require(fits, "save_checkpoints", save_checkpoints, "with online=False accepted is False: Comet stores none")
        super().__init__(hold_back=hold_back, upload_timeout=upload_timeout, saves=save_checkpoints)
        self.online, self.tags, self.save_checkpoints = online, list(tags or ()), save_checkpoints
        self.experiment_kwargs = {**_QUIET, **experiment_kwargs}

    def make_tracker(self) -> Tracker:
        return _CometTracker(self)


class _CometTracker(Tracker):
    name = "comet"
    keeps_at_once: ClassVar[bool] = False

    def __init__(self, settings: CometLoggerCallback) -> None:
        self._comet = _library()
        self._settings = settings

    @property
    def destination(self) -> str:
        how = self._settings.experiment_kwargs
        return f"{how.get('workspace') or ''}/{how.get('project_name') or ''}/{self._settings.online}"

    def open(self, run: TrackedRun) -> OpenRun:
        key = run.run_id or blake3(run.key.encode()).hexdigest()[:32]
        how = dict(self._settings.experiment_kwargs)
        if self._settings.online:
            reached = self._on_the_server(key, how) if run.run_id else 0
            kind = self._comet.ExistingExperiment if reached is not None and run.run_id else self._comet.Experiment
            how["previous_experiment" if kind is self._comet.ExistingExperiment else "experiment_key"] = key
        else:
            how.setdefault("offline_directory", str(run.directory / "comet"))
            kept = _archives(Path(how["offline_directory"]), key)
            reached = max([run.safe, *map(last_step, kept)])
            kind = self._comet.ExistingOfflineExperiment if kept or run.safe else self._comet.OfflineExperiment
            how["experiment_key"] = key
        handle = kind(**how)
        self._comet.config.set_global_experiment(None)  # there are several
        handle.set_name(run.name)
        handle.add_tags([*self._settings.tags, run.experiment])
        handle.log_other("Created from", "tuner")
        handle.log_parameters(flatten(plain_config(run.config)))
        return OpenRun(run, key, handle, reached or 0)

    def send(self, run: OpenRun, rows: Sequence[Row]) -> None:
        for step, result in rows:
            flat = flatten(result)
            run.handle.log_others({key: flat[key] for key in flat if within(key, _OTHER)})
            for key in flat:
                if within(key, _SYSTEM):
                    run.handle.log_system_info(key, flat[key])
                elif within(key, _CURVES):
                    run.handle.log_curve(key, x=range(len(flat[key])), y=flat[key], step=step)
            run.handle.log_metrics(numbers(result, left_out=_LEFT_OUT | _SYSTEM | _OTHER), step=step)
            run.given = step
        if self._settings.online:
            run.handle.flush()

    def update_config(self, run: OpenRun, config: Mapping[str, Any], iteration: int) -> None:
        run.handle.log_parameters(flatten(plain_config(config)), step=iteration)

    def save(self, run: OpenRun, directory: str, iteration: int) -> None:
        artifact = self._comet.Artifact(f"checkpoint_{run.run.name}", "model", metadata={"step": iteration})
        for file, name in files_of(directory):
            artifact.add(file, logical_path=name)
        run.handle.log_artifact(artifact).wait()  # the files may be evicted then

    def close(self, run: OpenRun, ending: RunEnding) -> None:
        run.handle.log_other("ended", ending.value)
        if ending is RunEnding.SUPERSEDED:
            run.handle.add_tag("superseded")
        run.handle.end()

    def _on_the_server(self, key: str, how: Mapping[str, Any]) -> int | None:
        """The last iteration that the server has of that experiment; None: it has none of that key."""
        known = self._comet.API(api_key=how.get("api_key")).get_experiment_by_key(key)
        if known is None:
            return None
        return max([int(float(each["metricValue"])) for each in known.get_metrics(_ITERATION)], default=0)


def _archives(place: Path, key: str) -> list[Path]:
    """Those of an experiment; what a killed driver left is none, and is removed: `comet upload` trips on it."""
    whole = []
    for archive in sorted(place.glob(f"{key}*.zip")):
        if is_whole(archive):
            whole.append(archive)
        else:
            fs.remove_quietly(archive)
    return whole


def is_whole(archive: Path) -> bool:
    """Whether the experiment that writes it has ended."""
    try:
        with zipfile.ZipFile(archive) as files:
            return "messages.json" in files.namelist()
    except zipfile.BadZipFile:
        return False


def last_step(archive: Path) -> int:
    """The highest iteration in a whole archive; 0: there is none."""
    with zipfile.ZipFile(archive) as files:
        lines = files.read("messages.json").splitlines()
    metrics = [json.loads(line)["payload"].get("metric") or {} for line in lines if b"metric" in line]
    return max((int(each["metricValue"]) for each in metrics if each.get("metricName") == _ITERATION), default=0)


def _library() -> Any:
    knobs.default("COMET_DISABLE_AUTO_LOGGING", "1")  # it would change other libraries when it is imported
    return library("comet_ml", extra="comet")
