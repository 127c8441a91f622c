"""Checkpoints and the kill: a save that is cut anywhere, and what a resume makes of it (F02-F04, F08, T11, ...)."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import (
    Counter,
    count_up,
    die,
    die_at,
    directories,
    facts,
    first_time,
    in_child,
    iterations,
    kept,
    killed_at,
    restored,
    rows,
    run,
    save,
    wait_for_its_processes,
    warned,
)

import trainables as train
import tuner as tune
from trainables.errors import CheckpointCorruptError
from trainables.store import delete as store_delete
from trainables.store import fs, verify
from tuner.driver import loop
from tuner.error import ExperimentDamagedError

BYTES = 4 * 1024 * 1024
QUARTERS = [f"quarter {quarter}" for quarter in range(5)]
STORE = [
    "before fs.fsync_file", "after fs.fsync_file", "before fs.create", "before fs.write", "after fs.write",
    "before fs.fsync_dir", "before wire.wait_durable", "before fs.rename",
]  # fmt: skip
PUBLISHED = ["after fs.rename", "before wire.post"]


def write_big(size, until=4):
    with tune.checkpoint_dir() as directory, open(Path(directory, "weights"), "wb") as file:
        for quarter in range(5):
            if quarter == until:
                file.flush()
                die()
            if quarter < 4:
                file.write(os.urandom(size // 4))
        Path(directory, "count").write_text("2")


def torn(config):
    """Saves once, is killed within its second save, and tells in its next life what it finds."""
    if first_time("torn"):
        save(1)
        tune.report(count=1)
        tune.get_checkpoint()
        point = config["point"]
        if point.startswith("quarter"):
            write_big(config["size"], until=int(point[-1]))
        else:
            write_big(config["size"], until=None)
            die_at(point)
        tune.report(count=2)
        tune.get_checkpoint()
        raise AssertionError("it was not killed")
    found = verify.list_checkpoints(Path(tune.get_trial_dir()))
    for each in found:
        verify.check(each.path)
    tune.report(found=[each.ref.iteration for each in found], restored=restored())


def check_torn(analysis):
    for trial in analysis.trials:
        point = trial.config["point"]
        expected = [1, 2] if point in PUBLISHED else [1]
        assert trial.last_result["found"] == expected, point
        assert trial.last_result["restored"] == expected[-1], point
        assert [row["training_iteration"] for row in rows(trial)][-1] == expected[-1] + 1
        assert [name for name in directories(trial) if name.startswith(".")] == [], point
        assert trial.num_failures == 1


def test_f02_a_trial_killed_anywhere_in_a_save_leaves_only_checkpoints_that_load(tmp_path):
    """At every quarter of the bytes, and at every operation of the publish; one trial for each."""
    points = [*QUARTERS[:4], *STORE, *PUBLISHED]
    check_torn(run(torn, tmp_path, config={"size": BYTES, "point": tune.grid_search(points)}, max_failures=1))


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_f02_the_full_size(tmp_path):
    points = [*QUARTERS[:4], *STORE, *PUBLISHED] * 20
    for number, point in enumerate(points):
        config = {"size": 200_000_000, "point": tune.grid_search([point])}
        check_torn(run(torn, tmp_path, name=f"e{number}", config=config, max_failures=1))
        shutil.rmtree(tmp_path / f"e{number}")


def test_f02_a_trial_that_is_not_retried_keeps_what_it_had(tmp_path):
    config = {"size": BYTES, "point": "after fs.fsync_file"}
    (trial,) = run(torn, tmp_path, config=config, raise_on_failed_trial=False).trials
    assert trial.status == "ERROR"
    assert iterations(trial) == [1]
    assert [name for name in directories(trial) if name.startswith(".")] == []  # the staging went with the attempt
    (trial,) = run(torn, tmp_path, config=config, resume="AUTO+ERRORED").trials
    assert trial.last_result["restored"] == 1


# --- F03, D19, D21: the newest is broken -------------------------------------------------------------------------


def truncate(checkpoint):
    os.truncate(checkpoint / "count", 0)


def remove_a_file(checkpoint):
    (checkpoint / "count").unlink()


def remove_the_manifest(checkpoint):
    (checkpoint / ".manifest.json").unlink()


def garble_the_manifest(checkpoint):
    (checkpoint / ".manifest.json").write_bytes(b'{"format": 1, "name": ')


def change_in_place(checkpoint):
    """Same size, same mtime: only the hash knows."""
    status = os.stat(checkpoint / "count")
    (checkpoint / "count").write_text("9")
    os.utime(checkpoint / "count", ns=(status.st_atime_ns, status.st_mtime_ns))


DAMAGES = [truncate, remove_a_file, remove_the_manifest, garble_the_manifest, change_in_place]


def said(capsys, caplog):
    out = capsys.readouterr()
    return out.out + out.err + caplog.text


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("journaled", [True, False], ids=["journaled", "not yet journaled"])
def test_f03_a_broken_newest_checkpoint_is_named_set_aside_and_the_one_before_is_used(
    tmp_path, damage, journaled, capsys, caplog
):
    settings = {"config": {"n": 4, "more": 2}, "keep_checkpoints_num": 2}
    if journaled:  # one after another, so that the driver has written down what came before
        killed_at(6, count_up, path=tmp_path, executor="inline", **settings)
    else:
        killed_at(4, count_up, hook="on_checkpoint", path=tmp_path, **settings)
    (directory,) = (tmp_path / "e").glob("count_up_*")
    damage(directory / "checkpoint_000004")
    capsys.readouterr()
    (trial,) = run(count_up, tmp_path, resume="AUTO", verbose=1, **settings).trials
    assert len([line for line in said(capsys, caplog).splitlines() if "checkpoint_000004 " in line]) == 1
    assert facts(tmp_path / "e", "attempt")[-1]["iteration"] == 3
    assert kept(trial) == ["checkpoint_000003", "checkpoint_000004-2.2"]  # the broken one is not counted
    assert iterations(trial) == [3, 4]
    nobodys = damage is remove_the_manifest and not journaled
    assert (directory / ("checkpoint_000004" if nobodys else ".broken-checkpoint_000004")).is_dir()  # not deleted
    assert [row["training_iteration"] for row in rows(trial)] == [1, 2, 3, 4, 5, 6]


def test_f03_when_all_are_broken_the_trial_starts_anew_and_says_so(tmp_path, caplog):
    killed_at(3, count_up, hook="on_checkpoint", path=tmp_path, config={"n": 4})
    (directory,) = (tmp_path / "e").glob("count_up_*")
    for checkpoint in directory.glob("checkpoint_*"):
        change_in_place(checkpoint)
    (trial,) = run(count_up, tmp_path, resume="AUTO", config={"n": 4}).trials
    assert len(warned(caplog, "is damaged and set aside")) == 3
    assert iterations(trial) == [1, 2, 3, 4]
    assert set(directories(trial)) >= {f".broken-checkpoint_00000{n}" for n in (1, 2, 3)}


class Picky(Counter):
    """Cannot load what it saved, the first time."""

    def load_checkpoint(self, checkpoint):
        if self.config["always"] or first_load(self):
            raise ValueError("cannot load that")
        super().load_checkpoint(checkpoint)


def first_load(trainable):
    marker = Path(trainable.logdir, "..", ".loaded")
    there = marker.exists()
    marker.touch()
    return not there


@pytest.mark.parametrize("always", [True, False])
def test_d19_a_load_error_never_means_iteration_zero(tmp_path, always):
    settings = {
        "config": {"n": 6, "die_at": 4, "always": always},
        "checkpoint_config": train.CheckpointConfig(checkpoint_frequency=1, publish="blocking"),
        "raise_on_failed_trial": False,
    }
    (trial,) = run(Picky, tmp_path, max_failures=2, **settings).trials
    assert [fact["iteration"] for fact in facts(tmp_path / "e", "attempt")[1:]] == [3, 3]
    if always:
        assert trial.status == "ERROR"
        assert trial.error.message == "cannot load that"
        assert trial.iteration == 3
    else:
        assert trial.status == "TERMINATED"
        assert trial.iteration == 6
    assert [row["training_iteration"] for row in rows(trial)] == list(range(1, trial.iteration + 1))


def clutter(directory, published):
    """What is no complete checkpoint of this trial: other people's directories, and halves of ours."""
    (directory / "checkpoint_999999").mkdir()
    (directory / "checkpoint_999999" / "count").write_text("999")
    (directory / "checkpoint-10100").mkdir()
    (directory / "checkpoint_000000_tmp").mkdir()
    shutil.copytree(published, directory / "checkpoint_555555")  # a copy keeps the name in its manifest
    shutil.copytree(published, directory / "backup")
    (directory / "checkpoint_link").symlink_to(published.name)


