"""A checkpoint that only the replica has and that cannot be brought here just now is no damaged one.

F22, F30, T13 and design rules R4, R5: nothing is set aside, and no trial starts over.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import facts, restored, rows, run, volume, warned
from replicas import Store, Watched, refusal

import tuner as tune
from tests.tuner.driver.test_clones import Counter, Scripted, clone_of
from trainables.errors import TransferError
from trainables.transfer import remote_checkpoints
from tuner.schedulers.base import Decision, Exploit

MEGABYTE = 1_000_000


def count(config: dict[str, Any]) -> None:
    """Counts to 5 and saves every count, with so many bytes; fails after 3 as long as the file `ill` is there."""
    start = restored()
    for n in range(start + 1, 6):
        if n == 4 and os.path.exists(config["ill"]):
            raise ValueError("it is ill")
        with tune.checkpoint_dir() as directory:
            Path(directory, "count").write_text(str(n))
            Path(directory, "weights").write_bytes(random.Random(n).randbytes(config["size"]))
        tune.report(n=n, restored=start)


class Life:
    """An experiment whose trial failed on a machine that is gone: its checkpoint is in the replica only."""

    def __init__(self, place: Path, uri: str, *, size: int = 1000) -> None:
        self.settings: dict[str, Any] = {
            "config": {"ill": str(place / "ill"), "size": size},
            "sync_config": tune.SyncConfig(upload_dir=uri),
            "keep_checkpoints_num": 1,
            "raise_on_failed_trial": False,
        }
        (place / "ill").touch()
        (trial,) = run(count, place / "first", **self.settings).trials
        assert (trial.status, trial.checkpoint.iteration) == ("ERROR", 3)
        (place / "ill").unlink()

    def on(self, machine: Path, resume: str, **settings: Any) -> Any:
        """Its trial after another life there."""
        (trial,) = run(count, machine, resume=resume, **{**self.settings, **settings}).trials
        return trial


def went_on(trial: Any) -> bool:
    return (trial.status, trial.last_result["n"], trial.last_result["restored"]) == ("TERMINATED", 5, 3)


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="mounts a filesystem: needs root")
@pytest.mark.parametrize("retries", [0, -1])
def test_f30_a_disk_without_room_for_it_fails_the_trial_and_a_plain_resume_goes_on_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, retries: int
) -> None:
    life = Life(tmp_path, str(tmp_path / "replica"), size=8 * MEGABYTE)
    with volume(tmp_path / "second", "6m") as machine:
        trial = life.on(machine, "AUTO+ERRORED", max_failures=retries)
        assert trial.status == "ERROR" and trial.error.disk and "No space left" in trial.error.message
        assert [record.iteration for record in trial.checkpoints] == [3]
        assert not facts(machine / "e", "checkpoint_set_aside") and not warned(caplog, "set aside")
        subprocess.run(["mount", "-o", "remount,size=60m", str(machine)], check=True)
        assert went_on(life.on(machine, "AUTO"))


def hidden(watched: Watched, refused: threading.Event) -> list[str]:
    """While `refused` is set nobody may read the payload of a checkpoint there; the keys that somebody tried to."""
    asked: list[str] = []

    def before(method: str, key: str, headers: dict[str, str]) -> Any:
        if method != "GET" or not key.endswith("/weights") or not refused.is_set():
            return None
        asked.append(key)
        return refusal(403, "AccessDenied")

    watched.before = before
    return asked


def test_r5_a_checkpoint_that_may_not_be_read_fails_the_trial_with_the_cause_and_stays(
    tmp_path: Path, store: Store, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    life, refused = Life(tmp_path, store.uri), threading.Event()
    asked = hidden(watched, refused)
    refused.set()
    trial = life.on(tmp_path / "second", "AUTO+ERRORED", max_failures=-1)
    assert (trial.status, trial.error.type, trial.error.disk) == ("ERROR", "AccessRefusedError", False)
    assert "checkpoint_000003" in trial.error.message
    assert [record.iteration for record in trial.checkpoints] == [3] and store.iterations() == [[3]]
    assert not warned(caplog, "set aside")
    assert 1 < len(asked) < 20, "credentials are read anew once, and no more is tried"
    refused.clear()
    assert went_on(life.on(tmp_path / "second", "AUTO+ERRORED"))


def test_f22_credentials_that_are_good_again_at_the_next_try_fail_no_trial(
    tmp_path: Path, store: Store, watched: Watched
) -> None:
    life, refused = Life(tmp_path, store.uri), threading.Event()
    hidden(watched, refused)
    real = watched.before

    def once(method: str, key: str, headers: dict[str, str]) -> Any:
        answer = real(method, key, headers)
        if answer is not None:
            refused.clear()
        return answer

    watched.before = once
    refused.set()
    assert went_on(life.on(tmp_path / "second", "AUTO+ERRORED"))
    assert not refused.is_set()


def test_r4_what_is_really_damaged_over_there_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = Life(tmp_path, str(tmp_path / "replica"))
    (weights,) = (tmp_path / "replica").glob("e/*/checkpoint_000003/weights")
    weights.write_bytes(b"x" * weights.stat().st_size)
    trial = life.on(tmp_path / "second", "AUTO+ERRORED")
    assert (trial.status, trial.last_result["restored"]) == ("TERMINATED", 0)
    assert len(warned(caplog, "checkpoint_000003 is damaged and set aside")) == 1


def test_t13_a_donor_and_its_clones_start_from_one_checkpoint_that_only_the_replica_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {
        "config": {"rate": tune.grid_search([1.0, 100.0, 200.0, 300.0])},
        "stop": {"training_iteration": 8},
        "sync_config": tune.SyncConfig(upload_dir=str(tmp_path / "replica")),
    }

    def pauses(own: Scripted, trial: Any) -> Decision:
        own.blocked.add(trial.trial_id)
        return Decision.PAUSE

    def cloned(own: Scripted, trial: Any) -> Exploit:
        own.blocked.add(trial.trial_id)
        return Exploit(own.ids[0], {"rate": 10.0})

    waits = Scripted({(0, 4): pauses, **{(number, 3): cloned for number in (1, 2, 3)}})
    trials = run(Counter, tmp_path / "first", scheduler=waits, executor="inline", **settings).trials
    assert [trial.iteration for trial in trials] == [4, 3, 3, 3]

    goes_on = Scripted({(0, 4): Decision.PAUSE, **{(number, 3): clone_of(0, 10.0) for number in (1, 2, 3)}})
    more = {"resources_per_trial": {"cpu": 0.25}, "resume": "AUTO"}
    trials = run(Counter, tmp_path / "second", scheduler=goes_on, executor="local", **more, **settings).trials
    assert [trial.status for trial in trials] == ["TERMINATED"] * 4
    assert [rows(trial)[-1]["weight"] for trial in trials] == [8.0, 54.0, 54.0, 54.0]
    assert not warned(caplog, "set aside") and not warned(caplog, "starts anew")


def test_r6_a_run_that_is_over_does_not_wait_for_a_store_that_gives_nothing(
    tmp_path: Path, store: Store, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    life, asked = Life(tmp_path, store.uri), []

    def before(method: str, key: str, headers: dict[str, str]) -> Any:
        if method == "GET" and key.endswith("/weights"):
            asked.append(key)
            return refusal(503, "SlowDown")
        return None

    watched.before = before
    trial = life.on(tmp_path / "second", "AUTO+ERRORED", time_budget_s=1)
    assert asked and not warned(caplog, "set aside")
    assert trial.status not in ("ERROR", "TERMINATED") and [record.iteration for record in trial.checkpoints] == [3]
    watched.before = lambda method, key, headers: None
    assert went_on(life.on(tmp_path / "second", "AUTO"))


def test_r4_what_arrived_although_nobody_could_say_so_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process that fetched it was ended after its last rename."""
    life, real, calls = Life(tmp_path, str(tmp_path / "replica")), remote_checkpoints.fetch, []

    def lost(*arguments: Any, **more: Any) -> Any:
        calls.append(arguments)
        real(*arguments, **more)
        raise TransferError("the process that syncs is gone", transient=True)

    monkeypatch.setattr(remote_checkpoints, "fetch", lost)
    assert went_on(life.on(tmp_path / "second", "AUTO+ERRORED", executor="inline"))
    assert len(calls) == 2 and not warned(caplog, "set aside")


