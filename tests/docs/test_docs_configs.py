"""Every file of configs/ runs, small, with `tuner run`; the tutorials show files that are there, and that tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tuner as tune
from tests.docs.blocks import ROOT, pages
from tests.listings import environment, run, said_by
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from tests.servers.slurm import slurm
from tuner.cli import main
from tuner.cli.config_file import load

CONFIGS = ROOT / "configs"
SMALL = {
    "auto": ["num_samples=3", "search_alg.auto.max_t=4"],
    "command": ["num_samples=2"],
    "digits_asha": ["name=digits_asha", "num_samples=1", "scheduler.asha.max_t=1", "executor=inline"],
    "objectives": ["num_samples=4"],
    "pbt": ["num_samples=3", "stop.training_iteration=12"],
}
"""Those that a machine alone runs, and what makes them small."""
ELSEWHERE = {
    "bucket": "test_the_one_with_a_bucket_leaves_its_copy_there",
    "ray": "test_the_one_on_ray",
    "slurm": "test_the_one_on_slurm",
    "torch_trainer": "test_the_one_of_several_processes",
}
"""Those that need more, and the test that runs them."""
SHOWN = re.compile(r"```\{literalinclude\} (\S+)")


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody at the top of a checkout, with a home of his own."""
    seen = environment(tmp_path / "home")
    monkeypatch.chdir(ROOT)
    for name in ("HOME", "TMPDIR", "PATH", "PYTHONPATH"):
        monkeypatch.setenv(name, seen[name])
    return tmp_path / "home"


def run_config(name: str, *changes: str) -> int:
    changed = [word for change in changes for word in ("--set", change)]
    return main(["run", str(CONFIGS / f"{name}.yaml"), "--set", "verbose=0", *changed])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(SMALL))
def test_it_runs(name: str, at_home: Path) -> None:
    assert run_config(name, *SMALL[name]) == 0

    trials = tune.ExperimentAnalysis(at_home / "tuner_results" / name).trials
    assert trials and all(trial.status == "TERMINATED" for trial in trials)


def test_the_one_with_a_bucket_leaves_its_copy_there(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as port:
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        make_bucket(port, "my-bucket")
        assert run_config("bucket", "num_samples=2") == 0
        copy = tune.ExperimentAnalysis("s3://my-bucket/runs/bucket")
    assert len(copy.trials) == 2


@pytest.mark.torch
@pytest.mark.timeout(400)
def test_the_one_of_several_processes(at_home: Path) -> None:
    assert run_config("torch_trainer", "num_samples=1", "param_space.train_loop_config.epochs=1") == 0
    (trial,) = tune.ExperimentAnalysis(at_home / "tuner_results" / "torch_trainer").trials
    assert trial.last_result["step"] == 47


def test_the_one_on_ray() -> None:
    """It is that of a machine alone, with `executor: ray`; tests/failures/test_cluster_*.py run such on hosts."""
    described = load(CONFIGS / "ray.yaml")
    assert described.arguments()["executor"] == "ray" and callable(described.load_trainable())


@pytest.mark.root
@pytest.mark.timeout(400)
def test_the_one_on_slurm(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with slurm() as cluster:
        for name, value in cluster.env.items():
            monkeypatch.setenv(name, value)
        assert run_config("slurm", "num_samples=2", "scheduler.asha.max_t=1", "executor.slurm.jobs=1") == 0
    trials = tune.ExperimentAnalysis(at_home / "tuner_results" / "digits_slurm").trials
    assert [trial.status for trial in trials] == ["TERMINATED"] * 2


def test_every_config_is_run_and_shown() -> None:
    names = {file.stem for file in CONFIGS.glob("*.yaml")}
    assert names == SMALL.keys() | ELSEWHERE.keys()
    shown = {Path(file).name for page in pages() for file in SHOWN.findall(page.read_text("utf-8"))}
    assert {file.name for file in CONFIGS.glob("*.yaml")} <= shown


def test_what_a_tutorial_shows_is_there_and_is_run_by_a_test() -> None:
    tests = "".join(file.read_text("utf-8") for file in ROOT.glob("tests/**/test_*.py"))
    for page in pages():
        for file in SHOWN.findall(page.read_text("utf-8")):
            assert (page.parent / file).resolve().is_file(), f"{page}: {file}"
            assert Path(file).stem in tests, f"no test names {file}"


def test_objectives(tmp_path: Path) -> None:
    said = said_by(run(ROOT / "examples" / "objectives.py", tmp_path))
    assert said.splitlines()[-1].startswith("train_")


@pytest.mark.torch
@pytest.mark.timeout(400)
def test_torch_loop_is_proven(
    at_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the page says it: killed at a random step, every number and every weight is what it is without."""
    assert main(["prove", "examples/torch_loop.py", "--kills", "1"]) == 0
    assert "proven" in capsys.readouterr().out


@pytest.mark.torch
@pytest.mark.timeout(400)
def test_lightning_epochs(tmp_path: Path) -> None:
    assert said_by(run(ROOT / "examples" / "lightning_epochs.py", tmp_path, timeout=300))


def test_plain_program_is_of_nobody() -> None:
    text = (ROOT / "examples" / "plain_program.py").read_text("utf-8")
    assert {"tuner", "trainables"}.isdisjoint(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))
