"""Several machines, one replica: who owns it, whose history holds, and who reads it meanwhile.

F13 (e), F39, T04, T08, T14, T15, and design rules R2 to R5 on a machine that has nothing but the replica.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import Crash, count_up, die, facts, in_child, killed_at, restored, rows, run, save
from lifecycle_scripts import contents
from replicas import Store, refusal, stage_of, start

import tuner as tune
from trainables.errors import TransferError
from trainables.net.failed import FailureKind
from trainables.store import verify
from trainables.transfer import remote_checkpoints, transfer_jobs
from trainables.transfer.client import InlineClient
from trainables.transfer.job_worker import JobWorker
from trainables.transfer.local import LocalBackend
from tuner import cli
from tuner.clock import SystemClock
from tuner.error import ExperimentDivergedError, SettingError, TuneError
from tuner.experiment.generations import read_record
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state
from tuner.syncer import drain
from tuner.syncer.remote_experiment import RemoteExperiment
from tuner.tools import sync as sync_tool

ELSEWHERE = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
script = Path(__file__).parent / "script.py"
os.execvp("unshare", ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, str(script)])
"""
"""Runs the script where the processes of others cannot be seen, as on another machine."""


@pytest.fixture
def there(tmp_path):
    """A replica in a directory, as a shared filesystem is."""
    (tmp_path / "there").mkdir()
    return Store(LocalBackend(tmp_path / "there", str(tmp_path / "there")))


def sync(store, **settings):
    return tune.SyncConfig(upload_dir=store.uri, **settings)


def copies(store, **settings):
    """Settings of a run that copies, at once and on this thread: what is there when it dies is always the same."""
    return {"sync_config": sync(store), "executor": "inline", **settings}


def bytes_of(store):
    return {key: store.backend.read(key) for key in store.keys()}


# --- a machine that has nothing but the replica -----------------------------------------------------------------


def test_r4_an_empty_machine_runs_what_is_unfinished_from_the_newest_that_is_there(tmp_path, store, direct):
    config = {"i": {"grid_search": [1, 2, 3, 4]}, "n": 4}
    with stage_of(tmp_path) as stage:
        gates = {"3": 2, "4": 3}
        script = start(stage, store.uri, direct, config=config, gated=gates, keep_checkpoints_num=1)
        script.hear("", 4 + 4 + 4 + 1 + 1 + 2 + 3)  # every start, two ends, and saves: the others wait
        script.kill()
        stage.unread()
        newest = {name: max(found) for name, found in store.checkpoints().items()}
        state = store.state(tmp_path / "books")
        ended = {trial.config["i"] for trial in state.trials if trial.status == "TERMINATED"}
        assert ended <= {1, 2}
        again = start(stage, store.uri, direct, results="empty", config=config, keep_checkpoints_num=1)
        assert f"resuming from {store.uri}/e" in again.ends_well()
        begun = {int(line.split()[1]): int(line.split()[2]) for line in stage.unread() if line.startswith("started")}
        names = {trial.config["i"]: trial.dirname for trial in state.trials}
        assert begun == {i: newest.get(names[i], 0) for i in names if not (i in ended and newest.get(names[i]) == 4)}
    assert store.iterations() == [[4]] * 4
    assert store.without_manifest() == set()
    for trial in tune.ExperimentAnalysis(stage.place / "empty" / "e").trials:
        assert [row["training_iteration"] for row in rows(trial)] == [1, 2, 3, 4]


def test_r4_the_newest_over_there_is_used_although_the_books_let_go_of_it(tmp_path, store, watched):
    """The journal is ahead of the checkpoints: it knows of newer ones, which were lost with the disk."""
    watched.before = lambda method, key, headers: (
        refusal(503, "SlowDown") if method == "PUT" and any(f"checkpoint_00000{n}/" in key for n in (2, 3, 4)) else None
    )
    with stage_of(tmp_path) as stage:
        options = {"config": {"n": 5}, "keep_checkpoints_num": 1}
        script = start(stage, store.uri, watched.url, gated=1, **options)
        watched.wait_for("checkpoint_000001/.manifest.json", script)
        stage.let(3)
        script.hear("saved 1 4")
        looks = itertools.count()
        while _remembered(store, tmp_path / f"books-{next(looks)}") != [4]:
            time.sleep(0.05)
        script.kill()
        stage.unread()
        assert store.iterations() == [[1]]
        assert _remembered(store, tmp_path / "books") == [4]
        watched.before = lambda method, key, headers: None
        start(stage, store.uri, watched.url, results="empty", **options).ends_well()
        assert [line.split()[2] for line in stage.unread() if line.startswith("started")] == ["1"]
    assert store.iterations() == [[5]]
    assert store.without_manifest() == set()


def _remembered(store, target):
    """The iterations of the checkpoints of the one trial, as the journal over there has them."""
    (trial,) = store.state(target).trials
    return [record.iteration for record in trial.checkpoints]


