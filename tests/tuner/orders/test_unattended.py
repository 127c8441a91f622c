"""Notes, pins and tags where no driver lives: done once whatever is killed, beside others, and in a bucket."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.replicated import counts, ran
from trainables.store import fs
from tuner.clock import SystemClock
from tuner.error import ExperimentNotFoundError, OrderError
from tuner.experiment.generations import read_records
from tuner.experiment.journal import read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state
from tuner.orders.giving import give
from tuner.orders.mailbox import Mailbox
from tuner.syncer import views
from tuner.syncer.brief_owner import owned_briefly

CHANGING = ("rename", "link", "unlink", "write", "create", "fsync", "fdatasync", "mkdir", "chmod", "truncate")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(None, tmp_path_factory.mktemp("source"))


@pytest.fixture
def ended(source: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(source, tmp_path / "mine"))


def notes(root: Path) -> list[str]:
    return [note.text for trial in load_state(ExperimentPaths(root)).trials for note in trial.notes]


def in_a_process(work: Callable[[], object]) -> int:
    """Do it in a process of its own, whose id is returned; it ends without a word."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def killed(until: int, work: Callable[[], object]) -> bool:
    """Do it in a process that is killed before its `until`-th change of the disk; whether it came to its end."""
    count = 0

    def counted(real: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count > until:
                os._exit(9)
            return real(*arguments, **more)

        return call

    def patched() -> None:
        for name in CHANGING:
            setattr(fs, name, counted(getattr(fs, name)))
        work()

    return os.waitstatus_to_exitcode(os.waitpid(in_a_process(patched), 0)[1]) == 0


def test_they_are_done_at_once_and_kept(ended: Path) -> None:
    assert give(ended, {"order": "note", "trial": "0", "text": "flat"}).state == "done"
    assert give(ended, {"order": "tag", "trial": "1", "iteration": 3, "tag": "good"}).why == "checkpoint_000003"
    refused = give(ended, {"order": "tag", "trial": "0", "iteration": 3, "tag": "good"})
    assert refused.state == "refused" and "unpin that first" in refused.why
    assert "no checkpoint of iteration 9" in give(ended, {"order": "pin", "trial": "0", "iteration": 9}).why
    assert "there is no trial '9'" in give(ended, {"order": "pin", "trial": "9", "iteration": 1}).why
    state = load_state(ExperimentPaths(ended))
    assert notes(ended) == ["flat"] and [record.tags for record in state.trials[1].checkpoints] == [[], [], ["good"]]
    assert state.run_ended == "finished" and state.pinned == {(state.trials[1].trial_id, (1, 1, 3))}
    assert give(ended, {"order": "unpin", "trial": "1", "iteration": 3}).state == "done"
    analysis = tune.run(counts, **settings(ended), resume="AUTO")
    assert load_state(ExperimentPaths(ended)).pinned == set() and [note.text for note in analysis.trials[0].notes]


def settings(root: Path) -> dict[str, Any]:
    return {
        "name": root.name,
        "storage_path": root.parent,
        "config": {"i": tune.grid_search([0, 1])},
        "metric": "n",
        "executor": "inline",
        "verbose": 0,
    }


def test_killed_before_any_change_of_the_disk_an_order_is_done_once(source: Path, tmp_path: Path) -> None:
    """Then somebody gives the same order again, or another one."""
    note, until, whole = {"order": "note", "trial": "0", "text": "one"}, 0, False
    while not whole:
        root = Path(shutil.copytree(source, tmp_path / f"killed-{until}" / "mine"))
        whole = killed(until, lambda root=root: give(root, note, order_id="first-order"))
        in_place = Mailbox(root).is_waiting("first-order") or "first-order" in load_state(ExperimentPaths(root)).orders
        if until % 2:
            assert give(root, note, order_id="first-order").state == "done"
            assert notes(root) == ["one"]
        else:
            assert give(root, {"order": "note", "trial": "1", "text": "two"}).state == "done"
            assert notes(root) == (["one", "two"] if in_place else ["two"])
        assert read_journal(ExperimentPaths(root)).damaged == []
        assert not Mailbox(root).waiting()
        shutil.rmtree(root.parent)
        until += 1
    assert until > 20


def test_of_many_at_once_beside_a_driver_that_starts_each_is_done_once(ended: Path) -> None:
    def say(number: int) -> None:
        order = give(ended, {"order": "note", "trial": "0", "text": f"note {number}"})
        os._exit(0 if order.wait(30) == "done" else 1)

    callers = [in_a_process(lambda number=number: say(number)) for number in range(8)]
    tune.run(counts, **settings(ended), resume="AUTO", num_samples=2)
    assert [os.waitpid(caller, 0)[1] for caller in callers] == [0] * 8
    assert sorted(notes(ended)) == [f"note {number}" for number in range(8)]
    journal = read_journal(ExperimentPaths(ended))
    assert journal.damaged == [] and len(journal.chain) == len({link.generation for link in journal.chain})


def test_what_waits_for_a_driver_waits_on(ended: Path) -> None:
    mailbox = Mailbox(ended)
    mailbox.put("other-order", b'{"order": "retry", "trial": "0"}')
    mailbox.put("no-order-at-all", b"rubbish")
    mailbox.put("older-order", b'{"order": "note", "trial": "1", "text": "older"}')
    give(ended, {"order": "note", "trial": "0", "text": "newer"})
    assert {letter.id for letter in mailbox.waiting()} == {"other-order", "no-order-at-all"}
    assert notes(ended) == ["newer", "older"]


def test_a_killed_run_is_still_one(ended: Path) -> None:
    paths = ExperimentPaths(ended)
    (segment,) = paths.journal.glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(line for line in lines if b'"run_ended"' not in line))
    give(ended, {"order": "note", "trial": "0", "text": "why?"})
    assert load_state(paths).run_ended == "killed"
    with pytest.raises(OrderError, match=r"was killed\): start it \(the same call with name='\w+' and resume=\"AUTO\""):
        give(ended, {"order": "stop", "trial": "all"})
    (ended / "config.yaml").touch()
    with pytest.raises(
        OrderError, match=re.escape(f"start it with `tuner resume {shlex.quote(str(ended))}`, or --if-dead wait")
    ):
        give(ended, {"order": "stop", "trial": "all"})


