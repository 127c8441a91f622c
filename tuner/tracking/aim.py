"""`AimLoggerCallback`: each trial is a run in a repository of Aim's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from trainables.reporting import library
from trainables.result_history import flatten
from trainables.tracking.plain import numbers, plain_config
from tuner.error import require
from tuner.tracking.tracker import OpenRun, Row, RunEnding, TrackedRun, Tracker
from tuner.tracking.tracker_callback import TrackerCallback

__all__ = ["AimLoggerCallback"]

_LEFT_OUT = frozenset({"config", "pid", "timestamp", "time_total_s", "training_iteration", "done", "should_checkpoint"})
_QUIET: dict[str, Any] = {
    "system_tracking_interval": None,
    "log_system_params": False,
    "capture_terminal_logs": False,
}
"""Of the driver's process, and not of a trial."""
_PATH = "ray/tune/"
"""Before each metric's name, as Ray has it."""


class AimLoggerCallback(TrackerCallback):
    """Logs each trial as a run of Aim, all of them from the driver's process.

    Metrics are called `ray/tune/<key>`, as Ray calls them; the step is `timesteps_total`, else `training_iteration`. A
    driver that was killed and resumed goes on in the same run. Aim keeps one value for each step: one that comes again
    takes the place of the first.

    Args:
        repo: the directory of the repository, or a `Repo`; default: the experiment's directory.
        experiment_name: default: the experiment's name.
        metrics: the keys of results that are logged; None: all numbers.
        hold_back, upload_timeout: see `TrackerCallback`.
        aim_run_kwargs: go to `aim.Run`.

    Raises MissingExtraError without aim, SettingError for an empty `metrics`.
    """

    def __init__(
        self,
        repo: Any = None,
        experiment_name: str | None = None,
        metrics: Sequence[str] | None = None,
        *,
        hold_back: bool = True,
        upload_timeout: float = 300.0,
        **aim_run_kwargs: Any,
    ) -> None:
        library("aim", extra="aim")
        require(metrics is None or len(metrics), "metrics", metrics, "accepted are None, and a list of at least one")
        super().__init__(hold_back=hold_back, upload_timeout=upload_timeout)
        self.repo, self.experiment_name, self.metrics = repo, experiment_name, metrics
        self.aim_run_kwargs = {**_QUIET, **aim_run_kwargs}

    def make_tracker(self) -> Tracker:
        return _AimTracker(self)


class _AimTracker(Tracker):
    name = "aim"
    keeps_at_once: ClassVar[bool] = True

    def __init__(self, settings: AimLoggerCallback) -> None:
        self._aim = library("aim", extra="aim")
        self._settings = settings

    @property
    def destination(self) -> str:
        return str(getattr(self._settings.repo, "path", self._settings.repo) or "")

    def open(self, run: TrackedRun) -> OpenRun:
        settings = self._settings
        repo = settings.repo or str(run.directory.parent)
        how = {"repo": repo, "experiment": settings.experiment_name or run.experiment, **settings.aim_run_kwargs}
        if run.run_id:
            how |= {"run_hash": run.run_id, "force_resume": True}  # a killed driver leaves its lock behind
        handle = self._aim.Run(**how)
        handle.name = run.name
        handle["trial_id"] = run.trial_id
        handle["trial_log_dir"] = str(run.directory)
        handle["hparams"] = flatten(plain_config(run.evaluated or run.config))
        return OpenRun(run, str(handle.hash), handle, None)

    def send(self, run: OpenRun, rows: Sequence[Row]) -> None:
        wanted = self._settings.metrics
        for iteration, result in rows:
            step = int(result.get("timesteps_total") or iteration)
            told = {key: value for key, value in result.items() if key not in ("context", "epoch")}
            for key, value in numbers(told, left_out=_LEFT_OUT).items():
                if isinstance(value, bool) or not math.isfinite(value) or (wanted is not None and key not in wanted):
                    continue
                how = {"epoch": result.get("epoch"), "context": result.get("context")}
                run.handle.track(value, name=_PATH + key, step=step, **how)
            run.given = iteration

    def update_config(self, run: OpenRun, config: Mapping[str, Any], iteration: int) -> None:
        run.handle["hparams"] = flatten(plain_config(config))

    def close(self, run: OpenRun, ending: RunEnding) -> None:
        run.handle["ended"] = ending.value
        if ending is RunEnding.SUPERSEDED:
            run.handle.add_tag("superseded")
        run.handle.close()