def no_description(root):
    (root / "experiment.json").write_bytes(b'{"format": 1, "na')


def no_first_segment(root):
    min((root / "journal").iterdir()).unlink()


def of_a_newer_version(root):
    text = (root / "experiment.json").read_text()
    assert '"format": 2' in text
    (root / "experiment.json").write_text(text.replace('"format": 2', '"format": 99'))


def no_journal(root):
    shutil.rmtree(root / "journal")


DAMAGES = [no_description, no_first_segment, no_journal, of_a_newer_version]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_r5_a_replica_that_cannot_be_continued_raises_and_is_not_touched(tmp_path, there, damage):
    killed_at(5, count_up, path=tmp_path / "first", config={"n": 6}, **copies(there))
    assert len(list((tmp_path / "there" / "e" / "journal").iterdir())) > 1
    damage(tmp_path / "there" / "e")
    before = contents(tmp_path / "there")
    with pytest.raises(TuneError):
        run(count_up, tmp_path / "second", config={"n": 6}, resume="AUTO", **copies(there))
    after = contents(tmp_path / "there")
    assert {name: after[name] for name in after if "/generations/" not in name} == {
        name: before[name] for name in before if "/generations/" not in name
    }
    assert not (tmp_path / "second" / "e" / "experiment.json").exists()


# --- F13 (e), F39: moved, copied --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "bucket"])
def test_f13_e_an_experiment_is_continued_from_a_uri_under_a_new_root(tmp_path, there, store, kind):
    place = store if kind == "bucket" else there
    uri = store.uri if kind == "bucket" else f"{tmp_path.as_uri()}/there"
    settings = {"config": {"n": 6}, "keep_checkpoints_num": 2, "sync_config": tune.SyncConfig(upload_dir=uri)}
    old = tmp_path / "the-old-root"
    killed_at(3, count_up, path=old, executor="inline", **settings)
    shutil.rmtree(old)
    ((*_, newest_there),) = place.iterations()
    analysis = run(count_up, tmp_path / "new", resume="REMOTE", metric="score", mode="max", **settings)
    (trial,) = analysis.trials
    assert facts(tmp_path / "new" / "e", "attempt")[-1]["iteration"] == newest_there
    assert [row["training_iteration"] for row in rows(trial)] == [1, 2, 3, 4, 5, 6]
    assert Path(analysis.best_checkpoint.path).is_relative_to(tmp_path / "new")
    assert place.iterations() == [[5, 6]]
    brought = place.bring(tmp_path / "brought")
    for root in (tmp_path / "new" / "e", brought):
        holding = [path for path in root.rglob("*") if path.is_file() and b"the-old-root" in path.read_bytes()]
        assert holding == []


def test_f39_checkpoints_copied_by_hand_from_and_to_a_bucket_are_valid(tmp_path, store):
    settings = {"config": {"n": 5}, "keep_checkpoints_num": 2}
    killed_at(4, count_up, path=tmp_path / "first", **copies(store, **settings))
    by_hand = store.bring(tmp_path / "second" / "e")  # file by file; hashes every checkpoint
    (directory,) = by_hand.glob("count_up_*")
    ((*_, newest_there),) = kept = store.iterations()
    assert [published.ref.iteration for published in verify.list_checkpoints(directory)] == kept[0]
    files = [str(path.relative_to(by_hand)) for path in by_hand.rglob("*") if path.is_file()]
    store.backend.push(by_hand, "copied/e", files)
    there = remote_checkpoints.listed(store.backend, f"copied/e/{directory.name}")
    assert [remote.ref.iteration for remote in there.complete] == kept[0]
    assert (there.broken, there.unknown) == ([], [])
    for path in (tmp_path / "second", tmp_path / "third"):  # the one from its disk, the other from the bucket
        place = tune.SyncConfig(upload_dir=f"{store.uri}/copied") if path.name == "third" else None
        (trial,) = run(count_up, path, resume="AUTO", takeover=True, sync_config=place, **settings).trials
        assert facts(path / "e", "attempt")[-1]["iteration"] == newest_there
        assert trial.iteration == 5


CLUTTER = ["backup/weights", "checkpoint-10100/weights", "checkpoint_000000_tmp/weights", "mine.txt"]


