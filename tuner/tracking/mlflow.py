"""`MLflowLoggerCallback`: each trial is a run of MLflow."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from trainables.reporting import library
from trainables.result_history import flatten
from trainables.tracking.mlflow_run import (
    KEY_TAG,
    MLflowTrainableMixin,
    connect,
    experiment,
    known_run,
    log_parameters,
    mlflow_mixin,
    setup_mlflow,
)
from trainables.tracking.plain import numbers, plain_config
from tuner.tracking.tracker import OpenRun, Row, RunEnding, TrackedRun, Tracker
from tuner.tracking.tracker_callback import TrackerCallback

__all__ = ["MLflowLoggerCallback", "MLflowTrainableMixin", "mlflow_mixin", "setup_mlflow"]

METRICS_AT_ONCE = 1000
"""What a server takes in one call."""
_ITERATION = "training_iteration"
_STATUS = {
    RunEnding.FINISHED: "FINISHED",
    RunEnding.FAILED: "FAILED",
    RunEnding.UNFINISHED: "KILLED",
    RunEnding.SUPERSEDED: "KILLED",
}


class MLflowLoggerCallback(TrackerCallback):
    """Logs each trial as a run of MLflow, all of them from the driver's process.

    A driver that was killed and resumed goes on in the same run, which it finds by the tag `tuner_run`. A parameter
    cannot be changed in MLflow: what a clone of population based training goes on with is in tags `config/<key>`.

    Args:
        tracking_uri: of the server, the directory or the database; else MLFLOW_TRACKING_URI, else mlflow's default.
        registry_uri: of the model registry.
        experiment_name: the experiment at MLflow, made if it is not there; else MLFLOW_EXPERIMENT_NAME, else the
            experiment's name.
        tags: of every run.
        tracking_token: for a server that asks for one.
        save_artifact: store the trial's directory, checkpoints included, with the run when the trial ends.
        log_params_on_trial_end: log the config at the end instead of at the start.
        hold_back, upload_timeout: see `TrackerCallback`.

    Raises MissingExtraError without mlflow.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: Mapping[str, Any] | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
        *,
        hold_back: bool = True,
        upload_timeout: float = 300.0,
    ) -> None:
        library("mlflow", extra="mlflow")
        super().__init__(hold_back=hold_back, upload_timeout=upload_timeout)
        self.tracking_uri, self.registry_uri, self.tracking_token = tracking_uri, registry_uri, tracking_token
        self.experiment_name, self.tags = experiment_name, dict(tags or {})
        self.should_save_artifact, self.log_params_on_trial_end = save_artifact, log_params_on_trial_end

    def make_tracker(self) -> Tracker:
        return _MLflowTracker(self)


class _MLflowTracker(Tracker):
    name = "mlflow"
    keeps_at_once: ClassVar[bool] = True

    def __init__(self, settings: MLflowLoggerCallback) -> None:
        self._mlflow = library("mlflow", extra="mlflow")
        self._settings = settings
        connect(self._mlflow, settings.tracking_uri, settings.registry_uri, settings.tracking_token)
        self._client: Any = self._mlflow.MlflowClient(settings.tracking_uri, settings.registry_uri)
        self._experiment = ""

    @property
    def destination(self) -> str:
        return self._settings.experiment_name or ""

    def open(self, run: TrackedRun) -> OpenRun:
        if not self._experiment:
            name = self._settings.experiment_name
            known = name or not _named_elsewhere()
            self._experiment = experiment(self._mlflow, None, (name or run.experiment) if known else None, create=True)
        run_id = known_run(self._client, self._experiment, run.key)
        if run_id is None:
            tags = {str(key): str(value) for key, value in self._settings.tags.items()}
            tags |= {"trial_name": run.name, KEY_TAG: run.key}
            made = self._client.create_run(self._experiment, run_name=run.name, tags=tags)
            run_id, reached = made.info.run_id, 0
        else:
            self._client.update_run(run_id, status="RUNNING")
            reached = int(self._client.get_run(run_id).data.metrics.get(_ITERATION, 0))
        if not self._settings.log_params_on_trial_end:
            log_parameters(self._client, run_id, run.config)
        return OpenRun(run, run_id, None, reached)

    def send(self, run: OpenRun, rows: Sequence[Row]) -> None:
        entities = importlib.import_module("mlflow.entities")
        metrics: list[Any] = []
        for iteration, result in rows:
            step = int(result.get("timesteps_total") or iteration)
            # A result's own time: a row that the database has already is not taken twice.
            at = int(result.get("timestamp", 0)) * 1000
            found = numbers(result, left_out=frozenset({"done", "should_checkpoint"}))
            found[_ITERATION] = found.pop(_ITERATION, iteration)  # the last: who has it has the step
            own = [entities.Metric(key, float(value), at, step) for key, value in found.items()]
            if metrics and len(metrics) + len(own) > METRICS_AT_ONCE:
                self._client.log_batch(run.run_id, metrics=metrics)
                metrics = []
            metrics += own
            while len(metrics) > METRICS_AT_ONCE:
                self._client.log_batch(run.run_id, metrics=metrics[:METRICS_AT_ONCE])
                metrics = metrics[METRICS_AT_ONCE:]
        if metrics:
            self._client.log_batch(run.run_id, metrics=metrics)

    def update_config(self, run: OpenRun, config: Mapping[str, Any], iteration: int) -> None:
        for key, value in flatten(plain_config(config)).items():
            self._client.set_tag(run.run_id, f"config/{key}", str(value))

    def close(self, run: OpenRun, ending: RunEnding) -> None:
        ended = ending in (RunEnding.FINISHED, RunEnding.FAILED)
        if self._settings.log_params_on_trial_end and ended:
            log_parameters(self._client, run.run_id, run.run.config)
        if self._settings.should_save_artifact and ended:
            self._client.log_artifacts(run.run_id, str(run.run.directory))
        if ending is RunEnding.SUPERSEDED:
            self._client.set_tag(run.run_id, "superseded", "true")
        self._client.set_terminated(run.run_id, status=_STATUS[ending])


def _named_elsewhere() -> bool:
    from trainables import knobs

    return bool(knobs.tracker_variable("MLFLOW_EXPERIMENT_NAME") or knobs.tracker_variable("MLFLOW_EXPERIMENT_ID"))
