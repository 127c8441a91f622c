"""What docs/slurm.md shows is done as it stands there, on a real Slurm."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tuner as tune
from tests.listings import ROOT, environment
from tests.servers.slurm import PATIENCE_S, Slurm, slurm
from tuner.cli.config_file import load
from tuner.executors.slurm.batch_options import BatchOptions

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

PAGE = (ROOT / "docs" / "slurm.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
FILES = {
    text.partition("\n")[0].removeprefix("# "): text for language, text in BLOCKS if language in ("python", "yaml")
}
COMMANDS = [
    shlex.split(line, comments=True) for language, text in BLOCKS if language == "sh" for line in text.splitlines()
]
OPTIONS = ("jobs", *BatchOptions.__dataclass_fields__, "array", "listen", "reconnect_s")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm(cpus=4, gpus=2, partitions={"gpu": "MaxTime=2-0", "cpu": "MaxTime=7-0"}) as cluster:
        yield cluster


def test_every_option_has_a_row() -> None:
    assert [option for option in OPTIONS if f"| `{option}` |" not in PAGE] == []


def test_the_commands_and_the_files_do_what_they_say(cluster: Slurm, tmp_path: Path) -> None:
    seen = environment(tmp_path / "home", **cluster.env)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    said = {}
    for words in COMMANDS:
        if words[:2] == ["tuner", "show"]:
            until_no_job_is_left(cluster)
        done = subprocess.run(words, env=seen, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        said[" ".join(words)] = done.stdout
    assert "{'lr': 0.1} 4" in said["python train.py"]
    assert "on n1: it gets 1 cpu, 1 gpu" in said["tuner doctor slurm.yaml"]
    assert len([words for words in COMMANDS if "--submit" in words]) == 1
    results = tmp_path / "home" / "tuner_results"
    for name in ("on-slurm", "on-slurm-too", "submitted"):
        trials = tune.ExperimentAnalysis(results / name).trials
        assert [trial.status for trial in trials] == ["TERMINATED"] * 4, name
    until_no_job_is_left(cluster)


def test_the_larger_config_is_accepted() -> None:
    arguments = load(ROOT / "configs" / "slurm.yaml").arguments()
    assert repr(arguments["executor"]) == "SlurmExecutor(jobs=4, partition=None, time='00:30:00')"


def until_no_job_is_left(cluster: Slurm) -> None:
    end = time.monotonic() + PATIENCE_S
    while cluster.jobs():
        assert time.monotonic() < end, cluster.run("squeue")
        time.sleep(0.05)
