"""The agent of a host: what it looks at, what it does of the driver's orders, and that nothing of it is left."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest
from driving import SCRIPTS, script_environment

from trainables.errors import TransferError
from trainables.store import publish, staging, verify
from trainables.transfer import transfer_jobs
from trainables.wire import CheckpointRef
from tuner.executors.host_agent.line import connect
from tuner.executors.host_agent.protocol import RESTORED, KillTrial, Setup, pack_orders
from tuner.executors.host_agent.service import HostAgent
from tuner.executors.local.pickled import write_trainable
from tuner.executors.remote_hosts import ExperimentPlace, Uploading

PATIENCE_S = 60.0


def checkpoint(root: Path, number: int = 1) -> Path:
    trial = root / "t"
    trial.mkdir(parents=True, exist_ok=True)
    ref = CheckpointRef("e_0", f"checkpoint_{number:06d}", 1, 1, number, number)
    staged = staging.new_directory(trial, str(number))
    (staged / "weights").write_text("w")
    return publish.commit(
        publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b"{}"), created=1e9), trial / ref.name
    ).path


@pytest.fixture
def heard() -> queue.SimpleQueue[Any]:
    return queue.SimpleQueue()


@pytest.fixture
def agent(heard: queue.SimpleQueue[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[HostAgent]:
    before = Path.cwd()
    monkeypatch.setattr(HostAgent, "_watch_driver", lambda agent: None)  # it would end this very process
    agent = HostAgent("127.0.0.1", lambda said: [heard.put(each) for each in said] and None)
    yield agent
    agent.end()
    if agent._line is not None:
        agent._line._socket.close()  # as the end of its process does
    os.chdir(before)


def place_of(tmp_path: Path, *older: str) -> ExperimentPlace:
    return ExperimentPlace(tmp_path / "e", tmp_path / "record", "the-owner", "e", older)


# --- looking ---------------------------------------------------------------------------------------------------


def test_what_lies_here_is_told_and_what_a_killed_save_left_is_removed(agent: HostAgent, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "e")
    (path.parent / ".staging-2-00000000").mkdir()
    found = agent.look(place_of(tmp_path), "agent-1", frozenset())
    assert not found.shared and found.problem == ""
    assert [(dirname, ref.name) for dirname, ref, _ in found.found] == [("t", path.name)]
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_save_of_a_trial_that_runs_elsewhere_is_left_alone(agent: HostAgent, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "e")
    (path.parent / ".staging-2-00000000").mkdir()
    agent.look(place_of(tmp_path), "agent-1", frozenset({"t"}))
    assert (path.parent / ".staging-2-00000000").is_dir()


def test_what_is_left_of_older_owners_is_ended(agent: HostAgent, tmp_path: Path, watch: Any) -> None:
    old = subprocess.Popen(["sleep", "1000"], env={**os.environ, "TUNER_OWNER": "the-older"})
    other = subprocess.Popen(["sleep", "1000"], env={**os.environ, "TUNER_OWNER": "somebody"})
    try:
        agent.look(place_of(tmp_path, "the-older"), "agent-1", frozenset())
        assert old.wait(PATIENCE_S) == -9 and other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_files_of_the_experiment_are_read_and_deleted_on_request(agent: HostAgent, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "e")
    agent.look(place_of(tmp_path), "agent-1", frozenset())
    (found,) = verify.list_checkpoints(path.parent)
    assert agent.check(path, found.digest) in (None, "")
    (path / "weights").write_text("W")
    assert agent.check(path, found.digest), "it says what is wrong"
    other = checkpoint(tmp_path / "e", 2)
    assert agent.delete(other) and not other.exists()


# --- copies -------------------------------------------------------------------------------------------------------


def test_a_place_is_opened_once_and_does_what_it_is_asked(agent: HostAgent, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "e")
    there = tmp_path / "there"
    there.mkdir()
    uploading = cloudpickle.dumps(Uploading({"place": str(there)}, 30.0, needed=True))
    assert not agent.uploads
    agent.open_uploads(uploading)
    assert agent.uploads
    job = transfer_jobs.PushPayload(directory=str(path), key="e/t/c")
    msgspec.json.decode(agent.upload(msgspec.json.encode(job)), type=transfer_jobs.Done)
    assert (there / "e/t/c/weights").read_text() == "w"


def test_a_place_that_cannot_be_used_says_why_and_is_tried_again(agent: HostAgent, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    uploading = cloudpickle.dumps(Uploading({"place": str(tmp_path / "there")}, 30.0, needed=True))
    with pytest.raises((TransferError, OSError)):
        agent.open_uploads(uploading)
    assert not agent.uploads
    (tmp_path / "there").unlink()
    agent.open_uploads(uploading)
    assert agent.uploads


# --- trials -------------------------------------------------------------------------------------------------------


def test_who_has_begun_is_reached_by_its_line_and_leaves_nothing(agent: HostAgent, tmp_path: Path) -> None:
    (tmp_path / "written").mkdir()
    (tmp_path / "e" / RESTORED).mkdir(parents=True)
    agent.look(place_of(tmp_path), "agent-1", frozenset())
    written = write_trainable(lambda config: None, tmp_path / "written")
    setup = Setup(written.imports, "the-owner", tmp_path / "tmp", tmp_path)
    line = connect(agent.begin(setup, written.path.read_bytes(), b""))
    assert line is not None and Path.cwd() == tmp_path
    until = time.monotonic() + PATIENCE_S
    while agent._line is None and time.monotonic() < until:  # its door lets in whom it has answered
        time.sleep(0.01)
    line.send(pack_orders([KillTrial("nobody")]))  # is no error
    agent.end()
    assert not (tmp_path / "e" / RESTORED).exists()
    assert not (tmp_path / "tmp").exists() or list((tmp_path / "tmp").iterdir()) == []


def test_an_agent_that_is_ended_before_it_began_begins_no_more(agent: HostAgent, tmp_path: Path) -> None:
    agent.end()
    setup = Setup({}, "the-owner", tmp_path / "tmp", tmp_path)
    agent.begin(setup, b"not even a pickle", b"")
    assert agent._runner is None and not (tmp_path / "tmp").exists()


@pytest.mark.timeout(200)
@pytest.mark.parametrize("what", ["orders", "end"])
def test_an_agent_whose_trial_writes_more_than_the_driver_reads_still_does_what_it_is_told(
    tmp_path: Path, what: str
) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPTS / "agent_with_a_loud_trial.py", tmp_path, what],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        env=script_environment(),
    )
    assert done.stdout.splitlines() == ["held up", "ended"], done.stderr
