"""What an attempt is told at its start, and what describes its trial on the disk."""

from __future__ import annotations

import dataclasses
import errno
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.driver.harness import DriverHarness, plugin_set
from trainables.job import Replicated
from trainables.runtime.seeding import trial_seed
from trainables.store import fs, publish, staging
from trainables.wire import CheckpointRef
from tuner.driver.jobs import describe, describe_again
from tuner.error import StorageError
from tuner.experiment.paths import TrialPaths
from tuner.experiment.trial import Trial


def launched(tmp_path: Path, **settings: Any) -> Any:
    return DriverHarness(tmp_path / "e", **settings).turn().executor.launched[-1]


# --- what it is told -------------------------------------------------------------------------------------------


def test_a_first_attempt_gets_its_trial_and_starts_from_nothing(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", seed=7, experiment_name="mine").turn()
    job, trial = harness.executor.launched[-1].job, harness.trial()
    assert (job.trial_id, job.trial_name, job.directory) == (trial.trial_id, trial.name, trial.directory)
    assert (job.experiment_name, job.seed, job.index, job.config) == ("mine", 7, 0, {"x": 1})
    assert (job.attempt, job.generation, job.save_count) == (1, 1, 0)
    assert (job.checkpoint, job.checkpoint_path, job.start_iteration, job.start_time_total_s) == (None, None, 0, 0.0)


def test_a_later_attempt_goes_on_from_the_newest_checkpoint_and_what_it_had_spent(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", max_failures=1).turn()
    trial = harness.trial()
    for spent in (2.5, 6.0):
        saving = harness.publish(trial, trial.iteration + 1)
        harness.report(trial, saving=saving, time_total_s=spent)
    harness.report(trial, time_total_s=9.0)
    harness.exit(trial, status=-9)
    launch = harness.executor.launched[-1]
    assert (launch.job.attempt, launch.job.start_iteration, launch.job.start_time_total_s) == (2, 2, 6.0)
    assert launch.job.checkpoint == saving.ref and launch.digest == saving.digest
    assert launch.job.checkpoint_path == trial.directory / saving.ref.name
    assert launch.job.save_count == 2, "numbers of saves go on"


@pytest.mark.parametrize("spent", [None, "long"])
def test_a_result_without_a_time_is_no_time_spent(spent: Any, tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", max_failures=1).turn()
    trial = harness.trial()
    harness.report(trial, saving=harness.publish(trial, 1), **({} if spent is None else {"time_total_s": spent}))
    harness.exit(trial, status=-9)
    assert harness.executor.launched[-1].job.start_time_total_s == 0.0


def published(directory: Path, iteration: int, metrics: bytes) -> Path:
    directory.mkdir()
    ref = CheckpointRef("other_00000", "checkpoint", 1, 1, 1, iteration)
    staged = staging.new_directory(directory, "x")
    (staged / "weights").write_text("w")
    return publish.commit(
        publish.prepare(staged, ref=ref, metrics=msgspec.Raw(metrics), created=1e9), directory / ref.name
    ).path


@pytest.mark.parametrize(("metrics", "spent"), [(b'{"time_total_s":4.5}', 4.5), (b"{}", 0.0)])
def test_a_trial_without_a_checkpoint_starts_from_that_of_restore_with_its_count(
    metrics: bytes, spent: float, tmp_path: Path
) -> None:
    restore = published(tmp_path / "old", 12, metrics)
    job = launched(tmp_path, start_from=restore).job
    assert (job.checkpoint, job.checkpoint_path) == (None, restore)
    assert (job.start_iteration, job.start_time_total_s) == (12, spent)


def test_a_users_own_directory_as_restore_has_no_count(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    job = launched(tmp_path, start_from=tmp_path / "mine").job
    assert (job.checkpoint_path, job.start_iteration, job.start_time_total_s) == (tmp_path / "mine", 0, 0.0)


def test_restore_gives_way_to_a_checkpoint_of_the_trials_own(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", max_failures=1, start_from=published(tmp_path / "old", 12, b"{}")).turn()
    trial = harness.trial()
    saving = harness.publish(trial, 1)
    harness.report(trial, saving=saving)
    harness.exit(trial, status=-9)
    assert harness.executor.launched[-1].job.checkpoint == saving.ref


@pytest.mark.parametrize(
    ("settings", "stdout", "stderr"),
    [
        ({"directories": True}, "stdout", "stderr"),
        ({"directories": True, "log_to_file": True}, "stdout", "stderr"),
        ({"directories": True, "log_to_file": "both"}, "both", "both"),
        ({"directories": True, "log_to_file": ("out", "err")}, "out", "err"),
        ({"directories": False, "log_to_file": True}, None, None),
    ],
)
def test_what_a_trial_prints_goes_beside_its_results(
    settings: dict[str, Any], stdout: str | None, stderr: str | None, tmp_path: Path
) -> None:
    launch = launched(tmp_path, **settings)
    place = launch.job.directory
    assert launch.stdout == (None if stdout is None else place / stdout)
    assert launch.stderr == (None if stderr is None else place / stderr)


def test_workers_that_copy_themselves_are_told_the_directory_of_their_trial(tmp_path: Path) -> None:
    assert launched(tmp_path / "a").job.replicated is None
    place = Replicated(b"arguments", "e", ("e/generations/000001.json", "text"), "e/generations/000002.json", 60.0)
    told = launched(tmp_path / "b", replicated=place).job.replicated
    assert told == dataclasses.replace(place, directory="e/train_ab_00000")


def test_resources_of_the_trial_come_before_those_of_all(tmp_path: Path) -> None:
    assert launched(tmp_path / "a", resources_per_trial={"cpu": 2.0}).resources == {"cpu": 2.0}
    plugins = plugin_set()
    plugins.source._resources_for = lambda config: {"cpu": 0.5}
    assert launched(tmp_path / "b", plugins=plugins, resources_per_trial={"cpu": 2.0}).resources == {"cpu": 0.5}


# --- trial.json -------------------------------------------------------------------------------------------------


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return DriverHarness(tmp_path / "e").turn().trial()


def test_a_trials_directory_says_which_it_is_and_how_it_is_seeded(trial: Trial) -> None:
    describe(trial, 3)
    assert json.loads(TrialPaths(trial.directory).trial_json.read_text()) == {
        "trial_id": "ab_00000",
        "index": 0,
        "name": "train_ab_00000",
        "seed": trial_seed(3, 0),
    }


@given(seed=st.integers(0, 2**63), index=st.integers(0, 10**6))
def test_no_two_seeds_and_no_two_trials_are_described_alike(seed: int, index: int) -> None:
    assert trial_seed(seed, index) != trial_seed(seed, index + 1)
    assert trial_seed(seed, index) != trial_seed(seed + 1, index)


def test_it_is_written_again_only_where_it_is_another(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    file, writes, write = TrialPaths(trial.directory).trial_json, list[Path](), fs.write_file

    def noting(path: Path, *arguments: Any, **more: Any) -> None:
        writes.append(path)
        write(path, *arguments, **more)

    monkeypatch.setattr(fs, "write_file", noting)
    describe(trial, 3)
    describe_again(trial, 3)
    assert writes == [file]
    before = file.read_bytes()
    for damage in (lambda: file.write_bytes(b""), lambda: file.unlink(), lambda: file.write_bytes(before[:-1])):
        damage()
        describe_again(trial, 3)
        assert file.read_bytes() == before
    assert len(writes) == 4


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_the_trial_goes_on_and_the_next_start_describes_it(
    number: int, trial: Trial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, *arguments: Any, **more: Any) -> None:
        raise OSError(number, "full", str(path))

    TrialPaths(trial.directory).trial_json.unlink(missing_ok=True)
    with monkeypatch.context() as patch:
        patch.setattr(fs, "write_file", full)
        describe(trial, 3)
    assert "train_ab_00000 is not described in its directory" in caplog.text
    describe_again(trial, 3)
    assert TrialPaths(trial.directory).trial_json.exists()


def test_a_disk_that_is_read_only_is_said_as_that_and_other_errors_as_they_are(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = errno.EROFS

    def fails(path: Path, *arguments: Any, **more: Any) -> None:
        raise OSError(number, "it fails", str(path))

    monkeypatch.setattr(fs, "write_file", fails)
    with pytest.raises(StorageError, match="cannot write"):
        describe(trial, 3)
    number = errno.EIO
    with pytest.raises(OSError, match="it fails") as caught:
        describe(trial, 3)
    assert caught.value.errno == errno.EIO
