"""MLflow: a real server on loopback, and a database without one, read back with its own client."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.peer_library import PeerLibrary
from tests.tuner.tracking.running import killed_and_resumed
from tuner.tracking.mlflow import MLflowLoggerCallback
from tuner.tracking.tracker import RunEnding, TrackedRun

mlflow: Any = PeerLibrary("mlflow")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]
"""A server takes long to start on a busy machine."""


@contextlib.contextmanager
def server(directory: Path) -> Iterator[str]:
    """The address of a tracking server whose database lies in the directory."""
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{directory}/m.db", "--artifacts-destination", f"{directory}/stored"]
    with open(directory / "log", "w") as log:
        environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "1"}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 90
        while True:
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < until, (directory / "log").read_text()
                time.sleep(0.1)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its workers take their time to end
        process.wait()


def runs(uri: str, experiment: str) -> dict[str, Any]:
    client = mlflow.MlflowClient(uri)
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return {run.data.tags["tuner_run"]: run for run in found}


def history(uri: str, run: Any, metric: str = "loss") -> list[tuple[int, float]]:
    told = mlflow.MlflowClient(uri).get_metric_history(run.info.run_id, metric)
    return sorted((each.step, each.value) for each in told)


@pytest.mark.parametrize("served", [True, False], ids=["server", "sqlite"])
def test_a_killed_and_resumed_trial_is_one_run_with_each_step_once(tmp_path: Path, served: bool) -> None:
    with server(tmp_path) if served else contextlib.nullcontext(f"sqlite:///{tmp_path}/own.db") as uri:
        callback = {"tracking_uri": uri, "experiment_name": "mine", "tags": {"team": "a"}, "save_artifact": served}
        ids = killed_and_resumed("mlflow", tmp_path, callback=callback)
        found = runs(uri, "mine")
        assert sorted(found) == ids
        for number, run in enumerate(found[trial_id] for trial_id in ids):
            assert history(uri, run) == [(step, (1, 10)[number] * step) for step in range(1, 8)]
            assert run.info.status == "FINISHED"
            assert run.info.run_name == run.data.tags["trial_name"] == f"train_function_{ids[number]}"
            assert run.data.params == {"lr": str((1, 10)[number])}
            assert run.data.tags["team"] == "a"
            if served:
                stored = {each.path for each in mlflow.MlflowClient(uri).list_artifacts(run.info.run_id)}
                assert {"params.json", "result.json"} <= stored
                assert any(name.startswith("checkpoint_000006") for name in stored)


def test_at_once_the_void_value_stays_beside_the_one_that_stands(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/own.db"
    callback = {"tracking_uri": uri, "experiment_name": "mine", "hold_back": False}
    killed_and_resumed("mlflow", tmp_path, callback=callback, given=5)
    for run in runs(uri, "mine").values():
        assert [step for step, _ in history(uri, run)] == [1, 2, 3, 4, 5, 5, 6, 7]


def test_a_server_that_comes_late_gets_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def trainable(config: dict[str, Any]) -> None:
        tune.report(loss=1.0)
        raise RuntimeError("as configured")

    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    try:
        how = {"name": "e", "storage_path": str(tmp_path), "verbose": 0, "executor": "inline", "resume": "AUTO"}
        away = MLflowLoggerCallback("http://127.0.0.1:9", experiment_name="mine", upload_timeout=0)
        tune.run(trainable, callbacks=[away], raise_on_failed_trial=False, **how)
        assert any("did not get everything" in message for message in caplog.messages)
        with server(tmp_path) as uri:
            there = MLflowLoggerCallback(uri, experiment_name="mine")
            tune.run(trainable, callbacks=[there], raise_on_failed_trial=False, **how)
            (run,) = runs(uri, "mine").values()
            assert history(uri, run) == [(1, 1.0)]
            assert run.info.status == "FAILED"
    finally:
        del os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]


def test_many_metrics_go_in_several_calls_and_a_changed_config_in_tags(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/own.db"
    tracker = MLflowLoggerCallback(uri, experiment_name="mine", log_params_on_trial_end=True).make_tracker()
    opened = tracker.open(TrackedRun("id", "trial", "e", tmp_path, {"lr": 1}))
    wide = {f"m{number}": float(number) for number in range(1500)}
    tracker.send(opened, [(1, {"a": 1.0}), (2, {**wide, "timesteps_total": 40, "training_iteration": 2})])
    tracker.update_config(opened, {"lr": 2}, 2)
    tracker.close(opened, RunEnding.SUPERSEDED)
    (run,) = runs(uri, "mine").values()
    assert history(uri, run, "m1499") == [(40, 1499.0)]
    assert run.data.tags["config/lr"] == "2" and run.data.tags["superseded"] == "true"
    assert run.info.status == "KILLED" and not run.data.params
    assert tracker.open(TrackedRun("id", "trial", "e", tmp_path, {"lr": 1})).reached == 2
