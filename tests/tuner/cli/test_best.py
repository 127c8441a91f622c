"""tuner best: the best trial with its config and checkpoint, and a verified copy of that."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import tuner as tune
from tests.tuner.replicated import answer, ran, refused
from trainables.store import verify
from tuner.cli import main


def test_best_prints_what_the_analysis_calls_best(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    analysis = tune.ExperimentAnalysis(experiment)
    facts = json.loads(answer(capsys, "best", experiment, "--json"))
    said = answer(capsys, "best", experiment)

    assert (facts["config"], facts["value"]) == (analysis.best_config, analysis.best_result["loss"])
    assert facts["checkpoint"] == analysis.best_checkpoint.path
    assert f"x = {analysis.best_config['x']!r}\n" in said, "with all digits"
    assert "the lowest of 3 trials\niteration 4, returned\n" in said and facts["checkpoint"] in said.splitlines()[-1]
    assert ", by its last result the lowest" in said and facts["better_before"] is None
    worst = json.loads(answer(capsys, "best", experiment, "--mode", "max", "--json"))
    assert worst["value"] == max(trial.last_result["loss"] for trial in analysis.trials)


def test_best_copies_its_checkpoint_whole_or_not_at_all(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    copy = tmp_path / "copy"

    assert f"copied, every file verified, to {copy}\n" in answer(capsys, "best", experiment, "--copy-to", copy)
    verify.check(copy)
    assert tune.Checkpoint(copy).to_dict() == {"step": 4}
    assert answer(capsys, "best", experiment, "--copy-to", copy), "the same once more is no error"
    assert "it holds file, and nothing is mixed" in refused(capsys, "best", experiment, "--copy-to", tmp_path / "full")
    source = Path(json.loads(answer(capsys, "best", experiment, "--json"))["checkpoint"])
    (damaged,) = [file for file in source.iterdir() if file.name != ".manifest.json"]
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    shutil.rmtree(copy)
    assert main(["best", str(experiment), "--copy-to", str(copy)]) == 1
    print(capsys.readouterr().err)
    assert not copy.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--metric", "los", "--mode", "min"], "no trial has reported a metric 'los'; reported, nearest first: loss"),
        (["--metric", "training_iteration"], "best training_iteration is which? Give --mode min or --mode max"),
    ],
)
def test_best_of_what_is_not_there_is_refused(
    options: list[str], said: str, experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["best", str(experiment), *options]) == 2
    assert said in capsys.readouterr().err


def test_best_of_a_run_without_a_metric_asks_for_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune.run(lambda config: {"loss": 1.0}, name="e", storage_path=tmp_path, executor="inline", verbose=0)
    assert main(["best", str(tmp_path / "e")]) == 2
    assert "give --metric NAME --mode min, or max; reported: loss\n" in capsys.readouterr().err


def test_best_names_what_was_better_before_and_goes_by_any_scope(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(config: dict[str, list[float]]) -> None:
        for loss in config["losses"]:
            tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_dict({}))

    losses = [[4.0, 0.5, 3.0], [2.0, 2.5, 2.0], [5.0, 1.0, 4.0]]
    path, settings = tmp_path / "e", {"storage_path": tmp_path, "executor": "inline", "verbose": 0}
    tune.run(train, config={"losses": tune.grid_search(losses)}, name="e", metric="loss", mode="min", **settings)

    said = answer(capsys, "best", path)
    assert said.startswith("trial 1 (") and "): loss 2, by its last result the lowest of 3 trials\n" in said
    assert "\nbetter before: loss 0.5 in trial 0, its checkpoint_000002 is kept, with 0.5; --scope all goes" in said
    best = {
        scope: json.loads(answer(capsys, "best", path, "--scope", scope, "--json"))
        for scope in ("all", "avg", "last-2-avg")
    }
    assert {scope: (facts["index"], facts["value"]) for scope, facts in best.items()} == {
        "all": (0, 0.5),
        "avg": (1, pytest.approx(6.5 / 3)),
        "last-2-avg": (0, 1.75),
    }
    assert "loss 0.5, by its best result the lowest" in answer(capsys, "best", path, "--scope", "all")
    assert "'all', 'last', 'avg' and 'last-5-avg'" in refused(capsys, "best", path, "--scope", "first")


def test_best_of_a_place_elsewhere(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(bucket, tmp_path / "results")
    shutil.rmtree(tmp_path / "results")

    said = answer(capsys, "best", f"{bucket}/mine", "--mode", "max", "--copy-to", f"{tmp_path}/copies/")

    assert f"  {bucket}/mine/" in said
    assert tune.Checkpoint(tmp_path / "copies" / "checkpoint_000003").to_dict() == {"n": 3}


def _two_metrics(config: dict[str, float]) -> None:
    tune.report({"loss": config["x"], "latency": abs(2.0 - config["x"]) + config["y"]})


def test_of_several_metrics_the_front_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    analysis = tune.run(
        _two_metrics,
        config={"x": tune.grid_search([1.0, 2.0, 3.0]), "y": tune.grid_search([0.0, 0.5])},
        metric=["loss", "latency"],
        mode=["min", "min"],
        name="two",
        storage_path=tmp_path,
        executor="inline",
        verbose=0,
    )
    values = [(trial.last_result["loss"], trial.last_result["latency"]) for trial in analysis.best_trials]
    assert sorted(values) == [(1.0, 1.0), (2.0, 0.0)]
    assert [trial.index for trial in tune.ExperimentAnalysis(tmp_path / "two").best_trials] == [
        trial.index for trial in analysis.best_trials
    ]
    facts = json.loads(answer(capsys, "best", tmp_path / "two", "--json"))
    assert [each["latency"] for each in facts["front"]] == [value for _, value in values]
    said = answer(capsys, "best", tmp_path / "two")
    assert "none beats 2 trials in all of loss, latency\n" in said and ": loss 2, latency 0\n" in said
    assert "none beats" not in answer(capsys, "best", tmp_path / "two", "--metric", "loss")
