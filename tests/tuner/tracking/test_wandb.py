"""Weights & Biases, offline: what its own process writes is read back."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.tracking.running import killed_and_resumed
from tuner.error import SettingError
from tuner.tracking import wandb_file

wandb = pytest.importorskip("wandb")

from tuner.tracking.wandb import WandbLoggerCallback  # noqa: E402


@pytest.fixture(autouse=True)
def forgotten_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither what wandb keeps of the environment nor its threads for telemetry are for the tests that follow."""
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    yield
    wandb.teardown()


def files_of(directory: Path) -> list[Path]:
    """The files of a trial's lives, oldest first."""
    return sorted(directory.glob("wandb/offline-run-*/*.wandb"))


def history(file: Path) -> list[dict[str, Any]]:
    """The lines of a run's history."""
    found = []
    for record in wandb_file.records(file):
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            found.append({key: json.loads(value) for key, value in items.items()})
    return found


def history_by_wandb(file: Path) -> list[dict[str, Any]]:
    """The same, as wandb's own command reads the file."""
    command = [str(Path(sys.prefix, "bin", "wandb")), "leet", "inspect", "--json", str(file)]
    read = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert read.returncode == 0, read.stderr
    found = [json.loads(line) for line in read.stdout.splitlines()]
    assert [each["num"] for each in found] == list(range(1, len(found) + 1))
    return [each["history"]["item"] for each in found if each["type"] == "history"]


def config_of(file: Path) -> tuple[Any, dict[str, Any]]:
    """(the run's record, the config as it is at the end)"""
    run, config = None, {}
    for record in wandb_file.records(file):
        if record.WhichOneof("record_type") == "run":
            run = record.run
            config |= {each.key: json.loads(each.value_json) for each in run.config.update}
        elif record.WhichOneof("record_type") == "config":
            config |= {each.key: json.loads(each.value_json) for each in record.config.update}
    return run, config


def ending_of(file: Path) -> int | None:
    """The exit code; None: the file ends without one."""
    exits = [each.exit.exit_code for each in wandb_file.records(file) if each.WhichOneof("record_type") == "exit"]
    return exits[-1] if exits else None


@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "lost-with-the-driver"])
def test_a_resumed_run_goes_on_under_its_id_and_has_each_step_once(tmp_path: Path, flushed: bool) -> None:
    """A killed driver takes what its library had not written yet with it; the next one sees that, and sends it."""
    how = {"settings": {"x_transaction_log_flush_interval": 0.01}} if flushed else {}
    callback = {"project": "p", "mode": "offline", "upload_checkpoints": True, "excludes": ["life"], **how}
    ids = killed_and_resumed("wandb", tmp_path, callback=callback)
    for number, trial_id in enumerate(ids):
        first, second = files_of(tmp_path / "tracked" / f"train_function_{trial_id}")
        steps = [[line["_step"] for line in history(file)] for file in (first, second)]
        assert steps[0] + steps[1] == [1, 2, 3, 4, 5, 6, 7]
        assert steps[1] and (flushed or not steps[0])
        assert [line["loss"] for file in (first, second) for line in history(file)] == [
            (1, 10)[number] * step for step in range(1, 8)
        ]
        run, config = config_of(second)
        assert (run.run_id, run.run_group, run.project) == (trial_id, "tracked", "p")
        assert run.display_name == f"train_function_{trial_id}"
        assert config["lr"] == (1, 10)[number]
        assert config["trial_id"] == trial_id
        assert ending_of(second) == 0
        assert any(each.WhichOneof("record_type") == "artifact" for each in wandb_file.records(second))
        if flushed and number == 0:
            assert [history_by_wandb(file) for file in (first, second)] == [history(file) for file in (first, second)]


def test_sent_at_once_what_a_kill_made_void_is_in_the_files_of_both_lives(tmp_path: Path) -> None:
    settings = {"x_transaction_log_flush_interval": 0.01}
    callback = {"project": "p", "mode": "offline", "hold_back": False, "settings": settings}
    ids = killed_and_resumed("wandb", tmp_path, callback=callback, given=5)
    for trial_id in ids:
        first, second = files_of(tmp_path / "tracked" / f"train_function_{trial_id}")
        steps = [[line["_step"] for line in history(file)] for file in (first, second)]
        assert steps == [[1, 2, 3, 4, 5], [5, 6, 7]]


def run(tmp_path: Path, trainable: Any, *callbacks: Any, **how: Any) -> Any:
    return tune.run(
        trainable,
        name="tracked",
        storage_path=str(tmp_path),
        callbacks=list(callbacks),
        verbose=0,
        executor="inline",
        raise_on_failed_trial=False,
        **how,
    )


def test_an_error_ends_its_run_with_one_and_nested_numbers_and_configs_are_logged(tmp_path: Path) -> None:
    def trainable(config: dict[str, Any]) -> None:
        tune.report({"eval": {"auc": 0.5}, "hidden": {"a": 1}, "text": "x", "flag": True})
        raise RuntimeError("as configured")

    callback = WandbLoggerCallback("p", mode="offline", log_config=True, excludes=["hidden"], group="mine")
    (trial,) = run(tmp_path, trainable, callback, config={"lr": 0.1}).trials
    (file,) = files_of(trial.directory)
    (line,) = history(file)
    assert line["eval/auc"] == 0.5 and line["config/lr"] == 0.1 and line["flag"] is True
    assert not line.keys() & {"hidden/a", "text", "done", "pid"}
    assert config_of(file)[0].run_group == "mine"
    assert ending_of(file) == 1


def test_a_server_that_is_down_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{held.getsockname()[1]}")
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)

        def trainable(config: dict[str, Any]) -> None:
            tune.report(loss=1.0)

        callback = WandbLoggerCallback("p", upload_timeout=0.2, settings=wandb.Settings(init_timeout=1.0))
        (trial,) = run(tmp_path, trainable, callback).trials
    assert trial.status == "TERMINATED"
    assert any("did not get everything" in message for message in caplog.messages)


def test_a_run_without_project_or_key_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_PROJECT_NAME", "WANDB_PROJECT", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(SettingError, match="WANDB_PROJECT_NAME"):
        WandbLoggerCallback(mode="offline").setup()
    with pytest.raises(ValueError, match="api_key_file"):
        WandbLoggerCallback("p", api_key="a", api_key_file="b").setup()
