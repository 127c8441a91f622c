"""A disk that is full, or not to be written: nothing is damaged, it is said, and a resume goes on (F16, F30, T17).

Each test has a small filesystem of its own, and fills it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import directories, facts, fill, iterations, restored, rows, run, volume, warned

import trainables as train
import tuner as tune
from tuner.driver import fact_log
from tuner.error import StorageError, StorageFullError, TrialsFailedError
from tuner.experiment import journal_writer

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="mounts filesystems: needs root"),
]

MEGABYTE = 1_000_000


@pytest.fixture
def disk(tmp_path):
    with volume(tmp_path / "disk", "12m") as place:
        yield place


class Fills(tune.Callback):
    """Fills the disk when a trial has reported so often, and frees it at another time."""

    def __init__(self, place, at, *, leave=0, free_at=None, hook="result"):
        self.place, self.at, self.leave, self.free_at, self.hook = place, at, leave, free_at, hook
        self.ballast = None
        self.failures = []

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.failures.append(trial.save_failures)
        self._look("result", result["training_iteration"])

    def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
        self._look("checkpoint", checkpoint.iteration)

    def _look(self, hook, count):
        if hook == self.hook and count == self.at and self.ballast is None:
            self.ballast = fill(self.place, self.leave)
        if hook == self.hook and count == self.free_at:
            self.ballast.unlink(missing_ok=True)


def lends(config):
    """Reports a directory of another filesystem, which has to be copied."""
    source = Path(config["source"], tune.get_trial_id())
    source.mkdir(exist_ok=True)
    (source / "weights").write_bytes(os.urandom(MEGABYTE))
    for count in range(restored() + 1, config["n"] + 1):
        (source / "count").write_text(str(count))
        tune.report({"count": count}, checkpoint=train.Checkpoint.from_directory(source))


def writes(config):
    """Writes into `checkpoint_dir`, on the disk that is full."""
    for count in range(restored() + 1, config["n"] + 1):
        with tune.checkpoint_dir() as directory:
            Path(directory, "count").write_text(str(count))
            Path(directory, "weights").write_bytes(os.urandom(MEGABYTE))
        tune.report(count=count)


def from_dicts(config):
    checkpoint = tune.get_checkpoint()
    start = checkpoint.to_dict()["count"] if checkpoint else 0
    for count in range(start + 1, config["n"] + 1):
        data = {"count": count, "weights": os.urandom(MEGABYTE)}
        tune.report({"count": count}, checkpoint=train.Checkpoint.from_dict(data))


class Writer(tune.Trainable):
    def setup(self, config):
        self.count = 0

    def step(self):
        self.count += 1
        return {"count": self.count, "done": self.count >= self.config["n"]}

    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "weights").write_bytes(os.urandom(MEGABYTE))
        Path(checkpoint_dir, "count").write_text(str(self.count))

    def load_checkpoint(self, checkpoint):
        self.count = int(Path(checkpoint, "count").read_text())


WAYS = [lends, from_dicts, Writer]


def settings_of(trainable, tmp_path, n=9):
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    settings = {"config": {"n": n, "source": str(source)}, "keep_checkpoints_num": 2}
    if trainable is Writer:
        settings["checkpoint_freq"] = 1
    return settings


@pytest.mark.parametrize("trainable", WAYS, ids=lambda way: way.__name__)
def test_f16_saves_that_fail_are_counted_shown_and_in_the_end_fail_the_trial(tmp_path, disk, trainable):
    """Half a megabyte is free: the state can be written and a save cannot."""
    fills = Fills(disk, 2, leave=500_000, hook="checkpoint")
    settings = settings_of(trainable, tmp_path)
    first = {**settings, "keep_checkpoints_num": None}  # nothing goes, so nothing makes room
    (trial,) = run(trainable, disk, callbacks=[fills], raise_on_failed_trial=False, **first).trials
    assert trial.status == "ERROR"
    assert trial.error.type == "PublishError"
    assert "3 checkpoints in a row were not saved" in trial.error.message
    assert "No space left" in trial.error.message and "bytes are free" in trial.error.message
    assert trial.save_failures == 3 and "No space left" in trial.save_error
    assert len(facts(disk / "e", "publish_failed")) == 3
    failed = {fact["ref"]["name"] for fact in facts(disk / "e", "publish_failed")}
    assert not failed & {fact["ref"]["name"] for fact in facts(disk / "e", "published", "forgotten")}
    shown = next(n for n, count in enumerate(fills.failures) if count)  # results before it was in the trial's status
    first = min(fact["ref"]["iteration"] for fact in facts(disk / "e", "publish_failed"))
    assert shown <= first + 1
    before = iterations(trial)
    assert before in ([1, 2], [1, 2, 3])  # the third may have been on its way
    assert [name for name in directories(trial) if name.startswith(".")] == []
    fills.ballast.unlink()
    (trial,) = run(trainable, disk, resume="AUTO", **settings).trials  # a plain resume takes it up
    assert trial.status == "TERMINATED"
    assert iterations(trial) == [8, 9]
    assert [row["training_iteration"] for row in rows(trial)] == list(range(1, 10))
    assert trial.save_failures == 0


@pytest.mark.parametrize("stop", [None, {"training_iteration": 4}], ids=["by itself", "told to stop"])
@pytest.mark.parametrize("trainable", WAYS, ids=lambda way: way.__name__)
def test_f30_a_last_save_that_fails_is_no_good_end_and_a_plain_resume_takes_it_up(tmp_path, disk, trainable, stop):
    """The disk is full at the very last save only: nobody would look at the trial again if it had ended well."""
    settings = settings_of(trainable, tmp_path, n=4 if stop is None else 9)
    settings |= {} if stop is None else {"stop": stop}
    fills = Fills(disk, 4, leave=500_000, hook="result")
    first = {**settings, "keep_checkpoints_num": None}  # nothing goes, so nothing makes room
    with pytest.raises(TrialsFailedError) as caught:
        run(trainable, disk, callbacks=[fills], raise_on_failed_trial=True, **first)
    (trial,) = caught.value.analysis.trials
    assert (trial.status, trial.iteration, trial.error.disk) == ("ERROR", 4, True)
    assert "of iteration 4, is not on the disk" in str(caught.value) and "No space left" in str(caught.value)
    assert iterations(trial)[-1] in (2, 3)  # the third may have been on its way
    fills.ballast.unlink()
    (trial,) = run(trainable, disk, resume="AUTO", **settings).trials
    assert (trial.status, trial.iteration, iterations(trial)) == ("TERMINATED", 4, [3, 4])
    assert [row["training_iteration"] for row in rows(trial)] == [1, 2, 3, 4]


def test_f16_each_failed_save_is_named_on_the_terminal(tmp_path, disk, monkeypatch, capfd):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a script: pytest configures logging
    fills = Fills(disk, 2, leave=500_000, hook="checkpoint")
    settings = {**settings_of(from_dicts, tmp_path), "keep_checkpoints_num": None}
    run(from_dicts, disk, callbacks=[fills], raise_on_failed_trial=False, verbose=1, **settings)
    failed = [fact["ref"]["name"] for fact in facts(disk / "e", "publish_failed")]
    said = capfd.readouterr().out
    assert len(failed) == 3
    for name in failed:
        assert f"checkpoint {name} was not saved" in said
    assert "not shown" not in said


def test_f16_failures_that_are_not_in_a_row_do_not_fail_the_trial(tmp_path, disk):
    fills = Fills(disk, 2, leave=500_000, free_at=3)
    settings = settings_of(from_dicts, tmp_path)
    (trial,) = run(from_dicts, disk, callbacks=[fills], **settings).trials
    assert trial.status == "TERMINATED"
    assert iterations(trial) == [8, 9]
    assert trial.save_failures == 0
    assert 1 <= len(facts(disk / "e", "publish_failed")) <= 2


def test_f16_the_number_is_configurable(tmp_path, disk, monkeypatch):
    monkeypatch.setenv("TUNE_MAX_PUBLISH_FAILURES", "1")
    fills = Fills(disk, 2, leave=500_000, hook="checkpoint")
    settings = settings_of(from_dicts, tmp_path)
    (trial,) = run(from_dicts, disk, callbacks=[fills], raise_on_failed_trial=False, **settings).trials
    assert "in a row" in trial.error.message
    assert trial.iteration <= 4  # at the report after the first failure, whose own save may have failed too


class ReadOnly(tune.Callback):
    """Makes a trial's directory read-only for new files, after its second checkpoint."""

    def __init__(self, aside):
        self.aside, self.mounted = aside, []

    def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
        if checkpoint.iteration == 2:
            self.aside.mkdir()
            self._mount("--bind", trial.path, self.aside)
            self._mount("-o", "remount,ro,bind", self.aside)  # not in place: it may be busy
            self._mount("--bind", self.aside, trial.path)
            self.mounted = [trial.path, self.aside]

    @staticmethod
    def _mount(*arguments):
        subprocess.run(["mount", *map(str, arguments)], check=True)


