"""The settings of a replica: which copies stay here, how far it may be behind, what else goes there (F27, design 6)."""

from __future__ import annotations

import logging
import os
import random
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import first_time, iterations, kept, restored, run, warned
from replicas import stage_of, start

import tuner as tune
from trainables.store.manifest import MANIFEST_NAME
from tuner.error import SettingError


def count(config):
    """Counts to n and saves every count, with so many bytes; fails once at `fails`."""
    start = restored()
    for n in range(start + 1, config["n"] + 1):
        if n == config.get("fails") and first_time("failed"):
            raise ValueError("it is ill")
        with tune.checkpoint_dir() as directory:
            Path(directory, "count").write_text(str(n))
            Path(directory, "weights").write_bytes(random.Random(n).randbytes(config.get("size", 1000)))
        tune.report(n=n, score=float(n), restored=start)


def sync(store, **settings):
    return tune.SyncConfig(upload_dir=store.uri, **settings)


def checkpoint_bytes(store):
    """Of all that lies in checkpoints' directories, but the manifests."""
    keys = store.keys()
    return sum(size for key, size in keys.items() if "/checkpoint_" in key and not key.endswith(MANIFEST_NAME))


# --- F27: the budget of an experiment ---------------------------------------------------------------------------


def within_the_budget(store, place, *, trials, size, budget, at_once):
    analysis = run(
        count,
        place,
        config={"i": tune.grid_search(list(range(trials))), "n": 2, "size": size},
        max_concurrent_trials=at_once,
        checkpoint_budget=tune.Budget(budget, top_k=1),
        metric="score",
        mode="max",
        sync_config=sync(store),
    )
    here = sorted((trial.dirname, iterations(trial)) for trial in analysis.trials if kept(trial))
    there = sorted((name, sorted(found)) for name, found in store.checkpoints().items())
    assert there == here
    assert 0 < checkpoint_bytes(store) <= budget
    assert store.without_manifest() == set()
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * trials


def test_f27_the_budget_holds_in_a_replica_too(tmp_path, store):
    within_the_budget(store, tmp_path, trials=8, size=50_000, budget=260_000, at_once=2)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_f27_the_full_size(tmp_path, store):
    within_the_budget(store, tmp_path, trials=500, size=10_000_000, budget=500_000_000, at_once=4)


# --- keep_local -------------------------------------------------------------------------------------------------


def test_keep_local_gives_up_what_the_replica_holds_and_fetches_it_when_it_is_needed(tmp_path, store):
    settings = {"config": {"n": 5, "fails": 4}, "sync_config": sync(store, keep_local=1)}
    (trial,) = run(count, tmp_path, raise_on_failed_trial=False, **settings).trials
    assert trial.status == "ERROR"
    assert kept(trial) == ["checkpoint_000003"]  # the newest stays
    assert store.iterations() == [[1, 2, 3]]
    for file in sorted((Path(trial.path) / "checkpoint_000003").iterdir(), reverse=True):
        file.unlink()
    (Path(trial.path) / "checkpoint_000003").rmdir()  # a disk that was cleaned by hand
    (trial,) = run(count, tmp_path, resume="AUTO+ERRORED", **settings).trials
    assert trial.last_result["restored"] == 3
    assert iterations(trial) == [5]
    assert store.iterations() == [[1, 2, 3, 4, 5]]
    assert store.without_manifest() == set()


def test_keep_local_deletes_nothing_that_did_not_arrive(tmp_path, store, watched):
    """The only copy of something is never deleted."""
    go_on = threading.Event()
    watched.hold = lambda method, path: go_on.wait(60) if "/checkpoint_000002/" in path and method == "PUT" else None
    seen = []

    class Look(tune.Callback):
        def on_trial_complete(self, iteration, trials, trial, **info):
            seen.extend(kept(trial))
            go_on.set()

    run(count, tmp_path, config={"n": 5}, sync_config=sync(store, keep_local=1), callbacks=[Look()])
    assert "checkpoint_000002" in seen
    assert store.iterations() == [[1, 2, 3, 4, 5]]


