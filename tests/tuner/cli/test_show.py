"""tuner show: a line per trial, or all of one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.replicated import answer, counts, ran
from tuner.cli import main


def test_show_has_a_line_per_trial(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(capsys, "show", str(experiment))

    header, *rows = said.split("\n\n")[1].splitlines()
    assert header.split() == ["#", "loss", "iter", "time", "state", "x", "checkpoints", "id"]
    assert len(rows) == 3 and all("returned" in row for row in rows)
    losses = [float(row.split()[1]) for row in rows]
    assert losses == sorted(losses), "the best first"
    assert "\nfinished; 3 trials (3 done); 6 checkpoints kept, " in said


def test_show_sorts_chooses_and_counts_the_rest(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(capsys, "show", str(experiment), "--sort", "number", "--reverse", "--limit", "2")
    rows = said.split("\n\n")[1].splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["2", "1", "..."] and rows[-1] == "... and 1 more"
    assert answer(capsys, "show", str(experiment), "--status", "failed").endswith("no trials of that state\n")
    (row,) = json.loads(answer(capsys, "show", str(experiment), "--limit", "1", "--json"))["trials"]
    assert (row["reason"], row["state"], row["status"]) == ("returned", "returned", "TERMINATED")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--metric", "los"], "no trial has reported a metric 'los'; reported, nearest first: loss"),
        (["--sort", "iter"], "unknown column 'iter'; did you mean 'iteration'?"),
        (["--status", "finished"], "unknown state 'finished'; did you mean 'failed'?"),
    ],
)
def test_show_refuses_what_is_not_there(
    options: list[str], said: str, experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(experiment), *options]) == 2
    assert said in capsys.readouterr().err


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


def test_show_says_that_a_torn_line_was_cut(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (segment,) = (experiment / "journal").glob("*.jsonl")
    segment.write_bytes(segment.read_bytes()[:-5])
    capsys.readouterr()
    assert main(["show", str(experiment)]) == 0
    assert f"tuner show: {segment.name}: a torn line at its end was cut" in capsys.readouterr().err


def test_show_of_a_place_elsewhere(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(bucket, tmp_path / "results")
    shutil.rmtree(tmp_path / "results")

    shown = answer(capsys, "show", f"{bucket}/mine")
    facts = json.loads(answer(capsys, "show", f"{bucket}/mine", "1", "--json"))

    assert shown.startswith(f"{bucket}/mine\n") and shown.count("returned") == 2
    assert facts["path"].startswith(f"{bucket}/mine/") and facts["config"] == {"i": 1}


def test_show_tells_the_copies(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(bucket, tmp_path / "results", keep_local=1)

    shown = answer(capsys, "show", experiment)
    (copy,) = json.loads(answer(capsys, "show", experiment, "--json"))["copies"]

    assert f"copies at {bucket}/mine: 6 checkpoints, the newest saved " in shown and "nothing is waiting" in shown
    assert (copy["place"], copy["checkpoints"], copy["lacking"]) == (f"{bucket}/mine", 6, 0)
    assert "not here" in answer(capsys, "show", experiment, "0")
    assert json.loads(answer(capsys, "show", ran(None, tmp_path / "alone"), "--json"))["copies"] == []


@pytest.mark.parametrize("new", ["here", "there"])
def test_show_names_no_copies_of_the_experiment_that_was_continued(
    new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = ran(f"{tmp_path}/old", tmp_path / "first")
    there = f"{tmp_path}/new/mine"
    tune.run(
        counts,
        restore=f"{tmp_path}/old/mine" if new == "there" else old,
        name="mine",
        storage_path=tmp_path / "second",
        sync_config=tune.SyncConfig(upload_dir=f"{tmp_path}/new", syncer="auto" if new == "there" else None),
        executor="inline",
        verbose=0,
    )
    copies = json.loads(answer(capsys, "show", tmp_path / "second" / "mine", "--json"))["copies"]
    trial = json.loads(answer(capsys, "show", tmp_path / "second" / "mine", "0", "--json"))

    assert [(copy["place"], copy["checkpoints"], copy["lacking"]) for copy in copies] == (
        [(there, 6, 0)] if new == "there" else []
    )
    assert [item["copies"] for item in trial["checkpoints"]] == [[there] if new == "there" else []] * 3


def saves_and_fails(config: dict[str, Any]) -> None:
    found = tune.get_checkpoint()
    begun = found.to_dict()["step"] if found else 0
    for step in range(begun + 1, 4):
        saved = tune.Checkpoint.from_dict({"step": step}) if config["saves"] else None
        tune.report({"loss": 1 / step}, checkpoint=saved)
        if step == begun + 2:
            raise ValueError("no luck")


def test_show_of_a_trial_tells_its_attempts_and_the_metric_of_its_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune.run(
        saves_and_fails, config={"saves": True}, metric="loss", mode="min", max_failures=1, name="e",
        storage_path=tmp_path, executor="inline", verbose=0,
    )  # fmt: skip
    said = answer(capsys, "show", tmp_path / "e", "0")
    facts = json.loads(answer(capsys, "show", tmp_path / "e", "0", "--json"))

    assert said.splitlines()[0].split() == [facts["name"], "done", "iteration", "3"]
    assert "\nended: returned\nearlier attempts: 1\n  1: failed after iteration 2; went on from iteration 2\n" in said
    assert facts["attempts"] == [{"why": "failed", "iteration": 2, "went_on_from": 2, "donor": None}]
    assert (facts["status"], facts["state"]) == ("TERMINATED", "done")
    assert [item["metrics"] for item in facts["checkpoints"]] == [{"loss": 1 / step} for step in (1, 2, 3)]
    assert "  loss=0.33333\n" in said


@pytest.mark.parametrize(("saves", "how"), [(True, " from its checkpoints"), (False, "")])
def test_show_says_how_one_that_was_not_finished_goes_on(
    saves: bool, how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(tune.TuneError):
        tune.run(
            saves_and_fails, config={"saves": saves}, num_samples=3, fail_fast=True, name="e",
            storage_path=tmp_path, executor="inline", verbose=0,
        )  # fmt: skip
    _, head, to_go_on, *_ = answer(capsys, "show", tmp_path / "e").splitlines()

    assert head.startswith("stopped by fail_fast; 1 of 3 trials (1 failed); ")
    assert to_go_on == f"to continue{how}: the same call with name='e' and resume=\"AUTO\""
