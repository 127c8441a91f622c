"""The verbs, from an empty directory to a verified experiment, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.cli import main

TRAIN = """
import tuner as tune

def train(config):
    step = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        step = checkpoint.to_dict()["step"]
    while step < config["steps"]:
        step += 1
        if config.get("fails") and step == 3:
            raise RuntimeError("as configured")
        tune.report({"loss": config["x"] / step}, checkpoint=tune.Checkpoint.from_dict({"step": step}))
"""

CONFIG = """
trainable: train.py:train
metric: loss
mode: min
num_samples: 3
param_space:
  x: {uniform: [0, 1]}
  steps: 4
keep_checkpoints_num: 2
checkpoint_score_attr: min-loss
executor: inline
verbose: 0
seed: 1
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    path = tmp_path / "small.yaml"
    path.write_text(CONFIG + f"storage_path: {tmp_path / 'results'}\n")
    return path


@pytest.fixture
def experiment(config: Path) -> Path:
    assert main(["run", str(config)]) == 0
    return config.parent / "results" / "small"


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(arguments) == status, capsys.readouterr().err
    return capsys.readouterr().out


def test_run_prints_nothing_when_told_so(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "run", str(config)) == ""


def test_run_says_where_it_lies_and_what_was_best(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(capsys, "run", str(config), "--set", "verbose=1")

    assert f"experiment       {config.parent / 'results' / 'small'}" in said
    assert "best config" in said
    checkpoint = said.split("best checkpoint")[1].split()[0]
    assert (Path(checkpoint) / ".manifest.json").exists()


def test_ls_counts_trials_and_checkpoints(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = json.loads(answer(capsys, "ls", str(experiment.parent), "--json"))

    assert (row["name"], row["trials"], row["done"], row["checkpoints"]) == ("small", 3, 3, 6)
    assert "small" in answer(capsys, "ls", str(experiment.parent))


def test_ls_of_a_directory_without_experiments_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "something").mkdir()

    assert answer(capsys, "ls", str(tmp_path)) == f"no experiments in {tmp_path}\n"


def test_ls_lists_a_damaged_experiment_as_one(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (experiment / "experiment.json").write_text("{")

    assert "unreadable" in answer(capsys, "ls", str(experiment.parent))


def test_show_has_a_line_per_trial(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(capsys, "show", str(experiment))

    assert said.count("TERMINATED") == 3
    assert "loss" in said
    assert "x=" in said


def test_show_of_one_trial_has_config_result_and_checkpoints(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = json.loads(answer(capsys, "show", str(experiment), "0", "--json"))

    assert facts["config"]["steps"] == 4
    assert facts["result"]["training_iteration"] == 4
    assert [item["iteration"] for item in facts["checkpoints"]] == [3, 4]
    assert "checkpoint_000004" in answer(capsys, "show", str(experiment), facts["id"])


def test_show_of_an_unknown_trial_has_the_nearest(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(experiment), "99"]) == 2
    assert "there is no trial '99'" in capsys.readouterr().err


def test_an_unknown_experiment_names_the_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path / "nothing")]) == 2
    assert str(tmp_path / "nothing") in capsys.readouterr().err


def test_a_name_is_looked_for_under_the_default_storage(
    experiment: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_RESULT_DIR", str(experiment.parent))

    assert "TERMINATED" in answer(capsys, "show", "small")


def test_verify_hashes_everything(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(answer(capsys, "verify", str(experiment), "--json"))

    assert (found["checkpoints"], found["problems"]) == (6, [])
    assert "no problems" in answer(capsys, "verify", str(experiment))


def payload(experiment: Path) -> Path:
    """A file that the user saved."""
    return next(
        path
        for path in sorted(experiment.glob("*/checkpoint_*/*"))
        if path.is_file() and not path.name.startswith(".manifest")
    )


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing", "manifest", "whole"])
def test_verify_finds_any_damage(experiment: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = payload(experiment)
    data = file.read_bytes()
    if damage == "flipped":
        file.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    elif damage == "truncated":
        file.write_bytes(data[:-1])
    elif damage == "missing":
        file.unlink()
    elif damage == "manifest":
        (file.parent / ".manifest.json").write_text("{}")
    else:
        file.parent.rename(file.parent.with_name(".gone"))

    said = answer(capsys, "verify", str(experiment), status=1)

    assert f"problem: {file.parent}" in said


def test_reading_verbs_change_nothing(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in experiment.rglob("*")}

    before = state()
    for verb in (["ls", str(experiment.parent)], ["show", str(experiment)], ["show", str(experiment), "0"]):
        answer(capsys, *verb)
    answer(capsys, "verify", str(experiment))

    assert state() == before


def test_resume_runs_exactly_the_missing_trials_from_the_directory_alone(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = experiment.parent.parent / "elsewhere" / "renamed"
    moved.parent.mkdir()
    experiment.rename(moved)

    assert main(["resume", str(moved), "--set", "num_samples=5"]) == 0

    trials = json.loads(answer(capsys, "show", str(moved), "--json"))["trials"]
    assert [trial["status"] for trial in trials] == ["TERMINATED"] * 5
    assert not experiment.exists()


def test_failed_trials_exit_with_1_and_resume_continues_them_when_asked(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(config), "--set", "param_space.fails=true"]) == 1
    experiment = config.parent / "results" / "small"
    assert [t["status"] for t in json.loads(answer(capsys, "show", str(experiment), "--json"))["trials"]] == [
        "ERROR"
    ] * 3
    assert "as configured" in answer(capsys, "show", str(experiment), "0")

    (config.parent / "train.py").write_text(TRAIN.replace("raise RuntimeError", "print"))
    assert main(["resume", str(experiment), "--errored"]) == 0

    rows = json.loads(answer(capsys, "show", str(experiment), "--json"))["trials"]
    assert [(row["status"], row["iteration"]) for row in rows] == [("TERMINATED", 4)] * 3


def test_resume_of_a_scripts_experiment_needs_its_trainable(
    config: Path, experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (experiment / "config.yaml").unlink()

    assert main(["resume", str(experiment)]) == 2
    assert "--trainable" in capsys.readouterr().err
    assert main(["resume", str(experiment), "--trainable", f"{config.parent / 'train.py'}:train"]) == 0


def test_a_config_mistake_exits_with_2_and_touches_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(config), "--set", "num_sample=3"]) == 2
    assert "did you mean 'num_samples'?" in capsys.readouterr().err
    assert not (config.parent / "results").exists()


def test_without_a_verb_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "verify" in capsys.readouterr().out


def test_verify_finds_a_journal_that_is_damaged_before_its_end(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = (experiment / "journal").glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"c":"', b'"c":"0', 1)
    segment.write_bytes(b"".join(lines))

    said = answer(capsys, "verify", str(experiment), status=1)

    assert f"{segment} is damaged before its end" in said and "holds results that the journal does not know" in said
