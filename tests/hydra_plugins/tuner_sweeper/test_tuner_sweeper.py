"""`hydra/sweeper=tuner`, with the real Hydra, in processes of its own: run, killed and run again."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hydra.errors import CompactHydraException
from omegaconf import OmegaConf

import tuner as tune
from hydra_plugins.tuner_sweeper.hydra_job import metrics_of
from hydra_plugins.tuner_sweeper.tuner_sweeper import SETTINGS, TunerSweeper
from tests.listings import ROOT, run, said_by

TRAIN = """
import logging, os, pathlib, time
import hydra
from hydra.core.hydra_config import HydraConfig
log = logging.getLogger(__name__)

@hydra.main(version_base=None, config_path="conf", config_name="config")
def train(cfg):
    job = HydraConfig.get().job.num
    out = pathlib.Path(HydraConfig.get().runtime.output_dir)
    with open(out / "lives.txt", "a") as lives:
        print(cfg.lr, cfg.db.name, repr(cfg.note), os.getcwd(), file=lives)
    log.info("this is job %s", job)
    while cfg.wait_for and job == 0 and not pathlib.Path(cfg.wait_for).exists():
        time.sleep(0.02)
    if cfg.epochs:
        import tuner as tune
        for epoch in range(cfg.epochs):
            tune.report({"loss": cfg.lr})
        return 7
    return (cfg.lr - 0.01) ** 2

if __name__ == "__main__":
    train()
"""
CONFIG = """
defaults: [{db: mysql}, _self_, {override hydra/sweeper: tuner}]
lr: 0.1
note: x
wait_for: null
epochs: 0
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "conf" / "db").mkdir(parents=True)
    (tmp_path / "conf" / "config.yaml").write_text(CONFIG)
    for name in ("mysql", "pg"):
        (tmp_path / "conf" / "db" / f"{name}.yaml").write_text(f"name: {name}")
    return tmp_path


def line(*overrides: str) -> list[str]:
    return [sys.executable, "train.py", "-m", "hydra.sweep.dir=sweep", "hydra.sweeper.verbose=0", *overrides]