def test_f39_what_is_unknown_in_a_replica_is_reported_and_never_deleted(tmp_path, store, capsys):
    settings = {"config": {"n": 6}, "keep_checkpoints_num": 1}
    killed_at(3, count_up, path=tmp_path / "first", **copies(store, **settings))
    (name,) = store.checkpoints()
    clutter = [f"e/{name}/{key}" for key in CLUTTER] + ["e/foreign/checkpoint_000001/weights", "e/notes.txt"]
    (newest,) = store.checkpoints()[name].values()
    for key in [key for key in store.keys() if key.startswith(newest)]:  # a copy keeps the name in its manifest
        store.backend.put(key.replace(newest, f"e/{name}/checkpoint_555555"), store.backend.read(key))
    for key in clutter:
        store.backend.put(key, b"mine")
    unknown = set(remote_checkpoints.listed(store.backend, f"e/{name}").unknown)
    wanted = {"backup", "checkpoint-10100", "checkpoint_000000_tmp", "checkpoint_555555"}
    assert unknown == {f"e/{name}/{directory}" for directory in wanted}
    run(count_up, tmp_path / "second", resume="AUTO", **copies(store, **settings))
    assert [remote.ref.iteration for remote in remote_checkpoints.listed(store.backend, f"e/{name}").complete] == [6]
    assert set(remote_checkpoints.listed(store.backend, f"e/{name}").unknown) == unknown
    assert set(clutter) <= set(store.keys())
    cli.main(["verify", f"{store.uri}/e"])
    said = capsys.readouterr().out
    assert all(f"{name}/{directory}" in said for directory in wanted - {"checkpoint_555555"}), said


# --- T14: no checkpoint is ahead of the journal -----------------------------------------------------------------


def test_t14_no_checkpoint_in_a_replica_is_ahead_of_its_journal(tmp_path, store, watched):
    """Looked at when each manifest goes there: the books over there hold the result that it belongs to."""
    seen, wrong = [], []

    def look(method, key):
        if method != "PUT" or not key.endswith("/.manifest.json"):
            return
        seen.append(key)
        at = tmp_path / f"books{len(seen)}"
        state = store.state(at)
        done = [fact["iteration"] for fact in facts(at, "result")]
        published = [fact["ref"]["name"] for fact in facts(at, "published")]
        name = key.split("/")[-2]
        if int(name[-6:]) not in done or name not in published or not state.trials:
            wrong.append((name, done, published))

    watched.after = look
    run(count_up, tmp_path / "results", config={"n": 8}, sync_config=sync(store))
    assert len(seen) == 8
    assert wrong == []


# --- T04: two owners --------------------------------------------------------------------------------------------


def taken_over(store, direct, place, *, takeover):
    with stage_of(place) as stage:
        stage.write(ELSEWHERE, "elsewhere.py")
        options = {"config": {"n": 5}, "keep_checkpoints_num": 1}
        stopped = start(stage, store.uri, direct, life="a", gated=2, **options)
        stopped.hear("saved 1 2")
        stopped.send(signal.SIGSTOP)
        beside = start(stage, store.uri, direct, results="beside", **options)
        assert beside.wait() == 1
        assert "is owned by another driver" in beside.output  # it lives, and this is its host
        assert not (place / "beside" / "e" / "experiment.json").exists()
        more = {"takeover": True} if takeover else {}
        other = start(stage, store.uri, direct, results="b", life="b", script="elsewhere.py", **options, **more)
        output = other.stage and other.wait(120) == 0 and other.output
        assert output, other.output
        assert "STATUS TERMINATED" in output
        before = bytes_of(store)
        stage.let(5)  # its trial would go on and save
        stopped.send(signal.SIGCONT)
        assert stopped.wait() == 1
        assert "has taken over" in stopped.output
        assert bytes_of(store) == before  # nothing published, deleted or pushed any more
        assert store.iterations() == [[5]]
        (directory,) = store.bring(place / "brought").rglob("checkpoint_*")
        assert sorted(os.listdir(directory)) == [".manifest.json", "b-0", "count"]


@pytest.mark.root
def test_t04_an_owner_that_was_taken_over_writes_nothing_more_and_says_why(tmp_path, store, direct):
    taken_over(store, direct, tmp_path, takeover=True)


@pytest.mark.root
@pytest.mark.soak
def test_t04_a_stale_owner_is_taken_over_after_sixty_seconds(tmp_path, store, direct):
    taken_over(store, direct, tmp_path, takeover=False)


def copy_once_beaten(record, source, target):
    """A syncer that is so slow with checkpoints that its caller has to give a sign of life meanwhile."""
    if not os.path.isdir(source):
        raise OSError("there is nothing")
    until = time.monotonic() + 20
    while "checkpoint_" in target and (known := read_record(record)) is not None and not known.heartbeat:
        if time.monotonic() > until:
            raise OSError("no sign of life")
        time.sleep(0.01)
    shutil.copytree(source, target, dirs_exist_ok=True)


class Photographed(tune.Callback):
    """Keeps what is at a place when a trial has reported so many results."""

    changes_results = False

    def __init__(self, place, at, target):
        self.place, self.at, self.target = place, at, target

    def on_trial_result(self, iteration, trials, trial, result, **info):
        if result["training_iteration"] == self.at:
            shutil.copytree(self.place, self.target)