@pytest.mark.parametrize("trainable", WAYS, ids=lambda way: way.__name__)
def test_f16_a_read_only_directory(tmp_path, disk, trainable):
    read_only = ReadOnly(tmp_path / "aside")
    settings = settings_of(trainable, tmp_path)
    try:
        (trial,) = run(
            trainable, disk, callbacks=[read_only], raise_on_failed_trial=False,
            **{**settings, "keep_checkpoints_num": None},
        ).trials  # fmt: skip
    finally:
        for mounted in read_only.mounted:
            subprocess.run(["umount", "-l", mounted], check=True)
    assert trial.status == "ERROR" and trial.error.type == "PublishError"
    assert "Read-only" in trial.error.message and trial.path in trial.error.message
    assert iterations(trial)[:2] == [1, 2]
    (trial,) = run(trainable, disk, resume="AUTO", **settings).trials
    assert trial.status == "TERMINATED"
    assert iterations(trial) == [8, 9]
    assert [name for name in directories(trial) if name.startswith(".")] == []


# --- F30: full during a save, during a state write, during pruning -----------------------------------------------


def test_f30_full_while_the_user_writes_says_so_and_a_plain_resume_goes_on(tmp_path, disk):
    fills = Fills(disk, 2, leave=500_000)
    settings = settings_of(writes, tmp_path)
    with pytest.raises(TrialsFailedError) as raised:
        run(writes, disk, callbacks=[fills], **settings)
    (trial,) = raised.value.analysis.trials
    assert trial.error.type == "OSError"
    assert "No space left" in trial.error.message
    assert "bytes are free at " + trial.path in trial.error.message
    assert set(iterations(trial)) <= {1, 2}
    fills.ballast.unlink()
    (trial,) = run(writes, disk, resume=True, **settings).trials
    assert trial.status == "TERMINATED" and iterations(trial) == [8, 9]


