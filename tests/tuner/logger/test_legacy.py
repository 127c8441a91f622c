"""Ray's older loggers: by hand, in a run, and over a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.listings import SCRIPTS
from trainables.result_history import read_history
from tuner.error import SettingError
from tuner.logger import (
    DEFAULT_LOGGERS,
    CSVLogger,
    CSVLoggerCallback,
    JsonLogger,
    JsonLoggerCallback,
    LegacyLoggerCallback,
    Logger,
    NoopLogger,
    TBXLogger,
    UnifiedLogger,
    default_loggers,
)
from tuner.logger.legacy import as_callbacks
from tuner.logger.tensorboard import steps


class Saying(Logger):
    """Says what it is told."""

    said: list[Any]

    def _init(self) -> None:
        self.said.append(("init", self.config, Path(self.logdir).name, self.trial and self.trial.trial_id))

    def on_result(self, result: dict[str, Any]) -> None:
        self.said.append((result["training_iteration"], result["loss"], result["config"]))

    def update_config(self, config: dict[str, Any]) -> None:
        self.said.append(("config", config))

    def flush(self) -> None:
        self.said.append("flush")

    def close(self) -> None:
        self.said.append("close")


def saying() -> type[Saying]:
    return type("Said", (Saying,), {"said": []})


def test_a_logger_is_told_of_a_trials_life(lab: Any) -> None:
    kind = saying()
    run = lab(LegacyLoggerCallback([kind]))
    trial = run.trial(lr=1)
    run.report(trial, loss=2)
    run.save(trial)
    run.end(trial)
    run.finish()

    config = {"lr": 1}
    assert kind.said == [
        ("init", config, trial.dirname, trial.trial_id),
        (1, 2, config),
        "flush",
        "flush",
        "close",
    ]


def test_an_iteration_is_told_once_unless_the_logger_takes_back(lab: Any) -> None:
    class Taking(Saying):
        said: list[Any] = []

        def on_rollback(self, iteration: int) -> None:
            self.said.append(f"void after {iteration}")

    once = saying()
    run = lab(LegacyLoggerCallback([once, Taking]))
    trial = run.trial()
    for loss in (3, 2, 1):
        run.report(trial, loss=loss)
    run.rollback(trial, 1)
    for loss in (20, 10, 0):
        run.report(trial, loss=loss)
    run.finish()

    assert once.said[1:-2] == [(1, 3, {}), (2, 2, {}), (3, 1, {}), (4, 0, {})]
    again = [(1, 3, {}), (2, 2, {}), (3, 1, {}), "void after 1", (2, 20, {}), (3, 10, {}), (4, 0, {})]
    assert Taking.said[1:-2] == again


def test_a_resumed_run_tells_a_new_logger_what_stands(lab: Any) -> None:
    told: list[int] = []

    class Taking(NoopLogger):
        def on_rollback(self, iteration: int) -> None:
            told.append(iteration)

    first = lab()
    trial = first.trial()
    first.report(trial, loss=1)
    run = lab(LegacyLoggerCallback([Taking]))
    run.state = first.state
    run.start(trial)

    assert told == [1]


def test_the_run_writes_the_files_of_default_loggers_once(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

    class Mine(JsonLogger):
        seen = 0

        def on_result(self, result: dict[str, Any]) -> None:
            super().on_result(result)
            Mine.seen += 1

    legacy = LegacyLoggerCallback([Mine, CSVLogger])
    kinds = {type(each) for each in default_loggers([legacy])}
    assert {JsonLoggerCallback, CSVLoggerCallback} <= kinds and len(kinds) == 3
    run = lab(legacy, *default_loggers([legacy]))
    trial = run.trial(lr=1)
    run.report(trial, loss=1)
    run.report(trial, "stop", loss=2)
    run.end(trial)

    assert Mine.seen == 2
    assert [row["loss"] for row in read_history(trial.directory / "result.json")] == [1, 2]
    assert len((trial.directory / "result.json").read_text().splitlines()) == 2
    assert len((trial.directory / "progress.csv").read_text().splitlines()) == 3


def test_by_hand_the_default_loggers_write_their_files_and_go_on_with_them(tmp_path: Path) -> None:
    for loss in (2.0, 1.0):
        logger = UnifiedLogger({"lr": 1, "act": print}, str(tmp_path))
        logger.on_result({"loss": loss, "eval": {"auc": 0.5}, "config": {"lr": 1}})
        logger.flush()
        logger.close()

    rows = [{"loss": loss, "eval": {"auc": 0.5}, "training_iteration": n} for n, loss in ((1, 2.0), (2, 1.0))]
    assert read_history(tmp_path / "result.json") == rows
    lines = (tmp_path / "progress.csv").read_text().splitlines()
    assert lines == ["loss,eval/auc,training_iteration", "2.0,0.5,1", "1.0,0.5,2"]
    assert steps(tmp_path) == {1, 2}
    assert json.loads((tmp_path / "params.json").read_text())["lr"] == 1
    logger = JsonLogger({"lr": 1}, str(tmp_path))
    logger.update_config({"lr": 3})
    assert json.loads((tmp_path / "params.json").read_text()) == {"lr": 3}
    logger.close()


def test_a_subclass_of_tensorboards_logger_has_a_writer_for_more_than_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")

    class Texts(TBXLogger):
        def on_result(self, result: dict[str, Any]) -> None:
            super().on_result(result)
            self._file_writer.add_text("note", "hello", global_step=result["training_iteration"])

    logger = Texts({}, str(tmp_path))
    logger.on_result({"training_iteration": 7, "loss": 1})
    logger.flush()
    logger.close()

    written = b"".join(file.read_bytes() for file in tmp_path.glob("events.*"))
    assert b"hello" in written and b"loss" in written


def test_the_argument_loggers_takes_classes_and_callbacks() -> None:
    given = CSVLoggerCallback()
    found = list(as_callbacks([given, JsonLoggerCallback, *DEFAULT_LOGGERS, NoopLogger]))

    assert [type(each) for each in found] == [CSVLoggerCallback, JsonLoggerCallback, LegacyLoggerCallback]
    assert found[0] is given
    with pytest.raises(SettingError, match="subclasses of tuner.logger.Logger"):
        LegacyLoggerCallback([object])  # type: ignore[list-item]


def test_a_logger_without_on_result_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match=r"on_result\(result\)"):
        Logger({}, str(tmp_path)).on_result({})


def test_over_a_kill_no_row_comes_twice(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "logs_in_old_ways.py"), str(tmp_path)]
    assert subprocess.run([*command, "8"], timeout=100).returncode == -signal.SIGKILL
    assert subprocess.run(command, timeout=100).returncode == 0

    (trial,) = (tmp_path / "old").glob("Counter_*")
    rows = {name: (trial / name).read_text().split("\n")[:-1] for name in ("lines", "rows", "only")}
    killed = next(int(row.split()[0]) for row in rows["rows"] if "False" in row)  # the first after the checkpoint
    assert killed in (10, 7, 4, 1)
    assert rows["rows"] == [f"{n} {n < killed} 1" for n in range(1, 11)]
    told = next(int(row.split()[0]) for row in rows["lines"] if "False" in row)
    assert rows["lines"] == [f"{n} {n < told} 1" for n in range(1, 11)] and told >= 9
    assert rows["only"] == [line.removesuffix(" 1") for line in rows["lines"]]
    assert len(read_history(trial / "result.json")) == 10
