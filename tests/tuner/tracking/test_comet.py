"""Comet, offline: the archives are read back."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.tracking.running import killed_and_resumed
from tuner.error import SettingError

pytest.importorskip("comet_ml")

from tuner.tracking.comet import CometLoggerCallback, is_whole, last_step


def messages(archive: Path) -> list[dict[str, Any]]:
    with zipfile.ZipFile(archive) as files:
        return [json.loads(line) for line in files.read("messages.json").splitlines()]


def steps(archive: Path) -> list[int]:
    sent = [each["payload"]["metric"] for each in messages(archive) if each["type"] == "metric_msg"]
    return [each["step"] for each in sent if each["metricName"] == "loss"]


def losses_by_comet(archives: list[Path]) -> list[float]:
    """What Comet's own command reads there."""
    command = [str(Path(sys.prefix, "bin", "comet")), "offline", "--csv", "--name", "loss", "--level", "detail"]
    read = subprocess.run([*command, *map(str, archives)], capture_output=True, text=True, timeout=60)
    assert read.returncode == 0, read.stderr
    return sorted(float(row[-1]) for row in csv.reader(read.stdout.splitlines()) if "loss" in row)


def test_the_archives_of_a_killed_and_resumed_run_have_each_step_once(tmp_path: Path) -> None:
    callback = {"online": False, "project_name": "p", "tags": ["a"], "log_env_details": False}
    ids = killed_and_resumed("comet", tmp_path, callback=callback)
    keys = set()
    for number, trial_id in enumerate(ids):
        archives = list((tmp_path / "tracked" / f"train_function_{trial_id}" / "comet").glob("*.zip"))
        assert sorted(step for archive in archives for step in steps(archive)) == [1, 2, 3, 4, 5, 6, 7]
        assert max(map(last_step, archives)) == 7
        if number == 0:
            assert losses_by_comet(archives) == [1, 2, 3, 4, 5, 6, 7]
        told = [each for archive in archives for each in messages(archive)]
        assert str((1, 10)[number]) in [
            str(each["payload"]["param"]["paramValue"]) for each in told if each["type"] == "parameter_msg"
        ]
        with zipfile.ZipFile(archives[0]) as files:
            about = json.loads(files.read("experiment.json"))
        keys.add(about["offline_id"])
        assert set(about["tags"]) == {"a", "tracked"}
    assert len(keys) == 2


def test_sent_at_once_a_killed_driver_takes_its_archive_with_it_so_that_no_step_is_there_twice(tmp_path: Path) -> None:
    callback = {"online": False, "project_name": "p", "log_env_details": False, "hold_back": False}
    ids = killed_and_resumed("comet", tmp_path, callback=callback, given=5)
    for trial_id in ids:
        archives = list((tmp_path / "tracked" / f"train_function_{trial_id}" / "comet").glob("*.zip"))
        assert sorted(step for archive in archives for step in steps(archive)) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\5\6" + b"\0" * 18], ids=["nothing", "torn", "empty"])
def test_an_archive_that_a_kill_left_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "torn.zip").write_bytes(content)
    assert not is_whole(tmp_path / "torn.zip")


def test_artifacts_are_refused_where_comet_takes_none() -> None:
    with pytest.raises(SettingError, match="save_checkpoints"):
        CometLoggerCallback(online=False, save_checkpoints=True)