def test_t04_what_an_owner_brings_while_its_end_is_waited_for_counts(tmp_path, there, monkeypatch):
    """It ends well between the look at what is there and the sign that it has."""
    place, before, after = tmp_path / "there", tmp_path / "before", tmp_path / "after"
    shown = Photographed(place, 4, before)
    run(count_up, tmp_path / "a", config={"n": 6}, callbacks=[shown], **copies(there))
    shutil.move(place, after)
    for side in (before, after):  # of a driver that cannot be seen from here
        record = side / "e" / "generations" / "000001.json"
        written = json.loads(record.read_bytes())
        written["owner"]["host"] = "elsewhere"
        record.write_text(json.dumps(written))
    shutil.move(before, place)
    waits = []

    def wait(seconds):
        if not waits:
            shutil.rmtree(place)
            shutil.copytree(after, place)
        waits.append(seconds)

    monkeypatch.setattr(SystemClock, "sleep", lambda clock, seconds: wait(seconds))
    analysis = run(count_up, tmp_path / "b", config={"n": 6}, resume="AUTO", **copies(there))

    (trial,) = analysis.trials
    assert waits == [2.0]
    assert (trial.status, trial.attempt, trial.iteration) == ("TERMINATED", 1, 6)
    assert [row["training_iteration"] for row in rows(trial)] == [1, 2, 3, 4, 5, 6]


def test_t04_who_brings_copies_by_hand_gives_signs_of_life(tmp_path, monkeypatch):
    run(count_up, tmp_path, config={"n": 1}, executor="inline")
    paths = ExperimentPaths(tmp_path / "e")
    monkeypatch.setattr(drain, "HEARTBEAT_S", 0.1)
    (tmp_path / "there").mkdir()
    syncer = functools.partial(copy_once_beaten, paths.generation(2))
    config = tune.SyncConfig(upload_dir=str(tmp_path / "there"), syncer=syncer, sync_timeout=30)
    _, lacking = sync_tool.push(paths, config)
    assert lacking == []
    assert len(list((tmp_path / "there" / "e").glob("*/checkpoint_*"))) == 1


# --- T15: who comes back ----------------------------------------------------------------------------------------


def test_t15_a_host_that_comes_back_joins_the_newer_history(tmp_path, store, line, direct):
    options = {"config": {"n": 6}, "keep_checkpoints_num": 2}
    with stage_of(tmp_path) as stage:
        first = start(stage, store.uri, line.url, results="a", gated=2, **options)
        first.hear("saved 1 2")
        pause = threading.Event()
        while not store.iterations():
            pause.wait(0.01)
        line.outage = True  # nobody hears of what it does from here on
        line.cut()
        stage.let(2)
        first.hear("saved 1 4")
        first.kill()
        start(stage, store.uri, direct, results="b", **options).ends_well()
        line.outage = False
        theirs = store.state(tmp_path / "theirs")
        output = start(stage, store.uri, line.url, results="a", **options).ends_well()
        assert len([text for text in output.splitlines() if "taken over from there" in text]) == 1, output
        assert "STATUS TERMINATED" in output
    mine = load_state(ExperimentPaths(stage.place / "a" / "e"))
    assert mine.trials[0].checkpoints[-1].digest == theirs.trials[0].checkpoints[-1].digest
    assert [row["training_iteration"] for row in rows(mine.trials[0])] == [1, 2, 3, 4, 5, 6]
    assert store.iterations() == [[5, 6]]


def without_the_store(number):
    """Makes this process the one whom the store does not hear any more from that checkpoint on."""
    real, gone = JobWorker.do, []

    def do(self, job, moved):
        if isinstance(job, transfer_jobs.PushPayload) and f"checkpoint_{number:06d}" in job.key:
            gone.append(job)
        if gone:
            return transfer_jobs.JobFailed(FailureKind.TRANSFER, "no answer", True, id=job.id)
        return real(self, job, moved)

    JobWorker.do = do


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed before that"])
def test_t15_what_was_saved_and_never_copied_is_set_aside_and_what_was_let_go_of_is_removed(
    tmp_path, there, caplog, monkeypatch, killed
):
    settings = {"config": {"n": 6}, "keep_checkpoints_num": 2, **copies(there)}
    a, place = tmp_path / "a" / "e", tmp_path / "a" / "e" / ".set-aside"

    def dies():
        without_the_store(3)
        run(count_up, tmp_path / "a", callbacks=[Crash(5)], **settings)

    assert os.WIFSIGNALED(in_child(dies))
    (directory,) = a.glob("count_up_*")
    saved = [found.ref.iteration for found in verify.list_checkpoints(directory)]
    assert (saved, there.iterations()) == ([2, 3, 4], [[1, 2]])
    run(count_up, tmp_path / "b", resume="AUTO", **settings)
    before = there.keys()
    if killed:
        with monkeypatch.context() as patch:
            patch.setattr("tuner.driver.catch_up.clear_void", lambda *arguments: die())
            assert os.WIFSIGNALED(in_child(lambda: run(count_up, tmp_path / "a", resume="AUTO", **settings)))
        assert [found.ref.iteration for found in verify.list_checkpoints(directory)] == saved
    caplog.clear()
    caplog.set_level("INFO")

    (trial,) = run(count_up, tmp_path / "a", resume="AUTO", **settings).trials

    assert [record.iteration for record in trial.checkpoints] == [5, 6]
    assert verify.list_checkpoints(directory) == [] and verify.scan(directory).unknown == []
    assert {key for key in there.keys() if "/checkpoint_" in key} == {key for key in before if "/checkpoint_" in key}
    (said,) = [line for line in caplog.messages if f"set aside in {place}" in line]
    assert "2 checkpoints" in said
    found = verify.list_checkpoints(place / directory.name)
    assert [published.ref.iteration for published in found] == [3, 4]
    assert cli.main(["verify", str(a)]) == 0
    assert not any(".set-aside" in key for key in there.keys()) and not (a / ".taking-over").exists()
    run(count_up, tmp_path / "a", resume="AUTO", **settings)
    assert not place.exists()  # the next run had finished too