def sweep(place: Path, *overrides: str) -> str:
    """Run it and give what it says. Raises CalledProcessError."""
    done = subprocess.run(line(*overrides), cwd=place, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def refused(place: Path, *overrides: str) -> str:
    done = subprocess.run(line(*overrides), cwd=place, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    return done.stderr


def trials(place: Path) -> list[Any]:
    return tune.ExperimentAnalysis(place / "sweep").trials


def lives(place: Path, job: int) -> list[str]:
    return (place / "sweep" / str(job) / "lives.txt").read_text().splitlines()


def test_settings_are_the_keys_of_a_config_file() -> None:
    from tuner.cli.config_file import KEYS

    assert set(SETTINGS) == set(KEYS) - {"trainable", "param_space", "name", "storage_path"}
    assert list(SETTINGS) == sorted(SETTINGS)


def test_a_multirun_is_an_experiment_and_a_job_is_as_hydra_runs_it(program: Path) -> None:
    said = sweep(
        program,
        "lr=tag(log,interval(1e-4,1e-1))",
        "db=glob(*)",
        "note='a b','${lr}'",
        "hydra.sweeper.mode=min",
    )
    found = trials(program)
    assert [trial.status for trial in found] == ["TERMINATED"] * 4
    assert "hydra.sweeper.num_samples says how many" in said and "sweep" in said
    seen = set()
    for job, trial in enumerate(found):
        (life,) = lives(program, job)
        lr, db, note, cwd = life.split(" ", 2)[0], life.split(" ", 2)[1], life.split(" ", 2)[2], str(program)
        assert float(lr) == trial.config["lr"] and 1e-4 <= float(lr) <= 1e-1 and life.endswith(cwd)
        seen.add((db, note.removesuffix(f" {cwd}").startswith("'a b'")))
        assert trial.last_result["objective"] == pytest.approx((float(lr) - 0.01) ** 2)
        own = program / "sweep" / str(job)
        assert f"lr={trial.config['lr']}" in yaml.safe_load((own / ".hydra" / "overrides.yaml").read_text())
        assert f"this is job {job}" in (own / "train.log").read_text()
    assert seen == {("mysql", True), ("mysql", False), ("pg", True), ("pg", False)}
    best = yaml.safe_load((program / "sweep" / "optimization_results.yaml").read_text())
    assert best["best_value"] == min(trial.last_result["objective"] for trial in found)
    assert (program / "sweep" / "multirun.yaml").exists()


def test_a_slow_job_holds_up_no_other(program: Path) -> None:
    """Of two at once the first waits for the last but one's directory: batches would wait for each other for ever."""
    sweep(program, "lr=1,2,3,4,5", "wait_for=sweep/4/lives.txt", "hydra.sweeper.max_concurrent_trials=2")
    assert [trial.status for trial in trials(program)] == ["TERMINATED"] * 5


def test_killed_it_goes_on_and_what_was_interrupted_begins_again_with_its_config(program: Path) -> None:
    given = ["lr=interval(0,1)", "wait_for=go", "hydra.sweeper.num_samples=4", "hydra.sweeper.max_concurrent_trials=2"]
    driver = subprocess.Popen(line(*given), cwd=program, stdout=subprocess.DEVNULL)
    done = [program / "sweep" / str(job) / "lives.txt" for job in (0, 3)]
    while not all(path.exists() for path in done) or not list(program.glob("sweep/*_00003/result.json")):
        assert driver.poll() is None
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    (program / "go").touch()
    sweep(program, *given)

    found = trials(program)
    assert [trial.status for trial in found] == ["TERMINATED"] * 4
    first, again = lives(program, 0)
    assert first == again and float(first.split()[0]) == found[0].config["lr"]
    for job in (1, 2):
        assert len(lives(program, job)) == 1
    for trial in found:
        assert len((Path(trial.path) / "result.json").read_text().splitlines()) == 1


def test_a_job_that_reports_is_stopped_by_the_scheduler(program: Path) -> None:
    sweep(
        program,
        "lr=0.1,0.2",
        "epochs=6",
        "hydra.sweeper.scheduler={asha:{max_t:3,grace_period:3}}",
        "hydra.sweeper.metric=loss",
        "hydra.sweeper.mode=min",
    )
    for trial in trials(program):
        rows = [json.loads(row) for row in (Path(trial.path) / "result.json").read_text().splitlines()]
        assert [row["loss"] for row in rows] == [trial.config["lr"]] * 3  # and none of what it would have returned


def test_what_cannot_be_is_refused_before_anything_is_there(program: Path) -> None:
    assert "lr=shuffle(1,2): shuffle()" in refused(program, "lr=shuffle(1,2)")
    assert "Could not find 'db/oracle'" in refused(program, "db=mysql,oracle")
    assert not (program / "sweep").exists()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"name": "x"}, "hydra.sweeper.name='x' is not accepted: the experiment lies under hydra.sweep.dir"),
        ({"storage_path": "/x"}, "hydra.sweeper.storage_path='/x' is not accepted"),
        ({"num_sample": 3}, "hydra.sweeper: unknown key 'num_sample'; did you mean 'num_samples'"),
        ({"num_samples": "3"}, "hydra.sweeper: num_samples='3' is not accepted"),
        ({"scheduler": "asher"}, "asher"),
    ],
)
def test_a_setting_that_is_none_is_named(said: dict[str, Any], message: str) -> None:
    sweeper = TunerSweeper()
    sweeper.config = OmegaConf.create({"hydra": {"sweeper": {"_target_": "x", "params": None, "seed": None, **said}}})
    with pytest.raises(CompactHydraException, match=re.escape(message)):
        sweeper.sweep([])


def test_another_launcher_is_refused() -> None:
    config = OmegaConf.create({"hydra": {"launcher": {"_target_": "somewhere.FarLauncher"}}})
    with pytest.raises(CompactHydraException, match="hydra/launcher: FarLauncher is not accepted"):
        TunerSweeper().setup(hydra_context=cast(Any, None), task_function=print, config=config)


def test_the_example_has_its_space_in_the_config_and_the_command_line_replaces_it(tmp_path: Path) -> None:
    more = ("momentum=0.5", "hydra.sweeper.search_alg=random", "hydra.sweep.dir=sweep")
    said_by(run(ROOT / "examples" / "hydra_sweep.py", tmp_path, "-m", *more))
    found = trials(tmp_path)
    assert len(found) == 4 and {trial.config["momentum"] for trial in found} == {0.5}
    best = yaml.safe_load((tmp_path / "sweep" / "optimization_results.yaml").read_text())
    assert best["best_value"] == min(trial.last_result["objective"] for trial in found)


@pytest.mark.parametrize(
    ("returned", "metric", "expected"),
    [
        (0.5, None, {"objective": 0.5}),
        (0.5, "loss", {"loss": 0.5}),
        ((1, 2.5), ["a", "b"], {"a": 1, "b": 2.5}),
        ({"loss": 1}, "loss", {"loss": 1}),
        (None, "loss", None),
        ("a model", None, None),
    ],
)
def test_what_a_function_returns_is_its_result(returned: Any, metric: Any, expected: Any) -> None:
    assert metrics_of(returned, metric) == expected


def test_what_is_no_result_is_refused() -> None:
    with pytest.raises(TypeError, match=r"returned 1; accepted are a dict with a and b, 2 numbers"):
        metrics_of(1, ["a", "b"])