def test_keep_local_gives_up_later_what_was_in_use_when_the_replica_got_the_next_one(tmp_path):
    place = tmp_path / "place"

    def train(config):
        tune.report({"n": 1}, checkpoint=tune.Checkpoint.from_dict({"n": 1}))
        _wait_for(place, "checkpoint_000001")
        with tune.get_checkpoint().as_directory():
            tune.report({"n": 2}, checkpoint=tune.Checkpoint.from_dict({"n": 2}))
            _wait_for(place, "checkpoint_000002")
            tune.report({"n": 3})  # the driver has heard of the copy, and what is open stayed

    (trial,) = run(train, tmp_path, sync_config=tune.SyncConfig(upload_dir=place, keep_local=1)).trials
    assert kept(trial) == ["checkpoint_000002"]
    assert len(list(place.glob("e/*/checkpoint_*"))) == 2


def _wait_for(place, checkpoint):
    deadline = time.monotonic() + 30
    while not list(place.glob(f"e/*/{checkpoint}/.manifest.json")):
        assert time.monotonic() < deadline, f"{checkpoint} was never copied"
        time.sleep(0.02)


@pytest.mark.parametrize("value", [0, -1, "some", 1.5])
def test_keep_local_says_what_it_accepts(value):
    with pytest.raises((SettingError, ValueError), match='"all", or a whole number >= 1'):
        tune.SyncConfig(upload_dir="/x", keep_local=value)


def test_keep_local_is_refused_where_there_are_no_copies(tmp_path):
    with pytest.raises(SettingError, match='keep_local=1 is not accepted without upload_dir=.* "all"'):
        run(count, tmp_path, config={"n": 2}, sync_config=tune.SyncConfig(keep_local=1))
    assert not (tmp_path / "e").exists()


def test_keep_local_is_refused_where_nobody_looks_at_what_arrived(tmp_path):
    def copy(source, target):
        shutil.copytree(source, target, dirs_exist_ok=True)

    (tmp_path / "there").mkdir()
    with pytest.raises(SettingError, match="keep_local=1 is not accepted.*whether everything arrived"):
        run(count, tmp_path, config={"n": 2}, sync_config=tune.SyncConfig(tmp_path / "there", copy, keep_local=1))

    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("form", ["{path}", "{path}/", "{uri}"])
def test_an_upload_dir_that_is_the_storage_path_is_refused(tmp_path, form):
    place = form.format(path=tmp_path, uri=tmp_path.as_uri())
    with pytest.raises(SettingError, match="where the experiment itself lies"):
        run(count, tmp_path, config={"n": 2}, sync_config=tune.SyncConfig(place))

    assert not (tmp_path / "e").exists()


# --- backpressure -----------------------------------------------------------------------------------------------


class WhenWarned(logging.Handler):
    """Does something at the first warning that holds a text."""

    def __init__(self, text, action):
        super().__init__(logging.WARNING)
        self.text, self.action, self.done = text, action, False

    def emit(self, record):
        if self.text in record.getMessage() and not self.done:
            self.done = True
            self.action()


