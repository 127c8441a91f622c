"""A replica whose store is slow, refuses, hangs or is gone: what arrives, and what a run notices of it.

F19, F21, F22, F34, D14, D15, T07 and design rule R6.
"""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import iterations, restored, run, warned
from replicas import Store, Watched, copied, refusal, stage_of, start

import tuner as tune
from trainables.transfer.local import LocalBackend
from tuner import cli
from tuner.error import SyncError, TuneError


def count(config):
    """Counts to n and saves every count, with so many bytes."""
    for n in range(restored() + 1, config["n"] + 1):
        with tune.checkpoint_dir() as directory:
            Path(directory, "count").write_text(str(n))
            Path(directory, "weights").write_bytes(random.Random(n).randbytes(config.get("size", 1000)))
        tune.report(n=n, score=-abs(n - config.get("best", 2)))


class When(tune.Callback):
    """Does something, in the driver, at a result."""

    changes_results = False

    def __init__(self, iteration, action):
        self.iteration, self.action = iteration, action

    def on_trial_result(self, iteration, trials, trial, result, **info):
        if result["training_iteration"] == self.iteration:
            self.action()


def sync(store, **settings):
    return tune.SyncConfig(upload_dir=store.uri, **settings)


def all_is_there(store, analysis, place, expected):
    """By listing: the checkpoints, and the books up to their last fact."""
    assert store.iterations() == expected
    assert store.without_manifest() == set()
    there = store.state(place)
    assert [trial.status for trial in there.trials] == ["TERMINATED"] * len(analysis.trials)
    assert [trial.iteration for trial in there.trials] == [trial.iteration for trial in analysis.trials]
    keys = store.keys()
    for trial in analysis.trials:
        for name in ("result.json", "params.json", "progress.csv"):
            assert keys[f"e/{trial.dirname}/{name}"] == (Path(trial.path) / name).stat().st_size


# --- F19: slower than what is produced --------------------------------------------------------------------------


def slow(store, line, place, *, trials, size, rate, n):
    line.bytes_per_s = rate
    analysis = run(
        count,
        place,
        config={"i": tune.grid_search(list(range(trials))), "n": n, "size": size},
        checkpoint_score_attr="score",
        keep_checkpoints_num=1,
        sync_config=sync(store),
    )
    all_is_there(store, analysis, place / "books", [[2, n]] * trials)
    assert line.sent < trials * n * size  # it was really slower: some were superseded


def test_f19_everything_that_is_kept_has_arrived_when_a_run_ends(tmp_path, store, line):
    slow(store, line, tmp_path, trials=3, size=200_000, rate=400_000, n=10)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_f19_the_full_size(tmp_path, store, line):
    slow(store, line, tmp_path, trials=8, size=20_000_000, rate=4_000_000, n=30)


# --- F21: a store that never answers ----------------------------------------------------------------------------

WAITS = """
import logging
import tuner.syncer.agent_jobs as agent_jobs
import tuner.syncer.replica as replica
class Heard(logging.Handler):
    def emit(self, record):
        if "has made no progress for" in record.getMessage():
            tell("spoken", record.getMessage())
logging.getLogger("tuner").addHandler(Heard())
agent_jobs.SILENT_S = {silent}
real = replica.Replica.wait
def wait(self, until):
    tell("waiting")
    real(self, until)
replica.Replica.wait = wait
"""


def never_answers(store, line, place, *, silent, waits):
    with stage_of(place, WAITS.format(silent=silent)) as stage:
        config = {"i": {"grid_search": [1, 2]}, "n": 6, "size": 20_000}
        script = start(stage, store.uri, line.url, config=config, gated=1, sync={"sync_timeout": 3600})
        script.hear("saved", 2)
        line.silent = True
        stage.let(12)
        script.hear("done", 2)  # trials go on to their end
        heard = script.hear("spoken")
        for _ in range(waits if "waiting" in heard else waits + 1):
            script.hear("waiting", 20 if waits else 1)
        assert script.process.poll() is None
        script.send(signal.SIGINT)
        assert script.wait() == 1
        assert "SyncError" in script.output
        (spoken, *_) = [told for told in heard if told.startswith("spoken")]
        assert re.search(r"(copying|writing) \S+ has made no progress for \d+ s", spoken)
        assert f"{store.uri}/e" in spoken
        assert len(list((stage.results / "e").glob("*/checkpoint_*"))) == 12  # nothing local was lost