CLUTTER = ["backup", "checkpoint-10100", "checkpoint_000000_tmp", "checkpoint_555555", "checkpoint_999999"]


def test_f08_d21_only_complete_checkpoints_of_the_run_count_and_foreign_directories_stay(tmp_path):
    settings = {"config": {"n": 6}, "keep_checkpoints_num": 1}
    killed_at(3, count_up, hook="on_checkpoint", path=tmp_path, **settings)
    (directory,) = (tmp_path / "e").glob("count_up_*")
    clutter(directory, directory / "checkpoint_000003")
    (trial,) = run(count_up, tmp_path, resume=True, **settings).trials
    assert facts(tmp_path / "e", "attempt")[-1]["iteration"] == 3
    assert kept(trial) == ["checkpoint_000006-2.2"]
    assert set(CLUTTER) <= set(directories(trial))
    assert (directory / "checkpoint_999999" / "count").read_text() == "999"
    assert os.path.lexists(directory / "checkpoint_link")


def by_steps(config):
    for step in config["steps"][restored() :]:
        with tune.checkpoint_dir(step) as directory:
            Path(directory, "count").write_text(str(config["steps"].index(step) + 1))
        tune.report(step=step)


def all_equal(index):
    return 1_600_000_000


def reversed_(index):
    return 1_600_000_000 - 1000 * index


