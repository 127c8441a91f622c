"""Where a driver of a session is found, by whom, and what is said where it is not."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner as tune
from tests.tuner.asking.callers import callers, kill_driver
from tests.tuner.asking.test_ask_session import SPACE, opened
from tuner.asking import ask_session
from tuner.asking.caller_door import RemoteCallerDoor
from tuner.asking.driver_address import elsewhere_of, is_elsewhere, is_gone, knock, owner_of, read_address
from tuner.error import OwnedElsewhereError, SettingError
from tuner.executors.callers.caller_words import LetIn
from tuner.experiment.paths import ExperimentPaths


def test_the_driver_of_another_host_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        session.ask().report({"a": 1})
        for record in (tmp_path / "s" / "generations").glob("0*.json"):
            there = record.read_text().replace(f'"host":"{socket.gethostname()}"', '"host":"gpu07"')
            elsewhere = tmp_path / "copy" / "s" / "generations"
            elsewhere.mkdir(parents=True)
            (elsewhere / record.name).write_text(there)
        paths = ExperimentPaths(tmp_path / "copy" / "s")
        error = elsewhere_of(owner_of(paths), paths, OwnedElsewhereError("owned"))
        assert "lives on gpu07" in str(error) and "open the session there" in str(error)


def test_who_is_of_another_user_is_not_let_in(tmp_path: Path) -> None:
    with opened(tmp_path):
        address = json.loads((tmp_path / "s" / "generations" / "session.json").read_text())
        assert os.stat(Path(address["door"]).parent).st_mode & 0o777 == 0o700
        if os.geteuid() == 0:
            if (pid := os.fork()) == 0:
                os.setuid(65534)
                door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                os._exit(0 if door.connect_ex(address["door"]) else 1)
            assert os.waitpid(pid, 0)[1] == 0


def test_a_driver_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    paths = ExperimentPaths(tmp_path / "s")
    assert read_address(paths) is None and knock(paths) is None and owner_of(paths) is None
    with opened(tmp_path) as session:
        session.ask()
        door = knock(paths)
        assert door is not None
        door.close()
        owner = owner_of(paths)
        assert owner is not None and not is_elsewhere(owner, paths)
    paths.session_json.write_bytes(b"{")
    assert read_address(paths) is None and knock(paths) is None


def test_another_path_of_the_experiment_is_refused_before_a_trial_is_handed_out(tmp_path: Path) -> None:
    with opened(tmp_path):
        paths, other = ExperimentPaths(tmp_path / "s"), ExperimentPaths(tmp_path / "t")
        address = read_address(paths)
        assert address is not None
        other.session_json.parent.mkdir(parents=True)
        other.session_json.write_bytes(msgspec.json.encode(address))
        with pytest.raises(OwnedElsewhereError, match="with one storage_path"):
            knock(other)


@pytest.mark.parametrize("given", ["192.0.2.7", "127.0.0.1:80", "2001:db8::1", "no such name", "x" * 300])
def test_an_address_that_is_none_of_this_host_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("TUNE_SESSION_ADDRESS", given)
    with pytest.raises(SettingError, match=f"TUNE_SESSION_ADDRESS='{given[:50]}"):
        opened(tmp_path)


def test_other_hosts_are_let_in_at_the_address_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("127.0.0.1", "::1"):
        monkeypatch.setenv("TUNE_SESSION_ADDRESS", given)
        with opened(tmp_path):
            address = read_address(ExperimentPaths(tmp_path / "s"))
            assert address is not None and address.far is not None and address.far[0] == given
            door = RemoteCallerDoor(address.far, bytes.fromhex(address.key))
            assert isinstance(door.hear(), LetIn)
            door.close()
    monkeypatch.setenv("TUNE_SESSION_ADDRESS", "none")
    with opened(tmp_path):
        address = read_address(ExperimentPaths(tmp_path / "s"))
        assert address is not None and address.far is None and not address.key


def test_an_owner_that_dies_between_two_looks_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = ask_session.start_driver, []

    def refused_once(*args: Any, **how: Any) -> Any:
        if refused:
            return real(*args, **how)
        refused.append(owner_of(ExperimentPaths(tmp_path / "s")))
        kill_driver(tmp_path)
        raise OwnedElsewhereError("another driver has it")

    with callers(tmp_path, {"num_samples": 2}) as [first]:
        trial = first.do("ask")["trial"]
        monkeypatch.setattr(ask_session, "start_driver", refused_once)
        monkeypatch.setattr(ask_session, "knock", lambda paths: None if not refused else knock(paths))
        with tune.open_session("s", config=SPACE, num_samples=2, storage_path=tmp_path) as session:
            assert [is_gone(owner.owner) for owner in refused] == [True]
            assert session.ask(wait=True).trial_id != trial
            monkeypatch.undo()
            assert first.do("report", total=1) == "continue"
