"""tuner diff: two trials or two checkpoints, by what they hold; the exit status says whether they are the same."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest

import tuner as tune
from tests.tuner.replicated import answer, refused
from tuner.cli import main


class Marks:
    """Tells by a file that it was unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


def train(config: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    for step in (1, 2):
        with tune.checkpoint_dir() as directory:
            weights = torch.ones(3, 2)
            weights[0, 0] += config["x"]
            torch.save({"model": {"weight": weights, "bias": torch.zeros(2)}, "step": step}, f"{directory}/model.pt")
            numpy.savez(f"{directory}/state.npz", mean=numpy.arange(3.0) * config["x"])
            Path(directory, "same.json").write_text('{"a": 1}')
            Path(directory, "user.pkl").write_bytes(pickle.dumps((config["x"], Marks(config["mark"]))))
        tune.report({"loss": config["x"] / step, "nan": float("nan")})


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("diff")
    space = {"x": tune.grid_search([0.0, 0.5, 0.5]), "net": {"depth": 2}, "mark": str(storage / "mark")}
    tune.run(train, name="mine", storage_path=storage, config=space, executor="inline", verbose=0)
    return storage / "mine"


def test_trials_differ_in_config_and_metrics(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = answer(capsys, "diff", f"{experiment}/0", f"{experiment}/1", status=1).splitlines()
    assert lines[0].startswith("A  ") and lines[0].endswith("(trial 0, iteration 2, returned)")
    assert [line.split() for line in lines[3:6]] == [
        ["what", "differs", "A", "B", "B", "-", "A"],
        ["config:", "x", "0", "0.5", "+0.5"],
        ["last", "result:", "loss", "0", "0.25", "+0.25"],
    ]
    assert lines[-1] == "largest absolute difference: 0.5 (x)" and len(lines) == 8


def test_equal_trials_are_the_same_whatever_their_times(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "the two trials are the same" in answer(capsys, "diff", f"{experiment}/1", "2")
    assert json.loads(answer(capsys, "diff", f"{experiment}/1", "2", "--json"))["same"] is True
    assert "are the same" in answer(capsys, "diff", f"{experiment}/0", "2", "--ignore", "x", "--ignore", "loss")


def test_checkpoints_differ_by_tensors_and_nothing_is_unpickled(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = f"{experiment}/0/checkpoint_000002", f"{experiment}/1/checkpoint_000002"
    mark = experiment.parent / "mark"
    mark.unlink(missing_ok=True)
    lines = answer(capsys, "diff", one, other, status=1).splitlines()
    assert lines[3] == "model.pt: model.weight: (3, 2) float32: 1 of 6 values differ, by at most 0.5"
    assert lines[4] == "state.npz: mean: (3,) float64: 2 of 3 values differ, by at most 1"
    assert lines[5].startswith("user.pkl: ") and lines[5].endswith("running its code (--unpickle)")
    assert lines[6:] == ["", "largest absolute difference: 1 (state.npz: mean)"] and not mark.exists()
    opened = json.loads(answer(capsys, "diff", one, other, "--unpickle", "--json", status=1))
    assert [row["name"] for row in opened["differences"]][2:] == ["user.pkl: 0"] and mark.exists()


def test_checkpoints_are_found_by_their_paths_too(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = experiment.glob("*_00001/checkpoint_000002")
    shutil.copytree(path, tmp_path / "best")
    (tmp_path / "best" / "more.txt").write_text("new")
    said = answer(capsys, "diff", path, tmp_path / "best", status=1)
    assert "more.txt: the file is new" in said and "largest" not in said
    assert "are the same" in answer(capsys, "diff", path, f"{experiment}/1/checkpoint_000002")


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("{}", "1", "say EXPERIMENT/TRIAL"),
        ("{}/0", "9", "there is no trial '9'; there are 3, numbered from 0"),
        ("{}/0", "{}/1/checkpoint_000002", "a trial and a checkpoint cannot be compared"),
        ("{}/0/checkpoint_000009", "{}/1", "it has: checkpoint_00000"),
        ("{}x/0", "{}/1", "there is no experiment at"),
    ],
)
def test_what_cannot_be_compared_is_said_with_status_two(
    a: str, b: str, said: str, experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", a.format(experiment), b.format(experiment)]) == 2
    assert said in capsys.readouterr().err


def test_sides_may_be_elsewhere(bucket: str, experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "cp", experiment, f"{bucket}/copy")
    assert "are the same" in answer(capsys, "diff", f"{experiment}/0", f"{bucket}/copy/0")
    one, other = f"{experiment}/0/checkpoint_000002", f"{bucket}/copy/1/checkpoint_000002"
    assert "model.weight" in answer(capsys, "diff", one, other, status=1)
    (dirname,) = [path.name for path in experiment.glob("*_00001")]
    there = f"{bucket}/copy/{dirname}/checkpoint_000002"
    assert "are the same" in answer(capsys, "diff", there, other)
    assert "there is no experiment" in refused(capsys, "diff", f"{bucket}/nothing/0", "1")
