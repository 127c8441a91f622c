"""A replica and the kill: of driver, trial and uploader, anywhere between a save and its deletion (F04, F20, T05)."""

from __future__ import annotations

import functools
import os
import random
import shutil
import signal
import sys
import threading
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from replicas import Watch, agents_of, kill_agents, refusal, stage_of, start

import tuner as tune

# --- F04: the driver, with a slow upload ------------------------------------------------------------------------


def kill_while_it_copies(store, line, place, *, kills, size, rate, seed, n):
    """Kill the driver at `kills` moments, continue with an empty disk each time, and look at the replica throughout."""
    line.bytes_per_s = rate
    moments = random.Random(seed)
    options = {"config": {"n": n, "size": size}, "keep_checkpoints_num": 1}
    with stage_of(place) as stage, Watch(store) as watch:
        for life in range(kills):
            sent = line.sent
            script = start(stage, store.uri, line.url, results=f"disk{life}", **options)
            if life == 0:
                watch.wait_for_one()
            script.hear("started")
            goal, reached = sent + moments.randrange(size // 4, 3 * size), threading.Event()
            while line.sent < goal and script.process.poll() is None:
                reached.wait(0.005)
            script.kill()
            (found,) = store.iterations()
            assert found, "a machine that lost its disk has nothing to continue from"
        line.bytes_per_s = None
        output = start(stage, store.uri, line.url, results="last", **options).ends_well()
        assert "resuming from" in output
        assert [line for line in output.splitlines() if "starting new" in line] == []
    assert store.iterations() == [[n]]
    assert store.without_manifest() == set()
    return stage


def test_f04_at_every_instant_a_complete_checkpoint_is_in_the_replica(tmp_path, store, line):
    """keep=1 and a slow line; whatever is killed and with whatever disk it goes on."""
    kill_while_it_copies(store, line, tmp_path, kills=3, size=300_000, rate=400_000, seed=4, n=8)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_f04_the_full_size(tmp_path, store, line):
    """Each upload takes 30 s."""
    kill_while_it_copies(store, line, tmp_path, kills=50, size=6_000_000, rate=200_000, seed=40, n=20)


# --- every step of publish, upload, journal, delete ---------------------------------------------------------------

OPTIONS = {"config": {"n": 4, "size": 3000, "files": 2}, "keep_checkpoints_num": 1, "max_failures": 3}
STEPS = range(1, 24)
"""The requests of a run that change something, as far as every run has them: 24 and more."""


def driver(script):
    script.send(signal.SIGKILL)


def uploader(script):
    kill_agents(script)


def trial(script):
    os.kill(int(script.hear("started")[-1].split()[3]), signal.SIGKILL)


def moments(seed, count):
    """Seeded: (request, whether before or after it)."""
    everything = [(step, before) for step in STEPS for before in (True, False)]
    return random.Random(seed).sample(everything, count)


def killed_at(store, watched, stage, name, victim, step, before):
    """Run; kill the victim at that request; where that ended the run, continue on an empty disk. Look all the time."""
    script, begun, done, agents = None, threading.Event(), [], []
    watched.writes.clear()

    def act():
        begun.wait()
        if len(watched.writes) == step and not done:
            done.append(step)
            agents.extend(agents_of(script))
            victim(script)

    watched.before = lambda method, key, headers: act() if before and method not in ("GET", "HEAD") else None
    watched.after = lambda method, key: None if before else act()
    with Watch(store, name) as watch:
        script = start(stage, store.uri, watched.url, results=f"disk-{name}", name=name, **OPTIONS)
        begun.set()
        status = script.wait()
        watched.before, watched.after = (lambda method, key, headers: None), (lambda method, key: None)
        assert done, f"the run had no request {step}: {watched.writes}"
        stage.unread()
        if victim is driver:
            psutil.wait_procs(agents, timeout=30)
            watched.settled()  # what was under way may still have arrived
            there = [found for iterations in store.iterations(name) for found in iterations]
            again = start(stage, store.uri, watched.url, results=f"empty-{name}", name=name, **OPTIONS)
            again.ends_well()
            starts = [int(line.split()[2]) for line in stage.unread() if line.startswith("started")]
            assert starts == ([] if there == [4] and not starts else [max(there, default=0)]), again.output
        else:
            assert status == 0, script.output
    assert store.iterations(name) == [[4]]
    assert store.without_manifest(name) == set()
    assert watch.looks


@pytest.mark.parametrize("victim", [driver, uploader, trial], ids=lambda victim: victim.__name__)
def test_r10_killed_at_a_step_of_publish_upload_journal_delete(tmp_path, store, watched, victim):
    with stage_of(tmp_path) as stage:
        for number, (step, before) in enumerate(moments(7, 3)):
            killed_at(store, watched, stage, f"e{number}", victim, step if victim is not trial else step + 8, before)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("victim", [driver, uploader, trial], ids=lambda victim: victim.__name__)
def test_r10_killed_at_every_step(tmp_path, store, watched, victim):
    with stage_of(tmp_path) as stage:
        for number, (step, before) in enumerate(moments(8, 2 * len(STEPS))):
            killed_at(store, watched, stage, f"e{number}", victim, max(step, 9) if victim is trial else step, before)


# --- F20: half an upload ----------------------------------------------------------------------------------------

FILES = 2


@pytest.mark.parametrize("arrived", range(FILES + 2))
def test_f20_half_an_upload_is_never_used_and_never_mixes_with_the_next(tmp_path, store, watched, arrived):
    """Killed with so many files there; the same index is saved again with other file names."""
    options = {"config": {"n": 3, "size": 2000, "files": FILES}, "keep_checkpoints_num": 1}
    with stage_of(tmp_path) as stage:
        script, begun = None, threading.Event()

        def die_between(method, key, headers):
            arriving = [key for method, key in watched.writes if method == "PUT" and "/checkpoint_000002/" in key]
            if len(arriving) > arrived:
                driver(script)
                uploader(script)
                return refusal(503, "SlowDown")
            return None

        watched.before = lambda method, key, headers: begun.wait() and die_between(method, key, headers)
        script = start(stage, store.uri, watched.url, life="first", gated=1, **options)
        begun.set()
        watched.wait_for("checkpoint_000001/.manifest.json", script)
        stage.let()
        assert script.wait() == -signal.SIGKILL
        watched.settled()
        watched.before = lambda method, key, headers: None
        halves = store.without_manifest()
        there = [name.rpartition("/")[2] for name in halves]
        assert there == (["checkpoint_000002"] if arrived else [])
        assert store.iterations() == [[1]]
        stage.unread()
        start(stage, store.uri, watched.url, results="empty", life="second", **options).ends_well()
        assert "started 1 1" in " ".join(stage.unread())  # not the half
    assert store.iterations() == [[3]]
    assert store.without_manifest() == set()  # nor does it stay
    (directory,) = store.bring(tmp_path / "brought").rglob("checkpoint_*")
    names = sorted(os.listdir(directory))
    assert names == sorted([".manifest.json", "count", *(f"second-{part}" for part in range(FILES))])


# --- T05: nothing outlives a killed driver ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["idle", "hangs", "first look"])
def test_t05_the_uploader_does_not_survive_a_killed_driver(tmp_path, store, line, how):
    with stage_of(tmp_path) as stage:
        line.silent = how == "first look"
        script = start(stage, store.uri, line.url, config={"n": 2}, gated=1)
        if how == "first look":
            while not agents_of(script):
                assert script.process.poll() is None, script.output
        else:
            script.hear("saved")
            line.silent = how == "hangs"
        agents = agents_of(script)
        assert agents
        script.kill()
        gone, alive = psutil.wait_procs(agents, timeout=30)
        assert not alive


def copies_but_dies(marks: Path, source: str, target: str) -> None:
    """The process that copies is killed over a checkpoint, and over the files of a trial, once each."""
    for mark, name in (("checkpoint", "data"), ("file", "result.json")):
        if os.path.exists(os.path.join(source, name)) and not (marks / mark).exists():
            (marks / mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    if not os.path.exists(source):
        raise OSError("there is nothing")
    shutil.copytree(source, target, dirs_exist_ok=True)


def saves_data(config: dict) -> None:
    for count in range(3):
        with tune.checkpoint_dir() as directory:
            Path(directory, "data").write_bytes(os.urandom(100_000))
        tune.report(count=count)


def test_f29_what_a_killed_uploader_had_laid_out_to_be_copied_goes_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    syncer = functools.partial(copies_but_dies, tmp_path / "marks")
    sync = tune.SyncConfig(upload_dir=str(tmp_path / "replica"), syncer=syncer)
    analysis = tune.run(
        saves_data, storage_path=str(tmp_path / "here"), name="e", sync_config=sync, verbose=0, keep_checkpoints_num=1
    )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"]
    assert sorted(mark.name for mark in (tmp_path / "marks").iterdir()) == ["checkpoint", "file"], "it was killed"
    assert list((tmp_path / "here").rglob(".staging-*")) == []