def test_f21_a_store_that_never_answers_delays_nobody_and_is_spoken_of(tmp_path, store, line):
    never_answers(store, line, tmp_path, silent=0.5, waits=0)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_f21_for_ten_minutes(tmp_path, store, line):
    never_answers(store, line, tmp_path, silent=25, waits=30)


def test_f21_an_operation_that_hangs_is_given_up_and_done_again(tmp_path, store, line, caplog):
    """After `sync_timeout` without progress the process that hangs is replaced; what it did is done again."""

    def hang():
        line.silent = True
        answers = threading.Timer(3, lambda: setattr(line, "silent", False))
        answers.start()
        timers.append(answers)

    timers: list[threading.Timer] = []
    settings = {"sync_config": sync(store, sync_timeout=2), "callbacks": [When(2, hang)]}
    try:
        analysis = run(count, tmp_path, config={"n": 5}, raise_on_failed_trial=False, **settings)
    except SyncError as error:
        analysis = error.analysis  # the silence was longer than it waits at the end
        analysis = run(count, tmp_path, config={"n": 5}, resume="AUTO", sync_config=sync(store))
    for timer in timers:
        timer.join()
    all_is_there(store, analysis, tmp_path / "books", [[1, 2, 3, 4, 5]])
    assert [trial.num_failures for trial in analysis.trials] == [0]
    assert warned(caplog, "is started anew")


# --- F22: errors that pass --------------------------------------------------------------------------------------


def passing_errors(store, line, watched, place, *, share, outage_s, trials, n, size):
    unlucky = random.Random(22)
    watched.before = lambda method, key, headers: refusal(503, "SlowDown") if unlucky.random() < share else None
    line.behind, line.reset_share = watched.server_port, share
    timers: list[threading.Timer] = []

    def fail():
        if not timers:
            line.outage = True
            line.cut()
            timers.append(threading.Timer(outage_s, lambda: setattr(line, "outage", False)))
            timers[0].start()

    analysis = run(
        count,
        place,
        config={"i": tune.grid_search(list(range(trials))), "n": n, "size": size},
        keep_checkpoints_num=1,
        sync_config=sync(store),
        callbacks=[When(3, fail)],
    )
    for timer in timers:
        timer.join()
    assert line.resets and timers
    assert [trial.num_failures for trial in analysis.trials] == [0] * trials
    all_is_there(store, analysis, place / "books", [[n]] * trials)