def in_the_future(index):
    return 4_000_000_000 - 1000 * index


@pytest.mark.parametrize("times", [all_equal, reversed_, in_the_future], ids=lambda times: times.__name__)
def test_f08_the_order_is_that_of_the_saves_never_a_time_or_a_name(tmp_path, times):
    """Names whose order as strings, and mtimes whose order, is another one than that of the saves."""
    steps = [900, 1000, 9900, 10000, 10100, 200]
    settings = {"config": {"steps": steps}, "keep_checkpoints_num": 2}
    killed_at(5, by_steps, hook="on_checkpoint", path=tmp_path, **settings)
    (directory,) = (tmp_path / "e").glob("by_steps_*")
    for published in verify.list_checkpoints(directory):
        for path in (*published.path.iterdir(), published.path):
            os.utime(path, (times(published.ref.index),) * 2)
    (trial,) = run(by_steps, tmp_path, resume=True, **settings).trials
    assert facts(tmp_path / "e", "attempt")[-1]["iteration"] == 5
    assert kept(trial) == ["checkpoint_010100", "checkpoint_000200-2.2"]


# --- F04, D18: at every instant there is one ---------------------------------------------------------------------

CHANGES = ["mkdir", "rename", "unlink", "rmdir", "write", "fsync_file", "fsync_dir", "fsync", "truncate", "chmod"]


def watch(directory, seen):
    """Look, before and after every change that this process makes to a disk, at what is there."""

    def looking(real):
        def changed(*arguments, **more):
            seen.append(loadable(directory))
            try:
                return real(*arguments, **more)
            finally:
                seen.append(loadable(directory))

        return changed

    for name in CHANGES:
        setattr(fs, name, looking(getattr(fs, name)))


def loadable(directory):
    found = []
    for published in verify.list_checkpoints(directory):
        try:
            verify.check(published.path)
        except Exception:
            continue  # the driver deletes it at this very instant
        found.append(published.ref.iteration)
    return found


def watched(config):
    save(1)
    tune.report(count=1)
    tune.get_checkpoint()
    seen = []
    watch(Path(tune.get_trial_dir()), seen)
    for count in (2, 3, 4):
        save(count)
        tune.report(count=count)
        tune.get_checkpoint()
    tune.report(least=min(map(len, seen)), looks=len(seen))


def test_f04_with_keep_1_there_is_a_complete_checkpoint_at_every_instant(tmp_path, monkeypatch):
    """Looked at around every change to the disk, in the trial that publishes and in the driver that deletes."""
    seen = []
    for name in CHANGES:
        monkeypatch.setattr(fs, name, getattr(fs, name))  # put back at the end

    class Watch(tune.Callback):
        def on_trial_save(self, iteration, trials, trial, **info):
            if not seen:
                watch(Path(trial.path), seen)

    (trial,) = run(watched, tmp_path, keep_checkpoints_num=1, callbacks=[Watch()]).trials
    assert trial.last_result["least"] >= 1
    assert trial.last_result["looks"] > 30
    assert len(seen) > 10 and min(map(len, seen)) >= 1
    assert iterations(trial) == [4]


@pytest.mark.parametrize("when", ["before", "hidden", "after"])
def test_f04_a_driver_killed_in_the_middle_of_a_deletion(tmp_path, when):
    settings = {"config": {"n": 60}, "keep_checkpoints_num": 1}

    def killed_in_delete():
        real = store_delete.delete

        def deadly(path):
            if path.name == "checkpoint_000003":
                if when == "hidden":
                    fs.rmtree = lambda path: die()
                elif when == "before":
                    die()
                real(path)
                die()
            return real(path)

        store_delete.delete = deadly
        run(count_up, tmp_path, **settings)

    assert os.WIFSIGNALED(in_child(killed_in_delete))
    wait_for_its_processes(tmp_path / "e")
    (directory,) = (tmp_path / "e").glob("count_up_*")
    before = loadable(directory)
    assert max(before) >= 4  # the newer one was there before the older one went
    (trial,) = run(count_up, tmp_path, resume=True, **settings).trials
    assert facts(tmp_path / "e", "attempt")[-1]["iteration"] == max(before)
    assert [name for name in directories(trial) if name.startswith("checkpoint") or name.startswith(".")] == kept(trial)
    assert iterations(trial) == [60]


