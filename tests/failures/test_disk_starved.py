"""A trial that fails because the disk is full is not tried again before something was freed (F30)."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import facts, restored, run, save, volume, warned

import tuner as tune
from tuner.schedulers import Decision, FIFOScheduler
from tuner.schedulers.base import Directive

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="mounts filesystems: needs root"),
]

MEGABYTE = 1_000_000


@pytest.fixture
def disk(tmp_path):
    with volume(tmp_path / "disk", "12m") as place:
        yield place


def writes_too_much(config):
    save(1)
    tune.report(count=1)
    tune.get_checkpoint()
    with open(Path(tune.get_trial_dir(), "scratch"), "wb") as file:
        try:
            for _ in range(20):
                file.write(os.urandom(MEGABYTE))
                file.flush()
        except OSError:
            os.unlink(file.name)
            raise


@pytest.mark.parametrize("retries", [-1, 3])
def test_f30_a_trial_that_fills_the_disk_is_not_tried_again_at_once(disk, retries, caplog):
    analysis = run(writes_too_much, disk, max_failures=retries, raise_on_failed_trial=False)
    (trial,) = analysis.trials
    assert (trial.status, trial.attempt) == ("ERROR", 1)
    assert trial.error.disk and "No space left" in trial.error.message
    assert len(warned(caplog, "waits until something is deleted")) == 1
    assert trial.checkpoint is not None


def test_f30_a_plain_resume_takes_it_up_when_there_is_space(disk):
    def fits_later(config):
        if restored() == 0:
            writes_too_much(config)
        tune.report(count=2)

    run(fits_later, disk, max_failures=-1, raise_on_failed_trial=False)
    (trial,) = run(fits_later, disk, max_failures=-1, resume="AUTO").trials
    assert (trial.status, trial.attempt, trial.last_result["count"]) == ("TERMINATED", 2, 2)


def needs_room(config):
    """One takes all the room, and gives it back when it deletes a checkpoint; the other waits for that."""
    talk = Path(config["talk"])
    if config["kind"] == "large":
        with tune.checkpoint_dir() as directory:
            Path(directory, "weights").write_bytes(os.urandom(8 * MEGABYTE))
            Path(directory, "count").write_text("1")
        tune.report(count=1)
        tune.get_checkpoint()
        with open(talk / "full", "w") as full:  # until the other one has failed
            full.write(".")
        with open(talk / "failed") as failed:
            failed.read()
        save(2)
        tune.report(count=2)
        return
    if not (Path(tune.get_trial_dir()) / "tried").exists():
        with open(talk / "full") as full:
            full.read()
    (Path(tune.get_trial_dir()) / "tried").touch()
    mine = Path(tune.get_trial_dir(), "mine")
    try:
        mine.write_bytes(os.urandom(6 * MEGABYTE))
    except OSError:
        mine.unlink()
        raise
    tune.report(count=1)


class Tells(tune.Callback):
    def __init__(self, talk):
        self.talk = talk

    def on_trial_recover(self, iteration, trials, trial, **info):
        with open(self.talk / "failed", "w") as failed:
            failed.write(".")


def test_f30_it_is_tried_again_when_retention_has_made_room(disk, tmp_path, caplog):
    for name in ("full", "failed"):
        os.mkfifo(tmp_path / name)
    trials = run(
        needs_room,
        disk,
        config={"kind": tune.grid_search(["large", "small"]), "talk": str(tmp_path)},
        resources_per_trial={"cpu": 0.5},
        max_failures=-1,
        keep_checkpoints_num=1,
        callbacks=[Tells(tmp_path)],
    ).trials
    assert [trial.status for trial in trials] == ["TERMINATED"] * 2
    assert [trial.attempt for trial in trials] == [1, 2]
    (failed,) = facts(disk / "e", "attempt_ended")
    assert failed["error"]["disk"]


def test_f30_several_that_wait_end_and_the_run_with_them(disk):
    def always(config):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    trials = run(always, disk, num_samples=4, max_failures=-1, raise_on_failed_trial=False).trials
    assert [trial.status for trial in trials] == ["ERROR"] * 4
    assert all(trial.attempt <= 4 for trial in trials)


class Orders(FIFOScheduler):
    """Has the first trial end once the second has reported."""

    def __init__(self):
        super().__init__()
        self.ordered = []

    def on_trial_result(self, trial, result):
        if result["first"]:
            self.first = trial.trial_id
        else:
            self.ordered = [Directive(self.first, Decision.STOP)]
        return Decision.CONTINUE

    def orders(self):
        ordered, self.ordered = self.ordered, []
        return ordered


def test_f30_one_that_is_to_stop_anyway_ends_where_it_fails_for_want_of_space(disk, tmp_path):
    (reported, ordered) = [tmp_path / name for name in ("reported", "ordered")]
    for path in (reported, ordered):
        os.mkfifo(path)

    def trial(config):
        first = config["first"]
        if not first:
            reported.read_bytes()
        tune.report(first=first)
        (reported if first else ordered).write_bytes(b".")
        if first:
            ordered.read_bytes()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    trials = run(
        trial,
        disk,
        config={"first": tune.grid_search([True, False])},
        resources_per_trial={"cpu": 0.5},
        max_failures=-1,
        scheduler=Orders(),
    ).trials
    assert [(trial.status, trial.attempt) for trial in trials] == [("TERMINATED", 1)] * 2