@pytest.fixture
def bad_line(watched, line, monkeypatch):
    """A bad network before a server that refuses now and then."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
    return line


def test_f22_errors_and_an_outage_fail_no_trial_and_everything_arrives(tmp_path, store, bad_line, watched):
    passing_errors(store, bad_line, watched, tmp_path, share=0.05, outage_s=2, trials=2, n=8, size=50_000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_f22_three_minutes_without_a_store(tmp_path, store, bad_line, watched):
    passing_errors(store, bad_line, watched, tmp_path, share=0.05, outage_s=180, trials=8, n=50, size=2_000_000)


def credentials(file, key):
    file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n")


def test_f22_credentials_that_expire_are_read_anew(tmp_path, store, watched, monkeypatch):
    file = tmp_path / "credentials"
    credentials(file, "OLD")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    refused = []

    def expire():
        def look(method, key, headers):
            if "Credential=OLD/" in {name.lower(): value for name, value in headers.items()}["authorization"]:
                refused.append(key)
                return refusal(400, "ExpiredToken")
            return None

        watched.before = look
        credentials(file, "NEW")

    settings = {"keep_checkpoints_num": 1, "callbacks": [When(2, expire)], "sync_config": sync(store)}
    analysis = run(count, tmp_path / "results", config={"n": 6}, **settings)
    assert refused
    assert analysis.trials[0].num_failures == 0
    all_is_there(store, analysis, tmp_path / "books", [[6]])


# --- D14, D15: what failed --------------------------------------------------------------------------------------


def test_d14_the_last_try_is_waited_for(tmp_path, store, watched, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")  # of boto3's five the pauses alone take up to 15 s
    refused = []

    def refuse(method, key, headers):
        if method == "PUT" and "checkpoint_000003/.manifest" in key and len(refused) < 3:  # more than boto3 tries
            refused.append(key)
            return refusal(503, "SlowDown")
        return None

    watched.before = refuse
    analysis = run(count, tmp_path, config={"n": 3}, keep_checkpoints_num=1, sync_config=sync(store))
    assert len(refused) == 3
    all_is_there(store, analysis, tmp_path / "books", [[3]])
    assert copied(tmp_path / "e") == [3]


def test_d15_what_failed_to_arrive_is_not_recorded_as_there(tmp_path, store, watched):
    watched.before = lambda method, key, headers: (
        refusal(403, "AccessDenied") if method == "PUT" and "checkpoint_000002/" in key else None
    )
    with pytest.raises(SyncError, match="did not arrive") as raised:
        run(count, tmp_path, config={"n": 3}, sync_config=sync(store, sync_timeout=1))
    assert any("checkpoint_000002" in line for line in raised.value.missing)
    assert not any("checkpoint_000001" in line or "checkpoint_000003" in line for line in raised.value.missing)
    assert store.iterations() == [[1, 3]]
    assert copied(tmp_path / "e") == [1, 3]
    watched.before = lambda method, key, headers: None
    run(count, tmp_path, config={"n": 3}, resume="AUTO", sync_config=sync(store))
    assert store.iterations() == [[1, 2, 3]]
    assert copied(tmp_path / "e") == [1, 2, 3]


# --- what was damaged in the store ------------------------------------------------------------------------------


@pytest.fixture
def there(tmp_path):
    """A replica in a directory."""
    (tmp_path / "there").mkdir()
    return Store(LocalBackend(tmp_path / "there"))


def held(store, kind):
    """The blob of the search space, or the segment with the first facts, over there."""
    (key, *_) = sorted(key for key in store.keys() if key.startswith("e/journal/0"))
    if kind == "blobs":
        key = f"e/blobs/{json.loads(store.backend.read('e/experiment.json'))['space_blob']}"
    return key, store.backend.read(key)


def change_a_byte(store, key, data):
    store.backend.put(key, data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])


def cut(store, key, data):
    store.backend.put(key, data[: data.rindex(b"\n", 0, -1) + 1] if "/journal/" in key else data[:-1])


def remove(store, key, data):
    store.backend.delete([key])


@pytest.mark.parametrize("damage", [change_a_byte, cut, remove])
@pytest.mark.parametrize("kind", ["blobs", "journal"])
def test_r6_what_was_damaged_over_there_is_sent_again_at_the_next_start(tmp_path, there, caplog, kind, damage):
    settings = {"config": {"n": 3}, "sync_config": sync(there), "executor": "inline"}
    run(count, tmp_path / "a", **settings)
    key, data = held(there, kind)
    damage(there, key, data)
    caplog.clear()
    run(count, tmp_path / "a", resume="AUTO", **settings)
    assert there.backend.read(key) == data
    told = 0 if (kind, damage) == ("journal", remove) else 1  # a segment that is missing may never have got there
    assert len([line for line in warned(caplog, key.partition("/")[2]) if "sent again" in line]) == told
    assert cli.main(["verify", f"{there.uri}/e"]) == 0
    caplog.clear()
    run(count, tmp_path / "a", resume="AUTO", **settings)
    assert not warned(caplog, key.partition("/")[2])


def test_r6_what_is_damaged_here_does_not_replace_what_is_whole_over_there(tmp_path, there, caplog):
    settings = {"config": {"n": 3}, "sync_config": sync(there), "executor": "inline"}
    run(count, tmp_path / "a", **settings)
    key, data = held(there, "blobs")
    (tmp_path / "a" / key).write_bytes(data[:-1])
    run(count, tmp_path / "a", resume="AUTO", **settings)
    assert len(warned(caplog, key.partition("/")[2])) == 1
    assert there.backend.read(key) == data


@pytest.mark.parametrize("damage", [change_a_byte, remove])
def test_r5_a_blob_that_nothing_has_is_named_and_missed_only_where_it_is_needed(tmp_path, there, caplog, damage):
    settings = {"config": {"n": 3}, "sync_config": sync(there), "executor": "inline"}
    run(count, tmp_path / "a", **settings)
    state = there.state(tmp_path / "books")
    settings_blob = json.loads((tmp_path / "a" / "e" / "experiment.json").read_text())["space_blob"]
    key = f"e/blobs/{settings_blob}"
    damage(there, key, there.backend.read(key))
    caplog.clear()
    (trial,) = run(count, tmp_path / "b", resume="AUTO", **settings).trials
    assert len(warned(caplog, settings_blob)) == 1
    assert (trial.status, iterations(trial)) == ("TERMINATED", [])
    assert trial.checkpoint is not None and trial.iteration == state.trials[0].iteration
    with pytest.raises(TuneError, match=f"{settings_blob} is missing"):
        tune.Tuner.restore(tmp_path / "b" / "e", count).fit()


# --- T07: the store is dead at the end --------------------------------------------------------------------------


@pytest.mark.parametrize("completed_by", ["a run", "tuner sync"])
def test_t07_a_store_that_is_dead_at_the_end_is_an_error_with_the_analysis_inside(tmp_path, store, line, completed_by):
    def die():
        line.outage = True
        line.cut()

    options = {"config": {"n": 4}, "keep_checkpoints_num": 2}
    with pytest.raises(SyncError, match="did not arrive(?s:.*)the last error: .*(reset|closed|[Cc]onnect)") as raised:
        run(count, tmp_path, sync_config=sync(store, sync_timeout=2), callbacks=[When(3, die)], **options)
    (trial,) = raised.value.analysis.trials
    assert trial.status == "TERMINATED"
    assert iterations(trial)[-2:] == [3, 4]  # nothing here was deleted but what retention let go
    assert any("checkpoint_000004" in line for line in raised.value.missing)
    assert any("journal" in line for line in raised.value.missing)
    before = store.iterations()
    line.outage = False
    assert store.iterations() == before
    if completed_by == "tuner sync":
        assert cli.main(["sync", str(tmp_path / "e")]) == 0
    else:
        (trial,) = run(count, tmp_path, resume="AUTO", sync_config=sync(store), **options).trials
        assert iterations(trial) == [3, 4]
    (trial,) = store.state(tmp_path / "books").trials
    assert (trial.status, trial.iteration) == ("TERMINATED", 4)
    assert store.iterations() == [[3, 4]]
    assert store.without_manifest() == set()


def test_t07_a_run_without_its_store_fails_no_trial(tmp_path, store, line):
    """From the first trial on nobody answers."""

    def die():
        line.outage = True
        line.cut()

    class AtStart(tune.Callback):
        def on_trial_start(self, iteration, trials, trial, **info):
            die()

    with pytest.raises(SyncError) as raised:
        run(count, tmp_path, config={"n": 3}, sync_config=sync(store, sync_timeout=1), callbacks=[AtStart()])
    (trial,) = raised.value.analysis.trials
    assert (trial.status, trial.num_failures, iterations(trial)) == ("TERMINATED", 0, [1, 2, 3])


# --- F34: what cannot be deleted --------------------------------------------------------------------------------


def is_deletion(method, path):
    return method == "DELETE" and "/checkpoint_" in path or "?delete" in path


def test_f34_a_deletion_that_is_refused_hurts_nobody_and_is_said_at_the_end(tmp_path, store, watched, caplog):
    watched.before = lambda method, key, headers: (
        refusal(403, "AccessDenied") if is_deletion(method, key.partition("\n")[0]) else None
    )
    settings = {"config": {"n": 6}, "keep_checkpoints_num": 1}
    analysis = run(count, tmp_path, sync_config=sync(store, sync_timeout=1), **settings)
    (trial,) = analysis.trials
    assert (trial.status, trial.num_failures) == ("TERMINATED", 0)
    assert 6 in store.iterations()[0]
    assert len(store.iterations()[0]) > 1  # it was really refused
    assert warned(caplog, "could not delete")
    watched.before = lambda method, key, headers: None
    run(count, tmp_path, resume="AUTO", sync_config=sync(store), **settings)
    assert store.iterations() == [[6]]  # done by the next run


def test_f34_a_deletion_that_hangs_keeps_nothing_from_arriving(tmp_path, store, watched):
    held, go_on = threading.Event(), threading.Event()

    def hold(method, path):
        if is_deletion(method, path) and "checkpoint_000001" in path:
            held.set()
            go_on.wait(60)

    watched.hold = hold
    with stage_of(tmp_path) as stage:
        config = {"i": {"grid_search": [1, 2]}, "n": 4}
        script = start(stage, store.uri, watched.url, config=config, gated=1, keep_checkpoints_num=1)
        watched.wait_for("checkpoint_000001/.manifest.json", script)
        stage.let(8)
        script.hear("done", 2)
        assert held.wait(60)
        go_on.set()
        script.ends_well()
    assert store.iterations() == [[4], [4]]
    assert store.without_manifest() == set()


# --- bad input at the start -------------------------------------------------------------------------------------


def never_run(config):
    raise AssertionError("no trial may start")


@pytest.fixture
def nobody():
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def unknown_scheme(place, case):
    return f"s4://{place}", "'s4' is not known.*s3://"


def missing_bucket(place, case):
    return "s3://never-made/runs", "no such bucket: create it"


def refused_credentials(place, case):
    case.watched.before = lambda method, key, headers: refusal(403, "InvalidAccessKeyId")
    case.monkeypatch.setenv("AWS_ENDPOINT_URL", case.watched.url)
    return case.store.uri, "InvalidAccessKeyId.*AWS_ACCESS_KEY_ID"


def unreachable_host(place, case):
    case.monkeypatch.setenv("AWS_ENDPOINT_URL", case.nobody)
    return case.store.uri, "cannot be reached.*AWS_ENDPOINT_URL"


def silent_server(place, case):
    case.line.silent = True
    case.monkeypatch.setenv("AWS_ENDPOINT_URL", case.line.url)
    return case.store.uri, "does not answer|did not answer"


def directory_that_is_a_file(place, case):
    place.mkdir()
    (place / "file").write_text("")
    return str(place / "file"), "file"


class Case:
    def __init__(self, store, line, watched, nobody, monkeypatch):
        self.store, self.line, self.watched, self.nobody, self.monkeypatch = store, line, watched, nobody, monkeypatch


@pytest.fixture
def case(store, line, watched, nobody, direct, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", direct)
    return Case(store, line, watched, nobody, monkeypatch)


@pytest.mark.timeout(40)
@pytest.mark.parametrize(
    "bad",
    [unknown_scheme, missing_bucket, refused_credentials, unreachable_host, silent_server, directory_that_is_a_file],
    ids=lambda bad: bad.__name__,
)
def test_a_place_that_cannot_be_used_is_an_error_before_the_first_trial(tmp_path, case, bad):
    place, said = bad(tmp_path / "place", case)
    with pytest.raises((TuneError, OSError, ValueError), match=f"(?s){said}"):
        run(never_run, tmp_path / "results", sync_config=tune.SyncConfig(upload_dir=place))
    assert not (tmp_path / "results" / "e").exists()
    assert case.store.keys() == {}
    assert isinstance(case.watched, Watched)