def only_reports(config):
    for count in range(1, config["n"] + 1):
        tune.report(count=count, text="x" * 2000)


class Frees(logging.Handler):
    """Frees the disk when it is said that the trials wait."""

    def __init__(self, fills):
        super().__init__()
        self.fills, self.heard = fills, []

    def emit(self, record):
        self.heard.append(record.getMessage())
        if "the trials wait" in record.getMessage():
            self.fills.ballast.unlink()


@pytest.fixture
def frees():
    added = []

    def add(fills):
        handler = Frees(fills)
        logging.getLogger("tuner.driver.fact_log").addHandler(handler)
        added.append(handler)
        return handler

    yield add
    for handler in added:
        logging.getLogger("tuner.driver.fact_log").removeHandler(handler)


def test_f30_full_while_the_state_is_written_lets_the_trials_wait_and_go_on(tmp_path, disk, frees):
    fills = Fills(disk, 3)
    handler = frees(fills)
    (trial,) = run(only_reports, disk, config={"n": 400}, callbacks=[fills]).trials
    assert any("bytes free; free some space" in text for text in handler.heard)
    assert any("there is space again" in text for text in handler.heard)
    assert trial.status == "TERMINATED" and trial.iteration == 400
    assert [row["training_iteration"] for row in rows(trial)] == list(range(1, 401))
    assert [f["iteration"] for f in facts(disk / "e", "result")] == list(range(1, 401))


class FreesAtATurn(tune.Callback):
    """Frees the disk at the first turn of the loop after a trial has reported while it was full."""

    def __init__(self, fills, caplog):
        self.fills, self.caplog = fills, caplog
        self.reported = False

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.reported = self.reported or any("the trials wait" in text for text in self.caplog.messages)

    def on_step_begin(self, iteration, trials, **info):
        if self.reported:
            self.fills.ballast.unlink(missing_ok=True)


def test_f30_the_driver_still_does_other_things_while_the_disk_is_full(tmp_path, disk, caplog):
    fills = Fills(disk, 3)
    trials = run(
        only_reports,
        disk,
        config={"n": 400},
        num_samples=2,
        resources_per_trial={"cpu": 0.5},
        callbacks=[fills, FreesAtATurn(fills, caplog)],
    ).trials
    assert len(warned(caplog, "the trials wait")) == 1
    assert [(trial.status, trial.iteration) for trial in trials] == [("TERMINATED", 400)] * 2


def counts_and_reports(config):
    """Saves little, in the beginning, and reports much."""
    for count in range(restored() + 1, config["n"] + 1):
        if count <= 20:
            with tune.checkpoint_dir() as directory:
                Path(directory, "count").write_text(str(count))
        tune.report(count=count, text="x" * 1000)


