"""The place for copies as a start reaches it: what is refused, what is said, and that it is tried before anything."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.opening.harness import Opening, ran, train
from trainables.errors import InvalidSettingError, TransferError
from trainables.transfer.client import InlineClient, ProcessClient
from tuner.error import SettingError
from tuner.opening.reach import ReplicaConnection, check_apart, connect
from tuner.spec import Spec

COMMAND = "cp -a {source}/. {target}"


def spec_of(storage: Path, **copies: Any) -> Spec:
    return Spec(trainable=train, name="e", storage_path=storage, sync_config=tune.SyncConfig(**copies))


def reached(
    storage: Path, *, hosts: bool = False, inline: bool = True, wake: Callable[[], None] = lambda: None, **copies: Any
) -> ReplicaConnection | None:
    return connect(spec_of(storage, **copies), inline=inline, wake=wake, hosts=hosts)


# --- no copies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("copies", "hosts", "said"),
    [
        ({}, False, ""),
        ({}, True, ""),
        ({"syncer": None}, False, ""),
        ({"upload_dir": "somewhere", "syncer": None}, False, "upload_dir='somewhere' is not used: syncer=None"),
        ({"syncer": COMMAND}, False, "has nothing to copy: on one machine"),
        ({"syncer": COMMAND}, True, ""),  # what hosts have comes here by it
    ],
)
def test_without_copies_there_is_no_connection_and_what_has_no_effect_is_said(
    copies: dict[str, Any], hosts: bool, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert reached(tmp_path, hosts=hosts, **copies) is None
    assert [said in text for text in caplog.messages] == ([True] if said else [])


def test_keep_local_without_copies_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="keep_local=2 is not accepted without upload_dir="):
        reached(tmp_path, keep_local=2)


# --- copies that would lie with what they are copies of ----------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("runs", "is where the experiment itself lies"),
        ("runs/../runs", "is where the experiment itself lies"),
        ("runs/e", "lies within the experiment's own directory"),
        ("runs/e/copies", "lies within the experiment's own directory"),
        ("runs/else", ""),
        ("runs/e2", ""),
        ("copies", ""),
        ("memory://runs", ""),
    ],
)
def test_copies_need_another_place(place: str, problem: str, tmp_path: Path) -> None:
    storage = tmp_path / "runs"
    upload_dir = place if "://" in place else str(tmp_path / place)
    if not problem:
        check_apart(spec_of(storage, upload_dir=upload_dir))
        return
    for check in (check_apart, lambda spec: connect(spec, inline=True, wake=lambda: None, hosts=False)):
        with pytest.raises(SettingError, match=problem):
            check(spec_of(storage, upload_dir=upload_dir))
    assert not storage.exists()


def test_a_link_to_the_experiment_is_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    with pytest.raises(SettingError, match="is where the experiment itself lies"):
        check_apart(spec_of(tmp_path / "runs", upload_dir=str(tmp_path / "link")))


# --- the way there --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inline", "kind"), [(True, InlineClient), (False, ProcessClient)])
def test_the_work_is_done_beside_the_driver_unless_all_of_it_is_in_one_thread(
    inline: bool, kind: type, tmp_path: Path
) -> None:
    connection = reached(tmp_path / "here", inline=inline, upload_dir=str(tmp_path / "there"))
    assert connection is not None and type(connection.uploader) is kind
    assert connection.remote("e").uri == f"{connection.uploader.uri}/e" and not connection.remote("e").exists
    assert connection.limits == []
    connection.uploader.close()


def test_what_lies_in_memory_is_reached_from_this_process(tmp_path: Path) -> None:
    connection = reached(tmp_path, inline=False, upload_dir="memory://reach/runs")
    assert connection is not None and isinstance(connection.uploader, InlineClient)


def test_an_address_that_nothing_can_reach_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="SyncConfig: upload_dir"):
        reached(tmp_path / "here", upload_dir="nothing://bucket/runs")
    assert not (tmp_path / "here").exists()


def test_a_place_that_takes_nothing_is_found_out_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises((TransferError, SettingError)) as caught:
        reached(tmp_path / "here", upload_dir=str(tmp_path / "file"))
    assert str(tmp_path / "file") in str(caught.value)


def test_keep_local_is_refused_where_nobody_looks_whether_copies_arrived(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="does not look whether everything arrived"):
        reached(tmp_path / "here", keep_local=1, upload_dir=str(tmp_path / "there"), syncer=COMMAND)
    assert reached(tmp_path / "here", upload_dir=str(tmp_path / "there"), syncer=COMMAND) is not None


# --- what it cannot do, and giving it up ---------------------------------------------------------------------------


def test_what_a_place_cannot_do_is_said_one_line_each(tmp_path: Path) -> None:
    connection = reached(tmp_path / "here", upload_dir=str(tmp_path / "there"))
    assert connection is not None
    can = connection.uploader.can
    for exclusive, delete, lines in ((True, True, 0), (False, True, 1), (True, False, 1), (False, False, 2)):
        connection.uploader.can = replace(can, exclusive=exclusive, delete=delete)
        assert len(connection.limits) == lines
        assert all(line.startswith(connection.uploader.uri) for line in connection.limits)


def test_who_gives_up_says_so_there_and_the_next_start_does_not_wait(tmp_path: Path) -> None:
    place = tmp_path / "there"
    ran(tmp_path / "here", place)
    owned = Opening(tmp_path / "here", place, resume="AUTO").start()
    assert owned is not None and owned.replica is not None
    connection, remote = owned.replica.connection, owned.replica.remote
    connection.give_up(remote, owned.ownership)
    assert any(b"released" in path.read_bytes() for path in (place / "e" / "generations").iterdir())


def test_where_it_cannot_be_said_any_more_a_line_of_the_log_says_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(tmp_path / "here", tmp_path / "there")
    owned = Opening(tmp_path / "here", tmp_path / "there", resume="AUTO").start()
    assert owned is not None and owned.replica is not None
    connection, remote = owned.replica.connection, owned.replica.remote

    def fails(job: Any, *, timeout_s: float) -> bytes:
        raise TransferError("no connection")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(connection.uploader, "call", fails)
        connection.give_up(remote, owned.ownership)
    assert caplog.messages[-1] == f"{remote.uri}: not released: no connection"
    connection.uploader.close()
    said = len(caplog.messages)
    connection.give_up(remote, owned.ownership)  # the way there is closed: nothing more to say
    assert len(caplog.messages) == said
