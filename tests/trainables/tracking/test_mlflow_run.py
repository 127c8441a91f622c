"""MLflow within a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.peer_library import PeerLibrary
from trainables.tracking.mlflow_run import MLflowTrainableMixin, mlflow_mixin, setup_mlflow

mlflow: Any = PeerLibrary("mlflow")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = f"sqlite:///{tmp_path}/m.db"
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("mine")
    return uri


def run(tmp_path: Path, trainable: Any, **how: Any) -> Any:
    (trial,) = tune.run(
        trainable,
        name="e",
        storage_path=str(tmp_path),
        verbose=0,
        executor="inline",
        raise_on_failed_trial=False,
        **how,
    ).trials
    return trial


def only_run(uri: str) -> Any:
    (found,) = mlflow.MlflowClient(uri).search_runs(
        [mlflow.MlflowClient(uri).get_experiment_by_name("mine").experiment_id]
    )
    return found


def test_a_trial_that_is_tried_again_goes_on_in_its_run(tmp_path: Path, uri: str) -> None:
    tries: list[int] = []

    def trainable(config: dict[str, Any]) -> None:
        tries.append(1)
        module = setup_mlflow(config, tracking_uri=uri, experiment_name="mine", tags={"a": 1})
        module.log_metric("loss", 1.0, step=len(tries))
        tune.report(loss=1.0)
        module.end_run()
        if len(tries) == 1:
            raise RuntimeError("as configured")

    trial = run(tmp_path, trainable, config={"lr": 2}, max_failures=1)
    found = only_run(uri)
    assert found.data.params == {"lr": "2"}
    assert found.data.tags["tuner_run"] == trial.trial_id
    assert [each.step for each in mlflow.MlflowClient(uri).get_metric_history(found.info.run_id, "loss")] == [1, 2]


def test_a_decorated_function_has_an_active_run(tmp_path: Path, uri: str) -> None:
    @mlflow_mixin
    def trainable(config: dict[str, Any]) -> None:
        mlflow.log_metric("loss", config["lr"], step=3)
        tune.report(loss=1.0)

    run(tmp_path, trainable, config={"lr": 2, "mlflow": {"tracking_uri": uri, "experiment_name": "mine"}})
    found = only_run(uri)
    assert found.data.metrics == {"loss": 2} and found.data.params == {"lr": "2"}
    assert found.info.status == "FINISHED"


def test_a_class_has_an_active_run(tmp_path: Path, uri: str) -> None:
    class Own(MLflowTrainableMixin, tune.Trainable):
        def step(self) -> dict[str, Any]:
            mlflow.log_metric("loss", 1.0)
            return {"loss": 1.0, "done": True}

    run(tmp_path, Own, config={"lr": 2, "mlflow": {"tracking_uri": uri, "experiment_name": "mine"}})
    assert only_run(uri).data.metrics == {"loss": 1.0}


def test_an_experiment_that_is_not_there_is_refused(tmp_path: Path, uri: str) -> None:
    with pytest.raises(ValueError, match="create_experiment_if_not_exists"):
        setup_mlflow({}, tracking_uri=uri, experiment_name="another")
