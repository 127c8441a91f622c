"""MLflow within a trial: `setup_mlflow`, and the mixin and decorator of Ray Tune up to 2.6."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from trainables import knobs
from trainables.reporting import library
from trainables.result_history import flatten
from trainables.session import get_context
from trainables.tracking.plain import plain_config
from trainables.tracking.wandb_run import split
from trainables.trainable import Trainable
from trainables.validation import invalid

__all__ = ["MLflowTrainableMixin", "mlflow_mixin", "setup_mlflow"]

KEY_TAG = "tuner_run"
"""The tag by which a trial's run is found again."""


class _Silent:
    """Stands for the module mlflow on ranks that log nothing: everything in it can be called, and does nothing."""

    def __getattr__(self, name: str) -> _Silent:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None


def setup_mlflow(
    config: Mapping[str, Any] | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    tracking_token: str | None = None,
    artifact_location: str | None = None,
    run_name: str | None = None,
    create_experiment_if_not_exists: bool = False,
    tags: Mapping[str, Any] | None = None,
    rank_zero_only: bool = True,
) -> Any:
    """Start a run of MLflow in this trial, or go on with the one that it has; return the module mlflow.

    A trial that is continued goes on in its run, which is found by a tag. The config becomes the run's parameters.

    Args:
        config: the run's parameters.
        tracking_uri: of the server or the directory; else MLFLOW_TRACKING_URI.
        registry_uri: of the model registry.
        experiment_id: of an experiment at MLflow, before `experiment_name`.
        experiment_name: its name; else MLFLOW_EXPERIMENT_NAME, else the trial's.
        tracking_token: for a server that asks for one.
        artifact_location: of an experiment that is made.
        run_name: default: the trial's name.
        create_experiment_if_not_exists: make an experiment that is not there.
        tags: of the run.
        rank_zero_only: in a group only rank 0 logs; the others get a stand-in that does nothing.

    Raises MissingExtraError without mlflow, InvalidSettingError for an experiment that is not there.
    """
    mlflow = library("mlflow", extra="mlflow")
    here = get_context()
    if rank_zero_only and here.get_world_rank():
        return _Silent()
    connect(mlflow, tracking_uri, registry_uri, tracking_token)
    found = experiment(
        mlflow,
        experiment_id,
        experiment_name,
        artifact_location,
        create=create_experiment_if_not_exists,
        otherwise=here.get_trial_name(),
    )
    key, labels = here.get_trial_id(), {str(tag): str(value) for tag, value in (tags or {}).items()}
    known = known_run(mlflow.MlflowClient(), found, key) if key is not None else None
    if known is not None:
        mlflow.start_run(run_id=known)
    elif mlflow.active_run() is None:
        if key is not None:
            labels[KEY_TAG] = key
        mlflow.start_run(experiment_id=found, run_name=run_name or here.get_trial_name(), tags=labels)
    log_parameters(mlflow.MlflowClient(), mlflow.active_run().info.run_id, config or {})
    return mlflow


class MLflowTrainableMixin:
    """Goes before `Trainable`: the trial has an active run, made of the config's key `mlflow`.

    That key holds `tracking_uri`, `experiment_id` or `experiment_name`, `token`, and what else `setup_mlflow` takes.
    """

    def __init__(self, config: dict[str, Any] | None = None, *args: Any, **kwargs: Any) -> None:
        if not isinstance(self, Trainable):
            raise TypeError(f"class {type(self).__name__}(MLflowTrainableMixin, Trainable): both are needed")
        own, settings = split(config or {}, "mlflow", "tracking_uri")
        self._mlflow = setup_mlflow(own, **_renamed(settings))
        super().__init__(own, *args, **kwargs)  # type: ignore[call-arg]

    def cleanup(self) -> None:
        """End the tracker's run, then do as the class that is mixed in does."""
        self._mlflow.end_run()
        super().cleanup()  # type: ignore[misc]


def mlflow_mixin(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function: it has an active run, made of the config's key `mlflow`, and may call mlflow.

    As `MLflowTrainableMixin`; the function gets the config without that key.
    """

    @functools.wraps(function)
    def within_run(config: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        own, settings = split(config, "mlflow", "tracking_uri")
        mlflow = setup_mlflow(own, **_renamed(settings))
        status = "FAILED"
        try:
            result = function(own, *args, **kwargs)
            status = "FINISHED"
            return result
        finally:
            mlflow.end_run(status=status)

    return within_run


def _renamed(settings: dict[str, Any]) -> dict[str, Any]:
    if "token" in settings:
        settings["tracking_token"] = settings.pop("token")
    return settings


# --- what the callback does too ----------------------------------------------------------------------------------


def connect(mlflow: Any, tracking_uri: str | None, registry_uri: str | None, token: str | None) -> None:
    """Set what mlflow is to talk to; what is not given stays as it is."""
    if token:
        knobs.set_tracker_variable("MLFLOW_TRACKING_TOKEN", token)
    if tracking_uri is not None:
        mlflow.set_tracking_uri(tracking_uri)
    if registry_uri is not None:
        mlflow.set_registry_uri(registry_uri)


def experiment(
    mlflow: Any,
    experiment_id: str | None,
    name: str | None,
    location: str | None = None,
    *,
    create: bool,
    otherwise: str | None = None,
) -> str:
    """The id of MLflow's experiment. Raises InvalidSettingError if it is not there.

    What was given comes before what the environment says (`mlflow.set_experiment` writes there too), that before
    `otherwise`; and an id before a name.
    """
    client = mlflow.MlflowClient()
    if experiment_id is None and name is None:
        experiment_id = knobs.tracker_variable("MLFLOW_EXPERIMENT_ID") or None
    if experiment_id is not None:
        return str(client.get_experiment(experiment_id).experiment_id)
    name = name or knobs.tracker_variable("MLFLOW_EXPERIMENT_NAME") or otherwise
    found = client.get_experiment_by_name(name) if name is not None else None
    if found is not None:
        return str(found.experiment_id)
    if name is None or not create:
        raise invalid("experiment_name", name, "one that MLflow has, or create_experiment_if_not_exists=True")
    return str(client.create_experiment(name, artifact_location=location))


def known_run(client: Any, experiment_id: str, key: str) -> str | None:
    """The id of the run that has that key; None: there is none."""
    found = client.search_runs([experiment_id], f"tags.`{KEY_TAG}` = '{key}'", max_results=1)
    return str(found[0].info.run_id) if found else None


def log_parameters(client: Any, run_id: str, config: Mapping[str, Any]) -> None:
    """Log a config as parameters. MLflow never changes one: those that the run has stay."""
    entities = importlib.import_module("mlflow.entities")
    known = client.get_run(run_id).data.params
    new = {key: str(value)[:6000] for key, value in flatten(plain_config(config)).items() if key not in known}
    parameters = [entities.Param(key, value) for key, value in new.items()]
    for start in range(0, len(parameters), 100):
        client.log_batch(run_id, params=parameters[start : start + 100])