# --- copies ---------------------------------------------------------------------------------------------------------


def test_its_replica_has_it_too_and_is_claimed_first(tmp_path: Path) -> None:
    bucket = str(tmp_path / "share")
    root = ran(bucket, tmp_path)
    assert give(root, {"order": "note", "trial": "0", "text": "flat"}).state == "done"
    settings, state = views.load(f"{bucket}/mine")
    assert [note.text for note in state.trials[0].notes] == ["flat"] and state.run_ended == "finished"
    assert "released" in beat(bucket, read_records(ExperimentPaths(root))[-1].generation)
    shutil.copytree(root, tmp_path / "older" / "mine")
    give(root, {"order": "note", "trial": "1", "text": "steep"})
    with pytest.raises(OrderError, match="continues what is at"):
        give(tmp_path / "older" / "mine", {"order": "note", "trial": "0", "text": "late"})
    assert not Mailbox(tmp_path / "older" / "mine").waiting()


def beat(bucket: str, generation: int) -> str:
    with views.opened(f"{bucket}/mine") as remote:
        return remote.read(f"generations/{generation:06d}.beat").decode()


def test_where_the_replica_cannot_be_claimed_nothing_is_done(ended: Path) -> None:
    paths = ExperimentPaths(ended)
    description = json.loads(paths.experiment_json.read_text())
    for more, said in (
        ({"upload_dir": str(ended / "experiment.json" / "no")}, "has to be claimed too and cannot be"),
        ({"sync_command": {"upload_dir": "x", "syncer": None}}, "by a command, code or with a password"),
    ):
        paths.experiment_json.write_text(json.dumps(description | more))
        with pytest.raises(OrderError, match=said):
            give(ended, {"order": "note", "trial": "0", "text": "flat"})
        assert not Mailbox(ended).waiting()
    assert give(ended, {"order": "note", "trial": "0", "text": "flat"}, if_dead="wait").state == "waiting"
    assert notes(ended) == []


def test_of_an_experiment_in_a_bucket_it_is_done_there(bucket: str, tmp_path: Path) -> None:
    root, uri = ran(bucket, tmp_path), f"{bucket}/mine"
    note = {"order": "note", "trial": "0", "text": "far away"}
    with views.opened(uri) as remote:
        before = {key for key in remote.keys if "/" in key and not key.startswith(("journal", "generations"))}
    assert give(uri, note, order_id="far-order").wait() == "done"
    generation = max(record.generation for record in _records(uri))
    assert give(uri, note, order_id="far-order").state == "done"  # it is known, and nothing is claimed for it
    assert max(record.generation for record in _records(uri)) == generation
    tag = tune.open_experiment(uri).tag("1@3", "good")
    assert (tag.state, tag.why) == ("done", "checkpoint_000003")
    with views.opened(uri) as remote:
        assert {key for key in remote.keys if "/" in key and not key.startswith(("journal", "generations"))} == before
    analysis = tune.run(counts, **settings(root), resume="AUTO", sync_config=tune.SyncConfig(upload_dir=bucket))
    assert [note.text for note in analysis.trials[0].notes] == ["far away"]
    assert [record.tags for record in analysis.trials[1].checkpoints] == [[], [], ["good"]]
    for each, kind in (({"order": "stop", "trial": "0"}, OrderError), (note, ExperimentNotFoundError)):
        with pytest.raises(kind, match="none runs it: `tuner sync mine --from|there is no experiment"):
            give(uri if kind is OrderError else f"{bucket}/other", each)


def _records(uri: str) -> list[Any]:
    with views.view(uri) as paths:
        return read_records(paths)


def test_behind_a_copy_a_live_owner_is_named(tmp_path: Path) -> None:
    bucket = str(tmp_path / "share")
    root, uri = ran(bucket, tmp_path), f"{bucket}/mine"
    config = tune.SyncConfig(upload_dir=bucket)
    with owned_briefly(ExperimentPaths(root), config, clock=SystemClock(), inline=True):
        for order in ({"order": "stop", "trial": "0"}, {"order": "note", "trial": "0", "text": "no"}):
            with pytest.raises(OrderError, match=rf"pid {os.getpid()} on .*in the directory where it runs"):
                give(uri, order)
    assert notes(root) == []
    assert give(uri, {"order": "note", "trial": "0", "text": "over there"}).state == "done"
    assert notes(Path(uri)) == ["over there"] and notes(root) == [] and not ExperimentPaths(Path(uri)).orders.exists()