def newest_of(root):
    """The iteration of the newest checkpoint on disk."""
    (directory,) = root.glob("count_up_*")
    return verify.list_checkpoints(directory)[-1].ref.iteration


def newest(root):
    (trial,) = load_state(ExperimentPaths(root)).trials
    return trial.iteration, trial.checkpoints[-1].digest


def manifests(root):
    return {path.parent.name: path.read_bytes() for path in root.rglob(".manifest.json")}


@pytest.mark.parametrize(
    ("choice", "keep", "dies"),
    [("LOCAL", 1, 4), ("REMOTE", 1, 4), ("LOCAL", None, 6)],
    ids=["LOCAL", "REMOTE", "alike"],
)
def test_t15_two_heads_that_each_lack_the_other_raise_and_resume_chooses(tmp_path, there, choice, keep, dies):
    """Alike: both have segments and checkpoints of the same names, and other contents."""
    settings = {"config": {"n": 6}, "keep_checkpoints_num": keep}
    a, b = tmp_path / "a", tmp_path / "b"
    killed_at(3, count_up, path=a, **copies(there, **settings))
    killed_at(5, count_up, path=a, resume=True, executor="inline", **settings)  # on its own
    killed_at(dies, count_up, path=b, resume="AUTO", **copies(there, **settings))
    before = contents(a / "e"), contents(tmp_path / "there")
    with pytest.raises(ExperimentDivergedError, match='resume="LOCAL" or resume="REMOTE"') as raised:
        run(count_up, a, resume="AUTO", **copies(there, **settings))
    assert str(a / "e") in str(raised.value)
    assert there.uri in str(raised.value)
    assert (contents(a / "e"), contents(tmp_path / "there")) == before
    started_from = newest_of(a / "e") if choice == "LOCAL" else there.iterations()[0][-1]
    alike = set(manifests(a / "e")) & set(manifests(tmp_path / "there"))
    run(count_up, a, resume=choice, **copies(there, **settings))
    assert facts(a / "e", "attempt")[-1]["iteration"] == started_from
    brought = there.bring(tmp_path / "brought")
    if choice == "LOCAL":
        assert manifests(brought) == manifests(a / "e")
        assert (len(alike) > 1) == (keep is None)
    assert there.iterations() == [[6] if keep else [1, 2, 3, 4, 5, 6]]
    assert newest(a / "e") == newest(brought)
    (aside,) = (a / ".set-aside").iterdir()  # what lost is kept here
    assert (aside / "journal").is_dir()
    run(count_up, b, resume="REMOTE", **copies(there, **settings))
    assert newest(b / "e") == newest(a / "e")


def test_r12_the_last_words_of_an_owner_that_was_waited_for_are_read(tmp_path, there, monkeypatch):
    run(count_up, tmp_path / "a", config={"n": 6}, **copies(there))
    root, rest = tmp_path / "there" / "e", tmp_path / "rest"
    shutil.copytree(root, rest)
    for segment in sorted((root / "journal").glob("0*.jsonl"))[3:]:
        segment.unlink()
    record = root / "generations" / "000001.json"
    record.write_text(re.sub(r'"host":"[^"]*"', '"host":"another"', record.read_text()))
    (root / "generations" / "000001.beat").write_text("held 1\n")
    waits = []

    def last_words(seconds):
        waits.append(seconds)
        shutil.copytree(rest / "journal", root / "journal", dirs_exist_ok=True)
        shutil.copy(rest / "generations" / "000001.beat", root / "generations")

    monkeypatch.setattr(SystemClock, "sleep", lambda clock, seconds: last_words(seconds))
    analysis = run(count_up, tmp_path / "b", config={"n": 6}, resume="AUTO", **copies(there))
    assert waits
    assert [row["training_iteration"] for row in rows(analysis.trials[0])] == [1, 2, 3, 4, 5, 6]
    assert len(facts(tmp_path / "b" / "e", "attempt")) == 1, "what had ended runs again"