def large_then_told_to_end(config):
    for count in range(restored() + 1, 100):
        with tune.checkpoint_dir() as directory:
            Path(directory, "weights").write_bytes(bytes(8_000_000))
            Path(directory, "count").write_text(str(count))
        tune.report(count=count)


class Ends(tune.schedulers.FIFOScheduler):
    """Answers one result of a trial with a decision."""

    def __init__(self, at, decision):
        super().__init__()
        self.at, self.decision = at, decision

    def on_trial_result(self, trial, result):
        if result["training_iteration"] == self.at:
            return self.decision
        return self.STOP if result["training_iteration"] == self.at + 2 else self.CONTINUE


@pytest.mark.parametrize("decision", ["STOP", "PAUSE"])
def test_d18_a_stop_or_a_pause_lets_the_save_end(tmp_path, decision):
    scheduler = Ends(2, getattr(tune.schedulers.TrialScheduler, decision))
    (trial,) = run(large_then_told_to_end, tmp_path, scheduler=scheduler, metric="count", mode="max").trials
    assert trial.status == "TERMINATED"
    assert iterations(trial) == [1, 2] if decision == "STOP" else [1, 2, 3, 4]
    assert [row["training_iteration"] for row in rows(trial)] == iterations(trial)  # paused at 2, continued with 3
    assert [name for name in directories(trial) if name.startswith(".")] == []


def hangs_in_its_second_save(config):
    save(1)
    tune.report(count=1)
    tune.get_checkpoint()
    with tune.checkpoint_dir() as directory:
        Path(directory, "half").write_bytes(b"half")
        threading.Event().wait()


def test_d18_a_kill_in_the_middle_of_a_save_leaves_no_trace(tmp_path):
    (trial,) = run(hangs_in_its_second_save, tmp_path, trial_timeout_s=3, raise_on_failed_trial=False).trials
    assert trial.error.type == "TrialTimeoutError"
    assert directories(trial) == ["checkpoint_000001"]
    assert iterations(trial) == [1]


def other_names(config):
    """The same index saved twice, with other files: the first time it is killed half-way."""
    attempt = "first" if first_time("names") else "second"
    with tune.checkpoint_dir() as directory:
        Path(directory, f"{attempt}-a").write_text("a")
        Path(directory, "count").write_text("1")
        if attempt == "first":
            die()
        Path(directory, f"{attempt}-b").write_text("b")
    tune.report(count=1)


def test_d13_a_retried_save_holds_exactly_one_attempts_files(tmp_path):
    (trial,) = run(other_names, tmp_path, max_failures=1).trials
    (published,) = verify.list_checkpoints(Path(trial.path))
    assert sorted(entry.name for entry in published.manifest.files) == ["count", "second-a", "second-b"]
    assert sorted(os.listdir(published.path)) == [".manifest.json", "count", "second-a", "second-b"]


# --- R4: what a resume adopts ------------------------------------------------------------------------------------


def test_a_checkpoint_that_the_journal_does_not_know_is_adopted_and_retention_runs_on_it(tmp_path):
    """The driver dies before it hears of the publish; the trial has published."""

    def deaf():
        from tuner.driver.results import ResultHandler

        real = ResultHandler.on_published

        def deadly(handler, run, body):
            if body.ref.iteration == 3:
                die()
            real(handler, run, body)

        ResultHandler.on_published = deadly
        run(count_up, tmp_path, config={"n": 5}, keep_checkpoints_num=1)

    assert os.WIFSIGNALED(in_child(deaf))
    wait_for_its_processes(tmp_path / "e")
    (trial,) = run(count_up, tmp_path, config={"n": 5}, keep_checkpoints_num=1, resume=True).trials
    assert facts(tmp_path / "e", "attempt")[-1]["iteration"] == 3
    assert kept(trial) == ["checkpoint_000005-2.2"]
    assert [name for name in directories(trial) if "checkpoint" in name] == kept(trial)


