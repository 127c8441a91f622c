"""A trainer's group in jobs of a real Slurm: over several jobs, and over the nodes of one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.failures.slurm_runs import until
from tests.servers.slurm import PATIENCE_S, Slurm, slurm

_ENVIRONMENT = {
    "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    "RES_OPTIONS": "timeout:1 attempts:1",  # torch asks for the name of every address that connects
}
pytestmark = [pytest.mark.root, pytest.mark.torch, pytest.mark.timeout(600)]

SCRIPT = """
import json, os, socket, sys, time
from pathlib import Path

import trainables as train
from trainables import CheckpointConfig, RunConfig, ScalingConfig
from trainables.data_parallel_trainer import DataParallelTrainer
from tuner.executors import SlurmExecutor

settings = json.loads(sys.argv[1])
if settings["torch"]:
    import torch
    import torch.distributed as dist
    from trainables.torch import TorchTrainer


def job():  # as scancel takes it
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID") for name in ("JOB", "TASK"))
    return f"{array}_{task}" if array else os.environ["SLURM_JOB_ID"]


def train_func(config):
    context, signs = train.get_context(), Path(config["signs"])
    rank, held = context.get_world_rank(), train.get_checkpoint()
    first = held.to_dict()["step"] + 1 if held else 1
    with (signs / f"starts-{rank}").open("a") as file:
        file.write(json.dumps([first, socket.gethostname(), job()]) + "\\n")
    for step in range(first, 5):
        while step > 2 and not (signs / "go").exists():
            if context.should_stop():
                return
            time.sleep(0.05)
        total = 0
        if settings["torch"]:
            tensor = torch.tensor([rank + 1])
            dist.all_reduce(tensor)
            total = tensor.item()
        train.report({"step": step, "total": total}, checkpoint=train.Checkpoint.from_dict({"step": step}))


if __name__ == "__main__":
    trainer = TorchTrainer if settings["torch"] else DataParallelTrainer
    result = trainer(
        train_func,
        train_loop_config={"signs": settings["signs"]},
        scaling_config=ScalingConfig(num_workers=settings["workers"], trainer_resources={"CPU": 0}),
        run_config=RunConfig(
            name="e", storage_path=settings["storage"], executor=SlurmExecutor(**settings["slurm"]),
            checkpoint_config=CheckpointConfig(num_to_keep=1),
        ),
    ).fit()
    print("FOUND", json.dumps([result.metrics["step"], result.metrics["total"]]))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm() as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("torch", "workers", "given"),
    [
        (True, 2, {"jobs": 2, "cpus_per_task": 1}),
        (False, 4, {"jobs": 2, "cpus_per_task": 2}),
        (False, 4, {"jobs": 1, "cpus_per_task": 2, "sbatch": {"nodes": 2}}),
    ],
    ids=["torch over several jobs", "several jobs", "a job of several nodes"],
)
def test_a_group_runs_over_nodes_and_goes_on_when_a_job_is_gone(
    cluster: Slurm, tmp_path: Path, torch: bool, workers: int, given: dict[str, Any]
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    settings = {"signs": str(tmp_path), "storage": str(tmp_path / "results"), "torch": torch, "workers": workers}
    settings["slurm"] = {"time": "10", **given}
    output = tmp_path / "output"

    def starts(rank: int) -> list[list[Any]]:
        path = tmp_path / f"starts-{rank}"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    with output.open("w") as file, contextlib.ExitStack() as ends:
        process = subprocess.Popen(
            [sys.executable, str(tmp_path / "script.py"), json.dumps(settings)],
            env={**os.environ, **cluster.env, **_ENVIRONMENT},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        ends.callback(process.wait)
        ends.callback(process.kill)
        saved = tmp_path / "results" / "e"
        until("it waits", lambda: list(saved.glob("*/checkpoint_000002*")), process, output)
        hosts = [starts(rank)[0][1] for rank in range(workers)]
        assert len(set(hosts)) == 2 or torch  # two jobs of one cpu each may be on one node
        assert sorted(hosts, key=hosts.index) == hosts
        jobs = {starts(rank)[0][2] for rank in range(workers)}
        assert len(jobs) == given["jobs"]
        cluster.run("scancel", starts(workers - 1)[0][2])
        until("it begins again", lambda: all(len(starts(rank)) == 2 for rank in range(workers)), process, output)
        assert [starts(rank)[1][0] for rank in range(workers)] == [3] * workers
        (tmp_path / "go").touch()
        assert process.wait(2 * PATIENCE_S) == 0, output.read_text()
        assert f"FOUND [4, {3 if torch else 0}]" in output.read_text()
        until("no job is left", lambda: not cluster.jobs())