@pytest.mark.parametrize("gone", [0, 1, 4])
@pytest.mark.parametrize("machine", ["the same", "empty"])
def test_t09_a_replacement_that_was_killed_over_there_is_brought_to_its_end(
    tmp_path, there, monkeypatch, gone, machine
):
    settings = {"config": {"n": 3}, **copies(there)}
    run(count_up, tmp_path / "a", num_samples=3, **settings)
    old, real = set(there.keys()), JobWorker._do

    def do(self, job, moved):
        if isinstance(job, transfer_jobs.Delete):
            self.backend.delete(job.keys[:gone])
            die()
        return real(self, job, moved)

    monkeypatch.setattr(JobWorker, "_do", do)
    again = {"num_samples": 2, **settings}
    assert os.WIFSIGNALED(in_child(lambda: run(count_up, tmp_path / "a", overwrite=True, **again)))
    monkeypatch.setattr(JobWorker, "_do", real)
    left = [key for key in there.keys() if key in old and "/generations/" not in key]
    assert len(left) >= len(old) - 10

    root = tmp_path / ("a" if machine == "the same" else "b")
    if gone == 0 and machine == "empty":  # nothing had gone: it is the old one that is there
        assert len(run(count_up, root, resume="AUTO", num_samples=3, **settings).trials) == 3
    else:
        overwrite = {"overwrite": True} if gone == 0 else {"resume": "AUTO"}
        assert [len(rows(trial)) for trial in run(count_up, root, **overwrite, **again).trials] == [3, 3]
        assert not [key for key in there.keys() if key in old and key.startswith("e/count_up_")]
        keys = {key.removeprefix("e/") for key in there.keys() if "/generations/" not in key}
        here = {str(path.relative_to(root / "e")) for path in (root / "e").rglob("*") if path.is_file()}
        assert keys == {name for name in here if not name.startswith("generations/")}
    assert "e/.replaced" not in there.keys()


def test_t15_what_made_room_for_the_other_history_comes_back_when_the_start_is_refused(tmp_path, there):
    settings = {"config": {"n": 6}}
    a = tmp_path / "a"
    killed_at(3, count_up, path=a, **copies(there, **settings))
    killed_at(5, count_up, path=a, resume=True, executor="inline", **settings)
    killed_at(4, count_up, path=tmp_path / "b", resume="AUTO", **copies(there, **settings))
    before, its = newest(a / "e"), newest(tmp_path / "b" / "e")
    assert before != its
    with pytest.raises(SettingError, match="search_alg"):
        run(count_up, a, resume="REMOTE", search_alg="unknown", **copies(there, **settings))
    assert newest(a / "e") == before and not (a / ".set-aside").exists()
    run(count_up, a, resume="REMOTE", **copies(there, **settings))
    assert len(list((a / ".set-aside").iterdir())) == 1


def test_t15_results_that_went_on_elsewhere_take_the_place_of_the_fewer_that_are_here(tmp_path, there, monkeypatch):
    monkeypatch.setattr("tuner.driver.driver.FINAL_COMPACT_BYTES", 0)  # no fact tells of these results any more
    settings = {"max_concurrent_trials": 1, "config": {"n": 6}, **copies(there)}
    killed_at(3, count_up, path=tmp_path / "a", num_samples=2, trials=2, **settings)
    for number in (2, 3):  # what the end of the first leaves to be copied goes with the second
        run(count_up, tmp_path / "b", num_samples=number, resume="AUTO", **settings)
    assert any("/snapshot-" in key for key in there.keys())
    whole = {key: data for key, data in bytes_of(there).items() if key.endswith("/result.json")}

    analysis = run(count_up, tmp_path / "a", num_samples=3, resume="AUTO", **settings)

    assert [[row["training_iteration"] for row in rows(trial)] for trial in analysis.trials] == [[*range(1, 7)]] * 3
    assert {key: data for key, data in bytes_of(there).items() if key.endswith("/result.json")} == whole


def test_t15_the_snapshot_that_a_run_ends_with_goes_there_before_it_returns(tmp_path, there, monkeypatch):
    monkeypatch.setattr("tuner.driver.driver.FINAL_COMPACT_BYTES", 0)
    analysis = run(count_up, tmp_path / "a", num_samples=3, config={"n": 3}, **copies(there))
    root = Path(analysis.experiment_path)
    journal = {f"e/{path.relative_to(root)}" for path in (root / "journal").rglob("*") if path.is_file()}
    assert any("/snapshot-" in key for key in journal)
    assert {key for key in there.keys() if key.startswith("e/journal/")} == journal
    fetched, real = [], JobWorker._do

    def do(self, job, moved):
        fetched.extend(job.names or () if isinstance(job, transfer_jobs.FetchFiles) else ())
        return real(self, job, moved)

    class First(tune.Callback):
        def on_trial_start(self, iteration, trials, trial, **info):
            fetched.append("started")

    monkeypatch.setattr(JobWorker, "_do", do)
    run(count_up, tmp_path / "b", num_samples=4, resume="AUTO", callbacks=[First()], config={"n": 3}, **copies(there))
    before = fetched[: fetched.index("started")]
    assert not [name for name in before if name.endswith("result.json")], "an empty machine waits for no trial's files"