def test_d08_a_torn_journal_falls_back_to_the_record_before_and_the_checkpoints(tmp_path, capsys, caplog):
    killed_at(4, count_up, hook="on_checkpoint", path=tmp_path, config={"n": 6})
    segment = max((tmp_path / "e" / "journal").glob("*.jsonl"))
    text = segment.read_bytes().rstrip(b"\0")
    segment.write_bytes(text[: len(text) - 25])
    (trial,) = run(count_up, tmp_path, config={"n": 6}, resume=True).trials
    assert facts(tmp_path / "e", "attempt")[-1]["iteration"] == 4
    assert iterations(trial) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("damage", ["experiment.json", "journal"])
def test_d08_state_that_cannot_be_read_raises_and_never_starts_over(tmp_path, damage):
    killed_at(4, count_up, hook="on_checkpoint", path=tmp_path, config={"n": 6})
    if damage == "journal":
        segment = max((tmp_path / "e" / "journal").glob("*.jsonl"))
        lines = segment.read_bytes().split(b"\n")
        segment.write_bytes(b"\n".join([lines[0], b"garbage", *lines[2:]]))
    else:
        (tmp_path / "e" / damage).write_text("{")
    before = {path: path.read_bytes() for path in (tmp_path / "e").rglob("checkpoint_*/*")}
    with pytest.raises(ExperimentDamagedError):
        run(count_up, tmp_path, config={"n": 6}, resume="AUTO")
    assert {path: path.read_bytes() for path in (tmp_path / "e").rglob("checkpoint_*/*")} == before


# --- T11: written to after it was published ----------------------------------------------------------------------


def test_t11_a_changed_checkpoint_is_noticed_at_its_next_use_and_no_other_is_harmed(tmp_path, caplog):
    analysis = run(count_up, tmp_path, config={"n": 3})
    (trial,) = analysis.trials
    newest = Path(trial.checkpoint.path)
    (newest / "count").write_text("77")
    with pytest.raises(CheckpointCorruptError, match="count"), trial.checkpoint.as_directory():
        pass
    assert loadable(Path(trial.path)) == [1, 2]


def spoils_its_own(config):
    """Writes into what it published, dies, and comes back."""
    if first_time("spoiled"):
        for count in (1, 2, 3):
            save(count)
            tune.report(count=count)
        path = Path(tune.get_checkpoint().path, "count")
        status = path.stat()
        path.write_text("8")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        die()
    tune.report(restored=restored())


def test_t11_a_restart_within_the_run_uses_the_one_before(tmp_path, caplog):
    (trial,) = run(spoils_its_own, tmp_path, max_failures=1).trials
    assert trial.last_result["restored"] == 2
    assert trial.iteration == 3
    (text,) = warned(caplog, "checkpoint_000003")
    assert "damaged and set aside" in text and "BLAKE3" in text
    assert directories(trial) == [".broken-checkpoint_000003", "checkpoint_000001", "checkpoint_000002"]


# --- F16, F34: the disk refuses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EBUSY, errno.ENOENT, errno.ESTALE, errno.EACCES])
def test_f34_a_delete_that_fails_hurts_no_trial_and_is_named_at_the_end(tmp_path, monkeypatch, caplog, number):
    tries = []

    def failing(path):
        tries.append(path.name)
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(loop, "DELETE_GRACE_S", 0.3)
        patch.setattr(store_delete, "delete", failing)
        (trial,) = run(count_up, tmp_path, config={"n": 5}, keep_checkpoints_num=1).trials
    assert trial.status == "TERMINATED" and trial.iteration == 5
    assert tries
    if number != errno.ENOENT:  # that one is gone, which is what was wanted
        assert len(tries) > len(set(tries))  # again
        assert len(warned(caplog, "could not delete")) == 4
        assert iterations(trial) == [1, 2, 3, 4, 5]
        run(count_up, tmp_path, config={"n": 5}, keep_checkpoints_num=1, resume=True)  # the decision was journaled
        assert iterations(trial) == [5]


def test_f34_a_slow_delete_holds_up_nobody(tmp_path, monkeypatch):
    """Deletes hang until the last trial has reported its last result: no report waits for one."""
    over = threading.Event()
    real = store_delete.delete
    waited = []

    def slow(path):
        waited.append(over.wait(30))
        return real(path)

    class Over(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            if result["training_iteration"] == 8:
                done.append(trial)
                if len(done) == 2:
                    over.set()

    done = []
    monkeypatch.setattr(store_delete, "delete", slow)
    analysis = run(count_up, tmp_path, config={"n": 8}, num_samples=2, keep_checkpoints_num=1, callbacks=[Over()])
    assert waited and all(waited)
    for trial in analysis.trials:
        assert trial.status == "TERMINATED"
        assert iterations(trial) == [8]
