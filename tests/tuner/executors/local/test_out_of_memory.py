"""What the kernel tells of its kills, in the forms that its versions have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.executors.base import OutOfMemory
from tuner.executors.local.out_of_memory import OomKills, memory_group

V1 = "9:cpu,cpuacct:/a\n4:memory:/jobs/7\n0::/\n"
V2 = "0::/user.slice/session\n"


def kernel(root: Path, groups: str, counter: str = "", limit: str = "", *, vmstat: int | None = 0) -> Path:
    """The files of a kernel with those cgroups."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    if vmstat is not None:
        (root / "proc/vmstat").write_text(f"nr_free_pages 7\noom_kill {vmstat}\n")
    if counter:
        (root / counter).parent.mkdir(parents=True)
        (root / counter).write_text("low 0\noom_kill_disable 0\noom_kill 3\n")
        (root / counter).parent.joinpath(limit.partition("=")[0]).write_text(limit.partition("=")[2])
    return root


@pytest.mark.parametrize(
    ("groups", "counter", "limit", "bytes_"),
    [
        (V1, "sys/fs/cgroup/memory/jobs/7/memory.oom_control", "memory.limit_in_bytes=500\n", 500),
        (V1, "sys/fs/cgroup/memory/memory.oom_control", f"memory.limit_in_bytes={2**63 - 4096}", None),
        (V2, "sys/fs/cgroup/user.slice/session/memory.events", "memory.max=1000", 1000),
        (V2, "sys/fs/cgroup/memory.events", "memory.max=max\n", None),
        (V2, "sys/fs/cgroup/unified/memory.events", "memory.max=9", 9),
    ],
)
def test_a_cgroup_s_count_decides(tmp_path: Path, groups: str, counter: str, limit: str, bytes_: int | None) -> None:
    root = kernel(tmp_path, groups, counter, limit)
    found = memory_group(root)
    assert found is not None and found.kills() == 3 and found.limit == bytes_
    kills = OomKills(root)
    (root / "proc/vmstat").write_text("oom_kill 1\n")  # somebody else's
    assert kills.death(7, 10).out_of_memory is OutOfMemory.NOT_KILLED
    (root / counter).write_text("oom_kill 4\n")
    death = kills.death(7, 10)
    assert (death.out_of_memory, death.peak_bytes, death.limit_bytes) == (OutOfMemory.KILLED, 10, bytes_)
    assert death.evidence == f"{root / counter} counts it"
    assert kills.death(8, 10).out_of_memory is OutOfMemory.NOT_KILLED, "it has been told of once"


def test_else_the_machine_s(tmp_path: Path) -> None:
    kills = OomKills(kernel(tmp_path, V2))
    assert kills.death(7, 0).out_of_memory is OutOfMemory.NOT_KILLED
    (tmp_path / "proc/vmstat").write_text("oom_kill 1\n")
    assert kills.death(7, 0).out_of_memory is OutOfMemory.KILLED


@pytest.mark.parametrize("groups", ["", "nonsense", "5:memory\n"])
def test_where_nothing_is_told_nothing_is_known(tmp_path: Path, groups: str) -> None:
    kills = OomKills(kernel(tmp_path, groups, vmstat=None))
    assert kills.death(7, 0).out_of_memory is OutOfMemory.UNKNOWN


def test_the_log_of_the_kernel_names_it(tmp_path: Path) -> None:
    kills = OomKills(kernel(tmp_path, V2))
    (tmp_path / "dev").mkdir()
    killed = "Out of memory: Killed process {} (python) total-vm:1kB, anon-rss:1kB"
    records = [f"6,1,1,-;{killed.format(71)}", f"6,2,{10**18},-;{killed.format(72)}", f"6,3,{10**18},-;other"]
    (tmp_path / "dev/kmsg").write_text(records[1])
    assert kills.death(72, 0).evidence == "the kernel's log names it"
    (tmp_path / "dev/kmsg").write_text(records[0])
    assert kills.death(71, 0).out_of_memory is OutOfMemory.NOT_KILLED, "an old one of that number"