def test_t15_small_files_that_are_the_same_here_are_not_fetched_again(tmp_path, there, monkeypatch):
    monkeypatch.setattr("tuner.driver.driver.FINAL_COMPACT_BYTES", 0)
    settings = {"config": {"n": 3}, "resume": "AUTO", **copies(there)}
    first = run(count_up, tmp_path / "a", num_samples=2, **settings).trials[0].dirname
    for number in (3, 4):
        last = run(count_up, tmp_path / "b", num_samples=number, **settings).trials[2].dirname
    fetched, real = [], JobWorker._do

    def do(self, job, moved):
        fetched.extend(job.names or () if isinstance(job, transfer_jobs.FetchFiles) else ())
        return real(self, job, moved)

    monkeypatch.setattr(JobWorker, "_do", do)
    run(count_up, tmp_path / "a", num_samples=5, **settings)
    assert f"{last}/result.json" in fetched
    assert not [name for name in fetched if name.startswith(f"{first}/")]


# --- R3: what is damaged over there is sent again ----------------------------------------------------------------


def fails_at_three(config):
    for count in range(restored() + 1, 3):
        save(count)
        tune.report(score=float(count))
    tune.get_checkpoint()  # which waits for the saves
    raise RuntimeError("as always")


def with_an_empty_manifest(directory):
    (directory / ".manifest.json").write_bytes(b"")


def without_its_payload(directory):
    (directory / "count").unlink()


def with_half_its_payload(directory):
    os.truncate(directory / "count", 0)


def without_its_manifest(directory):
    (directory / ".manifest.json").unlink()


@pytest.mark.parametrize(
    "damage",
    [with_an_empty_manifest, without_its_payload, with_half_its_payload, without_its_manifest],
    ids=lambda damage: damage.__name__,
)
def test_r3_a_checkpoint_that_is_damaged_over_there_is_sent_again(tmp_path, there, damage):
    settings = {"raise_on_failed_trial": False, "keep_checkpoints_num": 2, **copies(there)}
    run(fails_at_three, tmp_path / "a", **settings)
    _, last = sorted((tmp_path / "there" / "e").glob("*/checkpoint_*"))
    damage(last)

    run(fails_at_three, tmp_path / "a", resume="AUTO+ERRORED", **settings)

    assert Store(there.backend).iterations() == [[1, 2]]  # and each of them is whole


# --- R12: what is here has an owner too ---------------------------------------------------------------------------


def test_r12_a_live_driver_here_keeps_its_directory_when_another_history_is_to_be_fetched(tmp_path, there):
    with stage_of(tmp_path / "stage") as stage:
        start(stage, there.uri, results="another").ends_well()
        stage.unread()
        live = start(stage, None, gated=2)
        live.hear("saved 1 2")
        before = set(os.listdir(stage.place / "results"))
        other = start(stage, there.uri, resume="REMOTE")
        assert other.wait() == 1
        assert "is owned by another driver" in other.output
        assert set(os.listdir(stage.place / "results")) == before
        stage.let(2)
        live.ends_well()


def test_r5_what_is_here_stays_in_its_place_when_the_other_history_cannot_be_fetched(tmp_path, there, monkeypatch):
    run(count_up, tmp_path / "c", config={"n": 2}, **copies(there))
    killed_at(2, count_up, path=tmp_path / "a", config={"n": 4}, executor="inline")
    before, real = contents(tmp_path / "a"), JobWorker._do

    def do(self, job, moved):
        if isinstance(job, transfer_jobs.FetchFiles) and any(name.endswith("/params.json") for name in job.names or ()):
            raise TransferError("the store refuses it")
        return real(self, job, moved)

    monkeypatch.setattr(JobWorker, "_do", do)
    with pytest.raises(TransferError, match="the store refuses it"):
        run(count_up, tmp_path / "a", config={"n": 4}, resume="REMOTE", **copies(there))
    assert contents(tmp_path / "a") == before


def test_r12_two_starts_at_once_leave_each_other_what_they_have_fetched(tmp_path, there, monkeypatch):
    killed_at(3, count_up, path=tmp_path / "a", config={"n": 4}, **copies(there))
    begun, real = [], JobWorker._do

    def do(self, job, moved):
        answer = real(self, job, moved)
        if isinstance(job, transfer_jobs.FetchFiles) and not begun:
            begun.append(job)
            begun.append(run(count_up, tmp_path / "b", config={"n": 4}, resume="AUTO", **copies(there)))
        return answer

    monkeypatch.setattr(JobWorker, "_do", do)
    analysis = run(count_up, tmp_path / "b", config={"n": 4}, resume="AUTO", **copies(there))
    assert [trial.attempt for trial in analysis.trials] == [trial.attempt for trial in begun[1].trials]
    assert [row["training_iteration"] for row in rows(analysis.trials[0])] == [1, 2, 3, 4]
    assert [name for name in os.listdir(tmp_path / "b") if "incoming" in name] == []