def test_a_trial_waits_with_its_next_checkpoint_only_beyond_the_backlog(tmp_path, store, watched):
    free, reached, seen = threading.Event(), [], []
    watched.hold = lambda method, path: free.wait(60) if "/checkpoint_" in path and method == "PUT" else None

    class Note(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            reached.append(result["training_iteration"])

    def let_go():
        seen.append(reached[-1])
        free.set()

    def held():  # what a trial that is not held would report meanwhile is seen
        timer = threading.Timer(1.5, let_go)
        timers.append(timer)
        timer.start()

    timers: list[threading.Timer] = []
    handler = WhenWarned("its checkpoints are saved faster", held)
    logging.getLogger("tuner").addHandler(handler)
    try:
        config = {"n": 8, "size": 40_000}
        analysis = run(count, tmp_path, config=config, sync_config=sync(store, max_backlog=100_000), callbacks=[Note()])
    finally:
        logging.getLogger("tuner").removeHandler(handler)
        free.set()
    for timer in timers:
        timer.join()
    assert seen == [4] or seen == [3]  # 100 kB are two and a half checkpoints
    assert reached == list(range(1, 9))
    assert analysis.trials[0].status == "TERMINATED"
    assert store.iterations() == [[1, 2, 3, 4, 5, 6, 7, 8]]


def test_within_the_backlog_no_trial_waits(tmp_path, store, watched, caplog):
    free = threading.Event()
    watched.hold = lambda method, path: free.wait(60) if "/checkpoint_" in path and method == "PUT" else None

    class Free(tune.Callback):
        def on_trial_complete(self, iteration, trials, trial, **info):
            free.set()  # not a checkpoint has arrived before the trial has ended

    run(count, tmp_path, config={"n": 8, "size": 40_000}, sync_config=sync(store), callbacks=[Free()])
    assert warned(caplog, "saved faster") == []
    assert store.iterations() == [[1, 2, 3, 4, 5, 6, 7, 8]]


# --- how often --------------------------------------------------------------------------------------------------


def test_without_sync_on_checkpoint_only_what_is_kept_at_the_end_goes_there(tmp_path, store, watched):
    at_the_end = []

    class Look(tune.Callback):
        def on_trial_complete(self, iteration, trials, trial, **info):
            at_the_end.extend(key for key in store.keys() if "/checkpoint_" in key)

    settings = {"sync_config": sync(store, sync_on_checkpoint=False, sync_period=3600), "callbacks": [Look()]}
    run(count, tmp_path, config={"n": 6}, keep_checkpoints_num=1, **settings)
    assert at_the_end == []
    assert store.iterations() == [[6]]
    assert {key.split("/")[5] for method, key in watched.writes if method == "PUT" and "/checkpoint_" in key} == {
        "checkpoint_000006"
    }


def test_without_sync_on_checkpoint_checkpoints_go_there_every_period(tmp_path, store, watched):
    with stage_of(tmp_path) as stage:
        sync = {"sync_on_checkpoint": False, "sync_period": 0.2}
        script = start(stage, store.uri, watched.url, sync=sync, gated=1)
        watched.wait_for("checkpoint_000001/.manifest.json", script)  # while the trial waits
        stage.let(3)
        script.ends_well()
    assert store.iterations() == [[1, 2, 3]]


# --- artifacts --------------------------------------------------------------------------------------------------


def write_files(config):
    place = Path(tune.get_trial_dir())
    (place / "sub").mkdir(exist_ok=True)
    for name in ("notes.txt", "plot.png", "core.bin", "sub/more.txt", "sub/large.bin", "a b'c.txt"):
        (place / name).write_text(name)
    (place / "link.txt").symlink_to("/etc/hostname")
    save = tune.checkpoint_dir()
    with save as directory:
        Path(directory, "count").write_text("1")
    tune.report(n=1)
    (place / "late.txt").write_text("late")
    if config["dies"]:
        os._exit(3)


ARTIFACTS = {"notes.txt", "plot.png", "sub/more.txt", "a b'c.txt", "late.txt"}


@pytest.mark.parametrize("dies", [False, True])
def test_artifacts_go_there_but_for_what_is_excluded(tmp_path, store, dies):
    place = sync(store, sync_artifacts=True, excludes=["*.bin"])
    (trial,) = run(write_files, tmp_path, config={"dies": dies}, sync_config=place, raise_on_failed_trial=False).trials
    names = {key.split("/", 2)[2] for key in store.keys() if key.startswith(f"e/{trial.dirname}/")}
    assert names >= ARTIFACTS
    assert not {name for name in names if name.endswith(".bin")}
    assert "link.txt" not in names
    assert store.backend.read(f"e/{trial.dirname}/sub/more.txt") == b"sub/more.txt"


def write_a_name_that_is_no_text(config):
    with open(os.fsencode(tune.get_trial_dir()) + b"/caf\xe9.txt", "w") as file:
        file.write("x")
    (Path(tune.get_trial_dir()) / "notes.txt").write_text("x")
    tune.report(n=1)


def test_an_artifact_whose_name_is_no_text_is_left_out_and_the_rest_arrives(tmp_path, store, caplog):
    (trial,) = run(write_a_name_that_is_no_text, tmp_path, sync_config=sync(store, sync_artifacts=True)).trials
    names = {key.split("/", 2)[2] for key in store.keys() if key.startswith(f"e/{trial.dirname}/")}
    assert {"notes.txt", "result.json"} <= names
    assert len([1 for record in caplog.records if r"caf\xe9.txt" in record.getMessage()]) == 1


def test_without_sync_artifacts_only_our_own_files_go_there(tmp_path, store):
    (trial,) = run(write_files, tmp_path, config={"dies": False}, sync_config=sync(store)).trials
    names = {key.split("/", 2)[2] for key in store.keys() if key.startswith(f"e/{trial.dirname}/")}
    assert not names & ARTIFACTS
    assert "result.json" in names
