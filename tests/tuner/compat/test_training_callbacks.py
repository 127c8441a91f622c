"""Callbacks of Ray Train's first generation, as its examples use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trainables.first_generation import report_twice, trainer
from tuner.compat.table import look_up
from tuner.error import SettingError

JsonLoggerCallback = look_up("train.callbacks", "JsonLoggerCallback")
PrintCallback = look_up("train.callbacks", "PrintCallback")
TrainingCallback = look_up("train.callbacks", "TrainingCallback")


class Watches(TrainingCallback):  # type: ignore[misc, valid-type]
    """Only wants to know how it ended."""

    ended: list[bool]

    def finish_training(self, error: bool = False, **info: object) -> None:
        self.ended = [error]


def test_callbacks_of_a_trainer_print_and_write_what_workers_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, every, watches = JsonLoggerCallback(), JsonLoggerCallback(str(tmp_path / "all"), "a.json", None), Watches()
    with pytest.raises(SettingError, match="no run has begun"):
        _ = first.log_path
    made = trainer(tmp_path)
    made.run(report_twice, callbacks=[PrintCallback(), first, every, watches])
    assert first.log_path == made.latest_run_dir / "results.json"
    one = json.loads(first.log_path.read_text())
    assert [len(results) for results in one] == [1, 1]
    both = json.loads((tmp_path / "all" / "a.json").read_text())
    assert [len(results) for results in both] == [2, 2] and [results[:1] for results in both] == one
    assert json.loads(capsys.readouterr().out.partition("]\n")[0] + "]") == both[0]
    assert watches.ended == [False]
