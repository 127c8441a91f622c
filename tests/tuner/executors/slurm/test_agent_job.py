"""How the agent of a job finds its driver, and what it says of itself."""

from __future__ import annotations

import os
import queue
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.executors.host_agent.line import AgentLine
from tuner.executors.slurm.agent_job import describe
from tuner.executors.slurm.agent_listener import address_of, listen_for_agents, routing_to
from tuner.executors.slurm.meeting import UNOWNED, UNSEEN, AgentHello, Owner, owner_file, read_owner, write_owner

PATIENCE_S = 60.0


def start(file: Path, *arguments: object, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tuner.executors.slurm.agent_job", str(file), *map(str, arguments)]
    return subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE)


def test_what_slurm_says_is_what_it_has() -> None:
    said = {"SLURM_JOB_ID": "12", "SLURM_CPUS_ON_NODE": "4", "SLURM_MEM_PER_NODE": "1000", "SLURM_JOB_GPUS": "0,2"}
    found = describe({**said, "SLURM_JOB_END_TIME": "1700000000"}, 3)
    assert found.job == "12"
    assert found.resources == {"cpu": 4.0, "gpu": 2.0, "memory": 1000 * 2**20}
    assert found.gpus == ("0", "2")
    assert found.end == 1700000000.0
    task = describe({**said, "SLURM_ARRAY_JOB_ID": "11", "SLURM_ARRAY_TASK_ID": "1", "SLURM_MEM_PER_CPU": "500"}, 3)
    assert task.job == "11_1"
    assert task.end is None
    seen = describe({**said, "CUDA_VISIBLE_DEVICES": "0,1"}, 3)  # a cgroup numbers them anew
    assert seen.gpus == ("0", "1")


def test_only_the_user_reads_the_file_with_the_key(tmp_path: Path) -> None:
    owner = Owner(4, "127.0.0.1", 99, b"secret")
    path = tmp_path / "driver.json"
    write_owner(path, owner)
    assert read_owner(path) == owner
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["driver.json"]
    path.write_text("{")
    assert read_owner(path) is None
    assert read_owner(tmp_path / "none") is None


def test_an_agent_comes_to_its_driver_and_goes_with_it(tmp_path: Path) -> None:
    came: queue.SimpleQueue[tuple[AgentHello, AgentLine]] = queue.SimpleQueue()
    listener = listen_for_agents("127.0.0.1", lambda hello, ip, line: came.put((hello, line)))
    file = owner_file(tmp_path)
    file.parent.mkdir()
    write_owner(file, Owner(2, listener.ip, listener.port, listener.key))
    with start(file, 2, SLURM_JOB_ID="9") as agent:
        try:
            hello, line = came.get(timeout=PATIENCE_S)
            assert (hello.job, hello.generation) == ("9", 2)
            line.close()
            assert agent.wait(PATIENCE_S) == 1
        finally:
            agent.kill()
    listener.close()


def test_a_job_of_a_driver_that_is_gone_ends(tmp_path: Path) -> None:
    file = owner_file(tmp_path)
    with start(file, 1) as agent:
        assert agent.stderr is not None
        assert b"does not see" in agent.stderr.read()
    assert agent.returncode == UNSEEN
    file.parent.mkdir()
    write_owner(file, Owner(2, "127.0.0.1", 9, b"key"))
    with start(file, 1) as agent:
        assert agent.stderr is not None
        assert b"no driver of generation 1 is there" in agent.stderr.read()
    assert agent.returncode == UNOWNED


def test_addresses_of_this_machine() -> None:
    assert address_of("lo") == address_of("localhost") == routing_to("127.0.0.1") == "127.0.0.1"
    with pytest.raises(OSError, match="eth99|known|resolution"):
        address_of("eth99")
