"""What the command line says: one meaning of "best", each path once, and nothing more where nothing can be written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tuner as tune
from tuner.cli import main

TRAIN = Path(__file__).parents[2] / "scripts" / "reports_losses.py"

CONFIG = """
trainable: train.py:train
metric: loss
mode: min
param_space:
  losses: {grid_search: [[0.1, 9.0], [2.0, 1.0]]}
executor: inline
verbose: 1
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    shutil.copy(TRAIN, tmp_path / "train.py")
    path = tmp_path / "small.yaml"
    path.write_text(CONFIG + f"storage_path: {tmp_path / 'results'}\n")
    return path


def test_run_names_the_same_best_trial_as_the_analysis(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first trial was better for a while."""
    assert main(["run", str(config)]) == 0
    analysis = tune.ExperimentAnalysis(config.parent / "results" / "small")
    best = analysis.best_trial
    assert best is not None and best.index == 1
    assert tune.ResultGrid(analysis).get_best_result().path == best.path
    assert f"best trial       {best.name} (by its last loss)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("metric: loss\nmode: min\nmetric: acc\n", "'metric' in line 3 stands in line 1 already"),
        ("param_space:\n  lr: 1\n  b: 2\n  lr: 3\n", "'lr' in line 4 stands in line 2 already"),
        ("param_space: {lr: 1, b: 2,\n lr: 3}\n", "'lr' in line 2 stands in line 1 already"),
        ("param_space: {lr: 1, b: 2, lr: 3}\n", "'lr' in line 1 stands in line 1 already"),
    ],
)
def test_a_key_that_stands_twice_is_an_error_with_its_line(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert main(["run", str(tmp_path / "c.yaml")]) == 2
    assert f"{tmp_path / 'c.yaml'}: the key {said}" in capsys.readouterr().err


def test_a_merged_key_stands_once(config: Path) -> None:
    text = config.read_text().replace("param_space:\n", "param_space:\n  <<: {losses: 3, more: 1}\n")
    config.write_text(text)
    assert main(["run", str(config), "--set", "verbose=0"]) == 0


def test_a_file_that_is_not_there_is_named_once(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(config.parent)
    (config.parent / "train.py").unlink()
    assert main(["run", "small.yaml"]) == 2
    assert capsys.readouterr().err.count("train.py") == 1


def test_f30_output_that_cannot_be_written_is_one_line(config: Path) -> None:
    assert main(["run", str(config), "--set", "verbose=0"]) == 0
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from tuner.cli import main; sys.exit(main())",
                "ls",
                str(config.parent / "results"),
            ],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ended.stderr == "tuner ls: the output cannot be written: No space left on device\n"
    assert ended.returncode == 1


# --- verify -------------------------------------------------------------------------------------------------------


def train(config: dict[str, object]) -> None:
    tune.report({"loss": 1.0})


@pytest.mark.parametrize("what", ["config", "settings", "space", "plug-in"])
def test_verify_finds_a_blob_that_is_missing(tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    tune.run(train, name="e", config={"a": tune.choice([os.path.join])}, num_samples=3, storage_path=tmp_path,
             executor="inline", verbose=0)  # fmt: skip
    blobs = tmp_path / "e" / "blobs"
    settings = json.loads((tmp_path / "e" / "experiment.json").read_text())
    assert main(["verify", str(tmp_path / "e")]) == 0
    named = {"settings": settings["settings_blob"], "space": settings["space_blob"]}
    if what == "plug-in":
        compacted(tmp_path / "e")
        assert main(["verify", str(tmp_path / "e")]) == 0
    known = {blob.name for blob in blobs.iterdir()}
    victim = named.get(what) or plugin_state(tmp_path / "e") if what != "config" else (known - {*named.values()}).pop()
    (blobs / str(victim)).unlink()
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "e")]) == 1
    said = capsys.readouterr().out
    assert f"problem: {blobs / str(victim)} is missing" in said and ": 1 problem" in said


def compacted(root: Path) -> None:
    """A snapshot with the plug-ins' states: with few facts none is written at the end."""
    from tuner.driver import driver

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "FINAL_COMPACT_BYTES", 0)
        tune.run(train, name="e", config={"a": tune.choice([os.path.join])}, num_samples=4, storage_path=root.parent,
                 executor="inline", verbose=0, resume=True)  # fmt: skip


def plugin_state(root: Path) -> str:
    from tuner.experiment.paths import ExperimentPaths
    from tuner.experiment.reader import load_state

    return load_state(ExperimentPaths(root)).plugins["searcher"]