def test_r7_a_relative_upload_dir_is_found_again_from_another_working_directory(tmp_path, monkeypatch):
    """With `keep_local` the only copies of checkpoints are there."""
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    settings = {"config": {"ill": "", "size": 1}, "keep_checkpoints_num": None}
    sync = tune.SyncConfig(upload_dir="copies", keep_local=1)
    run(count, tmp_path / "results", sync_config=sync, metric="n", mode="min", **settings)

    monkeypatch.chdir(tmp_path / "other")
    (experiment,) = (tmp_path / "results").glob("[!.]*")
    read = tune.ExperimentAnalysis(experiment, metric="n", mode="min")
    with read.best_checkpoint.as_directory() as directory:
        assert Path(directory, "count").read_text() == "1"
    assert Path(read.best_checkpoint.path).is_relative_to(tmp_path / "mine" / "copies")
    settings["config"]["size"] = 2
    tune.Tuner.restore(str(experiment), count, param_space=settings["config"]).fit()
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize("artifacts", [False, True])
def test_f20_a_half_that_a_command_had_copied_goes_when_another_machine_takes_over(tmp_path, artifacts):
    """Such a place cannot list: all of it is fetched. With artifacts it may be a user's own directory, and stays."""
    there = tmp_path / "there"
    sync = tune.SyncConfig(
        upload_dir=str(there),
        syncer="rsync -a --mkpath {source}/ {target}/",
        delete_template="rm -rf {target}",
        sync_artifacts=artifacts,
    )
    ill = tmp_path / "ill"
    ill.touch()
    settings = {"config": {"ill": str(ill), "size": 1}, "sync_config": sync, "raise_on_failed_trial": False}
    run(count, tmp_path / "first", keep_checkpoints_num=1, **settings)
    (complete,) = there.glob("*/*/checkpoint_*")
    half = complete.with_name("checkpoint_000004")
    half.mkdir()
    (half / "count").write_text("4")
    ill.unlink()
    run(count, tmp_path / "second", resume="AUTO+ERRORED", keep_checkpoints_num=1, **settings)
    left = {path.parent for path in (*there.rglob("count"), *(tmp_path / "second").rglob("count"))}
    assert half.exists() == artifacts and len(left) == (4 if artifacts else 2), left