# --- small files: those of ended trials come beside the run ------------------------------------------------------


@pytest.mark.parametrize("dies", [False, True], ids=["", "killed meanwhile"])
def test_the_files_of_ended_trials_come_while_others_run_and_before_the_run_ends(tmp_path, there, monkeypatch, dies):
    monkeypatch.setattr("tuner.driver.driver.FINAL_COMPACT_BYTES", 0)  # what had ended stands in a snapshot
    first = run(count_up, tmp_path / "a", num_samples=3, config={"n": 3}, **copies(there))
    run(count_up, tmp_path / "a", num_samples=4, config={"n": 3}, resume="AUTO", **copies(there))  # it goes there then
    assert any("/snapshot-" in key for key in there.keys())
    small = {
        f"{trial.dirname}/{file.name}": file.read_bytes()
        for trial in first.trials
        for file in trial.directory.iterdir()
        if file.is_file()
    }
    told, real = [], JobWorker._do

    def do(self, job, moved):
        if isinstance(job, transfer_jobs.FetchFiles) and any(name in small for name in job.names or ()):
            told.append("fetched")
            if dies and os.getpid() != me:
                die()
        return real(self, job, moved)

    class Told(tune.Callback):
        def on_trial_start(self, iteration, trials, trial, **info):
            told.append("started")

    me = os.getpid()
    monkeypatch.setattr(JobWorker, "_do", do)
    more = {"num_samples": 5, "config": {"n": 3}, "resume": "AUTO", "callbacks": [Told()], **copies(there)}
    if dies:
        assert os.WIFSIGNALED(in_child(lambda: run(count_up, tmp_path / "b", **more)))
        assert not any((tmp_path / "b" / "e" / name).exists() for name in small if name.endswith("result.json"))
    analysis = run(count_up, tmp_path / "b", **more)
    assert told[:2] == ["started", "fetched"] or dies
    for name, data in small.items():
        assert (tmp_path / "b" / "e" / name).read_bytes() == data or name.endswith("trial.json")
    assert [[row["training_iteration"] for row in rows(trial)] for trial in analysis.trials] == [[1, 2, 3]] * 5


# --- T08: readers -----------------------------------------------------------------------------------------------

WRITER = """
import os
import tuner.experiment.journal_writer as writer
writer.COMPACT_BYTES = 20_000
writer.JournalWriter.compact.__kwdefaults__["grace_s"] = 0.2  # what it replaces goes soon, here and there

def train(config):
    for n in range(config["n"]):
        if n and n % (config["n"] // 4) == 0:  # until a reader has seen what came since the last time
            gate()
        tune.report(n=n, text="x" * 50)

tune.run(train, name="e", config={"n": int(os.environ["N"])}, storage_path=os.environ["RESULTS"],
         sync_config=tune.SyncConfig(upload_dir=os.environ["WHERE"]))
"""


def read_while_written(store, endpoint, place, monkeypatch, *, readers, n):
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0.02")
    over, wrong, looks = threading.Event(), [], []
    lock, quarters = threading.Lock(), iter(range(0, n - n // 4, n // 4))
    due = next(quarters)

    def read(number):
        nonlocal due
        uploader = InlineClient({"place": store.uri})
        last, at = 0, place / f"reader{number}"
        try:
            while not over.is_set():
                remote = RemoteExperiment(uploader, store.uri, "e", timeout_s=30)
                if not remote.exists:
                    continue
                shutil.rmtree(at, ignore_errors=True)
                state = load_state(remote.fetch_journal(at))
                now = state.trials[0].iteration if state.trials else 0
                if now < last:
                    wrong.append(f"{last} results, then {now}")
                last = now
                looks.append(now)
                with lock:
                    if now > due:
                        due = next(quarters, n)
                        stage.let()
        except Exception as error:
            wrong.append(repr(error))
        finally:
            uploader.close()

    threads = [threading.Thread(target=read, args=(number,)) for number in range(readers)]
    with stage_of(place) as stage:
        stage.gate()
        stage.write(WRITER)
        script = stage.start(WHERE=store.uri, N=str(n), AWS_ENDPOINT_URL=endpoint)
        for thread in threads:
            thread.start()
        try:
            script.wait(3600)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert script.process.returncode == 0, script.output
    assert wrong == []
    assert len(set(looks)) > 2  # it was read while it grew
    assert store.state(place / "last").trials[0].iteration == n
    assert any("snapshot" in key for key in store.keys())  # and while it was compacted


def test_t08_readers_of_a_bucket_lose_nothing_while_it_is_pushed_and_compacted(tmp_path, store, direct, monkeypatch):
    read_while_written(store, direct, tmp_path, monkeypatch, readers=2, n=4000)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_t08_the_full_size(tmp_path, store, direct, monkeypatch):
    read_while_written(store, direct, tmp_path, monkeypatch, readers=8, n=100_000)