def test_f30_full_for_too_long_ends_the_run_with_path_and_bytes_and_a_resume_goes_on(tmp_path, disk, monkeypatch):
    monkeypatch.setattr(fact_log, "FULL_PATIENCE_S", 0.3)
    fills = Fills(disk, 60)
    settings = {"config": {"n": 700}, "num_samples": 2, "keep_checkpoints_num": 1}
    with pytest.raises(StorageFullError, match=r"No space left.*journal.* \d+ bytes free"):
        run(counts_and_reports, disk, callbacks=[fills], **settings)
    for trial in tune.ExperimentAnalysis(disk / "e").trials:  # readable, and every checkpoint is whole
        assert trial.status != "TERMINATED"
        assert trial.error is None or trial.error.disk
        iterations(trial)
    with pytest.raises(StorageFullError, match=r"cannot write to .*e.*bytes free"):
        run(counts_and_reports, disk, resume=True, **settings)
    before = [iterations(trial) for trial in tune.ExperimentAnalysis(disk / "e").trials]
    fills.ballast.unlink()
    analysis = run(counts_and_reports, disk, resume=True, **settings)
    for trial, had in zip(analysis.trials, before, strict=True):
        assert trial.status == "TERMINATED"
        starts = [fact for fact in facts(disk / "e", "attempt") if fact["trial"] == trial.trial_id]
        assert starts[-1].get("iteration", 0) == (had[-1] if had else 0)
        assert [row["training_iteration"] for row in rows(trial)] == list(range(1, trial.iteration + 1))


def shrinking(config):
    """Its first two saves are large: what they leave is room for the others and for the records."""
    for count in range(restored() + 1, config["n"] + 1):
        checkpoint = train.Checkpoint.from_dict({"weights": os.urandom(2 * MEGABYTE if count <= 2 else MEGABYTE // 4)})
        tune.report({"count": count}, checkpoint=checkpoint)


@pytest.mark.parametrize("executor", ["inline", "local"])
def test_t17_with_the_disk_full_to_the_last_byte_retention_still_makes_room_and_the_run_goes_on(
    disk, monkeypatch, executor
):
    """Everything is filled at the very instant when the third is there and the second is to go."""
    if executor == "local":  # a process that does nothing but save is faster than any deletion
        monkeypatch.setenv("TUNE_MAX_PUBLISH_FAILURES", "1000")
    fills = Fills(disk, 3, hook="checkpoint")
    (trial,) = run(
        shrinking, disk, callbacks=[fills], config={"n": 60}, keep_checkpoints_num=1, executor=executor
    ).trials
    assert fills.ballast is not None and fills.ballast.exists()
    assert trial.status == "TERMINATED" and trial.iteration == 60
    (last,) = iterations(trial)
    assert last > 4
    assert {1, 2, 3} <= {fact["ref"]["iteration"] for fact in facts(disk / "e", "deleted")}
    (read,) = tune.ExperimentAnalysis(disk / "e").trials
    assert read.status == "TERMINATED" and read.checkpoint.iteration == last


def test_f30_a_disk_that_is_full_at_the_start_is_said_at_once(tmp_path, disk):
    fill(disk)
    with pytest.raises(StorageFullError, match=r"cannot write to .*bytes free"):
        run(only_reports, disk, config={"n": 1})


def test_f30_a_storage_path_that_is_not_to_be_written_is_said_at_once(tmp_path):
    with volume(tmp_path / "disk", "1m") as place:
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        with pytest.raises(StorageError, match=r"storage_path=.*Read-only") as refused:
            run(only_reports, place, config={"n": 1})
        assert not isinstance(refused.value, StorageFullError)


def test_warnings_of_full_files_come_once_per_cause(tmp_path, disk, frees, caplog):
    fills = Fills(disk, 3)
    frees(fills)
    run(only_reports, disk, config={"n": 200}, callbacks=[fills], num_samples=2)
    assert len(warned(caplog, "cannot write")) <= 4  # one per kind of file, and one for the journal


def many_results(config):
    for count in range(8):
        tune.report({"count": count, "text": "x" * 2000})


@pytest.mark.parametrize("scheduler", [None, "asha"])
def test_f30_a_disk_that_fills_while_the_driver_writes_is_no_bare_error(tmp_path, monkeypatch, scheduler):
    """Whatever meets the full disk first (a trial's directory, a snapshot's blobs), the run says so."""
    monkeypatch.setattr(fact_log, "FULL_PATIENCE_S", 1.0)
    monkeypatch.setattr(journal_writer, "COMPACT_BYTES", 20_000)
    with volume(tmp_path / "small", "3m") as place:
        settings = {"num_samples": 40, "executor": "inline", "metric": "count", "mode": "max"}
        with pytest.raises((StorageFullError, TrialsFailedError)) as caught:
            run(many_results, place, scheduler=scheduler, raise_on_failed_trial=True, **settings)
        assert "full" in str(caught.value) or "No space left" in str(caught.value)
        subprocess.run(["mount", "-o", "remount,size=30m", str(place)], check=True)
        analysis = run(many_results, place, scheduler=scheduler, resume="AUTO", **settings)
        assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 40
        for trial in analysis.trials:
            assert [row["training_iteration"] for row in rows(trial)] == list(range(1, trial.iteration + 1))
            assert Path(trial.path, "trial.json").stat().st_size > 0
