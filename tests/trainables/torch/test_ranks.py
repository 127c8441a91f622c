from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
RUNS = ("whole", "stopped")

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def forked(place: Path, size: int, part: str) -> tuple[list[int], dict[int, Any]]:
    """How the ranks ended, and what they found."""
    command = [sys.executable, HERE / "ranks_script.py", place, str(size), part]
    done = subprocess.run(command, capture_output=True, text=True, timeout=380, env=environment())
    assert done.returncode == 0, done.stderr
    results = {rank: place / f"result-{rank}.json" for rank in range(size)}
    found = {rank: json.loads(path.read_text()) for rank, path in results.items() if path.exists()}
    ended = json.loads(done.stdout.splitlines()[-1])
    assert 1 not in ended, done.stderr
    return ended, found


def test_f33_four_ranks_one_owner_200_saves_and_no_rank_hangs_when_one_dies(quick_disk: Path) -> None:
    ended, found = forked(quick_disk, 4, "many")

    assert ended == [0, 0, -9, 0]
    assert set(found) == {0, 1, 3}
    for rank, result in found.items():
        assert result["wrong"] == []
        assert f"rank {rank} of 4 was left alone while publishing a checkpoint" in result["told"]
        assert result["latest"] == str(quick_disk / "out" / "AtomicDirectory_checkpoint_199")
    left = sorted(os.listdir(quick_disk / "out"))
    assert [name for name in left if name.startswith("AtomicDirectory_checkpoint")] == [
        "AtomicDirectory_checkpoint_199",
        "AtomicDirectory_checkpoint_200",
    ]
    assert os.readlink(quick_disk / "out" / "AtomicDirectory.latest_checkpoint").endswith("_199")
    assert sorted(os.listdir(quick_disk / "out" / "AtomicDirectory_checkpoint_199")) == [
        ".manifest.json",
        *(f"rank_{rank}.pt" for rank in range(4)),
    ]


def test_ranks_agree_or_learn_why_not(quick_disk: Path) -> None:
    ended, found = forked(quick_disk, 2, "agree")

    assert ended == [0, 0]
    names = [f"AtomicDirectory_checkpoint_{number}" for number in range(3)]
    for rank, result in found.items():
        assert result["sync_any"] == [names[0], names[1] + "_force", names[2] + "_force"]
        assert result["sync_all"] == [names[0], names[1], names[2] + "_force"]
        assert result["async"] == [f"AtomicDirectory_rank_{rank}_checkpoint_{number}" for number in range(1 + rank)]
        assert "ranks [0, 1] have is_master=True; accepted: exactly one of the 2 ranks" in result["masters"]
        assert "ranks [] have is_master=True" in result["nobody"]
        assert "keep_last differs between the ranks: [1, 2], by rank" in result["keep_last"]
        assert result["agg"] == {"all": 4.0 + 2.0**-39, "only_0": 0.1, "only_1": 0.1}
    assert found[0]["failing"][0] == "CheckpointError"
    assert found[1]["failing"][0] == "RanksError"
    assert "rank 0, the master, failed while publishing a checkpoint: CheckpointError" in found[1]["failing"][1]


def killed(place: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.trainables.torch.killed_ranks", place, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=7000, env=environment(), cwd=HERE.parents[2])
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == []
    assert found["points"] > 80
    return found


def test_f33_four_ranks_of_which_one_is_killed_in_a_save_lose_nothing_and_go_on(quick_disk: Path) -> None:
    assert killed(quick_disk, "sync_any", "1", "4")["taken"] == 4


@pytest.mark.soak
@pytest.mark.parametrize(("strategy", "keep"), [("sync_any", "1"), ("sync_all", "2")])
def test_f33_four_ranks_killed_before_every_call_of_a_save(quick_disk: Path, strategy: str, keep: str) -> None:
    found = killed(quick_disk, strategy, keep, "0")
    assert found["taken"] == found["points"]


def test_what_users_of_cycling_utils_write_runs_under_torchrun(quick_disk: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(HERE / "cycling_script.py"), str(quick_disk)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=380, env=environment(), cwd=HERE.parents[2])
    assert done.returncode == 0, done.stderr

    for rank in range(2):
        whole, stopped = (json.loads((quick_disk / run / f"result-{rank}.json").read_text()) for run in RUNS)
        assert stopped == whole, "interrupted, it ends bit for bit as if it had not been"
        assert [report["images"] for report in whole["reports"]] == [24, 24]
    held = [json.loads((quick_disk / f"held-{rank}.json").read_text()) for rank in range(2)]
    assert [len(each) for each in held] == [5, 5]
    assert sorted(sum(held, [])) == [[number, -number] for number in range(10)]
    lines = [line for line in done.stdout.splitlines() if " s total" in line]
    assert ["Start" in lines[0], "trained" in lines[1], len(lines)] == [True, True, 2]
    kept = {name for name in os.listdir(quick_disk / "stopped") if "_checkpoint_" in name and "latest" not in name}
    names = {name.removeprefix("AtomicDirectory_checkpoint_") for name in kept if not name.startswith(".")}
    assert names == {"0_force", "1_force", "2", "3"}
