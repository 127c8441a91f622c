"""What an agent has on its host only while it runs, and who removes it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuner.executors import RayExecutor
from tuner.executors.host_agent.protocol import OWNER_FILE, Setup
from tuner.executors.host_agent.scratch import Cleaner, leave_temporary, take_temporary
from tuner.executors.ray import connection

AGENT = """
import sys
from pathlib import Path
from tuner.executors.host_agent.scratch import Cleaner
cleaner = Cleaner(Path(sys.argv[1]), Path(sys.argv[2]))
print("ready", flush=True)
if sys.stdin.readline():
    cleaner.end()
"""


def setup(run: Path, name: str) -> Setup:
    return Setup({}, "0123abcd.node", run / name, Path("/"))


@pytest.mark.parametrize("killed", [True, False])
def test_r10_a_killed_agents_directories_go_and_those_above_stay(tmp_path: Path, killed: bool) -> None:
    home, temporary = tmp_path / "home", tmp_path / "run" / "1-0123"
    for directory in (home, temporary):
        (directory / "deep").mkdir(parents=True)
        (directory / "deep" / "-rf file").touch()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", AGENT, str(home), str(temporary)], text=True, **pipes) as agent:
        assert agent.stdin is not None and agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        if killed:
            agent.send_signal(signal.SIGKILL)
        else:
            agent.stdin.write("end\n")
            agent.stdin.flush()
        agent.wait()

    deadline = time.monotonic() + 10
    while killed and (home.exists() or temporary.exists()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert home.exists() == temporary.exists() == (not killed)
    assert temporary.parent.is_dir()


def test_an_agent_whose_cleaner_was_killed_ends_all_the_same(tmp_path: Path) -> None:
    cleaner = Cleaner(tmp_path / "home", tmp_path / "temporary")
    (pid,) = [int(pid) for pid in filter(str.isdigit, os.listdir("/proc")) if str(tmp_path / "home") in command(pid)]
    watched = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([watched], [], [], 10)[0]
    os.close(watched)
    cleaner.end()


def command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize("sees", [True, False])
def test_what_dead_agents_left_goes_where_the_driver_could_not_remove_it(tmp_path: Path, sees: bool) -> None:
    run = tmp_path / ".tmp" / "e"
    alive = take_temporary(setup(run, "1-0123"))
    assert alive is not None
    (run / "2-9999").mkdir()
    (run / "2-9999" / "left").touch()
    (run / OWNER_FILE).write_text("0123abcd" if sees else "99999999")

    mine = take_temporary(setup(run, "3-0123"))

    left = {"2-9999", OWNER_FILE} if sees else set()
    assert {path.name for path in run.iterdir()} == {"1-0123", "3-0123"} | left
    leave_temporary(setup(run, "1-0123"), alive)
    leave_temporary(setup(run, "3-0123"), mine)
    assert run.exists() == sees
    assert (tmp_path / ".tmp").exists() == sees


def test_a_run_does_without_the_empty_directory_that_an_older_owners_agent_took_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    left = setup(run, "1-0123")
    leave_temporary(left, take_temporary(left))
    assert not run.exists()
    cluster = RayExecutor().remote_hosts
    monkeypatch.setattr(connection, "load", lambda: SimpleNamespace(put=lambda data: data))
    monkeypatch.setattr(cluster, "_nodes", SimpleNamespace(begin=lambda *_: None))
    cluster.begin(len, "99999999", run)
    assert (run / OWNER_FILE).read_text() == "99999999"
